"""Rigid bodies as meshes in flat torch arrays, and rigid-body motion on them.

Many scenes share one set of arrays, so that one call of a network serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.box import SUBSTEPS
from clashsim.core.convex_mesh import ConvexBody

_SMALL_ANGLE_SQUARED = 1e-8  # rad^2: below this, trigonometric quotients are taken by their series
_TINY_ANGLE_SQUARED = 1e-24  # rad^2: keeps roots and divisions differentiable at zero


# Faces are moved inwards by this share of the unit of length for collision detection, so that
# bodies in contact are still apart and their nearest points unique.
SKIN = 0.08


@dataclass(frozen=True, eq=False)
class RigidBodies:
    """O bodies with V corners and F faces in all; only bodies of the same scene collide.

    In training all bodies have places for the same number of corners and faces. Places that are not
    used have a `real` of 0 and a normal of zero.

    Attributes:
        corner: (V, 3), m, from the body's centre of mass, principal axes.
        inner: (V, 3), m, the same corners after all faces were moved inwards by `SKIN`.
        owner: (V,), body that a corner belongs to.
        real: (V,), 1 for a corner, 0 for an unused place.
        face: (F, 3), corners of each face.
        face_owner: (F,), body that a face belongs to.
        first_face: (O + 1,), index of each body's first face; those of a body are successive.
        normal: (F, 3), outward, principal axes.
        mass: (O,), kg.
        inertia: (O, 3), kg m^2, principal moments.
        length: (O,), m, the network's unit of length in the body's scene.
        contact: (O, c), contact parameters of the scene, each scaled to [-1, 1] over its range.
        scene: (O,), scene that a body belongs to.
        drag: (O,), 1/s, rate at which velocity decays in flight.
        rounding: (O,), m, how far the surface lies outside of the mesh.
    """

    corner: Tensor
    inner: Tensor
    owner: Tensor
    real: Tensor
    face: Tensor
    face_owner: Tensor
    first_face: Tensor
    normal: Tensor
    mass: Tensor
    inertia: Tensor
    length: Tensor
    contact: Tensor
    scene: Tensor
    drag: Tensor
    rounding: Tensor

    def __len__(self) -> int:
        return len(self.mass)

    @staticmethod
    def of(
        bodies: Sequence[ConvexBody],
        contact: np.ndarray,
        *,
        length: float,
        scenes: int = 1,
        drag: float = 0.0,
        rounding: float = 0.0,
    ) -> RigidBodies:
        """Make the bodies of several scenes that hold the same bodies.

        Args:
            bodies: The k bodies of each scene.
            contact: (c,) or (scenes k, c), contact parameters on the unit scale.
            length: m, the network's unit of length.
            scenes: Number of scenes.
            drag: 1/s, rate at which the velocity of all bodies decays in flight.
            rounding: m, how far the surface of all bodies lies outside of their meshes.
        """
        k = len(bodies)
        count = k * scenes
        flat = [flat_mesh(body, SKIN * length) for body in bodies]
        corner_counts = [len(mesh.corner) for mesh in flat]
        face_counts = [len(mesh.face) for mesh in flat]
        first_corner = np.concatenate([[0], np.cumsum(corner_counts * scenes)])
        faces = [
            mesh.face + first for mesh, first in zip(flat * scenes, first_corner, strict=False)
        ]
        corner = np.concatenate([mesh.corner for mesh in flat])
        contact_rows = np.broadcast_to(contact, (count, np.shape(contact)[-1])).copy()
        body = torch.arange(count)
        return RigidBodies(
            corner=_doubles(np.tile(corner, (scenes, 1))),
            inner=_doubles(np.tile(np.concatenate([mesh.inner for mesh in flat]), (scenes, 1))),
            owner=body.repeat_interleave(torch.tensor(corner_counts * scenes)),
            real=torch.ones(len(corner) * scenes, dtype=torch.float64),
            face=torch.as_tensor(np.concatenate(faces)),
            face_owner=body.repeat_interleave(torch.tensor(face_counts * scenes)),
            first_face=torch.as_tensor(np.concatenate([[0], np.cumsum(face_counts * scenes)])),
            normal=_doubles(np.tile(np.concatenate([mesh.normal for mesh in flat]), (scenes, 1))),
            mass=_doubles([body.mass for body in bodies] * scenes),
            inertia=_doubles([body.inertia for body in bodies] * scenes),
            length=torch.full((count,), length, dtype=torch.float64),
            contact=_doubles(contact_rows),
            scene=torch.arange(scenes).repeat_interleave(k),
            drag=torch.full((count,), drag, dtype=torch.float64),
            rounding=torch.full((count,), rounding, dtype=torch.float64),
        )

    def to(self, device: str | torch.device) -> RigidBodies:
        """The same bodies on another device."""
        moved = {field.name: getattr(self, field.name).to(device) for field in fields(self)}
        return replace(self, **moved)


@dataclass(frozen=True, eq=False)
class FlatMesh:
    """The meshes of one body as single arrays, principal axes.

    Attributes:
        corner: (v, 3), m, from the centre of mass.
        inner: (v, 3), m, the corners after the faces were moved inwards.
        face: (f, 3), corners of each face.
        normal: (f, 3), outward.
    """

    corner: np.ndarray
    inner: np.ndarray
    face: np.ndarray
    normal: np.ndarray


def flat_mesh(body: ConvexBody, skin: float) -> FlatMesh:
    """The meshes of a body, their faces moved inwards by `skin` (m)."""
    parts = body.principal_parts()
    first = np.concatenate([[0], np.cumsum([len(part.corners) for part in parts])])
    return FlatMesh(
        corner=np.concatenate([part.corners for part in parts]),
        inner=np.concatenate([part.shrunk(skin) for part in parts]),
        face=np.concatenate([part.faces + k for part, k in zip(parts, first, strict=False)]),
        normal=np.concatenate([part.normals() for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class RigidBodyState:
    """Motion of O bodies, world axes.

    Attributes:
        position: (O, 3), m, of the centre of mass.
        orientation: (O, 3, 3), rotation matrices from body to world axes.
        velocity: (O, 3), m/s, of the centre of mass.
        angular_velocity: (O, 3), rad/s.
    """

    position: Tensor
    orientation: Tensor
    velocity: Tensor
    angular_velocity: Tensor

    def to(self, device: str | torch.device) -> RigidBodyState:
        """The same state on another device."""
        return RigidBodyState(*(getattr(self, field.name).to(device) for field in fields(self)))


def gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """values[rows] for rows of any shape; index_select's gradient is a sum and needs no sorting."""
    return values.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *values.shape[1:])


def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Vector product along an axis."""
    return torch.linalg.cross(a, b, dim=dim)


def rotate(rotation: Tensor, vector: Tensor) -> Tensor:
    """Rotation matrices (..., 3, 3) times vectors (..., 3)."""
    return (rotation @ vector[..., None])[..., 0]


def rotate_inverse(rotation: Tensor, vector: Tensor) -> Tensor:
    """Transposed rotation matrices (..., 3, 3) times vectors (..., 3)."""
    return (rotation.transpose(-1, -2) @ vector[..., None])[..., 0]


def rotate_columns_inverse(rotation: Tensor, vector: Tensor) -> Tensor:
    """Transposed rotation matrices (3, 3, ...) times vectors (3, ...)."""
    return (rotation * vector[:, None]).sum(0)


def rotation_from_vector(vector: Tensor) -> Tensor:
    """Rotation matrices (..., 3, 3) of rotation vectors (..., 3), rad; smooth at zero."""
    angle_squared = (vector * vector).sum(-1)[..., None, None]
    angle = torch.sqrt(angle_squared + _TINY_ANGLE_SQUARED)
    zero = torch.zeros_like(vector[..., 0])
    x, y, z = vector.unbind(-1)
    entries = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1)
    skew = entries.reshape(*vector.shape[:-1], 3, 3)
    # Rodrigues' formula; near zero its coefficients by their series.
    small = angle_squared < _SMALL_ANGLE_SQUARED
    first = torch.where(small, 1 - angle_squared / 6, torch.sin(angle) / angle)
    second = torch.where(
        small,
        0.5 - angle_squared / 24,
        (1 - torch.cos(angle)) / (angle_squared + _TINY_ANGLE_SQUARED),
    )
    identity = torch.eye(3, dtype=vector.dtype, device=vector.device)
    return identity + first * skew + second * (skew @ skew)


def free_motion(
    bodies: RigidBodies, state: RigidBodyState, gravity: Tensor, dt: float
) -> RigidBodyState:
    """The state after one step without contact.

    The network is trained on MuJoCo, which takes `SUBSTEPS` of semi-implicit Euler's method in a
    step, so that a body falls by dt^2 g (1 + 1 / SUBSTEPS) / 2. Positions here fall as far.

    Args:
        bodies: The bodies.
        state: At the beginning of the step.
        gravity: (3,) or (O, 3), m/s^2, world axes.
        dt: s, duration of the step.
    """

    def torque_free(angular: Tensor) -> Tensor:
        """Angular acceleration in body axes, by Euler's equations."""
        return -cross(angular, bodies.inertia * angular) / bodies.inertia

    angular = rotate_inverse(state.orientation, state.angular_velocity)
    angular_middle = angular + 0.5 * dt * torque_free(angular)
    angular_after = angular + dt * torque_free(angular_middle)
    rotation = rotation_from_vector(dt * 0.5 * (angular + angular_after))
    orientation = state.orientation @ rotation
    kept = torch.exp(-bodies.drag * dt)[:, None]  # share of the velocity that drag leaves
    velocity = kept * state.velocity + dt * gravity
    position = (
        state.position
        + dt * 0.5 * (1 + kept) * state.velocity
        + 0.5 * (1 + 1 / SUBSTEPS) * dt * dt * gravity
    )
    return RigidBodyState(position, orientation, velocity, rotate(orientation, angular_after))


def _doubles(values: Sequence[object] | np.ndarray) -> Tensor:
    """Values as a tensor of 64-bit floats."""
    return torch.tensor(np.array(values), dtype=torch.float64)
