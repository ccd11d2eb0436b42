"""Simulated trajectories of bodies as tensors, and windows cut out of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from clashsim.core.convex_mesh import BOX_TRIANGLES, ConvexMesh
from clashsim.nets.face_search import ContactSearch, SearchPlaces
from clashsim.nets.fixed_surfaces import FixedSurfaces
from clashsim.nets.rigid_bodies import RigidBodies, RigidBodyState

_STILL = 0.003  # of the unit of length per step: slower bodies are at rest
_STILL_SHARE = 0.1  # share of the windows that begin at rest that is kept, as they teach little
# Columns of a body's motion; the orientation is a flattened matrix.
_POSITION = slice(0, 3)
_ORIENTATION = slice(3, 12)
_VELOCITY = slice(12, 15)
_ANGULAR_VELOCITY = slice(15, 18)
_MOTION_SIZE = 18
_INTEGERS = ("face",)


@dataclass(frozen=True, eq=False)
class Window:
    """Windows of trajectories as one batch of O bodies.

    Attributes:
        bodies: Properties of the bodies.
        surfaces: What they touch but do not move.
        motion: Motion of the bodies (length + 1, O, 18): position, orientation, velocity, angular
            velocity of the centre of mass in world axes.
        gravity: Acceleration of each body (O, 3), m/s^2.
        pairs: Indices (P, 2) of bodies that may collide; None if each body is alone in its scene.
    """

    bodies: RigidBodies
    surfaces: FixedSurfaces
    motion: Tensor
    gravity: Tensor
    pairs: Tensor | None

    def state(self, frame: int) -> RigidBodyState:
        """The state of the bodies at a frame."""
        motion = self.motion[frame]
        return RigidBodyState(
            motion[:, _POSITION],
            motion[:, _ORIENTATION].reshape(-1, 3, 3),
            motion[:, _VELOCITY],
            motion[:, _ANGULAR_VELOCITY],
        )

    def search(self, places: SearchPlaces | None, needed: Tensor | None = None) -> ContactSearch:
        """The search for contacts, of constant shapes where `places` is given.

        Args:
            places: Places for results.
            needed: Raised to the places that searches needed, as in `ContactSearch`.
        """
        faces = 0 if places is None else len(self.bodies.face) // len(self.bodies)
        return ContactSearch(self.surfaces, self.pairs, places, needed, faces)

    def overwrite(self, new: Window) -> None:
        """Copy another window of the same shapes into the tensors of this one."""
        for held, fresh in ((self.bodies, new.bodies), (self.surfaces, new.surfaces)):
            for field in fields(held):
                getattr(held, field.name).copy_(getattr(fresh, field.name))
        self.motion.copy_(new.motion)
        self.gravity.copy_(new.gravity)

    @property
    def length(self) -> int:
        """Time steps of the windows."""
        return len(self.motion) - 1


@dataclass(frozen=True, eq=False)
class TrajectorySet:
    """Trajectories of k bodies each, on a device.

    Attributes:
        motion: Motion (n, T, k, 18) of centres of mass in world axes: position, orientation as a
            matrix, velocity, angular velocity.
        scenes: Properties of bodies and surroundings, as `scale_data` returns them.
        starts: Indices (w, 2) of trajectory and first frame of the windows for training.
        dt: Time between frames, s.
    """

    motion: Tensor
    scenes: Mapping[str, Tensor]
    starts: Tensor
    dt: float

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], dt: float, device: str, longest: int) -> TrajectorySet:
        """Trajectories from arrays.

        Args:
            arrays: Motion and scenes, as `scale_data` returns them.
            dt: Time between frames, s.
            device: Torch device.
            longest: Time steps of the longest window that will be cut out.
        """
        scenes = {}
        for name, array in arrays.items():
            if name != "motion":
                dtype = torch.int64 if name in _INTEGERS else torch.float64
                scenes[name] = torch.as_tensor(array).to(device, dtype)
        raw = torch.as_tensor(arrays["motion"]).to(device, torch.float64)
        orientation = _rotation_matrices(raw[..., 3:7])
        motion = torch.cat([raw[..., :3], orientation.flatten(-2), raw[..., 7:]], -1)
        still = _STILL * scenes["length"][:, None, None] / dt
        speed = motion[..., _VELOCITY].norm(dim=-1)
        swing = motion[..., _ANGULAR_VELOCITY].norm(dim=-1) * scenes["length"][:, None, None]
        moving = ((speed > still) | (swing > still)).any(2)  # (n, T)
        chance = torch.rand(moving.shape, generator=torch.Generator().manual_seed(0))
        keep = moving | (chance.to(device) < _STILL_SHARE)
        keep[:, max(motion.shape[1] - longest, 1) :] = False
        return TrajectorySet(motion, scenes, torch.nonzero(keep), dt)

    @property
    def num_bodies(self) -> int:
        """Bodies of each trajectory."""
        return self.motion.shape[2]

    def window(self, rows: Tensor, length: int) -> Window:
        """Cut out windows.

        Args:
            rows: Indices (b, 2) of trajectory and first frame of each window.
            length: Time steps of the windows.

        Returns:
            The windows as one batch of b k bodies.
        """
        trajectory = rows[:, 0]
        device = rows.device
        b = len(rows)
        k = self.num_bodies
        frames = rows[:, 1, None] + torch.arange(length + 1, device=device)
        motion = self.motion[trajectory[:, None], frames].permute(1, 0, 2, 3)
        scenes = {name: tensor[trajectory] for name, tensor in self.scenes.items()}
        return Window(
            _bodies(scenes, b, k),
            _surfaces(scenes),
            motion.reshape(length + 1, -1, _MOTION_SIZE),
            scenes["gravity"].repeat_interleave(k, 0),
            all_pairs(b, k, device),
        )


def all_pairs(scenes: int, k: int, device: str | torch.device) -> Tensor | None:
    """Indices (P, 2) of all pairs of bodies within each scene of k bodies; None if k is 1."""
    if k == 1:
        return None
    in_first = torch.triu_indices(k, k, 1, device=device).T
    first_body = k * torch.arange(scenes, device=device)
    return (in_first + first_body[:, None, None]).reshape(-1, 2)


def _bodies(scenes: Mapping[str, Tensor], b: int, k: int) -> RigidBodies:
    """The bodies of b scenes of k bodies, with places for the same number of corners and faces."""
    device = scenes["mass"].device
    count = b * k
    corners, faces = scenes["corner"].shape[2], scenes["face"].shape[2]
    body = torch.arange(count, device=device)
    first_corner = corners * body
    return RigidBodies(
        corner=scenes["corner"].reshape(-1, 3),
        inner=scenes["inner"].reshape(-1, 3),
        owner=body.repeat_interleave(corners),
        real=scenes["real"].reshape(-1),
        face=(scenes["face"].reshape(count, -1, 3) + first_corner[:, None, None]).reshape(-1, 3),
        face_owner=body.repeat_interleave(faces),
        first_face=faces * torch.arange(count + 1, device=device),
        normal=scenes["normal"].reshape(-1, 3),
        mass=scenes["mass"].reshape(-1),
        inertia=scenes["inertia"].reshape(-1, 3),
        length=scenes["length"].repeat_interleave(k),
        contact=scenes["contact"].repeat_interleave(k, 0),
        scene=torch.arange(b, device=device).repeat_interleave(k),
        drag=torch.zeros(count, dtype=torch.float64, device=device),
        rounding=scenes["rounding"].reshape(-1),
    )


def _surfaces(scenes: Mapping[str, Tensor]) -> FixedSurfaces:
    """Planes and fixed boxes of scenes."""
    planes, fixed = scenes["planes"], scenes["fixed"]
    b, device = len(planes), planes.device
    if fixed.shape[1] == 0:
        triangle = fixed.new_zeros(b, 0, 3, 3)
        polygon = torch.zeros(b, 0, dtype=torch.long, device=device)
    else:
        triangle = fixed[:, torch.as_tensor(BOX_TRIANGLES, device=device)]
        polygons = torch.as_tensor(ConvexMesh.box(np.ones(3)).polygons(), device=device)
        polygon = polygons.repeat(b, 1)
    a, *others = triangle.unbind(2)
    normal = torch.linalg.cross(others[0] - a, others[1] - a, dim=-1)
    return FixedSurfaces(
        planes[..., :3],
        planes[..., 3],
        triangle,
        torch.nn.functional.normalize(normal, dim=-1),
        polygon,
    )


def _rotation_matrices(quaternion: Tensor) -> Tensor:
    """Matrices (..., 3, 3) of quaternions (..., 4), wxyz."""
    w, x, y, z = (quaternion / quaternion.norm(dim=-1, keepdim=True)).unbind(-1)
    entries = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(entries, -1).reshape(*quaternion.shape[:-1], 3, 3)
