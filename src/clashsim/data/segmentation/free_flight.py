"""The state at which a tossed body starts, from a fit over its free flight before the first
contact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.trials import Trial

CLEAR = 0.006  # m: below this height of the lowest corner a frame may already be in contact
_FEWEST = 4


@dataclass(frozen=True, eq=False)
class Flight:
    """One toss, ready to be started anywhere that agrees with its flight.

    position (T, 3) m, rotation (T, 3, 3), dt (s); frames: how many of them are flight; spin (3,)
    rad/s, world axes, at frame 0;
    turn (3, 3): the first rotation, as fitted. The start is linear in the centre of mass and in
    gravity: see `start`.
    """

    name: str
    position: np.ndarray
    rotation: np.ndarray
    dt: float
    frames: int
    angular_velocity: np.ndarray
    orientation: np.ndarray

    @property
    def quaternion(self) -> np.ndarray:
        """Orientations (T, 4), wxyz."""
        return Rotation.from_matrix(self.rotation).as_quat(scalar_first=True)

    def start(self, centre: np.ndarray, gravity: np.ndarray | float) -> np.ndarray:
        """qpos and qvel (m, 13) for centres of mass (m, 3), m in the body's axes, and gravities
        (m,), m/s^2.

        It is the centre of mass that flies on a parabola; the origin, which was recorded, turns
        about it.
        """
        centre = np.atleast_2d(centre)
        gravity = np.broadcast_to(gravity, (len(centre),))
        n = self.frames
        t = np.arange(n) * self.dt
        weights = np.linalg.pinv(
            np.stack([np.ones(n), t], 1)
        )  # (2, n): place and velocity at frame 0
        fall = np.stack([np.zeros(n), np.zeros(n), -0.5 * t**2], 1)
        flown = (
            self.position[:n]
            + np.einsum("nij,mj->mni", self.rotation[:n], centre)
            - gravity[:, None, None] * fall
        )
        place, velocity = np.moveaxis(np.einsum("kn,mni->mki", weights, flown), 1, 0)
        arm = centre @ self.orientation.T
        out = np.empty((len(centre), 13))
        out[:, :3] = place - arm
        out[:, 3:7] = Rotation.from_matrix(self.orientation).as_quat(scalar_first=True)
        out[:, 7:10] = velocity - np.cross(self.angular_velocity, arm)
        out[:, 10:] = self.orientation.T @ self.angular_velocity
        return out

    def fall(self) -> tuple[float, float]:
        """Downward acceleration (m/s^2) of the recorded origin in flight, and its weight in a mean
        over tosses; 0, 0 for too short a flight.
        """
        n = self.frames
        if n < 6:
            return 0.0, 0.0
        t = np.arange(n) * self.dt
        return -2 * float(np.polyfit(t, self.position[:n, 2], 2)[0]), float(n) ** 5


def fit_flight(trial: Trial, body: str, corners: np.ndarray) -> Flight:
    """Fit the flight of a body with corners (c, 3), in its axes, over a floor at z = 0; frames must
    be evenly spaced.
    """
    t, pose = trial.seen(body)
    steps = np.diff(t)
    if len(t) < _FEWEST or np.ptp(steps) > 0.02 * steps.mean():
        raise DataError(
            f"trial {trial.name!r}: body {body!r} needs at least {_FEWEST} evenly spaced frames"
        )
    turns = Rotation.from_quat(pose[:, 3:], scalar_first=True)
    matrices = turns.as_matrix()
    lowest = (pose[:, None, 2] + np.einsum("tj,cj->tc", matrices[:, 2], corners)).min(1)
    low = np.flatnonzero(lowest < CLEAR)
    frames = max(int(low[0]) if len(low) else len(t), 2)
    dt = float(steps.mean())
    return _begun(trial.name, pose[:, :3], matrices, dt, frames)


def cut_windows(whole: Flight, frames: int, every: int) -> list[Flight]:
    """Pieces of `frames` frames, one every so many: each starts from what its first three frames
    say, in the air or not.

    Three frames tell a velocity worse than a flight does, and a piece that starts in contact has no
    parabola: whole tosses identify better.
    """
    if frames < _FEWEST or every < 1:
        raise DataError(
            f"windows need at least {_FEWEST} frames and a step of at least 1, got {frames} and {every}"
        )
    return [
        _begun(
            f"{whole.name}@{k}",
            whole.position[k : k + frames],
            whole.rotation[k : k + frames],
            whole.dt,
            3,
        )
        for k in range(0, len(whole.position) - frames + 1, every)
    ]


def _begun(name: str, position: np.ndarray, rotation: np.ndarray, dt: float, frames: int) -> Flight:
    """The spin and first rotation that fit the first `frames`: R(t) = exp(spin t) R(0), for a body
    whose inertia is nearly even.
    """
    turns, middle = Rotation.from_matrix(rotation[:frames]), frames // 2
    vectors = (turns * turns[middle].inv()).as_rotvec()
    at = (np.arange(frames) - middle) * dt
    spin, offset = np.linalg.lstsq(np.stack([at, np.ones(frames)], 1), vectors, rcond=None)[0]
    turn = (Rotation.from_rotvec(offset + spin * at[0]) * turns[middle]).as_matrix()
    return Flight(name, position, rotation, dt, frames, spin, turn)


def gravity(flights: Sequence[Flight]) -> float:
    """Gravity (m/s^2) in recorded metres, as the flights tell it; 9.81 where none is long enough."""
    values, weights = np.array([f.fall() for f in flights]).T
    return float((values * weights).sum() / weights.sum()) if weights.sum() > 0 else 9.81
