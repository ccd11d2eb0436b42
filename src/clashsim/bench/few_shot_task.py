"""Few-shot accuracy of one method on one data set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clashsim.bench.resume import append_rows
from clashsim.bench.rows import Row, why
from clashsim.core.impacts import Impacts
from clashsim.core.intervals import INTERVAL_SHARES
from clashsim.core.params import Param
from clashsim.core.scene import Scene, scene_params
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.few_shot_problem import FewShotProblem
from clashsim.evaluate.methods import METHODS, Method, StatedTwists
from clashsim.evaluate.metrics import accuracy_summary, coverage, relative_error

DRAWS = ("random", "block")
PUBLISHED = "published"  # predictions that come with a data set, by models of others
# Methods that take up to minutes per fit and hardly improve with more impacts. They are measured at
# these numbers of impacts only, so that a run ends within the hour.
SLOW_METHODS = {"mujoco-cmaes": (5, 10, 50), "mujoco-sysid": (5, 10, 50), "mjx-gradient": (10,)}
_SLOW_BLOCK_SIZE = 10  # the one number of impacts at which slow methods are measured on blocks
_SLOW_SEEDS = 5  # the most repetitions of slow methods
_WITHOUT_IMPACTS = ("mujoco-default",)  # uses no measured impacts, so that one row is enough
# With up to this many impacts, results differ most between draws. So the mean is over at least
# `_SMALL_SIZE_SEEDS` draws.
_SMALL_SIZE = 20
_SMALL_SIZE_SEEDS = 20
_QUICK_SAMPLES = 20_000
Split = tuple[np.ndarray, np.ndarray]  # rows to use, rows to test on


@dataclass(frozen=True)
class FewShotTask:
    """Rows of one method on one data set.

    Attributes:
        load: Loads the data set; called in the process that does the work.
        name: Name of the data set.
        method: A key of `METHODS`, or `PUBLISHED`.
        ns: Numbers of impacts that the method may use.
        seeds: Number of repetitions.
        quick: Whether to spend less on base models and grid search.
        plain: Whether the scene has its shape and mass only, and no settings.
        cache: Folder of base models.
        cell: Draw and number of impacts of the one row to measure; None for all rows.
    """

    load: Callable[[], RealDataset]
    name: str
    method: str
    ns: tuple[int, ...]
    seeds: int
    quick: bool
    plain: bool
    cache: Path
    cell: tuple[str, int] | None = None

    def problem(self, real: RealDataset) -> FewShotProblem:
        """The data set as methods see it."""
        scene = Scene.load(real.scene)
        impacts = real.impacts
        if self.plain:
            settings = scene.params
            scene = scene.with_params(scene_params(scene))
            impacts = _with_known_names(impacts, settings, scene.params)
        else:
            scene = scene.with_nominal(real.nominal)
        return FewShotProblem(
            scene,
            impacts,
            real.gyration,
            cache=self.cache,
            num_samples=_QUICK_SAMPLES if self.quick else FewShotProblem.num_samples,
            tabulate_grid=not self.quick,
        )

    def repetitions(self, n: int) -> int:
        """Number of draws of `n` impacts."""
        if self.method in _WITHOUT_IMPACTS:
            return 1
        if self.method in SLOW_METHODS or self.quick:
            return min(self.seeds, _SLOW_SEEDS)
        if n <= _SMALL_SIZE:
            return max(self.seeds, _SMALL_SIZE_SEEDS)
        return self.seeds

    def cells(self) -> list[tuple[str, int]]:
        """Pairs of draw and number of impacts at which this method is measured."""
        if self.cell is not None:
            return [self.cell]
        if self.method in _WITHOUT_IMPACTS:
            return [("random", 0)]
        cells = []
        for draw in DRAWS:
            for n in self.ns:
                slow = self.method in SLOW_METHODS
                if n == 0 and draw == "block":
                    continue
                if slow and n not in SLOW_METHODS[self.method]:
                    continue
                if slow and draw == "block" and n != _SLOW_BLOCK_SIZE:
                    continue
                cells.append((draw, n))
        return cells


def _with_known_names(impacts: Impacts, named: Sequence[Param], params: Sequence[Param]) -> Impacts:
    """Impacts whose measured quantities are named as the parameters that they are.

    Args:
        impacts: The impacts, with quantities named as some of the parameters `named`.
        named: Parameters of a settings file.
        params: Parameters of the scene without it; one for the same target may be named otherwise.
    """
    by_target = {param.target: param.name for param in params}
    names = {param.name: by_target.get(param.target, param.name) for param in named}
    known = {names.get(name, name): values for name, values in impacts.known.items()}
    return replace(impacts, known=known)


def measure_task(task: FewShotTask, done: list[Row], resume: Path | None) -> list[Row]:
    """Measure the rows of a task.

    Args:
        task: The method and the data set.
        done: Rows that an earlier run finished: they are not measured again.
        resume: File to which new rows are appended, if any.
    """
    real = task.load()
    if task.method == PUBLISHED:
        return _published_rows(task, real)
    problem = task.problem(real)
    rows = []
    for draw, n in task.cells():
        splits = split_rows(real, n, draw, seeds=task.repetitions(n))
        if not splits:
            continue
        head = row_head(task, n, draw)
        heads = [head, *(head | {"set": f"{task.name}/{kind}"} for kind in real.subsets)]
        finished = [_finished_row(done, one, len(splits)) for one in heads]
        measured_before = [row for row in finished if row is not None]
        if len(measured_before) == len(heads):
            rows += measured_before
            continue
        tests = _Tests.of(problem, METHODS[task.method], splits)
        chosen = [None, *real.subsets.values()]
        new = [one | tests.figures(subset) for one, subset in zip(heads, chosen, strict=True)]
        append_rows(resume, new)
        rows += new
    return rows


def _published_rows(task: FewShotTask, real: RealDataset) -> list[Row]:
    rows = []
    for model, predicted in real.published.items():
        error = relative_error(predicted, real.impacts.after, real.gyration)
        head = row_head(replace(task, method=model), 0, "random")
        rows.append(head | _figures([error], 0.0))
    return rows


def _finished_row(done: Sequence[Row], head: Row, repetitions: int) -> Row | None:
    """The finished row with this head and this number of repetitions, if there is one."""
    for row in done:
        same_head = all(row.get(key) == value for key, value in head.items())
        same_head = same_head and bool(row.get("plain")) == bool(head.get("plain"))
        if same_head and row.get("seeds", repetitions) == repetitions:
            return row
    return None


def split_rows(real: RealDataset, n: int, draw: str, *, seeds: int) -> list[Split]:
    """Split a data set into rows to use and rows to test on, once per repetition.

    Args:
        real: The data set.
        n: Number of rows to use.
        draw: `random` draws n rows by a seed. `block` takes the first n strikes of one session, a
            session per repetition.
        seeds: Number of repetitions; with `block`, the most repetitions.

    Returns:
        (rows to use, rows to test on) of each repetition; none where the data set has fewer than
        2 n impacts.
    """
    total = len(real.impacts)
    all_rows = np.arange(total)
    if n == 0:
        return [(all_rows[:0], all_rows)]
    if 2 * n > total:
        return []
    if draw == "random":
        orders = [np.random.default_rng(seed).permutation(total) for seed in range(seeds)]
        return [(order[:n], order[n:]) for order in orders]
    blocks = [np.flatnonzero(real.session == s)[:n] for s in dict.fromkeys(real.session)]
    whole_blocks = [rows for rows in blocks if len(rows) == n]
    return [(rows, np.setdiff1d(all_rows, rows)) for rows in whole_blocks[:seeds]]


@dataclass(frozen=True, eq=False)
class _Tests:
    """What a method predicted in S repetitions.

    Attributes:
        errors: Relative errors (N,) of all impacts, in each repetition.
        stated: Misses (N, k) of all impacts and half-widths (2, N, k) of their stated intervals, in
            each repetition; empty where a method states none.
        test: Rows to test on, in each repetition.
        seconds: Mean duration of a repetition.
        failure: Why the method failed; None where it did not.
    """

    errors: tuple[np.ndarray, ...] = ()
    stated: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    test: tuple[np.ndarray, ...] = ()
    seconds: float = 0.0
    failure: str | None = None

    @staticmethod
    def of(problem: FewShotProblem, method: Method, splits: Sequence[Split]) -> _Tests:
        """Fit and predict in each repetition."""
        errors = []
        stated = []
        impacts = problem.impacts
        start = time.perf_counter()
        for seed, (rows, _) in enumerate(splits):
            try:
                predicted = method(problem, rows, seed)
            except Exception as exception:  # a method that fails gives a row, and others go on
                return _Tests(failure=why(exception))
            if isinstance(predicted, StatedTwists):
                miss = predicted.twist_after - impacts.after
                stated.append((miss, predicted.half_widths))
                predicted = predicted.twist_after
            errors.append(relative_error(predicted, impacts.after, problem.gyration))
        seconds = (time.perf_counter() - start) / len(splits)
        return _Tests(tuple(errors), tuple(stated), tuple(test for _, test in splits), seconds)

    def figures(self, subset: np.ndarray | None) -> Row:
        """Figures over all repetitions, of a subset (N,) of the impacts if given."""
        if self.failure is not None:
            return {"why": self.failure}
        tests = self.test
        if subset is not None:
            tests = tuple(test[subset[test]] for test in self.test)
            if not all(len(test) for test in tests):
                return {"why": "some repetitions have no such impacts to test on"}
        errors = [error[test] for error, test in zip(self.errors, tests, strict=True)]
        row = _figures(errors, self.seconds)
        if self.stated:
            covered = []
            for (miss, half_widths), test in zip(self.stated, tests, strict=True):
                covered.append(coverage(miss[test], half_widths[:, test]))
            shares = np.mean(covered, axis=0)
            for stated, share in zip(INTERVAL_SHARES, shares, strict=True):
                row[f"coverage_{100 * stated:.0f}"] = float(share)
        return row


def row_head(task: FewShotTask, n: int, draw: str) -> Row:
    """The keys by which a row is recognised."""
    head: Row = {"set": task.name, "method": task.method, "n": n, "draw": draw}
    return head | {"plain": True} if task.plain else head


def _figures(errors: Sequence[np.ndarray], seconds: float) -> Row:
    """Accuracy over repetitions, null where it is not finite, and seconds per repetition."""
    figures: Row = {}
    for key, value in accuracy_summary(errors).items():
        figures[key] = value if math.isfinite(value) else None
    return figures | {"seconds": round(seconds, 3)}
