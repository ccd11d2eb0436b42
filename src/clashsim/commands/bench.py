"""`clashsim bench`: the benchmarks behind the figures of the README and docs/benchmarks.md."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tyro.conf import OmitArgPrefixes, Positional

from clashsim.commands.option_types import (
    ExecutionOptions,
    Names,
    OptionalInt,
    OptionalName,
    OptionalPath,
)
from clashsim.commands.shared import console, open_executor
from clashsim.core.errors import ClashError, DataError, ParamError
from clashsim.core.progress import bar


@dataclass(frozen=True)
class BenchCommandOptions:
    """Run one of the benchmarks behind the figures of the README and docs/benchmarks.md.

    Example: clashsim bench real-impacts --data data --json real-impacts.json
    """

    name: Positional[
        Literal[
            "real-impacts",
            "shapes",
            "materials",
            "real-slides",
            "sampling",
            "base",
            "contact",
            "video",
            "transfer",
            "scenes",
            "trajectories",
            "throughput",
            "planning",
            "search-time",
            "routes",
            "loop",
            "advise",
            "basin-hopping",
            "real-pendulum",
            "real-tosses",
            "push-to-stop",
            "policy-gradients",
            "throws",
            "bowling",
            "scaling",
            "growth",
        ]
    ]
    """real-impacts: accuracy on public recordings; shapes, materials: the same on strikes of the
    virtual laboratory, a stand-in for reality; real-slides: error of predicted rest poses of struck
    bodies; sampling: strikes per second against bare MuJoCo; base: accuracy of base models before
    any real data; contact: restitution asked for against that of drops in MuJoCo; video: poses from
    rendered video against the truth, and a calibration from them; transfer: ten
    strikes on one object for another of the same material; scenes: scenes of users, calibrated
    without settings; throughput: strikes per second of MuJoCo and of the hybrid simulator;
    planning: planned strikes executed in the laboratory; search-time: time to plan in MuJoCo and in
    the hybrid simulator; routes: trained policies executed in the laboratory; loop: the
    real-sim-real loop where the laboratory differs from the scene; advise: ten advised strikes
    against ten random ones; basin-hopping: identification in MJX from poor initial values, against
    one descent, multi-start and CMA-ES; real-pendulum: a real double pendulum predicted from 40
    frames, with and without neural scalars; real-tosses: rollouts of a tossed cube on public
    recordings; push-to-stop: velocities of pushes and throws planned by gradients through the graph
    simulator, against CMA-ES; policy-gradients: strikes until a pushing policy succeeds, trained by
    gradients through the strike table, PPO and SAC; throws: planned throws of bodies in space;
    bowling: the graph simulator against MuJoCo, one cube hitting ten others; scaling: sampling and
    calibration with one and two Ray workers, and with one worker killed; growth: how time and
    memory grow with the number of simulations, pairs, targets, strikes and impacts.
    """
    data: OptionalPath = None
    """Folder of the public data sets; by default that of the environment variable CLASHSIM_DATA."""
    seeds: OptionalInt = None
    """Number of repetitions with different seeds; by default the benchmark's own number."""
    first_seed: int = 0
    """Seed of the first repetition (real-pendulum only)."""
    sets: Names = ()
    """Only these data sets, as in: --sets mit_ellipse lasa/D1 (accuracy benchmarks only)."""
    methods: Names = ()
    """Only these methods, as in: --methods gp clashsim (accuracy benchmarks only)."""
    plain: bool = False
    """Scenes with their shape and mass only: all parameters are those of a scene without settings
    (accuracy benchmarks only).
    """
    resume: OptionalPath = None
    """File that keeps finished rows, so that an interrupted run continues from them (accuracy
    benchmarks only).
    """
    device: OptionalName = None
    """Torch device to measure on as well, as in: --device cuda (throughput and bowling only)."""
    quick: bool = False
    """A small version that only shows whether the benchmark runs."""
    json: OptionalPath = None
    """JSON file, rewritten after each row; a row that cannot be measured has the reason (why)."""
    plot: OptionalPath = None
    """Picture file for a plot: accuracy over the number of impacts (accuracy benchmarks), predicted
    probabilities against observed shares (planning), restitution (contact), or time and memory
    (growth).
    """
    execution: OmitArgPrefixes[ExecutionOptions] = ExecutionOptions()


def run(options: BenchCommandOptions) -> None:
    """Run `clashsim bench`."""
    from clashsim.bench.catalogue import check_options, given_options, load_benchmark, run_benchmark
    from clashsim.bench.options import BenchOptions
    from clashsim.pipeline.arguments import model_cache

    if options.seeds is not None and options.seeds < 1:
        raise ParamError(f"--seeds must be at least 1, got {options.seeds}")
    if options.first_seed < 0:
        raise ParamError(f"--first-seed must be at least 0, got {options.first_seed}")
    benchmark = load_benchmark(options.name)
    if options.plot is not None and not hasattr(benchmark, "plot"):
        raise ParamError(f"the benchmark {options.name} has no option --plot")
    if options.json is not None and options.json.is_dir():
        raise DataError(f"--json {str(options.json)!r} is a folder, not a file")
    results = Results(options.name, options.json)
    to_measure = BenchOptions(
        root=options.data or _data_from_environment(),
        seeds=options.seeds,
        first_seed=options.first_seed,
        quick=options.quick,
        sets=options.sets,
        methods=options.methods,
        plain=options.plain,
        resume=options.resume,
        device=options.device,
        cache=model_cache(),
        progress=bar,
        save=results.save,
    )
    uses_executor = options.execution.executor is not None
    given = given_options(to_measure)
    if uses_executor:
        given.append("executor")
    check_options(options.name, given)
    try:
        with open_executor(options.execution) as executor:
            if uses_executor:
                to_measure = replace(to_measure, executor=executor)
            results.save(run_benchmark(options.name, to_measure))
    finally:
        # Shows what was measured also after an error or Ctrl-C.
        results.show()
    results.refuse_empty()
    if hasattr(benchmark, "summary"):
        for sentence in benchmark.summary(results.rows):
            console().print(sentence)
    if options.plot is not None:
        benchmark.plot(results.rows, options.plot)


def _data_from_environment() -> Path | None:
    """The folder of the public recordings that CLASHSIM_DATA names, if it is set."""
    folder = os.environ.get("CLASHSIM_DATA")
    return Path(folder) if folder else None


@dataclass
class Results:
    """Rows of a benchmark so far: in its JSON file as they are measured, in tables when it ends.

    Attributes:
        bench: Name of the benchmark.
        file: JSON file that is replaced whenever there are more rows; None writes none.
        rows: All rows so far.
        start: When the benchmark began, s of `time.perf_counter`.
    """

    bench: str
    file: Path | None
    rows: Sequence[Mapping[str, Any]] = ()
    start: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Seconds since the benchmark began."""
        return time.perf_counter() - self.start

    def save(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the rows by all that there are now, and write them."""
        from clashsim.core.files import write_atomic
        from clashsim.fit.run_folder import versions

        self.rows = list(rows)
        if self.file is None:
            return
        machine = {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        }
        content = {
            "bench": self.bench,
            "versions": versions(),
            "machine": machine,
            "seconds": round(self.seconds, 1),
            "rows": _plain_numbers(self.rows),
        }
        write_atomic(self.file, (json.dumps(content, indent=1) + "\n").encode())

    def show(self) -> None:
        """Print the rows, if there are any."""
        from clashsim.report.tables import tabulate_rows

        if self.rows:
            screen = console()
            title = f"{self.bench}, {self.seconds:.0f} s"
            screen.print(tabulate_rows(title, self.rows, width=screen.width))

    def refuse_empty(self) -> None:
        """Fail if no row could be measured; single rows may be missing, as an extra may be."""
        if self.rows and all("why" in row for row in self.rows):
            raise ClashError(
                f"no row of the benchmark {self.bench} could be measured: {self.rows[0]['why']}"
            )


def _plain_numbers(value: Any) -> Any:
    """Convert a value for JSON: numpy numbers to Python's, NaN and infinity to null."""
    if isinstance(value, Mapping):
        return {key: _plain_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
