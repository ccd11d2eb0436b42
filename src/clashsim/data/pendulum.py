"""Public recordings of a real double pendulum by a high-speed camera.

They are by Asseman, Kornuta and Ozcan (2018), whose files give positions in fifths of a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.trials import Trial, Trials
from clashsim.data.readers.sources import read_zip_members

FILE = "ibm_pendulum/split_train.zip"
SOURCE = "erwincoumans/tiny-differentiable-simulator"
RATE = 400.0  # frames per second, as the authors give it
ARM = 0.091  # m between the two joints, as the authors give it
# Runs whose pivots are at most this far apart were cut from the same recording.
_MAX_PIVOT_DISTANCE = 1.0  # fifths of a pixel
# Runs whose arm lengths differ by less than this were seen from the same distance.
_MAX_ARM_CHANGE = 0.01  # of the median length


@dataclass(frozen=True, eq=False)
class PendulumRun:
    """One file of the public set: a run of the pendulum.

    Attributes:
        name: Name of the file.
        marker_positions: Positions (T, 3, 2) of the markers on the pivot, the first and the second
            bob, m. The first of the two coordinates points down, as gravity does.
        recording: Number of the recording that the run was cut from; runs may share one.
    """

    name: str
    marker_positions: np.ndarray
    recording: int


def load(root: Path) -> list[PendulumRun]:
    """Read all runs of the data root, in the order of the numbers in their names.

    Pixels are turned into metres by the known length of the first arm, separately for each of the
    two distances at which the camera stood.
    """
    path = root / FILE
    if not path.is_file():
        raise DataError(
            f"the data root {str(root)!r} holds no {FILE}; get it from github.com/{SOURCE}"
        )
    members = read_zip_members(path, ".csv")
    texts = {Path(name).stem: raw.decode("ascii", "replace") for name, raw in members.items()}
    if not texts:
        raise DataError(f"{path.name} holds no run (*.csv)")
    names = sorted(texts, key=lambda name: (int(name) if name.isdigit() else len(texts), name))
    positions = [_parse_positions(name, texts[name]) for name in names]
    pivots = [np.median(run[:, 0], 0) for run in positions]
    arms = [float(np.median(np.linalg.norm(run[:, 1] - run[:, 0], axis=1))) for run in positions]
    recordings = _recording_numbers(pivots)
    scales = _metres_per_unit(arms)
    return [
        PendulumRun(name, run * scale, recording)
        for name, run, scale, recording in zip(names, positions, scales, recordings, strict=True)
    ]


def to_trials(runs: Sequence[PendulumRun], *, seconds: float = 1.0) -> Trials:
    """Convert runs to trials with the angles of both joints.

    The joint "upper" has the angle of the first arm from hanging down, "lower" that of the second
    arm from the first, rad, positive towards the second coordinate of the markers.

    Args:
        runs: The runs.
        seconds: Each run is cut into trials of this duration; what is left over is dropped.

    Returns:
        The trials, named after the run and the number of the piece.
    """
    frames = round(seconds * RATE)
    trials = []
    for run in runs:
        arms = np.diff(run.marker_positions, axis=1)
        angles = np.unwrap(np.arctan2(arms[..., 1], arms[..., 0]), axis=0)
        for piece in range(len(angles) // frames):
            rows = slice(piece * frames, (piece + 1) * frames)
            upper, lower = angles[rows].T
            signals = {"upper": upper, "lower": lower - upper}
            t = np.arange(frames) / RATE
            trials.append(Trial(f"{run.name}-{piece}", t, {}, "real", signals))
    return Trials(tuple(trials))


def split(
    runs: Sequence[PendulumRun], *, share: float = 0.2, seed: int = 0
) -> tuple[list[PendulumRun], list[PendulumRun]]:
    """Split runs into those to fit on and those held out; files of one recording stay together.

    Args:
        runs: The runs.
        share: Share of the files that are held out, at least: whole recordings are.
        seed: Seed of the random choice of recordings that are held out.

    Returns:
        Runs to fit on, and runs held out.
    """
    recordings = sorted({run.recording for run in runs})
    if len(recordings) < 2:
        raise DataError("holding out whole recordings needs at least two of them")
    held_out: set[int] = set()
    for recording in np.random.default_rng(seed).permutation(recordings):
        count = sum(run.recording in held_out for run in runs)
        if count >= share * len(runs) or len(held_out) == len(recordings) - 1:
            break
        held_out.add(int(recording))
    fit = [run for run in runs if run.recording not in held_out]
    test = [run for run in runs if run.recording in held_out]
    return fit, test


def _parse_positions(name: str, text: str) -> np.ndarray:
    """Positions (T, 3, 2) of the markers in fifths of a pixel."""
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        rows = np.array(
            [[float(cell) for cell in line.replace(",", " ").split()] for line in lines]
        )
    except ValueError:
        rows = np.zeros(0)
    is_table = rows.ndim == 2 and rows.shape[1] == 6 and len(rows) >= 2
    if not is_table or not np.isfinite(rows).all():
        raise DataError(
            f"run {name!r} should hold rows of six numbers:"
            " x and y of the pivot, the first and the second bob"
        )
    return rows.reshape(-1, 3, 2)


def _recording_numbers(pivots: Sequence[np.ndarray]) -> list[int]:
    """A number for each run, the same for runs with nearly the same position (2,) of the pivot."""
    groups: list[list[np.ndarray]] = []
    numbers = []
    for pivot in pivots:
        for number, group in enumerate(groups):
            distance = min(np.abs(pivot - other).max() for other in group)
            if distance <= _MAX_PIVOT_DISTANCE:
                group.append(pivot)
                numbers.append(number)
                break
        else:
            groups.append([pivot])
            numbers.append(len(groups) - 1)
    return numbers


def _metres_per_unit(arms: Sequence[float]) -> list[float]:
    """Metres per fifth of a pixel of each run, from its arm length in fifths of a pixel.

    Runs that the camera saw from the same distance have nearly the same arm length. They share one
    scale, from the mean of these lengths.
    """
    order = np.argsort(arms)
    sorted_arms = np.asarray(arms)[order]
    is_new_distance = np.diff(sorted_arms) > _MAX_ARM_CHANGE * np.median(arms)
    distance_number = np.concatenate([[0], np.cumsum(is_new_distance)])
    scales = np.zeros(len(arms))
    for number in range(distance_number[-1] + 1):
        same = distance_number == number
        scales[order[same]] = ARM / np.mean(sorted_arms[same])
    return list(scales)
