"""Run folders of several pairs: a run folder for each pair in one that is written as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from clashsim.data.folders import dumps, read_folder, with_manifest, write_folder
from clashsim.fit.calibrated_pairs import CalibratedPairs
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.motion_run import MotionRun, motion_run_of_files
from clashsim.fit.run_folder import (
    MOTION_FILE,
    PAIRS_FILE,
    RunRecord,
    pair_folder,
    read_pairs_file,
    run_files,
    run_of_files,
)
from clashsim.slides.identify import SlideFit


@dataclass(frozen=True, eq=False)
class FittedRun:
    """What a run folder holds of one pair.

    Attributes:
        run: The calibrated run.
        slide: How its slide model was fitted; None without one.
        record: Options, metrics, data and pages.
    """

    run: CalibratedRun
    slide: SlideFit | None
    record: RunRecord


def save_pairs(
    path: Path | str,
    pairs: Mapping[str, FittedRun],
    *,
    notes: Sequence[str] = (),
    pages: Mapping[str, bytes] = MappingProxyType({}),
    overwrite: bool = False,
) -> None:
    """Write the runs of several pairs of one scene as one folder.

    `pairs/NAME` in it is a run folder of its own.

    Args:
        path: The folder.
        pairs: The pairs by name, in the order in which they are loaded.
        notes: Sentences on all pairs, such as on impacts that were left out.
        pages: Further files for the reader, such as reports, by name.
        overwrite: Whether an existing run is replaced.
    """
    files = dict(pages)
    for name, pair in pairs.items():
        folder = pair_folder(name)
        own = run_files(pair.run.calibration, slide=pair.slide, record=pair.record)
        for file, content in with_manifest(own).items():
            files[f"{folder}/{file}"] = content
    files[PAIRS_FILE] = dumps({"pairs": list(pairs), "notes": list(notes)})
    write_folder(Path(path), files, overwrite=overwrite)


def pair_folders(path: Path | str) -> dict[str, Path]:
    """Run folders of the pairs of a run by name, in order; empty for a run of one pair.

    Args:
        path: The run folder.
    """
    files = read_folder(Path(path))
    return {name: Path(path) / folder for name, folder in read_pairs_file(files).folders.items()}


def pairs_notes(path: Path | str) -> list[str]:
    """Sentences on all pairs of a run.

    Args:
        path: The run folder.
    """
    return list(read_pairs_file(read_folder(Path(path))).notes)


def load(path: Path | str) -> CalibratedRun | CalibratedPairs | MotionRun:
    """Read a run folder of one pair, of several, or of whole trajectories.

    Args:
        path: The folder.

    Returns:
        The run; its predictions are bit-identical to those of the saved run.
    """
    files = read_folder(Path(path))
    if MOTION_FILE in files:
        return motion_run_of_files(files, path)
    folders = read_pairs_file(files).folders
    if not folders:
        return run_of_files(files, path)
    runs = {}
    for name, folder in folders.items():
        start = f"{folder}/"
        own = {file[len(start) :]: files[file] for file in files if file.startswith(start)}
        runs[name] = run_of_files(own, Path(path) / folder)
    return CalibratedPairs(runs)
