"""Recorded tosses as tensors, to compare rollouts of a graph network with."""

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
    """n tosses of T frames.

    Attributes:
        position: Of the recorded origin (n, T, 3), m.
        orientation: (n, T, 3, 3).
        recorded: Which frames were recorded (n, T).
        fit_weights: Weights (n, 2, T) that fit position and velocity at frame 0 to the flight.
        angular_velocity: At frame 0 (n, 3), rad/s, world axes.
        first_orientation: At frame 0, as fitted (n, 3, 3).
        contact_frames: Frame of the first contact (n,).
        dt: Time from frame to frame, s.
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
        """Tosses from flights; the last pose is repeated to fill up.

        Args:
            flights: The recorded flights.
            longest: Most frames of a toss.
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
        """States at frame 0, on the parabolas of the mass centres that fit the flights.

        Velocities are in the simulator's convention (`free_motion`).

        Args:
            centre: Mass centre (3,) in the body's axes, m.
            gravity: (1,), m/s^2.
        """
        t = torch.arange(self.position.shape[1], dtype=torch.float64) * self.dt
        zero = torch.zeros(len(t), dtype=torch.float64)
        fall = torch.stack([zero, zero, -0.5 * t**2], 1) * gravity
        arm = rotate(self.orientation, centre.expand_as(self.position))
        straight = self.position + arm - fall
        position, velocity = torch.einsum("nkt,nti->kni", self.fit_weights, straight)
        # The velocities of the network's training data run half a substep ahead.
        none = torch.zeros((), dtype=torch.float64)
        ahead = torch.stack([none, none, gravity[0] * self.dt / (2 * SUBSTEPS)])
        return RigidBodyState(
            position, self.first_orientation, velocity + ahead, self.angular_velocity
        )
