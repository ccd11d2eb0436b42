"""Planned strikes executed in the virtual laboratory (CLASH, Table III).

The error is the distance of the struck body at rest from its target. Every method gets the first
ten recorded strikes of a shape and the slides after them, and plans by the same search with the
same number of evaluations. Targets are poses at rest after recorded strikes that no method has
seen, so that one strike can reach each target. Each plan is executed several times; the random
variation of arm, table and camera is the same for all methods.

Methods with stated standard deviations predict the probability that a plan ends within the
tolerance. It is compared with the share of the executions that do, in quarters of the predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clashsim import lab
from clashsim.bench import slide_sets
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.planning_methods import METHODS, PLANNERS, PlanningProblem
from clashsim.bench.recorded_slides import REST_FRAMES
from clashsim.bench.reliability import plot, quarters, summary
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, find_row, optional
from clashsim.core.trials import Trial, yaw
from clashsim.lab import arm
from clashsim.lab.session import PLACEMENT_STD
from clashsim.lab.strike import TIP_RADIUS, block_outline
from clashsim.plan.outcomes import Repeatability
from clashsim.plan.planner import PlannerConfig, plan_batch
from clashsim.plan.tasks import Plan, PlanningTask, pose_error

__all__ = ["OPTIONS", "plot", "run", "summary"]

OPTIONS = frozenset({"seeds", "sets", "methods", "resume"})
_QUICK_TARGETS = 2
_TARGET_SEED = 0
_LAB_SEED = 1  # of the variation of arm, table and camera
_METHOD_SEED = 0


def run(options: BenchOptions = BenchOptions(), *, targets: int = 5) -> list[Row]:
    """Plan and execute strikes.

    Args:
        options: Its sets are names of shapes; its `seeds` is how often each plan is executed.
        targets: Number of targets per shape.

    Returns:
        One row per shape and method: position (m) and orientation (rad) error, mean and standard
        deviation over all executed strikes; expected_m and expected_rad, the errors that the
        method's own simulator predicts for its plans. Methods that state probabilities also have
        `probabilities` and `reached`, the prediction and the observed share of each plan, and
        `probability_quarters` and `observed_quarters`, their means in quarters of the predictions.
    """
    shapes = [shape.replace("_", "-") for shape in lab.SHAPES]
    default = shapes[:1] if options.quick else shapes
    chosen = choose(options.sets or default, shapes, what="shape")
    methods = choose(options.methods, list(METHODS), what="method")
    repeats = options.repetitions(5)
    if options.quick:
        targets = _QUICK_TARGETS
    done = read_rows(options.resume)
    rows: list[Row] = []
    with options.progress("planning", len(chosen) * len(methods)) as advance:
        for name in chosen:
            setting = lab.Setting(name.replace("-", "_"))
            data = slide_sets.load(f"lab/{name}", None)
            problem = PlanningProblem(setting, data, options.cache)
            for method in methods:
                head = {"shape": name, "method": method}
                with optional(rows, **head):
                    row = find_row(done, head | {"executed": targets * repeats})
                    if row is None:
                        row = head | _measure(
                            problem,
                            method,
                            targets=targets,
                            repeats=repeats,
                            workers=options.workers,
                        )
                        append_rows(options.resume, [row])
                    rows.append(row)
                options.save(rows)
                advance(1)
    return rows


def _measure(
    problem: PlanningProblem, method: str, *, targets: int, repeats: int, workers: int | None
) -> Row:
    """Errors of one method on one shape."""
    wanted = problem.targets(targets, seed=_TARGET_SEED)
    model = METHODS[method](problem, _METHOD_SEED)
    config = replace(
        PLANNERS.get(method, PlannerConfig()), repeatability=_repeatability(problem.setting)
    )
    plans = plan_batch(model, [PlanningTask(tuple(target)) for target in wanted], config)
    ends = _execute(plans, problem.setting, repeats=repeats, workers=workers)
    position, orientation = pose_error(ends, np.repeat(wanted, repeats, 0))
    orientation = np.abs(orientation)
    predicted_ends = np.array([plan.predicted[-1] for plan in plans])
    expected_position, expected_orientation = pose_error(predicted_ends, wanted)
    return {
        "position_m": float(position.mean()),
        "position_sd": float(position.std()),
        "orientation_rad": float(orientation.mean()),
        "orientation_sd": float(orientation.std()),
        "position_median_m": float(np.median(position)),
        "orientation_median_rad": float(np.median(orientation)),
        "expected_m": float(expected_position.mean()),
        "expected_rad": float(np.abs(expected_orientation).mean()),
        "executed": len(ends),
    } | _reliability(plans, position.reshape(-1, repeats), orientation.reshape(-1, repeats))


def _reliability(plans: Sequence[Plan], position: np.ndarray, orientation: np.ndarray) -> Row:
    """Predicted probabilities of T plans and observed shares, as columns of a row.

    Args:
        plans: T plans; a model without standard deviations states no probability, and has no
            columns.
        position: Position errors (T, repeats), m.
        orientation: Orientation errors (T, repeats), rad.
    """
    probabilities = [plan.probability for plan in plans if plan.probability is not None]
    if len(probabilities) < len(plans):
        return {}
    max_distance, max_angle = np.array([plan.task.tolerance for plan in plans]).T
    within = (position <= max_distance[:, None]) & (orientation <= max_angle[:, None])
    reached = within.mean(1).tolist()
    predicted, observed = quarters(probabilities, reached)
    return {
        "probability_quarters": predicted,
        "observed_quarters": observed,
        "probabilities": probabilities,
        "reached": reached,
    }


def _repeatability(setting: lab.Setting) -> Repeatability:
    """What data sheet and operator would state of the laboratory's arm and placement."""
    corners = block_outline(setting.shape).corners
    typical_radius = float(np.linalg.norm(corners, axis=1).mean()) + TIP_RADIUS
    x_std, _, yaw_std = PLACEMENT_STD
    return Repeatability(
        speed=arm.SPEED_SCATTER,
        point=arm.TIP_SCATTER / typical_radius,
        deflection=arm.ANGLE_SCATTER,
        position=x_std,
        yaw=yaw_std,
    )


def _execute(
    plans: Sequence[Plan], setting: lab.Setting, *, repeats: int, workers: int | None
) -> np.ndarray:
    """Measured poses at rest (plans x repeats, 3) of plans that are executed several times.

    Each plan has one strike.
    """
    strikes = []
    for plan in plans:
        only_strike = dict(zip(plan.names, plan.strikes[0].tolist(), strict=True))
        strikes += [lab.Strike(**only_strike)] * repeats
    trials = lab.execute_independently(strikes, setting, seed=_LAB_SEED, workers=workers)
    return np.array([_pose_at_rest(trial) for trial in trials])


def _pose_at_rest(trial: Trial) -> np.ndarray:
    """Measured pose (3,) of the block at the end of a trial: x, y (m), yaw (rad)."""
    _, recorded = trial.seen("block")
    last = recorded[-REST_FRAMES:]
    position = last[:, :2]
    quaternion = last[:, 3:]
    angle = np.unwrap(yaw(quaternion))
    return np.array([*np.median(position, 0), np.median(angle)])
