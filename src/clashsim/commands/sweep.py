"""`clashsim sweep`."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clashsim.commands.calibrate import make
from clashsim.commands.shared import cache, console, engine, load_scene
from clashsim.core.errors import ClashError, DataError, ParamError, RunError, quoted
from clashsim.core.parsing import TOML_BYTES, parse_toml, read_bounded
from clashsim.core.progress import bar, quiet
from clashsim.core.typed import build_dataclass
from clashsim.fit.threads import one_thread

if TYPE_CHECKING:
    from clashsim.cli import Calibrate, Sweep

_NUMBERS: dict[str, Callable[[str], float]] = {"seed": int, "samples": int, "hold_out": float}
_LIST_BYTES = 1 << 26  # of a list: more than a hundred thousand runs
_MUST = ("scene", "impacts", "out")
_DECIDE = (
    "samples",
    "seed",
    "hold_out",
    "known",
    "pair",
)  # what a run must have been made with to be the one that is asked for


@dataclass(frozen=True)
class _Line:
    """One run of a list, as `clashsim calibrate` has its options; None where it does not say."""

    scene: str
    impacts: str
    out: str
    seed: int | None = None
    samples: int | None = None
    hold_out: float | None = None
    known: tuple[str, ...] = ()
    struck: str | None = None
    striker: str | None = None
    ground: str | None = None


def run(verb: Sweep) -> None:
    """`clashsim sweep`."""
    from clashsim.report.tables import tabulate_rows

    jobs = _jobs(verb)
    failed: dict[int, str] = {}
    left = []
    for i, job in enumerate(jobs):
        try:
            if not _there(job):
                left.append(i)
        except ClashError as error:
            failed[i] = str(error)
    with engine(verb.where) as run_on:
        threads = 0 if verb.where.on is None else 1
        shared = _shared([jobs[i] for i in left])
        if shared:
            # Base models that several runs need come first: two workers that make the same one at
            # once would do it twice.
            with bar("base models", len(shared)) as advance:
                for _ in run_on(
                    partial(_prepared, threads=threads), shared
                ):  # what is wrong with a scene is told by its runs
                    advance(1)
        with bar("calibrating", len(left)) as advance:
            for k, ended in run_on(partial(_made, threads=threads), [jobs[i] for i in left]):
                if isinstance(ended, ClashError):
                    failed[left[k]] = str(ended)
                advance(1)
    rows = []
    for i, job in enumerate(jobs):
        if i not in failed:
            try:
                rows.append(_row(job))
            except ClashError as error:
                failed[i] = (
                    f"{error}; if it was made on another machine, name an output that all machines see"
                )
    if rows:
        out = console()
        out.print(
            tabulate_rows(f"Accuracy(0.1) of {len(rows)} runs", rows, width=out.width), markup=False
        )
    print(
        f"{sum(i not in failed for i in left)} runs made, {len(rows) - sum(i not in failed for i in left)} were there and are kept"
    )
    if failed:
        for i, why in sorted(failed.items()):
            print(f"{os.path.relpath(jobs[i].out)}: {why}")
        raise ClashError(
            f"{len(failed)} of {len(jobs)} calibrations failed, the others are done; the same command tries again"
        )


def _prepared(job: Calibrate, threads: int) -> None:
    """Make the base model that a run needs."""
    from clashsim.fit.base import base_model

    with one_thread():
        base_model(
            load_scene(job.scene, **asdict(job.pair)),
            n=job.samples,
            seed=job.seed,
            cache=job.base or cache(),
            threads=threads,
        )


def _made(job: Calibrate, threads: int) -> None:
    """Make a run."""
    with one_thread():
        make(job, progress=quiet, say=lambda said: None, threads=threads)


def _shared(jobs: list[Calibrate]) -> list[Calibrate]:
    """One job of each base model that several jobs need."""

    def key(job: Calibrate) -> tuple:
        return job.scene, job.pair, job.samples, job.seed

    often = Counter(map(key, jobs))
    return list({key(job): job for job in jobs if often[key(job)] > 1}.values())


def _jobs(verb: Sweep) -> list[Calibrate]:
    """What the list asks for, each line as `clashsim calibrate` would be called, in absolute paths
    since workers stand elsewhere.
    """
    if not verb.pairs.is_file():
        raise DataError(f"there is no list {str(verb.pairs)!r}")
    lines = _read(verb.pairs)
    if not lines:
        raise DataError(f"the list {str(verb.pairs)!r} is empty")
    jobs = [_job(verb, line, f"{verb.pairs.name}, entry {i + 1}") for i, line in enumerate(lines)]
    taken = Counter(job.out for job in jobs)
    for out, times in taken.items():
        if times > 1:
            raise DataError(
                f"the list {str(verb.pairs)!r} names the output {str(out)!r} {times} times"
            )
    return jobs


def _read(path: Path) -> list[dict[str, Any]]:
    """The lines of a list, as TOML would have them."""
    what = f"the list {str(path)!r}"
    if path.suffix == ".toml":
        lines = parse_toml(read_bounded(path, what, limit=TOML_BYTES), what).get("run", [])
        if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
            raise DataError(f"{what} must have a table [[run]] for each run")
        return lines
    if path.suffix != ".csv":
        raise DataError(f"{what} must end in .csv or .toml")
    text = read_bounded(path, what, limit=_LIST_BYTES).decode("utf-8-sig", "replace")
    try:
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise DataError(f"{what} cannot be read: {error}") from None
    return [_typed(line, f"{path.name}, entry {i}") for i, line in enumerate(lines, 1)]


def _typed(line: dict[Any, Any], place: str) -> dict[str, Any]:
    """A line of a CSV file, whose cells are all texts; empty ones are left out."""
    out: dict[str, Any] = {}
    for key, cell in line.items():
        if not isinstance(key, str) or not isinstance(cell, str | None):
            raise DataError(f"{place}: there are more cells than names in the header")
        name, text = key.strip(), (cell or "").strip()
        if not text:
            continue
        try:
            out[name] = _NUMBERS[name](text) if name in _NUMBERS else text
        except ValueError:
            raise ParamError(f"{place}: {name} must be a number, got {quoted(text)}") from None
        if name == "known":
            out[name] = text.split()
    return out


def _job(verb: Sweep, line: dict[str, Any], place: str) -> Calibrate:
    from clashsim.cli import Calibrate, Pair

    for name in _MUST:
        if not line.get(name):
            raise DataError(f"{place}: {name} is missing")
    asked: _Line = build_dataclass(_Line, line, place=place)
    folder = verb.pairs.absolute().parent
    is_file = asked.scene.endswith(".xml")
    return Calibrate(
        scene=str(folder / asked.scene) if is_file else asked.scene,
        impacts=folder / asked.impacts,
        out=folder / asked.out,
        base=None if verb.base is None else verb.base.absolute(),
        overwrite=verb.overwrite,
        known=asked.known,
        pair=Pair(struck=asked.struck, striker=asked.striker, ground=asked.ground),
        seed=verb.seed if asked.seed is None else asked.seed,
        samples=verb.samples if asked.samples is None else asked.samples,
        hold_out=verb.hold_out if asked.hold_out is None else asked.hold_out,
    )


def _there(job: Calibrate) -> bool:
    """Whether the run is there, made as the list asks for it."""
    from clashsim.fit.run_folder import read_notes

    if job.overwrite or not job.out.is_dir() or not any(job.out.iterdir()):
        return False
    made, asked = read_notes(job.out)["options"], asdict(job)
    made["known"] = tuple(made.get("known", ()))  # JSON has no tuples
    for name in _DECIDE:
        if made.get(name) != asked[name]:
            raise RunError(
                f"the run is there, but was made with another {name}; give it another output, or make all again with --overwrite"
            )
    return True


def _row(job: Calibrate) -> dict[str, Any]:
    from clashsim.fit.run_folder import read_notes

    metrics = read_notes(job.out)["metrics"]
    models = metrics.get("models", {})
    accuracy = {
        name: models.get(name, {}).get("accuracy_0.1")
        for name in ("MuJoCo, nominal", "MuJoCo, identified", "clashsim")
    }
    return {
        "run": os.path.relpath(job.out),
        "scene": Path(job.scene).stem,
        "impacts": metrics["impacts"],
        "judged": metrics.get("judged", "-"),
        **accuracy,
    }
