"""Checks of what the numbers mean: units, quaternion order, the axis that points up, handedness.

Each check looks for a motion that is implausible as it was read, but plausible under another
convention.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.core.trials import Trial
from clashsim.data.checks.findings import Finding, finding
from clashsim.data.checks.motion_axes import MIN_FRAMES, find_free_fall, find_slide_axis
from clashsim.data.readers.convert import AXES_FOR_UP
from clashsim.data.readers.streams import Stream

_MAX_DISTANCE = 30.0  # m from the origin
_MAX_SPAN = 20.0  # m over which a body moves
_MIN_DISTANCE = 0.005  # m: bodies that all stay nearer to the origin are in another unit

_MIN_ANGLES = 3  # rows
_MAX_ANGLE = 4 * np.pi  # rad: angles beyond two turns at the start are degrees
_MAX_ANGULAR_SPEED = 60.0  # rad/s
# What a step of a whole turn (2 pi) becomes when radians are taken for degrees.
_WRONG_WRAP = (2 * np.pi) ** 2 / 360  # rad
_WRAP_TOLERANCE = 0.05  # share by which such a step may differ
_MAX_WRAPPED_SIZE = 1.01  # of such a step: angles beyond it were not taken for degrees
_MAX_USUAL_STEP = 0.1  # of such a step, from row to row

_MIN_QUATERNIONS = 4
# Indices that turn xyzw into wxyz, and wxyz into xyzw.
_OTHER_ORDERS = ([3, 0, 1, 2], [1, 2, 3, 0])
# "Upright" is the cosine of the angle between the body's z axis and up.
_MIN_USUAL_UPRIGHT = 0.5  # median: below it a body does not stand as it was defined
_MAX_HALF_TURN_SCALAR = 0.05  # |w|: if no row has more, the body is always about half a turn away
_MIN_UPRIGHT = 0.98  # of nearly all rows, in the order that is right
_MIN_TUMBLING = 0.08  # rad, in the order that is wrong
_MAX_TUMBLING = 0.03  # rad, in the order that is right
_MAX_TUMBLING_SHARE = 0.1  # of the tumbling in the order that is wrong
_MAX_HALF_ANGLE = 0.1  # rad: half the angle from no rotation, or from half a turn

_MAX_ROWS = 2000  # that a fit of a fixed point needs
_MIN_MIRROR_RATIO = 3.0  # by which markers fit their mirror image better
_MIN_ROTATION = 0.5  # rad, below which a mirrored axis does not show
_MIN_POSITION_STD = 0.01  # m
_MAX_ARM = 2.0  # m from the origin of a body to a fixed point
# Residuals of a fixed point, as shares of the standard deviation of positions.
_MIN_BAD_RESIDUAL = 0.2
_MAX_GOOD_RESIDUAL = 0.05
_MAX_MIRRORED_SHARE = 0.2  # of the residual without mirroring

_MIN_SWAP_STEP = 0.04  # m
_MAX_SWAP_SHARE = 0.3  # of the steps that remains when two bodies are exchanged


def check_units(trial: str, streams: Sequence[Stream]) -> list[Finding]:
    """Look for lengths and angles that are off by a factor."""
    found = []
    largest_distances = []
    for stream in streams:
        position = stream.pose[np.isfinite(stream.pose).all(1), :3]
        if not len(position):
            continue
        distances = np.linalg.norm(position, axis=1)
        usual = float(np.median(distances))
        extent = np.percentile(position, 95, 0) - np.percentile(position, 5, 0)
        span = float(np.linalg.norm(extent))
        largest_distances.append(float(distances.max()))
        if usual > _MAX_DISTANCE or span > _MAX_SPAN:
            message = (
                f"the body is {usual:.3g} m from the origin and moves over {span:.3g} m;"
                " check the unit of length (mm for m?)"
            )
            found.append(finding("length_unit", "stop", message, trial=trial, body=stream.body))
        if stream.angles is not None:
            found += _check_angles(trial, stream, stream.angles)
    if largest_distances and 0 < max(largest_distances) < _MIN_DISTANCE:
        message = (
            f"all bodies stay within {1e3 * max(largest_distances):.3g} mm of the origin;"
            " check the unit of length (m for mm?)"
        )
        found.append(finding("length_unit", "stop", message, trial=trial))
    return found


def _check_angles(trial: str, stream: Stream, angles: np.ndarray) -> list[Finding]:
    """Look for degrees taken for radians, and the other way, in angles (N, k)."""
    angles = angles[np.isfinite(angles).all(1)]
    if len(angles) < _MIN_ANGLES:
        return []
    steps = np.abs(np.diff(angles, axis=0))
    usual_time_step = max(float(np.median(np.diff(stream.t))), 1e-9)
    speed = float(np.percentile(steps, 99) / usual_time_step)
    largest = float(np.abs(angles).max())
    starts_large = float(np.abs(angles[0]).max()) > _MAX_ANGLE
    becomes_large = largest > _MAX_ANGLE and speed > _MAX_ANGULAR_SPEED
    if starts_large or becomes_large:
        message = f"angles reach {largest:.4g} rad; check the unit of angle (degrees for radians?)"
        return [finding("angle_unit", "stop", message, trial=trial, body=stream.body)]
    is_small = largest <= _MAX_WRAPPED_SIZE * _WRONG_WRAP
    is_slow = float(np.median(steps)) < _MAX_USUAL_STEP * _WRONG_WRAP
    has_wrap = (np.abs(steps - _WRONG_WRAP) < _WRAP_TOLERANCE * _WRONG_WRAP).any()
    if is_small and is_slow and has_wrap:
        message = (
            f"angles step by {_WRONG_WRAP:.3f} rad, a whole turn in other units;"
            " check the unit of angle (radians for degrees?)"
        )
        return [finding("angle_unit", "stop", message, trial=trial, body=stream.body)]
    return []


def check_quaternion_order(trial: str, stream: Stream) -> list[Finding]:
    """Look for a body that tumbles as read, but only turns about up in the other order."""
    if not stream.has_orientation or stream.angles is not None:
        return []
    axes = np.array(AXES_FOR_UP[stream.up], float)
    read = stream.pose[np.isfinite(stream.pose).all(1), 3:]
    if len(read) < _MIN_QUATERNIONS:
        return []
    # The file's own numbers, which the reader turned with the axes: these may be in another order.
    in_file_axes = np.column_stack([read[:, 0], read[:, 1:] @ axes])
    up = _up_in_body_axes(read)
    is_half_turn = float(np.abs(read[:, 0]).max()) < _MAX_HALF_TURN_SCALAR
    if not is_half_turn and float(np.median(up[:, 2])) >= _MIN_USUAL_UPRIGHT:
        return []
    for order in _OTHER_ORDERS:
        exchanged = in_file_axes[:, order]
        other = np.column_stack([exchanged[:, 0], exchanged[:, 1:] @ axes.T])
        other_up = _up_in_body_axes(other)
        is_upright = float(np.percentile(other_up[:, 2], 5)) > _MIN_UPRIGHT
        tumbling = _angle_about_mean(up)
        other_tumbling = _angle_about_mean(other_up)
        only_turns = other_tumbling < min(_MAX_TUMBLING, _MAX_TUMBLING_SHARE * tumbling)
        if is_upright and tumbling > _MIN_TUMBLING and only_turns:
            message = (
                "the body tumbles as read, but only turns about up with the other order of"
                " quaternions; check order (xyzw or wxyz)"
            )
            return [finding("quaternion_order", "stop", message, trial=trial, body=stream.body)]
        other_is_still = float(np.abs(other[:, 0]).min()) > np.cos(_MAX_HALF_ANGLE)
        is_half_turn = float(np.abs(read[:, 0]).max()) < np.sin(_MAX_HALF_ANGLE)
        if other_is_still and is_half_turn:
            message = (
                "the body is half a turn from where it was defined, but not turned at all with"
                " the other order of quaternions; check order"
            )
            return [finding("quaternion_order", "warn", message, trial=trial, body=stream.body)]
    return []


def _up_in_body_axes(quaternions: np.ndarray) -> np.ndarray:
    """The world's up direction (N, 3) in the axes of bodies with orientations wxyz (N, 4)."""
    w, x, y, z = quaternions.T
    return np.column_stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)])


def _angle_about_mean(directions: np.ndarray) -> float:
    """Angle (rad) within which 95 of 100 directions (N, 3) lie about their mean."""
    mean = directions.mean(0)
    mean = mean / max(float(np.linalg.norm(mean)), 1e-9)
    return float(np.percentile(np.arccos(np.clip(directions @ mean, -1, 1)), 95))


def check_up_axis(trial: str, stream: Stream) -> list[Finding]:
    """Look for a free fall that is not along -z, or a slide in a plane that stands upright."""
    fall = find_free_fall(stream)
    if fall is not None:
        if fall.axis in ("", "-z"):
            return []
        message = f"the body falls along {fall.axis}, not along -z; check which axis is up"
        return [finding("up_axis", "stop", message, trial=trial, body=stream.body, rows=fall.rows)]
    pose = stream.pose[np.isfinite(stream.pose).all(1)]
    if len(pose) < MIN_FRAMES:
        return []
    normal = find_slide_axis(pose)
    if normal is None or normal == 2:
        return []
    message = (
        f"the body moves and turns in a plane that stands upright (about {'xyz'[normal]});"
        " if it slides on a table, another axis is up"
    )
    return [finding("up_axis", "warn", message, trial=trial, body=stream.body)]


def check_handedness(trial: str, stream: Stream) -> list[Finding]:
    """Look for a mirrored axis.

    It shows in markers that fit the body only as a mirror image, and in a body whose motion is a
    rotation about a fixed point c (p = c + R r) only when one axis of its positions is mirrored.
    """
    if stream.mirror_ratio > _MIN_MIRROR_RATIO:
        message = (
            "the markers fit the mirror image of the body, not the body;"
            " an axis has the wrong sign, or two markers are exchanged"
        )
        return [finding("mirrored", "stop", message, trial=trial, body=stream.body)]
    pose = stream.pose[np.isfinite(stream.pose).all(1)]
    if len(pose) < MIN_FRAMES or not stream.has_orientation:
        return []
    pose = pose[:: max(1, len(pose) // _MAX_ROWS)]
    position = pose[:, :3]
    quaternion = pose[:, 3:]
    position_std = float(np.linalg.norm(position.std(0)))
    smallest_product = np.abs(quaternion @ quaternion[0]).min()
    rotation = 2 * np.arccos(np.clip(smallest_product, 0, 1))
    if rotation < _MIN_ROTATION or position_std < _MIN_POSITION_STD:
        return []
    residual, _ = _fixed_point_residual(position, quaternion)
    for i, axis in enumerate("xyz"):
        sign = np.where(np.arange(3) == i, -1.0, 1.0)
        mirrored_residual, arm = _fixed_point_residual(position * sign, quaternion)
        fits_badly = residual > _MIN_BAD_RESIDUAL * position_std
        fits_mirrored = mirrored_residual < min(
            _MAX_GOOD_RESIDUAL * position_std, _MAX_MIRRORED_SHARE * residual
        )
        if fits_badly and fits_mirrored and arm < _MAX_ARM:
            message = (
                f"the body turns about a fixed point only when {axis} is mirrored, so positions"
                f" and rotations are of different hands (flip = {axis!r}?)"
            )
            return [finding("mirrored", "stop", message, trial=trial, body=stream.body)]
    return []


def _fixed_point_residual(position: np.ndarray, quaternion: np.ndarray) -> tuple[float, float]:
    """How well the motion of a body is a rotation about a fixed point c, as in p = c + R r.

    Args:
        position: Positions p (N, 3) of its origin, m.
        quaternion: Orientations R (N, 4), wxyz.

    Returns:
        Root mean square distance (m) between the two sides, and the length of r (m).
    """
    w, x, y, z = quaternion.T
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    ).transpose(2, 0, 1)
    identity = np.broadcast_to(np.eye(3), rotation.shape)
    matrix = np.concatenate([identity, rotation], 2).reshape(-1, 6)
    solution = np.linalg.lstsq(matrix, position.ravel(), rcond=1e-8)[0]  # c, then r
    residuals = matrix @ solution - position.ravel()
    squared_distance = np.mean(residuals**2) * 3  # of three components
    root_mean_square = float(np.sqrt(squared_distance))
    return root_mean_square, float(np.linalg.norm(solution[3:]))


def check_swapped_bodies(trial: Trial) -> list[Finding]:
    """Look for rows at which two bodies take each other's place."""
    found = []
    names = list(trial.poses)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            rows = _swap_rows(trial.poses[first], trial.poses[second])
            if rows.size:
                swap_time = trial.t[rows[0]]
                message = f"{first!r} and {second!r} take each other's place at {swap_time:.4g} s"
                found.append(
                    finding("swapped", "stop", message, trial=trial.name, body=first, rows=rows)
                )
    return found


def _swap_rows(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rows at which two bodies with poses (N, 7) move less if they are exchanged."""
    rows = np.flatnonzero(np.isfinite(first).all(1) & np.isfinite(second).all(1))
    if len(rows) < 2:
        return np.empty(0, int)
    one = first[rows, :3]
    other = second[rows, :3]
    own_step = np.linalg.norm(np.diff(one, axis=0), axis=1)
    own_step = own_step + np.linalg.norm(np.diff(other, axis=0), axis=1)
    exchanged_step = np.linalg.norm(one[1:] - other[:-1], axis=1)
    exchanged_step = exchanged_step + np.linalg.norm(other[1:] - one[:-1], axis=1)
    is_swap = (own_step > _MIN_SWAP_STEP) & (exchanged_step < _MAX_SWAP_SHARE * own_step)
    return rows[np.flatnonzero(is_swap) + 1]
