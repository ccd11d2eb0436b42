"""`clashsim sweep`: calibrate many pairs, one run for each line of a list."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from clashsim.commands.calibrate import CalibrateOptions, config_from
from clashsim.commands.option_types import ExecutionOptions, PairOptions
from clashsim.commands.shared import console, open_executor
from clashsim.core.errors import ClashError, DataError, ParamError, RunError, quoted
from clashsim.core.executor import Executor
from clashsim.core.parsing import TOML_BYTES, parse_toml, read_bounded
from clashsim.core.progress import bar
from clashsim.core.typed import build_dataclass

# Columns of a .csv list that hold numbers, and how their text is converted.
_NUMBERS: dict[str, Callable[[str], float]] = {"seed": int, "hold_out": float}
_LIST_BYTES = 1 << 26  # largest list that is read: room for more than a hundred thousand runs
_REQUIRED = ("scene", "impacts", "out")
# An existing run is kept only if it was made with the same values of these options.
_DECISIVE = ("seed", "hold_out", "known", "pair")
_COMPARED = ("MuJoCo, nominal", "MuJoCo, identified", "clashsim")


@dataclass(frozen=True)
class SweepOptions:
    """Calibrate many pairs: one run for each line of a list.

    Example: clashsim sweep pairs.csv --executor ray

    The list is a .csv file with columns scene, impacts and out, or a .toml file with a table
    [[run]] for each. Further columns are optional: seed, hold_out, known, struck, striker and
    ground, as in clashsim calibrate. Paths are relative to the list. Existing runs are kept, so
    an interrupted sweep continues. A run that fails is reported at the end; the others finish.
    """

    pairs: Positional[Annotated[Path, arg(metavar="LIST")]]
    """File with the list, ending in .csv or .toml."""
    seed: int = 0
    """Seed of fitting and held-out impacts, where the list gives none."""
    hold_out: float = 0.0
    """Share of the impacts kept back to test each result, where the list gives none; 0 uses 5-fold
    cross-validation.
    """
    overwrite: bool = False
    """Calibrate existing runs again and replace them."""
    execution: OmitArgPrefixes[ExecutionOptions] = ExecutionOptions()


@dataclass(frozen=True)
class _Line:
    """One entry of the list: options of `clashsim calibrate`, None where the entry has none."""

    scene: str
    impacts: str
    out: str
    seed: int | None = None
    hold_out: float | None = None
    known: tuple[str, ...] = ()
    struck: str | None = None
    striker: str | None = None
    ground: str | None = None


@dataclass
class _Progress:
    """State of a sweep.

    Attributes:
        to_do: Indices of the jobs whose runs do not exist yet.
        failed: Why a job failed, by its index.
    """

    to_do: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)


def run(options: SweepOptions) -> None:
    """Run `clashsim sweep`."""
    from clashsim.report.tables import tabulate_rows

    jobs = read_jobs(options)
    state = _begin(jobs)
    with open_executor(options.execution) as executor:
        # Workers of an executor have one thread each; without one, sampling uses all cores (0).
        threads = 0 if options.execution.executor is None else 1
        _calibrate(jobs, state, executor, threads)
    rows = _result_rows(jobs, state)
    if rows:
        screen = console()
        title = f"Accuracy(0.1) of {len(rows)} runs"
        screen.print(tabulate_rows(title, rows, width=screen.width), markup=False)
    num_made = sum(i not in state.failed for i in state.to_do)
    print(f"{num_made} runs made, {len(rows) - num_made} existed already and are kept")
    if state.failed:
        for i, reason in sorted(state.failed.items()):
            print(f"{os.path.relpath(jobs[i].out)}: {reason}")
        raise ClashError(
            f"{len(state.failed)} of {len(jobs)} calibrations failed, the others are done; "
            "the same command tries again"
        )


def read_jobs(options: SweepOptions) -> list[CalibrateOptions]:
    """Read the list: one set of `clashsim calibrate` options per entry.

    Args:
        options: As given on the command line.

    Returns:
        Options with absolute paths, because workers have other working folders.
    """
    path = options.pairs
    if not path.is_file():
        raise DataError(f"there is no list {str(path)!r}")
    lines = _read_lines(path)
    if not lines:
        raise DataError(f"the list {str(path)!r} is empty")
    jobs = []
    for number, line in enumerate(lines, start=1):
        jobs.append(_job(options, line, f"{path.name}, entry {number}"))
    for out, count in Counter(job.out for job in jobs).items():
        if count > 1:
            raise DataError(f"the list {str(path)!r} names the output {str(out)!r} {count} times")
    return jobs


def _begin(jobs: list[CalibrateOptions]) -> _Progress:
    """Find the jobs whose runs do not exist yet; runs made with other options have failed."""
    state = _Progress()
    for i, job in enumerate(jobs):
        try:
            if not _exists(job):
                state.to_do.append(i)
        except ClashError as error:
            state.failed[i] = str(error)
    return state


def _calibrate(
    jobs: list[CalibrateOptions], state: _Progress, executor: Executor, threads: int
) -> None:
    """Calibrate the jobs in `state.to_do`, and note in `state.failed` those that fail."""
    with bar("calibrating", len(state.to_do)) as advance:
        work = partial(_make_run, threads=threads)
        for position, outcome in executor(work, [jobs[i] for i in state.to_do]):
            if isinstance(outcome, ClashError):
                state.failed[state.to_do[position]] = str(outcome)
            advance(1)


def _make_run(job: CalibrateOptions, threads: int) -> None:
    """Calibrate a job and write its run folder."""
    from clashsim.fit.threads import one_thread
    from clashsim.pipeline.calibration import calibrate_run

    with one_thread():
        calibrate_run(job.scene, job.impacts, job.out, config=config_from(job, threads=threads))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Entries of a list, with the types that TOML gives: numbers are converted from CSV text."""
    name = f"the list {str(path)!r}"
    if path.suffix == ".toml":
        content = parse_toml(read_bounded(path, name, limit=TOML_BYTES), name)
        lines = content.get("run", [])
        if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
            raise DataError(f"{name} must have a table [[run]] for each run")
        return lines
    if path.suffix != ".csv":
        raise DataError(f"{name} must end in .csv or .toml")
    text = read_bounded(path, name, limit=_LIST_BYTES).decode("utf-8-sig", "replace")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise DataError(f"{name} cannot be read: {error}") from None
    return [_parse_cells(row, f"{path.name}, entry {i}") for i, row in enumerate(rows, start=1)]


def _parse_cells(row: dict[Any, Any], place: str) -> dict[str, Any]:
    """An entry of a .csv list with converted values; empty cells are left out."""
    values: dict[str, Any] = {}
    for key, cell in row.items():
        if not isinstance(key, str) or not isinstance(cell, str | None):
            raise DataError(f"{place}: there are more cells than names in the header")
        name = key.strip()
        text = (cell or "").strip()
        if not text:
            continue
        if name == "known":
            values[name] = text.split()
            continue
        try:
            values[name] = _NUMBERS[name](text) if name in _NUMBERS else text
        except ValueError:
            raise ParamError(f"{place}: {name} must be a number, got {quoted(text)}") from None
    return values


def _job(options: SweepOptions, line: dict[str, Any], place: str) -> CalibrateOptions:
    """A line of the list as options of `clashsim calibrate`."""
    for name in _REQUIRED:
        if not line.get(name):
            raise DataError(f"{place}: {name} is missing")
    asked: _Line = build_dataclass(_Line, line, place=place)
    folder = options.pairs.absolute().parent
    is_file = asked.scene.endswith(".xml")
    return CalibrateOptions(
        scene=str(folder / asked.scene) if is_file else asked.scene,
        impacts=folder / asked.impacts,
        out=folder / asked.out,
        overwrite=options.overwrite,
        known=asked.known,
        pair=PairOptions(struck=asked.struck, striker=asked.striker, ground=asked.ground),
        seed=options.seed if asked.seed is None else asked.seed,
        hold_out=options.hold_out if asked.hold_out is None else asked.hold_out,
    )


def _exists(job: CalibrateOptions) -> bool:
    """Whether the run of a job exists already.

    Raises:
        RunError: A run exists, but was made with other options.
    """
    from clashsim.fit.run_folder import read_notes

    if job.overwrite or not job.out.is_dir() or not any(job.out.iterdir()):
        return False
    existing = read_notes(job.out)["options"]
    existing["known"] = tuple(existing.get("known", ()))  # JSON has no tuples
    asked = asdict(job)
    for name in _DECISIVE:
        if existing.get(name) != asked[name]:
            raise RunError(
                f"the run exists, but was made with another {name}; give it another output, "
                "or make all again with --overwrite"
            )
    return True


def _result_rows(jobs: list[CalibrateOptions], state: _Progress) -> list[dict[str, Any]]:
    """A row of accuracies for each run that exists; one that cannot be read counts as failed."""
    rows = []
    for i, job in enumerate(jobs):
        if i in state.failed:
            continue
        try:
            rows.append(_result_row(job))
        except ClashError as error:
            state.failed[i] = (
                f"{error}; if it was made on another machine, name an output that all machines see"
            )
    return rows


def _result_row(job: CalibrateOptions) -> dict[str, Any]:
    """Accuracies of a run, read from its folder: a worker or an earlier sweep may have made it."""
    from clashsim.fit.run_folder import read_notes

    metrics = read_notes(job.out)["metrics"]
    models = metrics.get("models", {})
    row = {
        "run": os.path.relpath(job.out),
        "scene": Path(job.scene).stem,
        "impacts": metrics["impacts"],
        "judged": metrics.get("judged", "-"),
    }
    for name in _COMPARED:
        row[name] = models.get(name, {}).get("accuracy_0.1")
    return row
