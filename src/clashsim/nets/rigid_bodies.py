"""Rigid bodies as meshes in flat torch arrays, and rigid-body motion on them.

Many scenes share one set of arrays, so that one call of a network serves all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.box import SUBSTEPS, Box

# Triangles of a box, as indices into `Box.corners`, counter-clockwise as seen from outside.
TRIANGLES = np.array(
    [
        [0, 1, 3],
        [0, 3, 2],
        [4, 6, 7],
        [4, 7, 5],
        [0, 4, 5],
        [0, 5, 1],
        [2, 3, 7],
        [2, 7, 6],
        [0, 2, 6],
        [0, 6, 4],
        [1, 5, 7],
        [1, 7, 3],
    ]
)
CORNERS_PER_BOX = 8
FACES_PER_BOX = 12
_POLAR_ITERATIONS = 6  # of Newton's method for the polar factor; it starts near a rotation
_SMALL_ANGLE_SQUARED = 1e-8  # rad^2: below this, trigonometric quotients are taken by their series
_TINY_ANGLE_SQUARED = 1e-24  # rad^2: keeps roots and divisions differentiable at zero


@dataclass(frozen=True, eq=False)
class RigidBodies:
    """O bodies with V corners and F faces in all; only bodies of the same scene collide.

    Attributes:
        corner: (V, 3), m, from the body's centre of mass, body axes.
        owner: (V,), body that a corner belongs to.
        face: (F, 3), corners of each face.
        face_owner: (F,), body that a face belongs to.
        normal: (F, 3), outward, body axes.
        edge: (2, E), mesh edges between corners, in both directions.
        mass: (O,), kg.
        inertia: (O, 3), kg m^2, along the body's axes.
        centre: (O, 3), m, centre of mass in the axes of the body's origin.
        contact: (O, c), contact parameters of the scene, each scaled to [-1, 1] over its range.
        scene: (O,), scene that a body belongs to.
        drag: (O,), 1/s, rate at which velocity decays in flight.
        rounding: (O,), m, how far the surface lies outside of the mesh.
    """

    corner: Tensor
    owner: Tensor
    face: Tensor
    face_owner: Tensor
    normal: Tensor
    edge: Tensor
    mass: Tensor
    inertia: Tensor
    centre: Tensor
    contact: Tensor
    scene: Tensor
    drag: Tensor
    rounding: Tensor

    def __len__(self) -> int:
        return len(self.mass)

    @staticmethod
    def boxes(
        boxes: Sequence[Box],
        contact: np.ndarray,
        *,
        scene: Sequence[int] | None = None,
        drag: float = 0.0,
        rounding: float = 0.0,
    ) -> RigidBodies:
        """Make bodies of O boxes.

        Args:
            boxes: The boxes.
            contact: (c,) or (O, c), contact parameters on the unit scale.
            scene: Index of each box's scene; by default each box has a scene of its own.
            drag: 1/s, rate at which the velocity of all boxes decays in flight.
            rounding: m, how far the surface of all boxes lies outside of their meshes.
        """
        count = len(boxes)
        contact_rows = np.broadcast_to(contact, (count, np.shape(contact)[-1])).copy()
        if scene is None:
            scene_of_body = torch.arange(count)
        else:
            scene_of_body = torch.as_tensor(list(scene))
        return boxes_from_tensors(
            BoxTensors(
                half=_doubles([box.half for box in boxes]),
                mass=_doubles([box.mass for box in boxes]),
                inertia=_doubles([box.inertia for box in boxes]),
                centre=_doubles([box.centre for box in boxes]),
                contact=_doubles(contact_rows),
                scene=scene_of_body,
                drag=torch.full((count,), drag, dtype=torch.float64),
                rounding=torch.full((count,), rounding, dtype=torch.float64),
            )
        )

    def to(self, device: str | torch.device) -> RigidBodies:
        """The same bodies on another device."""
        moved = {field.name: getattr(self, field.name).to(device) for field in fields(self)}
        return replace(self, **moved)


@dataclass(frozen=True, eq=False)
class BoxTensors:
    """O boxes as tensors; `boxes_from_tensors` keeps the gradients of their sizes and inertias.

    Attributes:
        half: (O, 3), m, half sizes.
        mass: (O,), kg.
        inertia: (O, 3), kg m^2, along the box's axes.
        centre: (O, 3), m, centre of mass in the box's axes.
        contact: (O, c), contact parameters of the scene, each scaled to [-1, 1] over its range.
        scene: (O,), scene that a box belongs to.
        drag: (O,), 1/s, as in `RigidBodies`.
        rounding: (O,), m, as in `RigidBodies`.
    """

    half: Tensor
    mass: Tensor
    inertia: Tensor
    centre: Tensor
    contact: Tensor
    scene: Tensor
    drag: Tensor
    rounding: Tensor


def boxes_from_tensors(boxes: BoxTensors) -> RigidBodies:
    """Make bodies of boxes, with the gradients of half sizes, inertias and centres."""
    half = boxes.half
    device = half.device
    body = torch.arange(len(half), device=device)
    signs = torch.tensor(
        list(itertools.product((-1, 1), repeat=3)), dtype=half.dtype, device=device
    )
    corner = (signs * half[:, None] - boxes.centre[:, None]).reshape(-1, 3)
    first_corner = CORNERS_PER_BOX * body
    triangles = torch.as_tensor(TRIANGLES, device=device)
    face = (triangles + first_corner[:, None, None]).reshape(-1, 3)
    a, b, c = (corner.detach()[face[:, i]] for i in range(3))
    normal = torch.nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=-1)
    edges = torch.tensor(_box_edges(), device=device).T
    edge = (edges[:, None] + first_corner[:, None]).reshape(2, -1)
    return RigidBodies(
        corner=corner,
        owner=body.repeat_interleave(CORNERS_PER_BOX),
        face=face,
        face_owner=body.repeat_interleave(FACES_PER_BOX),
        normal=normal,
        edge=edge,
        mass=boxes.mass,
        inertia=boxes.inertia,
        centre=boxes.centre,
        contact=boxes.contact,
        scene=boxes.scene.to(device),
        drag=boxes.drag,
        rounding=boxes.rounding,
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


def gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """values[rows] for rows of any shape; index_select's gradient is a sum and needs no sorting."""
    return values.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *values.shape[1:])


def cross(a: Tensor, b: Tensor) -> Tensor:
    """Vector product along the last axis."""
    return torch.linalg.cross(a, b, dim=-1)


def rotate(rotation: Tensor, vector: Tensor) -> Tensor:
    """Rotation matrices (..., 3, 3) times vectors (..., 3)."""
    return (rotation @ vector[..., None])[..., 0]


def rotate_inverse(rotation: Tensor, vector: Tensor) -> Tensor:
    """Transposed rotation matrices (..., 3, 3) times vectors (..., 3)."""
    return (rotation.transpose(-1, -2) @ vector[..., None])[..., 0]


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


def match_shape(bodies: RigidBodies, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Find the rigid bodies nearest to moved corners, by shape matching (Mueller et al. 2005).

    The orientation is the polar factor by Newton's iteration. Through a singular value
    decomposition the gradients of a cube, whose singular values are all the same, are not finite.

    Args:
        bodies: The bodies.
        nodes: (V, 3), m, where their corners have moved to, world axes.

    Returns:
        Positions (O, 3), m, of the centres of mass, and orientations (O, 3, 3), body to world axes.
    """
    count = len(bodies)
    corner_count = torch.zeros(count, dtype=nodes.dtype, device=nodes.device).index_add(
        0, bodies.owner, torch.ones_like(nodes[:, 0])
    )[:, None]

    def mean_of_corners(values: Tensor) -> Tensor:
        """Mean (O, c) over the corners of each body, of values (V, c)."""
        zero = torch.zeros(count, values.shape[-1], dtype=nodes.dtype, device=nodes.device)
        return zero.index_add(0, bodies.owner, values) / corner_count

    def mean_product(a: Tensor, b: Tensor) -> Tensor:
        """Mean (O, 3, 3) of outer products of vectors (V, 3)."""
        return mean_of_corners((a[:, :, None] * b[:, None]).reshape(-1, 9)).reshape(-1, 3, 3)

    rest_mean = mean_of_corners(bodies.corner)
    moved_mean = mean_of_corners(nodes)
    moved = nodes - gather_rows(moved_mean, bodies.owner)
    rest = bodies.corner - gather_rows(rest_mean, bodies.owner)
    # The linear map that fits best, near a rotation: the covariance of moved and rest corners times
    # the inverse of that at rest, which is symmetric, so that its transpose does not matter.
    orientation = mean_product(moved, rest) @ _inverse_transposed(mean_product(rest, rest))
    for _ in range(_POLAR_ITERATIONS):
        orientation = 0.5 * (orientation + _inverse_transposed(orientation))
    return moved_mean - rotate(orientation, rest_mean), orientation


def _doubles(values: Sequence[object] | np.ndarray) -> Tensor:
    """Values as a tensor of 64-bit floats."""
    return torch.tensor(np.array(values), dtype=torch.float64)


def _box_edges() -> list[tuple[int, int]]:
    """Edges of a box's triangles, in both directions."""
    edges = set()
    for triangle in TRIANGLES.tolist():
        for first, second in itertools.pairwise([*triangle, triangle[0]]):
            edges.add((min(first, second), max(first, second)))
    forward = sorted(edges)
    backward = [(second, first) for first, second in forward]
    return forward + backward


def _inverse_transposed(matrix: Tensor) -> Tensor:
    """Inverses of transposed matrices (..., 3, 3), by vector products of their columns."""
    a, b, c = matrix.unbind(-1)
    b_cross_c = cross(b, c)
    determinant = (a * b_cross_c).sum(-1)[..., None, None]
    return torch.stack([b_cross_c, cross(c, a), cross(a, b)], -1) / determinant
