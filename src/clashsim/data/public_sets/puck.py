"""TU Darmstadt's air hockey puck that hits the walls of its table (mrdinghr/air-hockey)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.data.public_sets.checked_arrays import read_npz_arrays
from clashsim.data.public_sets.real_dataset import RealDataset

FILE = "tud_puck/puck_traj.npz"
_TABLE_SIZE = (1.948, 1.038)  # m along x and y, centred at the origin
_RADIUS = 0.03165  # m, of the puck
# Deceleration of the puck on the air table: _LINEAR_DRAG * speed + _CONSTANT_DRAG.
_LINEAR_DRAG = 0.053  # 1/s
_CONSTANT_DRAG = 0.159  # m/s^2

_MAX_TIME = 0.12  # s on each side of a hit that are fitted
_MAX_GAP = 0.045  # s between the frames of a fit
_MIN_FRAMES = 5  # of a fit
_MIN_FRAME_STEP = 1e-3  # s: frames nearer in time are repeats
_MAX_DISTANCE = 0.06  # m of a hit's nearest frame from its wall
_MIN_SPEED = 0.3  # m/s towards the wall
# Root mean square residual of a fit; a larger one shows another contact, or a lost marker.
_MAX_RMS = (0.0015, 0.0015, 0.05)  # m, m, rad
_CORNER = 0.05  # m from the puck to the wall around the corner
# Distance from the middle of a short wall within which the puck meets the goal or its posts.
_GOAL = 0.16  # m
# Largest distance from the wall at which the fits before and after a wall hit cross; where a mallet
# hits the puck, they may cross anywhere.
_MAX_DEPTH = 0.015  # m


@dataclass(frozen=True, eq=False)
class _WallHit:
    """One wall hit.

    Attributes:
        time: Time of the hit, s.
        wall: Number of the wall, 0 to 3; its outward normal is +x turned by this many quarter
            turns.
        along: Position along the wall, m from its middle.
        yaw: Yaw of the puck in the wall's axes, rad.
        before: Twist (3,) before the hit in the wall's axes: inward normal, along, yaw; m/s, rad/s.
        after: Twist (3,) after the hit in the wall's axes.
    """

    time: float
    wall: int
    along: float
    yaw: float
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, eq=False)
class _Line:
    """Motion on one side of a hit, in the wall's axes; time 0 is the frame nearest to the wall.

    Attributes:
        pose: Distance from the wall, position along it and yaw (3,) at time 0; m, m, rad.
        velocity: Rates (3,) of `pose` at time 0, per second.
        acceleration: Constant acceleration (3,) by drag.
    """

    pose: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray

    def velocity_at(self, time: float) -> np.ndarray:
        """Velocity (3,) at a time in s."""
        return self.velocity + self.acceleration * time


def read_puck(root: Path) -> RealDataset:
    """Find the wall hits in the trajectories, each in the axes of its wall: x inward, y along."""
    hits: list[_WallHit] = []
    for run in _read_runs(root / FILE):
        hits += _hits_of_run(run)
    if not hits:
        raise DataError("the puck's trajectories hold no wall hit that can be measured")
    before, motion = MotionBefore.at_origin(len(hits), planar=True)
    motion.struck.pose[:] = [(_RADIUS, hit.along, hit.yaw) for hit in hits]
    motion.struck.twist[:] = [hit.before for hit in hits]
    after = np.array([hit.after for hit in hits])
    wall = np.array([hit.wall for hit in hits], float)
    return RealDataset(
        name="tud_puck",
        scene="puck",
        impacts=Impacts(True, before, after, known={"wall": wall}).checked(),
        gyration=_RADIUS / np.sqrt(2),
        session=np.full(len(hits), "tud_puck"),
    )


def _read_runs(path: Path) -> list[np.ndarray]:
    """Trajectories (T, 4) of x, y, yaw, t (m, m, rad, s) with increasing time.

    Repeated frames are dropped, since they have an old pose at a new time.
    """
    table = read_npz_arrays(path, {"x_y_yaw_t": (4,), "offset": ()})
    rows = table["x_y_yaw_t"].astype(float)
    offset = table["offset"]
    if not _cuts_into_runs(offset, len(rows)):
        raise DataError(f"{path.name}: 'offset' does not cut {len(rows)} rows into runs")
    runs = []
    for first, last in pairwise(offset):
        run = rows[first:last]
        run = run[np.isfinite(run).all(1)]
        if len(run):
            step = np.diff(run, axis=0)
            is_later = step[:, 3] > _MIN_FRAME_STEP
            has_moved = np.abs(step[:, :3]).max(1) > 0
            run = run[np.append(True, is_later & has_moved)]
        runs.append(run)
    return runs


def _cuts_into_runs(offset: np.ndarray, rows: int) -> bool:
    """Whether offsets are row numbers that do not fall, each the first row of a run."""
    if offset.dtype.kind not in "iu" or len(offset) < 2:
        return False
    is_inside = offset[0] >= 0 and offset[-1] <= rows
    is_rising = (np.diff(offset.astype(np.int64)) >= 0).all()
    return bool(is_inside and is_rising)


def _hits_of_run(run: np.ndarray) -> list[_WallHit]:
    """Wall hits of one trajectory in order of time."""
    hits: list[_WallHit] = []
    for wall in range(4):
        hits += _hits_of_wall(run, wall)
    return sorted(hits, key=lambda hit: hit.time)


def _hits_of_wall(run: np.ndarray, wall: int) -> list[_WallHit]:
    """Hits of one wall: around the frames at which the puck's distance from it is smallest."""
    if len(run) < 2 * _MIN_FRAMES + 1:  # the frame of the hit, and a fit on each side
        return []
    inward_heading = (wall + 2) % 4 * np.pi / 2
    inward = np.round([np.cos(inward_heading), np.sin(inward_heading)])
    sideways = [-inward[1], inward[0]]
    distance = run[:, :2] @ inward + _TABLE_SIZE[wall % 2] / 2 - _RADIUS
    yaw = np.unwrap(run[:, 2]) - inward_heading
    pose = np.column_stack([distance, run[:, :2] @ sideways, yaw])
    inner = distance[1:-1]
    is_nearest = (inner <= distance[:-2]) & (inner < distance[2:]) & (inner < _MAX_DISTANCE)
    hits = []
    for frame in np.flatnonzero(is_nearest) + 1:
        hit = _measure_hit(run[:, 3], pose, int(frame), wall)
        if hit is not None:
            hits.append(hit)
    return hits


def _measure_hit(t: np.ndarray, pose: np.ndarray, frame: int, wall: int) -> _WallHit | None:
    """The hit around the frame nearest to the wall, or None where it cannot be measured.

    That frame itself is not fitted, since it may be before or after the hit.

    Args:
        t: Times (T,), s.
        pose: Distance from the wall, position along it and yaw (T, 3); m, m, rad.
        frame: Index of the frame nearest to the wall.
        wall: Number of the wall.
    """
    rows_before = _usable_frames(t, frame, -1)
    rows_after = _usable_frames(t, frame, 1)
    if min(len(rows_before), len(rows_after)) < _MIN_FRAMES:
        return None
    before = _fit_line(t[rows_before] - t[frame], pose[rows_before])
    after = _fit_line(t[rows_after] - t[frame], pose[rows_after])
    if before is None or after is None:
        return None
    if before.velocity[0] > -_MIN_SPEED or after.velocity[0] <= 0:
        return None
    # The hit is when the two distances are equal, so the wall's position need not be known exactly.
    gap = before.pose[0] - after.pose[0]
    time = gap / (after.velocity[0] - before.velocity[0])
    if not t[frame - 1] - t[frame] <= time <= t[frame + 1] - t[frame]:
        return None
    depth, along, yaw = before.pose + before.velocity * time
    velocity_before = before.velocity_at(time)
    velocity_after = after.velocity_at(time)
    gains_energy = _energy(velocity_after) > _energy(velocity_before)  # from a mallet
    if abs(depth) > _MAX_DEPTH or gains_energy or not _is_plain_wall(wall, along):
        return None
    return _WallHit(
        time=float(t[frame] + time),
        wall=wall,
        along=float(along),
        yaw=float(wrap_angle(yaw)),
        before=velocity_before,
        after=velocity_after,
    )


def _is_plain_wall(wall: int, along: float) -> bool:
    """Whether a position along a wall (m) is away from corners and, on short walls, the goal."""
    is_short = wall % 2 == 0
    length = _TABLE_SIZE[1] if is_short else _TABLE_SIZE[0]
    is_corner = abs(along) > length / 2 - _RADIUS - _CORNER
    is_goal = is_short and abs(along) < _GOAL
    return not (is_corner or is_goal)


def _usable_frames(t: np.ndarray, frame: int, step: int) -> np.ndarray:
    """Frames before (step -1) or after (step 1) a frame: near in time and without a long gap."""
    rows = []
    i = frame + step
    while 0 <= i < len(t):
        if abs(t[i] - t[frame]) > _MAX_TIME or abs(t[i] - t[i - step]) > _MAX_GAP:
            break
        rows.append(i)
        i += step
    return np.array(rows, int)


def _fit_line(t: np.ndarray, pose: np.ndarray) -> _Line | None:
    """Fit a straight motion that the table's drag slows; None where it fits poorly.

    Without the drag, the restitution would be biased by 0.015.
    """
    rough_velocity = np.polyfit(t, pose, 1)[0]
    speed = float(np.hypot(rough_velocity[0], rough_velocity[1]))
    drag = np.zeros(3)
    drag[:2] = -(_LINEAR_DRAG + _CONSTANT_DRAG / max(speed, 1e-9)) * rough_velocity[:2]
    without_drag = pose - 0.5 * drag * t[:, None] ** 2
    velocity, start = np.polyfit(t, without_drag, 1)
    residuals = without_drag - start - velocity * t[:, None]
    rms = np.sqrt((residuals**2).sum(0) / (len(t) - 2))  # two numbers were fitted
    return _Line(start, velocity, drag) if (rms < _MAX_RMS).all() else None


def _energy(twist: np.ndarray) -> float:
    """Twice the kinetic energy of the puck per mass, for a twist (3,): a disc, I = m r^2 / 2."""
    return float(twist[0] ** 2 + twist[1] ** 2 + 0.5 * (_RADIUS * twist[2]) ** 2)
