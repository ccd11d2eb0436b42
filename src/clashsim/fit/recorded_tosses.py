"""Recorded tosses as tensors, for comparison with rollouts of a graph network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.core.box import SUBSTEPS
from clashsim.data.segmentation.free_flight import Flight
from clashsim.nets.rigid_bodies import RigidBodyState, rotate


@dataclass(frozen=True, eq=False)
class RecordedTosses:
    """n tosses of T frames, padded with their last pose.

    Attributes:
        position: Position of the recorded origin (n, T, 3), m.
        orientation: Rotation matrices (n, T, 3, 3).
        recorded: Mask (n, T) of the frames that were recorded, not padded.
        fit_weights: Weights (n, 2, T) of the frames in the least-squares fit of position and
            velocity at frame 0 to the free flight.
        angular_velocity: Angular velocity at frame 0 (n, 3), rad/s, world axes.
        first_orientation: Fitted rotation matrix at frame 0 (n, 3, 3).
        contact_frames: Index of the frame of the first contact (n,).
        dt: Time between frames, s.
    """

    position: Tensor
    orientation: Tensor
    recorded: Tensor
    fit_weights: Tensor
    angular_velocity: Tensor
    first_orientation: Tensor
    contact_frames: Tensor
    dt: float

    @staticmethod
    def of(flights: Sequence[Flight], longest: int = 110) -> RecordedTosses:
        """Tosses from recorded flights, padded with their last pose to equal length.

        Args:
            flights: The recorded flights.
            longest: Largest number of frames of a toss; later ones are dropped.
        """
        lengths = np.array([len(flight.position) for flight in flights])
        length = min(int(lengths.max()), longest)
        frames = np.arange(length)
        positions = []
        orientations = []
        fit_weights = np.zeros((len(flights), 2, length))
        for i, flight in enumerate(flights):
            filled = np.minimum(frames, lengths[i] - 1)
            positions.append(flight.position[filled])
            orientations.append(flight.rotation[filled])
            n = min(flight.frames, length)
            line = np.stack([np.ones(n), np.arange(n) * flight.dt], 1)
            fit_weights[i, :, :n] = np.linalg.pinv(line)
        return RecordedTosses(
            position=torch.tensor(np.stack(positions)),
            orientation=torch.tensor(np.stack(orientations)),
            recorded=torch.tensor(frames < lengths[:, None]),
            fit_weights=torch.tensor(fit_weights),
            angular_velocity=torch.tensor(
                np.stack([flight.angular_velocity for flight in flights])
            ),
            first_orientation=torch.tensor(np.stack([flight.orientation for flight in flights])),
            contact_frames=torch.tensor([flight.frames for flight in flights]),
            dt=flights[0].dt,
        )

    def start(self, centre: Tensor, gravity: Tensor) -> RigidBodyState:
        """States at frame 0, from parabolas of the mass centre fitted to the free flights.

        Velocities follow the convention of `free_motion`.

        Args:
            centre: Mass centre (3,) from the recorded origin in the body's axes, m.
            gravity: Size of gravity (1,), m/s^2.
        """
        t = torch.arange(self.position.shape[1], dtype=torch.float64) * self.dt
        zero = torch.zeros(len(t), dtype=torch.float64)
        fall = torch.stack([zero, zero, -0.5 * t**2], 1) * gravity
        arm = rotate(self.orientation, centre.expand_as(self.position))
        straight = self.position + arm - fall
        position, velocity = torch.einsum("nkt,nti->kni", self.fit_weights, straight)
        # In the network's training data velocities are offset by half a substep of gravity, since
        # MuJoCo's Euler method moves by the velocity at the end of a substep.
        none = torch.zeros((), dtype=torch.float64)
        offset = torch.stack([none, none, gravity[0] * self.dt / (2 * SUBSTEPS)])
        return RigidBodyState(
            position, self.first_orientation, velocity + offset, self.angular_velocity
        )
