"""A real double pendulum before a high-speed camera (Asseman, Kornuta, Ozcan 2018), by run and by
recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.sources import read_zip_members

FILE, SOURCE = "ibm_pendulum/split_train.zip", "erwincoumans/tiny-differentiable-simulator"
RATE, ARM = (
    400.0,
    0.091,
)  # frames a second; m, between the two joints, both as the authors give them
_SAME = 1.0  # fifth-pixels: runs whose pivots lie this near were cut from one recording


@dataclass(frozen=True, eq=False)
class PendulumRun:
    """One file: places (T, 3, 2) of the pivot's, the first and the second bob's marker, in m; the
    first axis points down, as gravity does.

    `recording` numbers the recordings, of which some were cut into several files.
    """

    name: str
    marker_positions: np.ndarray
    recording: int


def load(root: Path) -> list[PendulumRun]:
    """All runs of the data root, by the number in their names; metres by the length of the first
    arm, for the camera stood at two distances.
    """
    path = root / FILE
    if not path.is_file():
        raise DataError(
            f"the data root {str(root)!r} holds no {FILE}; it is to be had from github.com/{SOURCE}"
        )
    members = read_zip_members(path, ".csv")
    texts = {Path(name).stem: raw.decode("ascii", "replace") for name, raw in members.items()}
    if not texts:
        raise DataError(f"{path.name} holds no run (*.csv)")
    names = sorted(texts, key=lambda n: (int(n) if n.isdigit() else len(texts), n))
    raw = [_places(name, texts[name]) for name in names]
    same = _recordings([np.median(p[:, 0], 0) for p in raw])
    scale = _scales([float(np.median(np.linalg.norm(p[:, 1] - p[:, 0], axis=1))) for p in raw])
    return [PendulumRun(n, p * s, r) for n, p, s, r in zip(names, raw, scale, same, strict=True)]


def split(
    runs: Sequence[PendulumRun], *, share: float = 0.2, seed: int = 0
) -> tuple[list[PendulumRun], list[PendulumRun]]:
    """Runs to fit on and runs held out, a `share` of the files or a little more; files of one
    recording stay together.
    """
    numbers = sorted({run.recording for run in runs})
    if len(numbers) < 2:
        raise DataError("holding out whole recordings needs at least two of them")
    held = set[int]()
    for number in np.random.default_rng(seed).permutation(numbers):
        if (
            sum(run.recording in held for run in runs) >= share * len(runs)
            or len(held) == len(numbers) - 1
        ):
            break
        held.add(int(number))
    return [r for r in runs if r.recording not in held], [r for r in runs if r.recording in held]


def _places(name: str, text: str) -> np.ndarray:
    try:
        rows = np.array(
            [
                [float(v) for v in line.replace(",", " ").split()]
                for line in text.splitlines()
                if line.strip()
            ]
        )
    except ValueError:
        rows = np.zeros(0)
    if rows.ndim != 2 or rows.shape[1] != 6 or len(rows) < 2 or not np.isfinite(rows).all():
        raise DataError(
            f"run {name!r} should hold rows of six numbers: x and y of the pivot, the first and the second bob"
        )
    return rows.reshape(-1, 3, 2)


def _recordings(pivots: Sequence[np.ndarray]) -> list[int]:
    """A number for each run, the same for those whose pivots are together."""
    groups = list[list[int]]()
    for i, pivot in enumerate(pivots):
        near = next(
            (g for g in groups if min(np.abs(pivot - pivots[j]).max() for j in g) <= _SAME), None
        )
        if near is None:
            groups.append([i])
        else:
            near.append(i)
    return [next(k for k, g in enumerate(groups) if i in g) for i in range(len(pivots))]


def _scales(arms: Sequence[float]) -> list[float]:
    """Metres a fifth-pixel of each run; arms that differ by less than 1 % were seen from one
    distance, and share the mean.
    """
    order = np.argsort(arms)
    level = np.concatenate(
        [[0], np.cumsum(np.diff(np.asarray(arms)[order]) > 0.01 * np.median(arms))]
    )
    out = np.zeros(len(arms))
    for k in range(level[-1] + 1):
        out[order[level == k]] = ARM / np.mean(np.asarray(arms)[order[level == k]])
    return list(out)
