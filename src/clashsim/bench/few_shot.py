"""Few-shot accuracy: every data set, method, number of impacts and draw, by one protocol.

A draw chooses the impacts that a method may use; it is tested on all others. Draw `random` takes
random impacts, draw `block` the first ones of a recording session.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import platformdirs

from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, why
from clashsim.core.errors import ClashError, DataError, did_you_mean
from clashsim.core.executor import Executor, local, process_pool
from clashsim.core.scene import Scene
from clashsim.core.workers import exit_with_parent
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.few_shot_problem import FewShotProblem
from clashsim.evaluate.methods import METHODS, Method
from clashsim.evaluate.metrics import accuracy_summary, relative_error

OPTIONS = frozenset({"seeds", "sets", "methods", "resume", "executor"})
DRAWS = ("random", "block")
PUBLISHED = "published"  # predictions that come with a data set, by models of others
# Methods of a quick run: those that take seconds.
QUICK_METHODS = (
    "mujoco-default",
    "mujoco-grid",
    "newton-coulomb",
    "ridge",
    "gp",
    "scratch",
    "clash-paper",
    "clashsim",
)
# Methods that take up to minutes per fit and hardly improve with more impacts, with the numbers of
# impacts that they are measured at: so a run ends within the hour.
_SLOW_METHODS = {"mujoco-cmaes": (5, 10, 50), "mujoco-sysid": (5, 10, 50), "mjx-gradient": (10,)}
_SLOW_BLOCK_SIZE = 10  # the one number of impacts at which slow methods are measured on blocks
_SLOW_SEEDS = 5  # the most
_WITHOUT_IMPACTS = ("mujoco-default",)  # uses no measured impacts, so that one row is enough
_TRAINED_FIRST = ("clashsim", "clash-paper")  # methods that distil a base model
_SMALL_SIZE = 20  # impacts: up to here results differ most between draws,
_SMALL_SIZE_SEEDS = 20  # so that at least so many are averaged
_QUICK_SEEDS = 3
_QUICK_SAMPLES = 20_000
Split = tuple[np.ndarray, np.ndarray]  # rows to use, rows to test on


@dataclass(frozen=True)
class FewShotTask:
    """All rows of one method on one data set.

    Attributes:
        load: Loads the data set; called in the process that does the work.
        name: Of the data set.
        method: A key of `METHODS`, or `PUBLISHED`.
        ns: Numbers of impacts that the method may use.
        seeds: Number of repetitions.
        quick: Whether to spend less on base models and grid search.
        cache: Folder of base models.
    """

    load: Callable[[], RealDataset]
    name: str
    method: str
    ns: tuple[int, ...]
    seeds: int
    quick: bool
    cache: Path

    def problem(self, real: RealDataset) -> FewShotProblem:
        """The data set as methods see it."""
        return FewShotProblem(
            Scene.load(real.scene).with_nominal(real.nominal),
            real.impacts,
            real.gyration,
            cache=self.cache,
            num_samples=_QUICK_SAMPLES if self.quick else FewShotProblem.num_samples,
            tabulate_grid=not self.quick,
        )

    def repetitions(self, n: int) -> int:
        """Number of draws of `n` impacts."""
        if self.method in _WITHOUT_IMPACTS:
            return 1
        if self.method in _SLOW_METHODS or self.quick:
            return min(self.seeds, _SLOW_SEEDS)
        if n <= _SMALL_SIZE:
            return max(self.seeds, _SMALL_SIZE_SEEDS)
        return self.seeds

    def cells(self) -> list[tuple[str, int]]:
        """Draws and numbers of impacts that this method is measured at."""
        if self.method in _WITHOUT_IMPACTS:
            return [("random", 0)]
        cells = []
        for draw in DRAWS:
            for n in self.ns:
                slow = self.method in _SLOW_METHODS
                if n == 0 and draw == "block":
                    continue
                if slow and n not in _SLOW_METHODS[self.method]:
                    continue
                if slow and draw == "block" and n != _SLOW_BLOCK_SIZE:
                    continue
                cells.append((draw, n))
        return cells


def measure(
    sets: Mapping[str, Callable[[], RealDataset]],
    options: BenchOptions,
    *,
    methods: Sequence[str],
    ns: Sequence[int],
    seeds: int,
) -> list[Row]:
    """Measure all methods on all data sets.

    Args:
        sets: Functions that load a data set, by its name.
        options: Where to run and what to do with the rows; `options.sets`, `methods` and `seeds`
            have been resolved into the other arguments.
        methods: Keys of `METHODS`, or `PUBLISHED`.
        ns: Numbers of impacts that a method may use.
        seeds: Number of repetitions of each draw.

    Returns:
        One row per data set, method, number of impacts and draw.

    Raises:
        DataError: There is no such method.
    """
    _check_methods(methods)
    names = list(sets)
    tasks = _make_tasks(sets, options, methods=methods, ns=ns, seeds=seeds)
    done = read_rows(options.resume)
    rows: list[Row] = []
    with (
        _executor(options) as executor,
        options.progress("measuring", len(tasks)) as advance,
    ):
        if executor is not local:
            _distil_base_models(tasks, executor)
        # Processes on this machine write each row as it is made. Workers on other machines do not
        # see the file, so their rows are written here when a task is done.
        remote = options.executor is not None
        work = partial(_measure, done=done, resume=None if remote else options.resume)
        for i, result in executor(work, tasks):
            task = tasks[i]
            if isinstance(result, ClashError):
                head = _row_head(task.name, task.method, min(task.ns), DRAWS[0])
                result = [head | {"why": why(result)}]
            if remote and task.method != PUBLISHED:
                append_rows(options.resume, [row for row in result if row not in done])
            rows = _sort_rows([*rows, *result], names)
            options.save(rows)
            advance(1)
    return rows


def _check_methods(methods: Sequence[str]) -> None:
    choices = [*METHODS, PUBLISHED]
    for method in methods:
        if method not in choices:
            raise DataError(f"the bench has no method {method!r}; {did_you_mean(method, choices)}")


def _make_tasks(
    sets: Mapping[str, Callable[[], RealDataset]],
    options: BenchOptions,
    *,
    methods: Sequence[str],
    ns: Sequence[int],
    seeds: int,
) -> list[FewShotTask]:
    """Tasks with the longest first, so that no core is idle at the end."""
    cache = options.cache or platformdirs.user_cache_path("clashsim")
    repetitions = min(seeds, _QUICK_SEEDS) if options.quick else seeds
    tasks = []
    for name, load in sets.items():
        for method in methods:
            tasks.append(
                FewShotTask(load, name, method, tuple(ns), repetitions, options.quick, cache)
            )
    names = list(sets)

    def order(task: FewShotTask) -> tuple[bool, bool, int]:
        return task.method != "clashsim", task.method not in _SLOW_METHODS, names.index(task.name)

    return sorted(tasks, key=order)


def _executor(options: BenchOptions) -> AbstractContextManager[Executor]:
    """The executor that was given, or processes on this machine."""
    if options.executor is not None:
        return nullcontext(options.executor)
    workers = options.workers
    if workers is None:
        workers = 1 if options.quick else os.cpu_count() or 1
    if workers == 1:
        return nullcontext(local)
    return process_pool(workers, start=_start_worker)


def _start_worker() -> None:
    """Use one thread of torch in each process, and end with a parent that was killed."""
    import torch

    torch.set_num_threads(1)
    exit_with_parent()


def _distil_base_models(tasks: Sequence[FewShotTask], executor: Executor) -> None:
    """Distil each base model in one worker, before two workers do it at the same time."""
    first: dict[tuple[str, str], FewShotTask] = {}
    for task in tasks:
        if task.method in _TRAINED_FIRST:
            first[task.load().scene, task.method] = task
    for _ in executor(_distil_base_model, [*first.values()]):
        pass  # an error comes back in the rows that need the base model


def _distil_base_model(task: FewShotTask) -> None:
    problem = task.problem(task.load())
    _ = problem.clashsim_base if task.method == "clashsim" else problem.paper_base


def _measure(task: FewShotTask, done: list[Row], resume: Path | None) -> list[Row]:
    """All rows of a task; rows that an earlier run finished are taken from `done`."""
    real = task.load()
    if task.method == PUBLISHED:
        return _published_rows(task, real)
    problem = task.problem(real)
    rows = []
    for draw, n in task.cells():
        splits = split_rows(real, n, draw, seeds=task.repetitions(n))
        if not splits:
            continue
        head = _row_head(task.name, task.method, n, draw)
        row = _finished_row(done, head, len(splits))
        if row is None:
            row = head | _test_method(problem, METHODS[task.method], splits)
            append_rows(resume, [row])
        rows.append(row)
    return rows


def _published_rows(task: FewShotTask, real: RealDataset) -> list[Row]:
    rows = []
    for model, predicted in real.published.items():
        error = relative_error(predicted, real.impacts.after, real.gyration)
        rows.append(_row_head(task.name, model, 0, "random") | _figures([error], 0.0))
    return rows


def _finished_row(done: Sequence[Row], head: Row, repetitions: int) -> Row | None:
    """The row with this head and as many repetitions, if there is one."""
    for row in done:
        same_head = all(row.get(key) == value for key, value in head.items())
        if same_head and row.get("seeds", repetitions) == repetitions:
            return row
    return None


def split_rows(real: RealDataset, n: int, draw: str, *, seeds: int) -> list[Split]:
    """Split a data set into rows to use and rows to test on, once per repetition.

    Args:
        real: The data set.
        n: Number of rows to use.
        draw: `random` draws them by seed. `block` takes the first n strikes of each session as
            recorded.
        seeds: Number of repetitions; of blocks, the most.

    Returns:
        (rows to use, rows to test on) of each repetition; none where the data set has fewer than
        2 n impacts.
    """
    total = len(real.impacts)
    every = np.arange(total)
    if n == 0:
        return [(every[:0], every)]
    if 2 * n > total:
        return []
    if draw == "random":
        orders = [np.random.default_rng(seed).permutation(total) for seed in range(seeds)]
        return [(order[:n], order[n:]) for order in orders]
    blocks = [np.flatnonzero(real.session == s)[:n] for s in dict.fromkeys(real.session)]
    whole_blocks = [rows for rows in blocks if len(rows) == n]
    return [(rows, np.setdiff1d(every, rows)) for rows in whole_blocks[:seeds]]


def _test_method(problem: FewShotProblem, method: Method, splits: Sequence[Split]) -> Row:
    """Figures of a method over all splits, or why it failed."""
    errors = []
    start = time.perf_counter()
    for seed, (rows, test) in enumerate(splits):
        try:
            predicted = method(problem, rows, seed)
        except Exception as exception:  # one method that fails is one row
            return {"why": why(exception)}
        error = relative_error(predicted, problem.impacts.after, problem.gyration)
        errors.append(error[test])
    return _figures(errors, (time.perf_counter() - start) / len(splits))


def _row_head(name: str, method: str, n: int, draw: str) -> Row:
    return {"set": name, "method": method, "n": n, "draw": draw}


def _figures(errors: Sequence[np.ndarray], seconds: float) -> Row:
    """Accuracy over repetitions, null where it is not finite, and seconds per repetition."""
    figures: Row = {}
    for key, value in accuracy_summary(errors).items():
        figures[key] = value if math.isfinite(value) else None
    return figures | {"seconds": round(seconds, 3)}


def _sort_rows(rows: list[Row], sets: Sequence[str]) -> list[Row]:
    """Sort by data set, draw, number of impacts and method, published models last."""
    methods = list(METHODS)

    def order(row: Row) -> tuple[int, bool, int, int]:
        known = row["method"] in methods
        method = methods.index(row["method"]) if known else len(methods)
        return sets.index(row["set"]), row["draw"] != "random", row["n"], method

    return sorted(rows, key=order)
