"""Trials in a few bytes: poses rounded well below the cameras' noise, as differences from frame to
frame, deflated.

A file is an NPZ archive: `strikes` (N, 3) speed, point, deflection as commanded; `frames` (N,) rows
of each trial; `lost` (2, ceil(F / 8)) bits of the rows at which block and striker were not seen;
`low`, `high` (12, F) bytes of the differences, zigzag coded (0, -1, 1, -2 as 0, 1, 2, 3). The
twelve columns are, of block then striker, x y z in steps of 0.01 mm, then yaw and the two tilts
(the rotation vector that is left after the turn about z) in steps of 0.2 mrad. Time runs from 0 at
200 Hz. A trial's first difference is its first value, so high bytes alone may be large.
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

LENGTH, ANGLE = 1e-5, 2e-4  # m, rad: one step of the rounded values
_BODIES = ("block", "striker")
_NAMES = ("strikes", "frames", "lost", "low", "high")
_BYTES = 1 << 29  # of an archive's arrays: a hundred hours


def pack(trials: Trials, strikes: Sequence[Strike]) -> bytes:
    """Trials and the strikes that made them as bytes of an NPZ archive; the same trials give the
    same bytes.
    """
    steps, lost = [], []
    for trial in trials:
        columns = []
        for body in _BODIES:
            pose = trial.poses[body]
            gone = ~np.isfinite(pose).all(1)
            lost.append(gone)
            columns.append(
                np.zeros((len(gone), 6), int) if gone.all() else _held(_rounded(pose), gone)
            )
        steps.append(np.diff(np.hstack(columns), axis=0, prepend=0))
    delta = np.vstack(steps).T
    coded = np.where(delta >= 0, 2 * delta, -2 * delta - 1)
    if coded.max() >= 1 << 16:
        raise DataError(
            f"a pose moves by {coded.max() / 2:.0f} steps between frames, more than the packed format holds"
        )
    bits = np.stack([np.packbits(np.concatenate(lost[i::2])) for i in range(2)])
    about = np.array([[s.speed, s.point, s.deflection] for s in strikes])
    arrays = dict(
        zip(
            _NAMES,
            (
                about,
                np.array([len(t.t) for t in trials], np.int32),
                bits,
                (coded & 255).astype(np.uint8),
                (coded >> 8).astype(np.uint8),
            ),
            strict=True,
        )
    )
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def unpack(content: bytes, name: str) -> tuple[Trials, list[Strike]]:
    """Inverse of `pack`, up to rounding; trials are called by `name` and their number."""
    damaged = DataError(f"the recorded trials of {name} are cut off or damaged")
    with Npz(content, limit=_BYTES) as archive:
        if not set(_NAMES) <= set(archive.names):
            raise damaged
        about, frames, bits, low, high = (archive.array(key) for key in _NAMES)
    total = low.shape[-1] if low.ndim else 0
    count = frames.size
    shapes = {"strikes": (count, 3), "frames": (count,), "lost": (2, -(-total // 8))}
    shapes |= {"low": (12, total), "high": (12, total)}
    arrays = dict(zip(_NAMES, (about, frames, bits, low, high), strict=True))
    if any(array.shape != shapes[key] for key, array in arrays.items()):
        raise damaged
    if {bits.dtype, low.dtype, high.dtype} != {np.dtype(np.uint8)} or frames.dtype.kind not in "iu":
        raise damaged
    if (frames < 0).any() or sum(frames.tolist()) != total:
        raise damaged
    coded = low.astype(np.int64) + (high.astype(np.int64) << 8)
    lost = np.unpackbits(bits, axis=1, count=total).astype(bool)
    delta = np.where(coded % 2 == 0, coded // 2, -(coded // 2) - 1).T
    trials, start = [], 0
    for i, n in enumerate(frames):
        rows = slice(start, start + int(n))
        values = np.cumsum(delta[rows], 0)
        poses = {}
        for b, body in enumerate(_BODIES):
            poses[body] = _pose(values[:, 6 * b : 6 * b + 6])
            poses[body][lost[b, rows]] = np.nan
        trials.append(Trial(f"{name}-{i:03d}", np.arange(int(n)) / RATE, poses, source="lab"))
        start += int(n)
    return Trials(tuple(trials)), [Strike(*map(float, row)) for row in about]


def _rounded(pose: np.ndarray) -> np.ndarray:
    """Poses (T, 7), NaN where lost, as whole steps (T, 6), 0 where lost."""
    out = np.zeros((len(pose), 6), int)
    seen = np.isfinite(pose).all(1)
    turn = yaw(pose[seen, 3:])
    tilt = (
        Rotation.from_quat(pose[seen, 3:], scalar_first=True)
        * Rotation.from_rotvec(np.outer(-turn, [0, 0, 1]))
    ).as_rotvec()
    out[seen] = np.rint(
        np.column_stack([pose[seen, :3] / LENGTH, turn / ANGLE, tilt[:, :2] / ANGLE])
    )
    return out


def _held(values: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Values with lost rows taken from the last row seen, or from the first."""
    last = np.maximum.accumulate(np.where(gone, -1, np.arange(len(gone))))
    return values[np.where(last < 0, int(np.argmin(gone)), last)]


def _pose(values: np.ndarray) -> np.ndarray:
    """Inverse of `_rounded` for rows that were seen."""
    turn = Rotation.from_quat(quaternion(ANGLE * values[:, 3]), scalar_first=True)
    tilt = Rotation.from_rotvec(np.column_stack([ANGLE * values[:, 4:], np.zeros(len(values))]))
    return np.column_stack(
        [LENGTH * values[:, :3], (tilt * turn).as_quat(canonical=True, scalar_first=True)]
    )
