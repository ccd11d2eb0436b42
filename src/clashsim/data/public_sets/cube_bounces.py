"""First bounces of the tossed cube of ContactNets: its twist just before and just after.

In free flight a cube's mass centre falls on a parabola, and its angular velocity is constant. Such
a flight is fitted to as many frames as agree with it: to those before the first contact with the
floor, and to those after it until the next contact. The impact is where the two flights meet. Two
contacts in quick succession leave flights that do not meet, or no flight between them; such tosses
are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.trials import Trial
from clashsim.data.public_sets import cube_tosses
from clashsim.data.public_sets.real_dataset import RealDataset

NAME = "contactnets_cube"
_GRAVITY = 9.81  # m/s^2
# How far a frame may be off the flight that is fitted to it: about four standard deviations of the
# frames before the first contact.
_MAX_DEVIATION = 2e-4  # m
_MAX_TURN = 1.8e-3  # rad
_MIN_FRAMES = (
    5  # of a flight: in fewer, a cube that rolls on an edge is not told from one that falls
)
_MAX_FRAMES = 16  # over more, the air and the position of the mass centre would show
# Height (m) of the lowest corner from which on a cube may touch the floor before the next frame.
_AT_FLOOR = 0.006
_MAX_GAP_FRAMES = 3  # between the two flights
# How near the two flights must come. Those on the two sides of one contact come within 0.3 mm.
_MAX_DISTANCE = 1e-3  # m
_TIMES = 65  # between the two flights, at which their distance is computed


@dataclass(frozen=True, eq=False)
class _Toss:
    """One toss: times (T,), s, positions of the mass centre (T, 3), m, and T orientations."""

    t: np.ndarray
    position: np.ndarray
    rotation: Rotation

    @staticmethod
    def of(trial: Trial) -> _Toss:
        t, pose = trial.seen(cube_tosses.BODY)
        rotation = Rotation.from_quat(pose[:, 3:], scalar_first=True)
        return _Toss(t, pose[:, :3] / cube_tosses.RECORDED_LENGTH, rotation)

    def first_contact(self) -> int | None:
        """Index of the first frame at which a corner of the cube is at the floor."""
        heights = self.rotation.as_matrix()[:, 2] @ cube_tosses.CUBE.corners.T  # (T, 8)
        below = np.flatnonzero(self.position[:, 2] + heights.min(1) < _AT_FLOOR)
        return int(below[0]) if len(below) else None


@dataclass(frozen=True, eq=False)
class _Flight:
    """A free flight.

    Attributes:
        time: s, at which the following hold.
        position: (3,), m, of the mass centre.
        velocity: (3,), m/s.
        rotation: Orientation.
        angular_velocity: (3,), rad/s, world axes.
    """

    time: float
    position: np.ndarray
    velocity: np.ndarray
    rotation: Rotation
    angular_velocity: np.ndarray

    def pose(self, times: np.ndarray) -> tuple[np.ndarray, Rotation]:
        """Positions (n, 3) and n orientations at times (n,)."""
        elapsed = times[:, None] - self.time
        position = self.position + self.velocity * elapsed
        position[:, 2] -= 0.5 * _GRAVITY * elapsed[:, 0] ** 2
        return position, Rotation.from_rotvec(self.angular_velocity * elapsed) * self.rotation

    def twist(self, time: float) -> np.ndarray:
        """Twist (6,) at a time, m/s and rad/s."""
        velocity = self.velocity - [0.0, 0.0, _GRAVITY * (time - self.time)]
        return np.concatenate([velocity, self.angular_velocity])


def read_cube(root: Path) -> RealDataset:
    """Read the first bounce of each toss that shows one."""
    bounces = [_first_bounce(_Toss.of(trial)) for trial in cube_tosses.load(root)]
    found = [bounce for bounce in bounces if bounce is not None]
    if not found:
        raise DataError("the tosses hold no first bounce that can be measured")
    before, motion = MotionBefore.at_origin(len(found), planar=False)
    motion.struck.pose[:] = [pose for pose, _, _ in found]
    motion.struck.twist[:] = [twist for _, twist, _ in found]
    motion.striker.quaternion[:] = [1.0, 0.0, 0.0, 0.0]
    after = np.array([twist for _, _, twist in found])
    cube = cube_tosses.CUBE
    return RealDataset(
        name=NAME,
        scene="cube",
        impacts=Impacts(False, before, after).checked(),
        gyration=float(np.sqrt(cube.inertia[0] / cube.mass)),
        session=np.full(len(found), NAME),
    )


def _first_bounce(toss: _Toss) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Pose (7,) at the first contact, and twists (6,) before and after it; None if not measured."""
    contact = toss.first_contact()
    if contact is None:
        return None
    end, before = _flight_before(toss, contact)
    start, after = _flight_after(toss, contact)
    if before is None or after is None or start - end > _MAX_GAP_FRAMES:
        return None
    times = np.linspace(toss.t[end - 1], toss.t[start], _TIMES)
    position, rotation = before.pose(times)
    position_after, rotation_after = after.pose(times)
    turn = (rotation * rotation_after.inv()).magnitude()
    distance = np.hypot(np.linalg.norm(position - position_after, axis=1), cube_tosses.HALF * turn)
    closest = int(np.argmin(distance))
    if distance[closest] > _MAX_DISTANCE:
        return None
    time = float(times[closest])
    pose = np.concatenate([position[closest], rotation[closest].as_quat(scalar_first=True)])
    return pose, before.twist(time), after.twist(time)


def _flight_before(toss: _Toss, contact: int) -> tuple[int, _Flight | None]:
    """The flight up to a frame, and the index after its last frame."""
    # The first frame at the floor may still be in flight.
    for end in (contact + 1, contact):
        flight = _fit_flight(toss, end - _MIN_FRAMES, end)
        if flight is not None:
            break
    start = end - _MIN_FRAMES
    while flight is not None and end - start < _MAX_FRAMES:
        start -= 1
        longer = _fit_flight(toss, start, end)
        if longer is None:
            break
        flight = longer
    return end, flight


def _flight_after(toss: _Toss, contact: int) -> tuple[int, _Flight | None]:
    """The first flight from a frame on, and the index of its first frame."""
    flight = None
    for start in range(contact, contact + _MAX_GAP_FRAMES + 2):
        flight = _fit_flight(toss, start, start + _MIN_FRAMES)
        if flight is not None:
            break
    end = start + _MIN_FRAMES
    while flight is not None and end - start < _MAX_FRAMES:
        end += 1
        longer = _fit_flight(toss, start, end)
        if longer is None:
            break
        flight = longer
    return start, flight


def _fit_flight(toss: _Toss, start: int, end: int) -> _Flight | None:
    """Fit a free flight to frames from `start` up to `end`; None if one of them is off it."""
    if start < 0 or end > len(toss.t):
        return None
    t = toss.t[start:end]
    time = float(t.mean())
    elapsed = t - time
    straight = toss.position[start:end].copy()
    straight[:, 2] += 0.5 * _GRAVITY * elapsed**2
    middle = toss.rotation[(start + end) // 2]
    rotation_vectors = (toss.rotation[start:end] * middle.inv()).as_rotvec()
    line = np.stack([np.ones(len(t)), elapsed], 1)
    coefficients = np.linalg.lstsq(line, np.hstack([straight, rotation_vectors]), rcond=None)[0]
    residuals = np.hstack([straight, rotation_vectors]) - line @ coefficients
    deviation = np.linalg.norm(residuals[:, :3], axis=1).max()
    turn = np.linalg.norm(residuals[:, 3:], axis=1).max()
    if deviation > _MAX_DEVIATION or turn > _MAX_TURN:
        return None
    return _Flight(
        time=time,
        position=coefficients[0, :3],
        velocity=coefficients[1, :3],
        rotation=Rotation.from_rotvec(coefficients[0, 3:]) * middle,
        angular_velocity=coefficients[1, 3:],
    )
