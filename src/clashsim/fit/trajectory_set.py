"""Simulated trajectories of boxes as tensors, and windows cut out of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.nets.rigid_bodies import (
    BoxTensors,
    RigidBodies,
    RigidBodyState,
    boxes_from_tensors,
    cross,
    rotate,
)

_MOVING = 0.02  # m/s or rad/s, above which a body moves
_STILL_SHARE = 0.1  # share of the windows that begin at rest that is kept, as they teach little
# Columns of a body's motion; the orientation is a flattened matrix.
_POSITION = slice(0, 3)
_ORIENTATION = slice(3, 12)
_VELOCITY = slice(12, 15)
_ANGULAR_VELOCITY = slice(15, 18)
_MOTION_SIZE = 18


@dataclass(frozen=True, eq=False)
class Window:
    """Windows of trajectories as one batch of O bodies.

    Attributes:
        bodies: Properties of the bodies.
        motion: Motion of the bodies (length + 1, O, 18): position, orientation, velocity, angular
            velocity of the mass centre in world axes.
        gravity: Acceleration of each body (O, 3), m/s^2.
        pairs: Indices (P, 2) of bodies that may collide; None if each body is alone in its scene.
    """

    bodies: RigidBodies
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

    @property
    def length(self) -> int:
        """Time steps of the windows."""
        return len(self.motion) - 1


@dataclass(frozen=True, eq=False)
class TrajectorySet:
    """Trajectories of k boxes each, on a device.

    Attributes:
        motion: Motion (n, T, k, 18) of mass centres in world axes: position, orientation as a
            matrix, velocity, angular velocity.
        boxes: Properties of the boxes, as `scale_data` returns them.
        starts: Indices (w, 2) of trajectory and first frame of the windows for training.
        dt: Time between frames, s.
    """

    motion: Tensor
    boxes: Mapping[str, Tensor]
    starts: Tensor
    dt: float

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], dt: float, device: str, longest: int) -> TrajectorySet:
        """Trajectories from arrays.

        Args:
            arrays: States and boxes, as `scale_data` returns them.
            dt: Time between frames, s.
            device: Torch device.
            longest: Time steps of the longest window that will be cut out.

        Returns:
            The set.
        """
        n, t, _ = arrays["states"].shape
        k = arrays["mass"].shape[1]
        states = torch.tensor(arrays["states"], dtype=torch.float64, device=device)
        qpos = states[..., : 7 * k].reshape(n, t, k, 7)
        qvel = states[..., 7 * k :].reshape(n, t, k, 6)
        boxes = {}
        for name, array in arrays.items():
            if name != "states":
                boxes[name] = torch.tensor(array, dtype=torch.float64, device=device)
        orientation = _rotation_matrices(qpos[..., 3:])
        arm = rotate(orientation, boxes["centre"][:, None].expand(n, t, k, 3))
        angular_velocity = rotate(orientation, qvel[..., 3:])
        columns = [
            qpos[..., :3] + arm,
            orientation.flatten(-2),
            qvel[..., :3] + cross(angular_velocity, arm),
            angular_velocity,
        ]
        motion = torch.cat(columns, -1)
        fastest = motion[..., _VELOCITY.start :].abs().amax(-1)
        moving = (fastest > _MOVING).any(2)  # (n, T)
        chance = torch.rand(moving.shape, generator=torch.Generator().manual_seed(0))
        keep = moving | (chance.to(device) < _STILL_SHARE)
        keep[:, max(t - longest, 1) :] = False
        return TrajectorySet(motion, boxes, torch.nonzero(keep), dt)

    def window(self, rows: Tensor, length: int) -> Window:
        """Cut out windows.

        Args:
            rows: Indices (b, 2) of trajectory and first frame of each window.
            length: Time steps of the windows.

        Returns:
            The windows as one batch of b k bodies.
        """
        trajectory = rows[:, 0]
        first = rows[:, 1]
        device = rows.device
        b = len(rows)
        k = self.motion.shape[2]
        frames = first[:, None] + torch.arange(length + 1, device=device)
        motion = self.motion[trajectory[:, None], frames].permute(1, 0, 2, 3)
        boxes = {name: tensor[trajectory] for name, tensor in self.boxes.items()}
        tensors = BoxTensors(
            half=boxes["half"].reshape(-1, 3),
            mass=boxes["mass"].reshape(-1),
            inertia=boxes["inertia"].reshape(-1, 3),
            centre=boxes["centre"].reshape(-1, 3),
            contact=boxes["contact"].repeat_interleave(k, 0),
            scene=torch.arange(b, device=device).repeat_interleave(k),
            drag=torch.zeros(b * k, dtype=torch.float64, device=device),
            rounding=boxes["rounding"].reshape(-1),
        )
        bodies = boxes_from_tensors(tensors)
        gravity = torch.zeros(b * k, 3, dtype=torch.float64, device=device)
        gravity[:, 2] = -boxes["gravity"].repeat_interleave(k)
        return Window(
            bodies,
            motion.reshape(length + 1, -1, _MOTION_SIZE),
            gravity,
            all_pairs(b, k, device),
        )


def all_pairs(scenes: int, k: int, device: str | torch.device) -> Tensor | None:
    """Indices (P, 2) of all pairs of bodies within each scene of k bodies; None if k is 1."""
    if k == 1:
        return None
    in_first = torch.triu_indices(k, k, 1, device=device).T
    first_body = k * torch.arange(scenes, device=device)
    return (in_first + first_body[:, None, None]).reshape(-1, 2)


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
