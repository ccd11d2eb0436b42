"""Motion capture: poses at 200 Hz with noise, time jitter, drop-outs and misplaced markers.

"Camera frame" means one exposure of the cameras, "body frame" the axes of a tracked body."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

RATE = 200.0  # Hz, camera frames per second
# Standard deviations of the error in one camera frame.
POSITION_NOISE = 1.2e-4  # m, of each axis
ORIENTATION_NOISE = 2.0e-3  # rad, as the position noise of markers 60 mm apart gives
TIME_JITTER = 3.0e-4  # s, between the time stamp and the exposure
DROP_OUT_CHANCE = 0.004  # probability that a drop-out begins at a camera frame
DROP_OUT_FRAMES = 3.0  # mean length of a drop-out, in camera frames
# Standard deviations of the error with which the body frame was defined from its markers; the error
# is constant over a setting.
FRAME_POSITION_ERROR = 3.0e-4  # m
FRAME_ORIENTATION_ERROR = 4.0e-3  # rad


def frame_error(rng: np.random.Generator) -> np.ndarray:
    """Draw the pose (7,), x y z qw qx qy qz, of the tracked body frame in the true one."""
    rotation = Rotation.from_rotvec(FRAME_ORIENTATION_ERROR * rng.normal(size=3))
    position = FRAME_POSITION_ERROR * rng.normal(size=3)
    return np.concatenate([position, rotation.as_quat(scalar_first=True)])


def observe(
    t: np.ndarray, poses: np.ndarray, error: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Measure a motion as the cameras do.

    Args:
        t: (M,), s, times of the true motion.
        poses: (M, 7), true poses x y z qw qx qy qz of the body at these times, world axes.
        error: (7,), pose of the tracked body frame in the true one, as from `frame_error`.
        rng: Source of the noise.

    Returns:
        Time stamps (T,), s, and measured poses (T, 7), NaN where the body is lost.
    """
    stamps = np.arange(0.0, t[-1], 1 / RATE)
    n = len(stamps)
    exposure_times = np.clip(stamps + TIME_JITTER * rng.normal(size=n), t[0], t[-1])
    true_rotation = Slerp(t, Rotation.from_quat(poses[:, 3:], scalar_first=True))(exposure_times)
    position = np.column_stack([np.interp(exposure_times, t, axis) for axis in poses[:, :3].T])
    position = position + true_rotation.apply(error[:3])
    position += POSITION_NOISE * rng.normal(size=(n, 3))
    noise = Rotation.from_rotvec(ORIENTATION_NOISE * rng.normal(size=(n, 3)))
    rotation = noise * true_rotation * Rotation.from_quat(error[3:], scalar_first=True)
    quaternion = rotation.as_quat(canonical=True, scalar_first=True)
    measured = np.column_stack([position, quaternion])
    for first in np.flatnonzero(rng.random(n) < DROP_OUT_CHANCE):
        length = int(rng.geometric(1 / DROP_OUT_FRAMES))
        measured[first : first + length] = np.nan
    return stamps, measured
