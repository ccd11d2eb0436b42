"""The state at which a tossed body starts, from a fit over its free flight before contact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.trials import Trial

# Below this height of the lowest corner a frame may already be in contact.
_CLEAR_HEIGHT = 0.006  # m
_MIN_FRAMES = 4
_MIN_FALL_FRAMES = 6  # that show the acceleration
_MIN_FLIGHT_FRAMES = 2  # which still give a velocity, even if the second may be in contact
_START_FRAMES = 3  # of a window, from which its start is fitted
_MAX_STEP_RANGE = 0.02  # of the mean step, for evenly spaced frames
_STANDARD_GRAVITY = 9.81  # m/s^2


@dataclass(frozen=True, eq=False)
class Flight:
    """One toss, and what its free flight says of the state at which it starts.

    Attributes:
        name: Name of the toss.
        position: Recorded positions (T, 3) of the body's origin, m.
        rotation: Recorded orientations (T, 3, 3), body to world axes.
        dt: Time between frames, s.
        frames: How many of the first frames are free flight, and are fitted.
        angular_velocity: Fitted angular velocity (3,), rad/s, world axes.
        orientation: Fitted orientation (3, 3) at frame 0, body to world axes.
        recorded_start: State (13,) at frame 0 as it was recorded, which is used in place of a
            fitted one; None to fit it.
    """

    name: str
    position: np.ndarray
    rotation: np.ndarray
    dt: float
    frames: int
    angular_velocity: np.ndarray
    orientation: np.ndarray
    recorded_start: np.ndarray | None = None

    @property
    def quaternion(self) -> np.ndarray:
        """Orientations (T, 4), wxyz."""
        return Rotation.from_matrix(self.rotation).as_quat(scalar_first=True)

    def initial_state(self, centre: np.ndarray, gravity: np.ndarray | float) -> np.ndarray:
        """The state at frame 0, which is linear in the mass centre and in gravity.

        The mass centre flies on a parabola. The body's origin, which was recorded, turns about it.
        A recorded start is returned as it is.

        Args:
            centre: Mass centres (m, 3) in the body's axes, m.
            gravity: Gravities (m,) or one for all, m/s^2.

        Returns:
            qpos (7) and qvel (6) side by side (m, 13), as MuJoCo has them for a free joint.
        """
        centre = np.atleast_2d(centre)
        if self.recorded_start is not None:
            return np.tile(self.recorded_start, (len(centre), 1))
        gravity = np.broadcast_to(gravity, (len(centre),))
        t = np.arange(self.frames) * self.dt
        line = np.stack([np.ones(self.frames), t], 1)
        weights = np.linalg.pinv(line)  # (2, frames): position and velocity at frame 0
        zeros = np.zeros(self.frames)
        fall_per_gravity = np.stack([zeros, zeros, -0.5 * t**2], 1)
        # From the origin to the mass centre in world axes, (m, frames, 3).
        arms = np.einsum("nij,mj->mni", self.rotation[: self.frames], centre)
        recorded_centre = self.position[: self.frames] + arms
        without_fall = recorded_centre - gravity[:, None, None] * fall_per_gravity
        fitted = np.einsum("kn,mni->mki", weights, without_fall)
        centre_position = fitted[:, 0]
        centre_velocity = fitted[:, 1]
        start_arm = centre @ self.orientation.T
        state = np.empty((len(centre), 13))
        state[:, :3] = centre_position - start_arm
        state[:, 3:7] = Rotation.from_matrix(self.orientation).as_quat(scalar_first=True)
        state[:, 7:10] = centre_velocity - np.cross(self.angular_velocity, start_arm)
        # MuJoCo has the angular velocity of a free joint in the body's axes.
        state[:, 10:] = self.orientation.T @ self.angular_velocity
        return state

    def downward_acceleration(self) -> tuple[float, float]:
        """Downward acceleration of the recorded origin, and its weight in a mean over tosses.

        Returns:
            The acceleration (m/s^2) and the weight; 0 and 0 for a flight that is too short.
        """
        if self.frames < _MIN_FALL_FRAMES:
            return 0.0, 0.0
        t = np.arange(self.frames) * self.dt
        parabola = np.polyfit(t, self.position[: self.frames, 2], 2)
        # The variance of a fitted acceleration falls with the fifth power of the frames.
        return -2 * float(parabola[0]), float(self.frames) ** 5


def fit_flight(trial: Trial, body: str, corners: np.ndarray) -> Flight:
    """Fit the flight of a body over a floor at z = 0.

    Args:
        trial: The toss, with evenly spaced frames.
        body: Name of the body.
        corners: Corners (c, 3) of the body in its axes, m.

    Returns:
        The flight up to the first frame that may be in contact.
    """
    t, pose = trial.seen(body)
    steps = np.diff(t)
    if len(t) < _MIN_FRAMES or np.ptp(steps) > _MAX_STEP_RANGE * steps.mean():
        raise DataError(
            f"trial {trial.name!r}: body {body!r} needs at least {_MIN_FRAMES} evenly spaced frames"
        )
    rotation = Rotation.from_quat(pose[:, 3:], scalar_first=True).as_matrix()
    # The third row of a rotation turns a point of the body into its height above the origin.
    corner_heights = pose[:, None, 2] + np.einsum("tj,cj->tc", rotation[:, 2], corners)
    low = np.flatnonzero(corner_heights.min(1) < _CLEAR_HEIGHT)
    first_contact = int(low[0]) if len(low) else len(t)
    return _fit_start(
        trial.name,
        pose[:, :3],
        rotation,
        dt=float(steps.mean()),
        frames=max(first_contact, _MIN_FLIGHT_FRAMES),
    )


def cut_windows(whole: Flight, frames: int, every: int) -> list[Flight]:
    """Cut a toss into windows, each with a start fitted to its first three frames.

    Three frames show the velocity less exactly than a whole flight does, and a window that starts
    in contact does not begin on a parabola. Parameters are identified better from whole tosses.

    Args:
        whole: The toss.
        frames: Frames of each window.
        every: Frames from the start of one window to the start of the next.

    Returns:
        The windows in order.
    """
    if frames < _MIN_FRAMES or every < 1:
        raise DataError(
            f"windows need at least {_MIN_FRAMES} frames and a step of at least 1,"
            f" got {frames} and {every}"
        )
    windows = []
    for start in range(0, len(whole.position) - frames + 1, every):
        rows = slice(start, start + frames)
        window = _fit_start(
            f"{whole.name}@{start}",
            whole.position[rows],
            whole.rotation[rows],
            dt=whole.dt,
            frames=_START_FRAMES,
        )
        windows.append(window)
    return windows


def _fit_start(
    name: str, position: np.ndarray, rotation: np.ndarray, *, dt: float, frames: int
) -> Flight:
    """Fit a constant angular velocity and the orientation at frame 0 to the first `frames`.

    The model is R(t) = exp(w t) R(0), for a body whose principal inertias are nearly equal.
    """
    rotations = Rotation.from_matrix(rotation[:frames])
    middle = frames // 2
    vectors = (rotations * rotations[middle].inv()).as_rotvec()
    t = (np.arange(frames) - middle) * dt
    line = np.stack([t, np.ones(frames)], 1)
    angular_velocity, offset = np.linalg.lstsq(line, vectors, rcond=None)[0]
    middle_to_first = Rotation.from_rotvec(offset + angular_velocity * t[0])
    orientation = (middle_to_first * rotations[middle]).as_matrix()
    return Flight(name, position, rotation, dt, frames, angular_velocity, orientation)


def estimate_gravity(flights: Sequence[Flight]) -> float:
    """Gravity (m/s^2) as the recordings show it: their metre may be a little off.

    It is the weighted mean over the flights, or 9.81 where none is long enough.
    """
    values, weights = np.array([flight.downward_acceleration() for flight in flights]).T
    if weights.sum() <= 0:
        return _STANDARD_GRAVITY
    return float((values * weights).sum() / weights.sum())
