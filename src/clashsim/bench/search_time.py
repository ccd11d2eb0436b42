"""How long a plan takes (CLASH, Table IV).

The same search with the same number of evaluations is timed in MuJoCo and in the hybrid simulator,
on the same cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.bench.step_choice import TRIED_STRIKES
from clashsim.bench.strike_models import StrikeModels
from clashsim.bench.throughput import RIVAL
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.plan.planner import PlannerConfig, plan_batch
from clashsim.plan.tasks import PlanningTask, pose_error
from clashsim.sim.hybrid.strike_table import strike_table

OPTIONS = frozenset({"seeds", "sets"})
_SLIDE_SEED = 1
_TARGETS_AT_ONCE = 16  # planned in one call: the population of one target leaves cores idle
_METHODS_PER_SHAPE = 6  # that `_methods` gives
_TABLE_TARGETS_FACTOR = 5  # a strike table is fast, so that it plans five times as many targets
_DEFAULT_TARGETS = 2  # planned one by one
_ROUNDS = 24  # of the search
_QUICK_TRIED = 8  # strikes that choose the lengths of steps
_QUICK_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class _Method:
    """One way to plan.

    Attributes:
        name: Name of the method in the table.
        model: What is planned in.
        targets: Number of targets.
        at_once: Number of targets in one call.
        setup_seconds: Seconds spent once, before the first plan.
        coarse_error: How far the model's long steps move poses at rest, mm, at the median; None for
            a model without long steps.
    """

    name: str
    model: StrikeModel
    targets: int
    at_once: int
    setup_seconds: float = 0.0
    coarse_error: float | None = None


class _Timing(NamedTuple):
    """Seconds per plan, mean distance (m) from the target, and evaluations per plan."""

    seconds: float
    distance: float
    evaluations: int


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure the time of a plan.

    Args:
        options: Its sets are names of shapes; its `seeds` is the number of targets that are planned
            one by one.

    Returns:
        Rows of what, method, seconds per plan, per_second, ratio (to MuJoCo with chosen steps, see
        `clashsim.bench.step_choice`); ratio_own_steps (to MuJoCo's own steps); evaluations;
        expected_mm, the mean distance from the target that the plans' own simulator predicts;
        setup_s, the seconds spent once before the first plan; plans; and coarse_mm, the median
        distance between positions at rest with long steps and with the scene's own.
    """
    names = [shape.replace("_", "-") for shape in lab.SHAPES]
    chosen = choose(options.sets, names, what="shape")
    tried = TRIED_STRIKES
    if options.quick:
        chosen = chosen[:1]
        tried = _QUICK_TRIED
    rows: list[Row] = []
    with options.progress("planning", _METHODS_PER_SHAPE * len(chosen)) as advance:
        for name in chosen:
            models = StrikeModels(Scene.load(name.replace("-", "_")), _SLIDE_SEED, tried)
            methods, targets = _methods(models, options)
            seconds: dict[str, float] = {}
            for method in methods:
                head = {"what": f"plan of {name}", "method": method.name}
                with optional(rows, **head):
                    rounds = _QUICK_ROUNDS if options.quick else _ROUNDS
                    timing = _time_plans(
                        method.model, targets[: method.targets], method.at_once, rounds=rounds
                    )
                    seconds[method.name] = timing.seconds
                    rows.append(head | _row(method, timing, seconds))
                options.save(rows)
                advance(1)
    return rows


def _methods(models: StrikeModels, options: BenchOptions) -> tuple[list[_Method], np.ndarray]:
    """All ways to plan in one scene, and targets (N, 3) that one strike can reach."""
    hybrid = models.hybrid
    with_slide_model = models.with_slide_model()
    begin = time.perf_counter()
    table = strike_table(with_slide_model)
    setup = time.perf_counter() - begin
    one_by_one = 1 if options.quick else options.seeds or _DEFAULT_TARGETS
    at_once = 2 if options.quick else _TARGETS_AT_ONCE
    by_table = _TABLE_TARGETS_FACTOR * one_by_one
    shape = (max(at_once, by_table), len(table.names))
    strikes = np.random.default_rng(0).uniform(table.low, table.high, shape)
    struck_poses = np.zeros((len(strikes), 3))
    targets = table.rest(struck_poses, strikes)
    coarse = 1e3 * models.hybrid_choice.off
    coarse_mujoco = 1e3 * models.mujoco_choice.off
    slide_name = "hybrid, MuJoCo's slide"
    together = f"{at_once} targets at once"
    methods = [
        _Method(RIVAL, models.strongest_mujoco, one_by_one, 1, coarse_error=coarse_mujoco),
        _Method("MuJoCo", models.mujoco, one_by_one, 1),
        _Method(slide_name, hybrid, one_by_one, 1, coarse_error=coarse),
        _Method(f"{slide_name}, {together}", hybrid, at_once, at_once, coarse_error=coarse),
        _Method("strike table", table, by_table, 1, setup_seconds=setup),
        _Method(f"strike table, {together}", table, at_once, at_once, setup_seconds=setup),
    ]
    return methods, targets


def _row(method: _Method, timing: _Timing, seconds: dict[str, float]) -> Row:
    def ratio(rival: str) -> float | None:
        return seconds[rival] / timing.seconds if rival in seconds else None

    row = {
        "seconds": timing.seconds,
        "per_second": 1 / timing.seconds,
        "ratio": ratio(RIVAL),
        "ratio_own_steps": ratio("MuJoCo"),
        "evaluations": timing.evaluations,
        "expected_mm": 1e3 * timing.distance,
        "setup_s": method.setup_seconds,
        "plans": method.targets,
    }
    if method.coarse_error is not None:
        row["coarse_mm"] = method.coarse_error
    return row


def _time_plans(model: StrikeModel, targets: np.ndarray, at_once: int, *, rounds: int) -> _Timing:
    """Plan all targets (N, 3), `at_once` in one call."""
    tasks = [PlanningTask(tuple(target)) for target in targets]
    plan_batch(model, tasks[:at_once], PlannerConfig(rounds=0))  # makes MuJoCo's batches, untimed
    plans = []
    begin = time.perf_counter()
    for i in range(0, len(tasks), at_once):
        plans += plan_batch(model, tasks[i : i + at_once], PlannerConfig(rounds=rounds))
    seconds = (time.perf_counter() - begin) / len(targets)
    predicted_ends = np.array([plan.predicted[-1] for plan in plans])
    distance, _ = pose_error(predicted_ends, targets)
    return _Timing(seconds, float(distance.mean()), plans[0].evaluations)
