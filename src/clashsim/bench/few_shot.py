"""Few-shot accuracy: every set, method, number of impacts and draw in one run, by one protocol
whatever the sets are.
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
from typing import Any

import numpy as np
import platformdirs

from clashsim.bench import baselines
from clashsim.bench.baselines import Problem
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, why
from clashsim.core.errors import ClashError, DataError, did_you_mean
from clashsim.core.executor import Executor, local, process_pool
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.core.workers import exit_with_parent
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.metrics import relative_error, summary
from clashsim.fit.identify import identify_rows
from clashsim.report.figure_files import write_figure

DRAWS = ("random", "block")
_MANY = 20  # seeds at N <= 20, where draws differ most
# Impacts that a handful of constants is identified from on MuJoCo itself. Physics alone has a floor
# that more do not lower (mit_ellipse, CMA-ES: accuracy(0.1) 0.109 from 64 impacts, 0.105 from 300),
# and each costs minutes.
_ENOUGH = {"cmaes": 32, "sysid": 32, "mjx": 12}
Way = Callable[[Problem, np.ndarray, int], np.ndarray]


class Cannot(ClashError):
    """A method that cannot run on a set; the message goes into the row's `why`."""


def _mujoco_default(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
    return problem.identification_problem.predict(problem.scene.nominal)


def _mujoco_grid(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
    if not problem.table:
        return problem.identification_problem.predict(
            identify_rows(problem.identification_problem, rows, "grid", seed=seed).theta
        )
    return problem.grid.after[problem.grid.best(rows)]


def _identified(method: str) -> Way:
    def way(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
        most = _ENOUGH[method]
        few = rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]
        found = identify_rows(problem.identification_problem, few, method, seed=seed)
        if found.failure is not None:
            raise Cannot(found.failure)
        return problem.identification_problem.predict(found.theta)

    return way


def _clashsim(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
    from clashsim.fit.calibrate import calibrate

    return calibrate(problem.base, problem.impacts[rows], seed=seed).predict(problem.impacts)


WAYS: dict[str, Way] = {
    "mujoco-default": _mujoco_default,
    "mujoco-grid": _mujoco_grid,
    "mujoco-cmaes": _identified("cmaes"),
    "mujoco-sysid": _identified("sysid"),
    "mjx-gradient": _identified("mjx"),
    "newton-coulomb": baselines.newton_coulomb,
    "ridge": baselines.ridge,
    "gp": baselines.gp,
    "scratch": baselines.scratch,
    "clash-paper": baselines.clash_paper,
    "clashsim": _clashsim,
}
# Seconds to minutes a draw, and no better for more impacts (see _ENOUGH): fewer N, so that a run
# ends within the hour.
_SLOW = {"mujoco-cmaes": (5, 10, 50), "mujoco-sysid": (5, 10, 50), "mjx-gradient": (10,)}
_BLIND = ("mujoco-default",)  # use no impacts, so one row says it all
QUICK = (
    "mujoco-default",
    "mujoco-grid",
    "newton-coulomb",
    "ridge",
    "gp",
    "scratch",
    "clash-paper",
    "clashsim",
)


@dataclass(frozen=True)
class Task:
    """All rows of one method on one set."""

    load: Callable[[], RealDataset]  # called in the process that does the work
    name: str
    method: str
    ns: tuple[int, ...]
    seeds: int
    quick: bool
    cache: Path

    def problem(self, real: RealDataset) -> Problem:
        """The set as methods see it."""
        small = {"samples": 20_000, "table": False} if self.quick else {}
        return Problem(
            Scene.load(real.scene).with_nominal(real.nominal),
            real.impacts,
            real.gyration,
            cache=self.cache,
            **small,
        )  # type: ignore[arg-type]


def measure(
    sets: Mapping[str, Callable[[], RealDataset]],
    *,
    methods: Sequence[str],
    ns: Sequence[int],
    seeds: int,
    quick: bool = False,
    resume: Path | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    engine: Executor | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of all methods on all sets, each set given by what loads it. With `resume`, finished
    rows are kept in that file (JSON lines) and a later call goes on from them. Tasks are run by
    `engine`, by default by so many processes of this machine.
    """
    for method in methods:
        if method not in (choices := [*WAYS, "published"]):
            raise DataError(f"the bench has no method {method!r}; {did_you_mean(method, choices)}")
    cache = cache or platformdirs.user_cache_path("clashsim")
    names = list(sets)
    tasks = [
        Task(load, name, method, tuple(ns), min(seeds, 3) if quick else seeds, quick, cache)
        for name, load in sets.items()
        for method in methods
    ]
    # The longest first, so that no core idles at the end.
    tasks.sort(key=lambda t: (t.method != "clashsim", t.method not in _SLOW, names.index(t.name)))
    done, rows = kept(resume), list[Row]()
    if workers is None:
        workers = 1 if quick else os.cpu_count() or 1
    with (
        nullcontext(engine) if engine is not None else _own(workers) as run_on,
        progress("measuring", len(tasks)) as advance,
    ):
        if run_on is not local:
            # Base models first, one worker each: two that train the same one at once would do it
            # twice.
            first = {
                (t.load().scene, t.method): t
                for t in tasks
                if t.method in ("clashsim", "clash-paper")
            }
            for _ in run_on(_prepare, [*first.values()]):
                pass  # what is wrong with a base model is told by the rows that need it
        # Our own processes keep each row as it is made; workers on other machines do not see the
        # file, so their rows are kept when a task is done.
        work = partial(_measure, done=done, resume=resume if engine is None else None)
        for i, found in run_on(work, tasks):
            if isinstance(found, ClashError):
                head = _row(tasks[i].name, tasks[i].method, min(tasks[i].ns), DRAWS[0])
                found = [head | {"why": why(found)}]
            if engine is not None and tasks[i].method != "published":
                keep(resume, [row for row in found if row not in done])
            rows = _sorted([*rows, *found], names)
            save(rows)
            advance(1)
    return rows


def _sorted(rows: list[Row], sets: list[str]) -> list[Row]:
    """By set, draw, number of impacts and method, published models last."""
    methods = [*WAYS]

    def key(row: Row) -> tuple[int, bool, int, int]:
        known = row["method"] in methods
        method = methods.index(row["method"]) if known else len(methods)
        return sets.index(row["set"]), row["draw"] != "random", row["n"], method

    return sorted(rows, key=key)


def _own(workers: int) -> AbstractContextManager[Executor]:
    return nullcontext(local) if workers == 1 else process_pool(workers, start=_alone)


def _alone() -> None:
    """One thread of torch in each process, and no work for a parent that was killed."""
    import torch

    torch.set_num_threads(1)
    exit_with_parent()


def _prepare(task: Task) -> None:
    problem = task.problem(task.load())
    _ = problem.base if task.method == "clashsim" else problem.paper


def _measure(task: Task, done: list[Row], resume: Path | None) -> list[Row]:
    """All rows of a task, those already done taken over."""
    real = task.load()
    if task.method == "published":
        errors = {
            model: relative_error(after, real.impacts.after, real.gyration)
            for model, after in real.published.items()
        }
        return [
            _row(task.name, model, 0, "random") | _figures([e], 0.0) for model, e in errors.items()
        ]
    problem, rows = task.problem(real), []
    for draw in DRAWS:
        for n in (0,) if task.method in _BLIND else task.ns:
            if (n == 0 and draw == "block") or n not in _SLOW.get(task.method, (n,)):
                continue
            if draw == "block" and task.method in _SLOW and n != 10:
                continue
            cut = splits(real, n, draw, seeds=_seeds(task, n))
            if not cut:
                continue
            head = _row(task.name, task.method, n, draw)
            old = next(
                (
                    r
                    for r in done
                    if all(r.get(k) == v for k, v in head.items())
                    and r.get("seeds", len(cut)) == len(cut)
                ),
                None,
            )
            if old is None:
                old = head | _judged(problem, WAYS[task.method], cut)
                keep(resume, [old])
            rows.append(old)
    return rows


def _seeds(task: Task, n: int) -> int:
    if task.method in _BLIND:
        return 1
    if task.method in _SLOW or task.quick:
        return min(task.seeds, 5)
    return max(task.seeds, _MANY) if n <= 20 else task.seeds


def splits(
    real: RealDataset, n: int, draw: str, *, seeds: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rows to use, rows to test on) of each repetition; none where the set has fewer than 2 n
    impacts.

    random: by seed. block: the first n strikes of each session as recorded, tested on everything
    else; at most `seeds` sessions.
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
    firsts = [np.flatnonzero(real.session == s)[:n] for s in dict.fromkeys(real.session)]
    return [(rows, np.setdiff1d(every, rows)) for rows in firsts if len(rows) == n][:seeds]


def _judged(problem: Problem, way: Way, cut: list[tuple[np.ndarray, np.ndarray]]) -> Row:
    errors, start = [], time.perf_counter()
    for seed, (rows, test) in enumerate(cut):
        try:
            predicted = way(problem, rows, seed)
        except Exception as error:  # one method that fails is one row
            return {"why": why(error)}
        errors.append(relative_error(predicted, problem.impacts.after, problem.gyration)[test])
    return _figures(errors, (time.perf_counter() - start) / len(cut))


def _row(name: str, method: str, n: int, draw: str) -> Row:
    return {"set": name, "method": method, "n": n, "draw": draw}


def _figures(errors: list[np.ndarray], seconds: float) -> Row:
    figures = {k: v if math.isfinite(v) else None for k, v in summary(errors).items()}
    return figures | {"seconds": round(seconds, 3)}


def plot(rows: Sequence[Row], path: Path, *, draw: str = "random") -> None:
    """Accuracy(0.1) against the number of impacts, a panel for each set, a line for each method;
    what needs no impacts is a dotted level.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [r for r in rows if r["draw"] == draw and r.get("accuracy_0.1") is not None]
    sets, methods = (
        list(dict.fromkeys(r["set"] for r in shown)),
        [m for m in WAYS if any(r["method"] == m for r in shown)],
    )
    used = sorted({r["n"] for r in shown if r["n"]})
    wide = min(4, max(1, len(sets)))
    figure = Figure(
        figsize=(4.2 * wide, 3.6 * max(1, -(-len(sets) // wide)) + 0.9), layout="constrained"
    )
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    colours = [f"C{i}" for i in range(10)]
    handles: dict[str, Any] = {}
    for axes, name in zip(
        figure.subplots(-(-max(1, len(sets)) // wide), wide, squeeze=False).ravel(),
        [*sets, *[""] * wide],
        strict=False,
    ):
        axes.set_visible(bool(name))
        for i, method in enumerate(methods):
            points = sorted(
                (r["n"], r["accuracy_0.1"], r["sd_0.1"])
                for r in shown
                if r["set"] == name and r["method"] == method
            )
            style: dict[str, Any] = (
                {"color": "black", "linewidth": 2.2, "zorder": 5}
                if method == "clashsim"
                else {"color": colours[i % 10], "linewidth": 1.2}
            )
            if points and points[0][0] == 0:
                handles[method] = axes.axhline(points[0][1], linestyle=":", **style)
            elif points:
                n, mean, sd = (np.array(c) for c in zip(*points, strict=True))
                handles[method] = axes.plot(
                    n, mean, marker="o", markersize=3, label=method, **style
                )[0]
                axes.fill_between(
                    n,
                    mean - sd,
                    np.minimum(mean + sd, 1),
                    color=style["color"],
                    alpha=0.08,
                    linewidth=0,
                )
        axes.set(
            title=name,
            xscale="log",
            ylim=(0, 1.02),
            xlabel="real impacts used",
            ylabel="accuracy(0.1)",
        )
        axes.set_xticks(used, [str(n) for n in used])
        axes.minorticks_off()
    if handles:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=min(6, len(handles)),
            frameon=False,
        )
    write_figure(path, figure, dpi=150)
