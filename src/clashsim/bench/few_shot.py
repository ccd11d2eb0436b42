"""Few-shot accuracy: every data set, method, number of impacts and draw, by one protocol.

A draw chooses the impacts that a method may use; it is tested on all others. Draw `random` takes
random impacts, draw `block` the first ones of a recording session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import platformdirs

from clashsim.bench.few_shot_task import (
    DRAWS,
    PUBLISHED,
    SLOW_METHODS,
    FewShotTask,
    measure_task,
    row_head,
)
from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, why
from clashsim.core.errors import ClashError, DataError, did_you_mean
from clashsim.core.executor import Executor, local, process_pool
from clashsim.core.workers import exit_with_parent
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.methods import METHODS

OPTIONS = frozenset({"seeds", "sets", "methods", "plain", "resume", "executor"})
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
_DISTILLING_METHODS = ("clashsim-network", "clash-paper")
_QUICK_SEEDS = 3


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
        One row per data set, method, number of impacts and draw; and one more for each kind of
        impacts that a set also judges by itself (set `NAME/KIND`).

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
        work = partial(measure_task, done=done, resume=None if remote else options.resume)
        for i, result in executor(work, tasks):
            task = tasks[i]
            if isinstance(result, ClashError):
                # What a method cannot do is one row, not one for each of its cells.
                head = row_head(task, min(task.ns), DRAWS[0])
                failed = head | {"why": why(result)}
                result = [] if failed in rows else [failed]
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
            whole = FewShotTask(
                load,
                name,
                method,
                tuple(ns),
                repetitions,
                quick=options.quick,
                plain=options.plain,
                cache=cache,
            )
            if method == PUBLISHED:
                tasks.append(whole)
            else:
                tasks += [replace(whole, cell=cell) for cell in whole.cells()]
    names = list(sets)

    def order(task: FewShotTask) -> tuple[bool, bool, int, int]:
        _, n = task.cell or ("", 0)
        is_slow = task.method in SLOW_METHODS
        return task.method != "clashsim", not is_slow, -n, names.index(task.name)

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
    """Distil each base model once: tasks that run at the same time would all distil it."""
    by_base_model: dict[tuple[str, str], FewShotTask] = {}
    for task in tasks:
        if task.method in _DISTILLING_METHODS:
            by_base_model[task.load().scene, task.method] = task
    for _ in executor(_distil_base_model, [*by_base_model.values()]):
        pass  # an error will come again, in the rows that need the base model


def _distil_base_model(task: FewShotTask) -> None:
    """Distil the base model of a task's method; it is kept in the cache."""
    problem = task.problem(task.load())
    _ = problem.network_base if task.method == "clashsim-network" else problem.paper_base


def _sort_rows(rows: list[Row], sets: Sequence[str]) -> list[Row]:
    """Sort by data set, draw, number of impacts and method, published models last."""
    methods = list(METHODS)

    def order(row: Row) -> tuple[int, str, bool, int, int]:
        known = row["method"] in methods
        method = methods.index(row["method"]) if known else len(methods)
        name = row["set"]
        of_set = name if name in sets else name.rpartition("/")[0]  # a subset comes after its set
        return sets.index(of_set), name, row["draw"] != "random", row["n"], method

    return sorted(rows, key=order)
