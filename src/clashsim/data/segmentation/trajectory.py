"""Track: one body of one trial as smooth coordinates of its mass centre, in the plane or in space,
and back to pose and twist of its origin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.trials import Trial

_FLOOR = (
    2e-5,
    4e-4,
)  # m, rad: noise below this is not believed, for a simulator's log has none and weights would run away
# A clock that lags and catches up again is off by more than its steps show: this much in the square
_SAW = 1.5


@dataclass(frozen=True, eq=False)
class MotionFrame:
    """How bodies are looked at: plane, rows e1, e2, n (3, 3), or None in space; centre (3,): mass
    centre in the body's frame, m;
    rotation (3, 3): the body's orientation at yaw 0; gravity (3,): taken out of motion in space,
    where it is known, m/s^2.
    """

    plane: np.ndarray | None
    centre: np.ndarray
    rotation: np.ndarray
    gravity: np.ndarray


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Times (n,) at which a body was seen, its mass centre (n, 3) in the view's axes and its
    orientations, world to those axes.
    """

    t: np.ndarray
    centre: np.ndarray
    turns: Rotation
    view: MotionFrame

    @staticmethod
    def of(trial: Trial, body: str, view: MotionFrame) -> Trajectory:
        """The frames at which the trial saw the body with a quaternion that is one."""
        t, pose = trial.seen(body)
        length = np.linalg.norm(pose[:, 3:], axis=1)
        good = np.abs(length - 1) < 0.1
        t, pose = t[good], pose[good]
        turns = (
            Rotation.from_quat(pose[:, 3:], scalar_first=True) if len(t) else Rotation.identity(0)
        )
        return Trajectory(
            t, pose[:, :3] + (turns.apply(view.centre) if len(t) else 0.0), turns, view
        )

    def __len__(self) -> int:
        return len(self.t)

    def coordinates(self, moment: float) -> np.ndarray:
        """Smooth coordinates (n, 3) x y yaw in the plane, (n, 6) position and turn against the
        orientation near `moment` in space.
        """
        plane = self.view.plane
        if plane is not None:
            turn = (self.turns * Rotation.from_matrix(self.view.rotation).inv()).as_quat(
                scalar_first=True
            )
            yaw = np.unwrap(2 * np.arctan2(turn[:, 1:] @ plane[2], turn[:, 0]))
            return np.column_stack([self.centre @ plane[:2].T, yaw])
        fallen = self.centre - 0.5 * self.view.gravity * (self.t - moment)[:, None] ** 2
        return np.column_stack(
            [fallen, _unwound((self.turns * self._near(moment).inv()).as_rotvec())]
        )

    def watched(self) -> np.ndarray:
        """Coordinates (n, 3) in which to look for impacts: x y yaw in the plane; in space the
        position only, for tumbling is not smooth enough.
        """
        if self.view.plane is not None:
            return self.coordinates(0.0)
        return self.centre - 0.5 * self.view.gravity * (self.t - self.t[0])[:, None] ** 2

    def origin(
        self, moment: float, now: float, place: np.ndarray, rate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pose (3,) or (7,) and twist (3,) or (6,) of the body's origin at `now`, for coordinates
        made for `moment` and their rates (k,).
        """
        if self.view.plane is not None:
            local = self.view.plane[:2] @ (self.view.rotation @ self.view.centre)
            c, s = np.cos(place[2]), np.sin(place[2])
            arm = np.array([c * local[0] - s * local[1], s * local[0] + c * local[1]])
            return np.array([*(place[:2] - arm), place[2]]), np.array(
                [rate[0] + rate[2] * arm[1], rate[1] - rate[2] * arm[0], rate[2]]
            )
        turn = Rotation.from_rotvec(place[3:]) * self._near(moment)
        arm, spin = turn.apply(self.view.centre), _left_jacobian(place[3:]) @ rate[3:]
        fall = self.view.gravity * (now - moment)
        pose = np.concatenate(
            [
                place[:3] + 0.5 * fall * (now - moment) - arm,
                turn.as_quat(scalar_first=True, canonical=True),
            ]
        )
        return pose, np.concatenate([rate[:3] + fall - np.cross(spin, arm), spin])

    def _near(self, moment: float) -> Rotation:
        return self.turns[int(np.argmin(np.abs(self.t - moment)))]


def noise(t: np.ndarray, pose: np.ndarray, *, angles: int) -> np.ndarray:
    """Standard deviation (k,) of coordinates (n, k), from what a parabola through three frames says
    of the fourth; the last `angles` columns are angles.

    Such differences hardly see the motion, and their median does not see the impacts.
    """
    floor = np.repeat(_FLOOR, (pose.shape[1] - angles, angles))
    if len(t) < 8:
        return 10 * floor
    return np.maximum(np.median(np.abs(_thirds(t, pose)), axis=0) / 0.6745, floor)


def loudness(t: np.ndarray, pose: np.ndarray, quiet: np.ndarray, *, angles: int) -> np.ndarray:
    """Standard deviation (n, k) of each frame: `quiet` (k,) at rest, and in motion what jitter of
    the time stamps makes of the rates.

    A logger that runs beside its camera repeats and skips camera frames, so a body at 1 m/s may be
    a millimetre off where its noise at rest is hundredths of that. How large the jitter is shows in
    how much louder frames are in motion.
    """
    n = len(t)
    if n < 16:
        return np.tile(quiet, (n, 1))
    rate = rates(t, pose)
    lines = pose.shape[1] - angles
    excess = (_thirds(t, pose)[:, :lines] ** 2).sum(1) - (quiet[:lines] ** 2).sum()
    speed2 = (rate[1:-2, :lines] ** 2).sum(1)
    moving = speed2 > 0.05**2
    if moving.sum() < 8:
        return np.tile(quiet, (n, 1))
    ratio = np.sort(excess[moving] / speed2[moving])[
        : int(0.95 * moving.sum())
    ]  # without the impacts themselves
    return np.sqrt(quiet**2 + _SAW * max(float(ratio.mean()), 0.0) * rate**2)


def rates(t: np.ndarray, pose: np.ndarray, reach: int = 4) -> np.ndarray:
    """How fast each coordinate changes (n, k), over a few frames on the slower side, so that frames
    just before an impact count as still.
    """
    if len(t) <= reach:
        return np.zeros_like(pose)
    step = np.abs(pose[reach:] - pose[:-reach]) / (t[reach:] - t[:-reach])[:, None]
    return np.minimum(
        np.vstack([step, step[-1:].repeat(reach, 0)]), np.vstack([step[:1].repeat(reach, 0), step])
    )


def _thirds(t: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Divided differences of third order (n - 3, k), scaled to have the standard deviation of one
    frame; frames need not be evenly spaced.
    """
    rows = np.arange(len(t) - 3)[:, None] + np.arange(4)
    gaps = t[rows][:, :, None] - t[rows][:, None, :] + np.eye(4)
    weight = 1 / gaps.prod(2)
    return np.einsum(
        "ni,nik->nk", weight / np.linalg.norm(weight, axis=1, keepdims=True), pose[rows]
    )


def thinned(
    t: np.ndarray, pose: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames of a fast camera as means of a few: times, coordinates and noise (n, k) at no more
    than some 250 frames a second.
    """
    group = round(len(t) / 250 / max(float(t[-1] - t[0]), 1e-9)) if len(t) > 1 else 1
    if group < 2 or len(t) < 40:
        return t, pose, noise
    n = len(t) // group * group
    means = [x[:n].reshape(-1, group, *x.shape[1:]).mean(1) for x in (t, pose, noise)]
    return means[0], means[1], means[2] / np.sqrt(group)


def _unwound(turn: np.ndarray) -> np.ndarray:
    """Rotation vectors (n, 3) continued past half a turn, where their shortest form jumps to the
    other side.
    """
    out = turn.copy()
    for i in range(1, len(out)):
        angle = np.linalg.norm(out[i])
        if angle > 1.5:
            axis = out[i] / angle
            full = 2 * np.pi * np.round((out[i - 1] @ axis - angle) / (2 * np.pi))
            out[i] += full * axis
    return out


def _left_jacobian(turn: np.ndarray) -> np.ndarray:
    """(3, 3): from the rate of a rotation vector to the angular velocity in world axes."""
    angle = float(np.linalg.norm(turn))
    x, y, z = turn
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    if angle < 1e-6:
        return np.eye(3) + 0.5 * cross
    return (
        np.eye(3)
        + (1 - np.cos(angle)) / angle**2 * cross
        + (angle - np.sin(angle)) / angle**3 * cross @ cross
    )
