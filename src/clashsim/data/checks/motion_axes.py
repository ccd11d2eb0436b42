"""Which axis points up, from the motion: bodies fall against it, and turn about it in a slide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.data.readers.streams import Stream

GRAVITY = 9.81  # m/s^2
MIN_FRAMES = 12  # below which a motion does not show any axis

_SMOOTHING = 0.04  # s on each side over which acceleration is estimated
_MIN_WINDOW = 5  # frames of that estimate
_MIN_FALL_FRAMES = 4
_MIN_TIME_STEP = 1e-6  # s
_MAX_STEP_FACTOR = 1.5  # times the usual step between evenly spaced frames
_MAX_GRAVITY_ERROR = 0.5  # m/s^2
_MAX_RESIDUAL = 1e-3  # m from the smoothed path
_MIN_ALIGNMENT = 0.95  # cosine of the angle between the fall and an axis

_MIN_ROTATION = 0.1  # rad of a body that turns
_MIN_AXIS_ALIGNMENT = 0.97  # cosine of the angle between the axis of rotation and x, y or z
_MAX_HEIGHT_SHARE = 0.1  # of the motion in the plane, along its normal
_MIN_UPRIGHT_SPAN = 0.01  # m along z
_UPRIGHT_FACTOR = 4.0  # times the span along the normal


@dataclass(frozen=True, eq=False)
class FreeFall:
    """A free fall in a stream.

    Attributes:
        axis: The direction of the fall, such as "-z"; empty if it is along no axis.
        rows: Rows (M,) of the stream in which the body falls.
    """

    axis: str
    rows: np.ndarray


def find_free_fall(stream: Stream) -> FreeFall | None:
    """The longest free fall of a body, or None where there is none."""
    from scipy.signal import savgol_filter

    rows = np.flatnonzero(np.isfinite(stream.pose).all(1))
    t = stream.t[rows]
    position = stream.pose[rows, :3]
    if len(t) < MIN_FRAMES:
        return None
    dt = float(np.median(np.diff(t)))
    if not dt > _MIN_TIME_STEP:  # or NaN, where a time is missing
        return None
    window = max(_MIN_WINDOW, 2 * round(_SMOOTHING / dt) + 1)
    if 2 * window >= len(t):
        return None
    half = window // 2
    is_gap = np.diff(t) > _MAX_STEP_FACTOR * dt
    gaps_in_window = np.convolve(is_gap, np.ones(window), "same")
    has_gap = gaps_in_window >= 0.5  # at least one, whatever the rounding
    acceleration = savgol_filter(position, window, polyorder=2, deriv=2, delta=dt, axis=0)
    smoothed = savgol_filter(position, window, polyorder=2, axis=0)
    residual = np.linalg.norm(position - smoothed, axis=1)
    gravity_error = np.abs(np.linalg.norm(acceleration, axis=1) - GRAVITY)
    is_falling = np.append(~has_gap, False)  # there is one step less than there are frames
    is_falling &= (gravity_error < _MAX_GRAVITY_ERROR) & (residual < _MAX_RESIDUAL)
    # Near its ends the smoothed path is less certain.
    is_falling[:half] = False
    is_falling[-half:] = False
    longest = _longest_run(is_falling, at_least=max(_MIN_FALL_FRAMES, half))
    if longest is None:
        return None
    direction = acceleration[longest].mean(0) / GRAVITY
    main = int(np.argmax(np.abs(direction)))
    axis = ""
    if abs(direction[main]) > _MIN_ALIGNMENT:
        sign = "-" if direction[main] < 0 else "+"
        axis = sign + "xyz"[main]
    return FreeFall(axis, rows[longest])


def _longest_run(flags: np.ndarray, *, at_least: int) -> slice | None:
    """The longest run of true values (N,), the first of equals; None where all are too short."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    starts = edges[::2]
    lengths = edges[1::2] - starts
    if not len(lengths) or lengths.max() < at_least:
        return None
    longest = int(np.argmax(lengths))
    return slice(starts[longest], starts[longest] + lengths[longest])


def find_slide_axis(pose: np.ndarray) -> int | None:
    """Find the normal of the plane in which a body slides: it turns about it and moves across it.

    A body that rolls on a level floor also turns about an axis across its path, but its z hardly
    varies. An axis other than z is thus returned only where z varies much more than the coordinate
    along the axis.

    Args:
        pose: Poses (N, 7), m and wxyz, all seen.

    Returns:
        0, 1 or 2 for x, y or z; None where there is no such axis.
    """
    span = np.ptp(pose[:, :3], axis=0)
    vector_parts = _rotations_since_start(pose[:, 3:])
    angles = 2 * np.arcsin(np.clip(np.linalg.norm(vector_parts, axis=1), 0, 1))
    if angles.max() < _MIN_ROTATION:
        return None
    largest = vector_parts[np.argmax(angles)]
    axis = np.abs(largest) / np.linalg.norm(largest)
    normal = int(np.argmax(axis))
    in_plane = [i for i in range(3) if i != normal]
    is_level = span[normal] < _MAX_HEIGHT_SHARE * span[in_plane].max()
    if axis[normal] < _MIN_AXIS_ALIGNMENT or not is_level:
        return None
    may_roll = span[2] < _MIN_UPRIGHT_SPAN or span[2] < _UPRIGHT_FACTOR * span[normal]
    if normal != 2 and may_roll:
        return None
    return normal


def _rotations_since_start(quaternions: np.ndarray) -> np.ndarray:
    """Vector parts (N, 3) of the rotations from the first of quaternions wxyz (N, 4) to each.

    Of a quaternion and its negative, the one with a positive scalar part is taken.
    """
    inverse = quaternions[0] * [1, -1, -1, -1]
    scalar = quaternions[:, 0]
    vector = quaternions[:, 1:]
    product_scalar = scalar * inverse[0] - vector @ inverse[1:]
    product_vector = (
        scalar[:, None] * inverse[1:] + inverse[0] * vector + np.cross(vector, inverse[1:])
    )
    return product_vector * np.sign(product_scalar)[:, None]
