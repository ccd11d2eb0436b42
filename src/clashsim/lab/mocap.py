"""Motion capture: poses 200 times a second, with noise, jitter of the time stamps, drop-outs and a
body frame that is a little off.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

RATE = 200.0  # Hz
POSITION = 1.2e-4  # m, standard deviation of each axis in one frame
ORIENTATION = 2.0e-3  # rad, likewise: what the position noise of markers 60 mm apart gives
JITTER = 3.0e-4  # s, between the time stamp and the exposure
DROP_OUT = 0.004  # chance that a body is lost at a frame
LOST = 3.0  # frames, mean length of a drop-out
# M, error with which the body's frame was defined on its markers, constant over a setting
FRAME_POSITION = 3.0e-4
FRAME_ORIENTATION = 4.0e-3  # rad, likewise


def frame_error(rng: np.random.Generator) -> np.ndarray:
    """Pose (7,) of the tracked frame in the true one."""
    turn = Rotation.from_rotvec(FRAME_ORIENTATION * rng.normal(size=3)).as_quat(scalar_first=True)
    return np.concatenate([FRAME_POSITION * rng.normal(size=3), turn])


def observe(
    t: np.ndarray, poses: np.ndarray, error: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What the cameras report of a motion given at t (M,) s as poses (M, 7): time stamps (T,) and
    poses (T, 7), NaN where lost.
    """
    stamps = np.arange(0.0, t[-1], 1 / RATE)
    n = len(stamps)
    exposed = np.clip(stamps + JITTER * rng.normal(size=n), t[0], t[-1])
    turn = Slerp(t, Rotation.from_quat(poses[:, 3:], scalar_first=True))(exposed)
    place = np.column_stack([np.interp(exposed, t, c) for c in poses[:, :3].T]) + turn.apply(
        error[:3]
    )
    place += POSITION * rng.normal(size=(n, 3))
    turn = (
        Rotation.from_rotvec(ORIENTATION * rng.normal(size=(n, 3)))
        * turn
        * Rotation.from_quat(error[3:], scalar_first=True)
    )
    seen = np.column_stack([place, turn.as_quat(canonical=True, scalar_first=True)])
    for first in np.flatnonzero(rng.random(n) < DROP_OUT):
        seen[first : first + int(rng.geometric(1 / LOST))] = np.nan
    return stamps, seen
