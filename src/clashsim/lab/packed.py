"""A compact format of trials: differences of rounded poses, in a compressed archive.

The rounding is well below the cameras' noise.

A file is an NPZ archive of N trials with F rows (camera frames) in total. Its arrays are:

- `strikes` (N, 3): commanded speed, point and deflection of each strike.
- `frames` (N,): number of rows of each trial.
- `lost` (2, ceil(F / 8)): one bit per row, set where the block, or the striker, was not seen.
- `low`, `high` (12, F): low and high bytes of the differences between successive rows, zigzag coded
  (0, -1, 1, -2 as 0, 1, 2, 3). The first difference of a trial is its first row.

The twelve columns are, for the block and then for the striker, x y z in steps of 0.01 mm, then yaw
and two tilts (the rotation vector that remains after the rotation about z) in steps of 0.2 mrad.
Time starts at 0 and has 200 rows per second.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.npz import Npz
from clashsim.core.trials import Trial, Trials, quaternion, yaw
from clashsim.lab.mocap import RATE
from clashsim.lab.strike import Strike

LENGTH = 1e-5  # m, one step of the rounded positions
ANGLE = 2e-4  # rad, one step of the rounded angles
_BODIES = ("block", "striker")
_NAMES = ("strikes", "frames", "lost", "low", "high")
_COLUMNS = 6  # of one body: x, y, z, yaw, two tilts
_BYTE_BITS = 8
_LOW_BYTE = 255  # mask
_MAX_CODE = (1 << 16) - 1  # largest code that fits in two bytes
_MAX_BYTES = 1 << 29  # of an archive's arrays, enough for a hundred hours


def pack(trials: Trials, strikes: Sequence[Strike]) -> bytes:
    """Pack trials and the strikes that made them.

    Args:
        trials: Trials of the bodies `block` and `striker`.
        strikes: The commanded strikes, one for each trial.

    Returns:
        The bytes of an NPZ archive; the same trials give the same bytes.
    """
    differences = []
    lost: dict[str, list[np.ndarray]] = {body: [] for body in _BODIES}
    for trial in trials:
        columns = []
        for body in _BODIES:
            pose = trial.poses[body]
            is_lost = ~np.isfinite(pose).all(1)
            lost[body].append(is_lost)
            columns.append(_fill_lost_rows(_round_pose(pose), is_lost))
        differences.append(np.diff(np.hstack(columns), axis=0, prepend=0))
    code = _zigzag(np.vstack(differences).T)
    if code.max() > _MAX_CODE:
        raise DataError(
            f"a pose moves by {code.max() / 2:.0f} steps between frames, "
            "more than the packed format holds"
        )
    arrays = {
        "strikes": np.array([[s.speed, s.point, s.deflection] for s in strikes]),
        "frames": np.array([len(trial.t) for trial in trials], np.int32),
        "lost": np.stack([np.packbits(np.concatenate(lost[body])) for body in _BODIES]),
        "low": (code & _LOW_BYTE).astype(np.uint8),
        "high": (code >> _BYTE_BITS).astype(np.uint8),
    }
    archive = io.BytesIO()
    np.savez_compressed(archive, **arrays)  # type: ignore[arg-type]
    return archive.getvalue()


def unpack(content: bytes, name: str) -> tuple[Trials, list[Strike]]:
    """Unpack trials; the inverse of `pack`, up to rounding.

    Args:
        content: The bytes of an archive.
        name: Start of the trials' names, which end with their number.

    Returns:
        The trials, and the commanded strikes.

    Raises:
        DataError: The archive is cut off or damaged.
    """
    arrays = _read_arrays(content, name)
    frames = arrays["frames"]
    low = arrays["low"].astype(np.int64)
    high = arrays["high"].astype(np.int64)
    differences = _from_zigzag(low + (high << _BYTE_BITS)).T
    is_lost = np.unpackbits(arrays["lost"], axis=1, count=low.shape[1]).astype(bool)
    trials = []
    start = 0
    for i, count in enumerate(frames.tolist()):
        rows = slice(start, start + count)
        start += count
        steps = np.cumsum(differences[rows], 0)
        poses = {}
        for b, body in enumerate(_BODIES):
            poses[body] = _pose_of_steps(steps[:, _COLUMNS * b : _COLUMNS * (b + 1)])
            poses[body][is_lost[b, rows]] = np.nan
        trials.append(Trial(f"{name}-{i:03d}", np.arange(count) / RATE, poses, source="lab"))
    strikes = [Strike(*map(float, row)) for row in arrays["strikes"]]
    return Trials(tuple(trials)), strikes


def _read_arrays(content: bytes, name: str) -> dict[str, np.ndarray]:
    """The arrays of an archive, after checking that their shapes and types fit together."""
    damaged = DataError(f"the recorded trials of {name} are cut off or damaged")
    with Npz(content, limit=_MAX_BYTES) as archive:
        if not set(_NAMES) <= set(archive.names):
            raise damaged
        arrays = {key: archive.array(key) for key in _NAMES}
    low = arrays["low"]
    frames = arrays["frames"]
    total = low.shape[-1] if low.ndim else 0
    shapes = {
        "strikes": (frames.size, 3),
        "frames": (frames.size,),
        "lost": (2, -(-total // _BYTE_BITS)),
        "low": (2 * _COLUMNS, total),
        "high": (2 * _COLUMNS, total),
    }
    if any(arrays[key].shape != shape for key, shape in shapes.items()):
        raise damaged
    if any(arrays[key].dtype != np.uint8 for key in ("lost", "low", "high")):
        raise damaged
    if frames.dtype.kind not in "iu":
        raise damaged
    if (frames < 0).any() or sum(frames.tolist()) != total:
        raise damaged
    return arrays


def _zigzag(values: np.ndarray) -> np.ndarray:
    """Code integers of either sign as integers >= 0: 0, -1, 1, -2 as 0, 1, 2, 3."""
    return np.where(values >= 0, 2 * values, -2 * values - 1)


def _from_zigzag(code: np.ndarray) -> np.ndarray:
    """Decode what `_zigzag` coded."""
    return np.where(code % 2 == 0, code // 2, -(code // 2) - 1)


def _round_pose(pose: np.ndarray) -> np.ndarray:
    """Poses (T, 7) as whole numbers of steps (T, 6): x, y, z, yaw, two tilts; 0 where lost."""
    steps = np.zeros((len(pose), _COLUMNS), int)
    seen = np.isfinite(pose).all(1)
    if not seen.any():
        return steps
    angle = yaw(pose[seen, 3:])
    rotation = Rotation.from_quat(pose[seen, 3:], scalar_first=True)
    minus_yaw = Rotation.from_rotvec(np.outer(-angle, [0, 0, 1]))
    tilt = (rotation * minus_yaw).as_rotvec()[:, :2]
    steps[seen] = np.rint(np.column_stack([pose[seen, :3] / LENGTH, angle / ANGLE, tilt / ANGLE]))
    return steps


def _fill_lost_rows(values: np.ndarray, is_lost: np.ndarray) -> np.ndarray:
    """Values (T, c) in which lost rows repeat the last row seen before, or else the first seen."""
    last_seen = np.maximum.accumulate(np.where(is_lost, -1, np.arange(len(is_lost))))
    first_seen = int(np.argmin(is_lost))
    return values[np.where(last_seen < 0, first_seen, last_seen)]


def _pose_of_steps(steps: np.ndarray) -> np.ndarray:
    """Poses (T, 7) of steps (T, 6); the inverse of `_round_pose` for rows that were seen."""
    about_z = Rotation.from_quat(quaternion(ANGLE * steps[:, 3]), scalar_first=True)
    no_tilt_about_z = np.zeros(len(steps))
    tilt = Rotation.from_rotvec(np.column_stack([ANGLE * steps[:, 4:], no_tilt_about_z]))
    quaternions = (tilt * about_z).as_quat(canonical=True, scalar_first=True)
    return np.column_stack([LENGTH * steps[:, :3], quaternions])
