"""Checks of one stream as a time series: its clock, lost, repeated and frozen frames, and jumps.

Each check returns the stream with the bad rows removed or set to NaN, and what it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clashsim.data.checks.findings import Finding, Severity, finding
from clashsim.data.readers.streams import Stream

_MIN_STEP = 2e-5  # s between rows: no recording of contact has shorter steps
_MAX_STEP = 0.4  # s between rows: no recording of contact has longer steps
_GAP_FACTOR = 3.5  # times the usual step between rows

_ZERO_NORM = 1e-6  # of a quaternion: the tracker's sign for a body that it does not see
_ORIGIN_DISTANCE = 0.02  # m: a body further away is not really at the exact origin
_MAX_NORM_ERROR = 0.02  # of a quaternion's length
_MANY_SHARE = 0.1  # of the rows: more bad quaternions stop the import
_SMALL_SCALAR = 0.1  # |w| up to which w does not decide the sign of the first quaternion

_MIN_SEEN_ROWS = 4  # to look for repeated and frozen frames
_MIN_JUMP_ROWS = 6  # to look for jumps
# A run of equal frames that is at most this long is repeated frames, not a body that stands still.
_MAX_REPEATS = 3
_MIN_RUNS = 8  # of equal frames, from which a longer limit than `_MAX_REPEATS` is learned
_MIN_FREEZE_STEP = 0.002  # m by which a frozen body catches up
_FREEZE_FACTOR = 3  # times the next step, by which a frozen body catches up
_MIN_JUMP = 0.005  # m: a shorter step out and back is noise or motion
_MIN_ROTATION_JUMP = 0.1  # rad
_JUMP_FACTOR = 4.0  # times the steps around it
_MIN_LASTING_JUMP = 0.05  # m
_MIN_LASTING_SPEED = 30.0  # m/s
_LASTING_FACTOR = 10.0  # times the usual step


class _Report:
    """Collects the findings of one stream."""

    def __init__(self, trial: str, stream: Stream) -> None:
        self._trial = trial
        self._body = stream.body
        self.findings: list[Finding] = []

    def add(
        self,
        name: str,
        severity: Severity,
        message: str,
        rows: np.ndarray | Sequence[int] = (),
    ) -> None:
        """Add a finding of the stream's body."""
        self.findings.append(
            finding(name, severity, message, trial=self._trial, body=self._body, rows=rows)
        )


def check_clock(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Remove rows without a time, and rows that are not later than all before, so that times rise.

    Args:
        trial: Name of the trial, for the findings.
        stream: One body in one log.

    Returns:
        The stream without these rows, and what was found.
    """
    report = _Report(trial, stream)
    t = stream.t
    missing = np.flatnonzero(~np.isfinite(t))
    if missing.size:
        message = f"{missing.size} of {t.size} rows have no time and are left out"
        report.add("time_missing", "warn", message, missing)
    latest = np.fmax.accumulate(np.where(np.isfinite(t), t, -np.inf))
    latest_before = np.concatenate([[-np.inf], latest[:-1]])
    backwards = np.flatnonzero(t < latest_before)
    if backwards.size:
        first = backwards[0]
        step_back = latest_before[first] - t[first]
        message = (
            f"time runs backwards at row {first} (by {step_back:.4g} s)"
            f" and {backwards.size - 1} more rows"
        )
        report.add("time_backwards", "stop", message, backwards)
    repeated = np.flatnonzero(t == latest_before)
    if repeated.size:
        message = (
            f"{repeated.size} of {t.size} rows have the time of an earlier row and are left out"
        )
        report.add("time_repeated", "warn", message, repeated)
    rising = np.isfinite(t) & (t > latest_before)
    angles = None if stream.angles is None else stream.angles[rising]
    stream = replace(stream, t=t[rising], pose=stream.pose[rising], angles=angles)
    _check_steps(stream.t, report)
    return stream, report.findings


def _check_steps(t: np.ndarray, report: _Report) -> None:
    """Look for a wrong unit of time and for gaps in rising times (N,)."""
    steps = np.diff(t)
    if not steps.size:
        return
    usual = float(np.median(steps))
    if not _MIN_STEP <= usual <= _MAX_STEP:
        message = (
            f"rows are {usual:.3g} s apart, which no recording of contact is;"
            " check the unit of time (ms, us or ns for s?)"
        )
        report.add("time_unit", "stop", message)
    gaps = np.flatnonzero(steps > _GAP_FACTOR * usual)
    if gaps.size:
        message = (
            f"{gaps.size} gaps in time, the longest {steps.max():.3g} s"
            f" where {usual:.3g} s is usual"
        )
        report.add("time_gap", "warn", message, gaps)


def check_dropouts(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Set rows at which the body was not seen to NaN, and make quaternions unit and continuous.

    A body was not seen in rows with NaN, infinite numbers or a zero quaternion, and in rows at the
    exact origin when its other positions are elsewhere.

    Args:
        trial: Name of the trial, for the findings.
        stream: One body in one log, whose times rise.

    Returns:
        The changed stream, and what was found.
    """
    report = _Report(trial, stream)
    pose = stream.pose.copy()
    pose[~np.isfinite(pose).all(1)] = np.nan
    pose[_quaternion_norms(pose) < _ZERO_NORM] = np.nan
    at_origin = (pose[:, :3] == 0).all(1)
    if _origin_means_lost(pose, at_origin):
        pose[at_origin] = np.nan
    seen = np.isfinite(pose).all(1)
    lost = np.flatnonzero(~seen)
    if not seen.any():
        report.add("never_seen", "stop", "the body is seen in no row")
    elif lost.size:
        message = f"the body is not seen in {lost.size} of {seen.size} rows"
        report.add("dropout", "warn", message, lost)
    norms = _quaternion_norms(pose)
    with np.errstate(invalid="ignore"):
        not_unit = np.flatnonzero(np.abs(norms - 1) > _MAX_NORM_ERROR)
    if not_unit.size:
        first = not_unit[0]
        message = (
            f"{not_unit.size} of {seen.sum()} quaternions are not of length 1"
            f" (row {first}: {norms[first]:.4g})"
        )
        if not_unit.size > _MANY_SHARE * seen.sum():
            report.add("quaternion_norm", "stop", message, not_unit)
        else:
            message += "; they count as not seen"
            report.add("quaternion_norm", "warn", message, not_unit)
            pose[not_unit] = np.nan
    pose[:, 3:] /= _quaternion_norms(pose)[:, None]
    return replace(stream, pose=_with_continuous_sign(pose)), report.findings


def _quaternion_norms(pose: np.ndarray) -> np.ndarray:
    """Lengths (N,) of the quaternions of poses (N, 7)."""
    return np.linalg.norm(pose[:, 3:], axis=1)


def _origin_means_lost(pose: np.ndarray, at_origin: np.ndarray) -> bool:
    """Whether several rows lie at the exact origin while the body is elsewhere."""
    elsewhere = np.isfinite(pose).all(1) & ~at_origin
    if at_origin.sum() < 2 or not elsewhere.any():
        return False
    usual_position = np.median(pose[elsewhere, :3], axis=0)
    return bool(np.linalg.norm(usual_position) > _ORIGIN_DISTANCE)


def _with_continuous_sign(pose: np.ndarray) -> np.ndarray:
    """Choose the sign of each quaternion of poses (N, 7) in place, so that it does not jump.

    A quaternion and its negative are the same rotation. Of the two, the one nearer to the row
    before is taken. The first quaternion gets a positive w, or where w is small, its largest number
    becomes positive.
    """
    seen = np.isfinite(pose).all(1)
    if not seen.any():
        return pose
    quaternions = pose[seen, 3:]
    first = quaternions[0]
    leading = first[0] if abs(first[0]) > _SMALL_SCALAR else first[np.argmax(np.abs(first))]
    first_sign = 1.0 if leading >= 0 else -1.0
    products = (quaternions[1:] * quaternions[:-1]).sum(1)
    changes = np.where(products < 0, -1.0, 1.0)
    signs = np.cumprod(np.concatenate([[first_sign], changes]))
    pose[seen, 3:] = quaternions * signs[:, None]
    return pose


def check_repeats_and_jumps(trial: str, stream: Stream) -> tuple[Stream, list[Finding]]:
    """Set repeated, frozen and single displaced frames to NaN, since they spoil velocities.

    Args:
        trial: Name of the trial, for the findings.
        stream: One body in one log, as `check_dropouts` returns it.

    Returns:
        The changed stream, and what was found.
    """
    pose = stream.pose.copy()
    rows = np.flatnonzero(np.isfinite(pose).all(1))
    if rows.size < _MIN_SEEN_ROWS:
        return stream, []
    report = _Report(trial, stream)
    repeated, frozen = _repeated_and_frozen(pose[rows])
    if repeated.any():
        message = (
            f"{repeated.sum()} of {rows.size} rows repeat the frame before and count as not seen"
        )
        report.add("repeated_frames", "warn", message, rows[repeated])
    if frozen.any():
        message = (
            f"the body is frozen for {frozen.sum()} rows and then catches up;"
            " they count as not seen"
        )
        report.add("freeze", "warn", message, rows[frozen])
    pose[rows[repeated | frozen]] = np.nan
    left = np.flatnonzero(np.isfinite(pose).all(1))
    single, lasting = _jumps(pose[left], left, stream.t)
    if single.size:
        message = (
            f"{single.size} single frames lie elsewhere than their neighbours"
            f" (the first in row {single[0]}) and count as not seen"
        )
        report.add("jump", "warn", message, single)
        pose[single] = np.nan
    if lasting.size:
        message = (
            f"the body jumps and stays there, {lasting.size} times (the first in row {lasting[0]})"
        )
        report.add("jump", "warn", message, lasting)
    return replace(stream, pose=pose), report.findings


def _repeated_and_frozen(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which rows (N,) of poses (N, 7) repeat the one before, and in which the body is frozen.

    A logger twice as fast as its stream shows every frame twice: these are repeated. A body at rest
    in a simulator gives one long run of equal frames, which are neither repeated nor frozen.
    """
    is_new = np.concatenate([[True], (pose[1:] != pose[:-1]).any(1)])
    starts = np.flatnonzero(is_new)
    lengths = np.diff(np.append(starts, len(pose)))
    max_repeats = _MAX_REPEATS
    if len(lengths) >= _MIN_RUNS:
        # A logger that is several times as fast as its stream repeats most frames more often.
        max_repeats = max(_MAX_REPEATS, 2 * int(np.percentile(lengths, 75)))
    repeated = np.zeros(len(pose), bool)
    frozen = np.zeros(len(pose), bool)
    is_run = lengths > 1
    for start, length in zip(starts[is_run], lengths[is_run], strict=True):
        end = start + length
        if length <= max_repeats:
            repeated[start + 1 : end] = True
        elif end + 1 < len(pose):
            step_out = float(np.linalg.norm(pose[end, :3] - pose[end - 1, :3]))
            next_step = float(np.linalg.norm(pose[end + 1, :3] - pose[end, :3]))
            # A body at rest leaves with a step like the next one. A lost body catches up at once.
            catches_up = step_out > max(_MIN_FREEZE_STEP, _FREEZE_FACTOR * next_step)
            frozen[start + 1 : end] = catches_up
    return repeated, frozen


def _jumps(pose: np.ndarray, rows: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find single frames away from their neighbours, and steps too long and fast for a body.

    Args:
        pose: Poses (M, 7) of the rows in which the body was seen.
        rows: Their numbers (M,) in the stream.
        t: Times (N,) of the stream, s.

    Returns:
        Row numbers in the stream of the single frames, and of the first frames after such steps.
    """
    if len(pose) < _MIN_JUMP_ROWS:
        return np.empty(0, int), np.empty(0, int)
    position = pose[:, :3]
    quaternion = pose[:, 3:]
    step = np.linalg.norm(np.diff(position, axis=0), axis=1)
    step_over_two = np.linalg.norm(position[2:] - position[:-2], axis=1)
    angle = _angle_between(quaternion[1:], quaternion[:-1])
    angle_over_two = _angle_between(quaternion[2:], quaternion[:-2])
    is_single = np.zeros(len(pose), bool)
    is_single[1:-1] |= _out_and_back(step, step_over_two, _MIN_JUMP)
    is_single[1:-1] |= _out_and_back(angle, angle_over_two, _MIN_ROTATION_JUMP)
    speed = step / np.diff(t[rows])
    is_far = step > _MIN_LASTING_JUMP
    is_fast = (speed > _MIN_LASTING_SPEED) & (step > _LASTING_FACTOR * np.median(step))
    lasting = np.flatnonzero(is_far & is_fast & ~is_single[1:] & ~is_single[:-1]) + 1
    return rows[is_single], rows[lasting]


def _angle_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Angles (N,) in rad between rotations given as quaternions (N, 4)."""
    return 2 * np.arccos(np.clip(np.abs((one * other).sum(1)), 0, 1))


def _out_and_back(steps: np.ndarray, steps_over_two: np.ndarray, smallest: float) -> np.ndarray:
    """Find frames that are away from both neighbours, while the motion around them is slow.

    A body that bounces is also away from both neighbours, but it arrives and leaves fast, so the
    steps before and after these two are long as well.

    Args:
        steps: Distances or angles (N - 1,) between neighbouring frames.
        steps_over_two: Distances or angles (N - 2,) between frames two apart.
        smallest: Shortest step that may be a jump.

    Returns:
        Whether each inner frame (N - 2,) is such a frame.
    """
    shorter = np.minimum(steps[:-1], steps[1:])
    step_before = np.concatenate([[0.0], steps[:-2]])
    step_after = np.concatenate([steps[2:], [0.0]])
    beside = np.maximum(step_before, step_after)
    usual = np.full(shorter.shape, np.median(steps))
    around = np.maximum.reduce([steps_over_two, beside, usual])
    return shorter > np.maximum(smallest, _JUMP_FACTOR * around)
