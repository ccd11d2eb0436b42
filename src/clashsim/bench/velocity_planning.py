"""Planners of pushes and throws: gradients through the graph simulator beside their rivals.

All planners improve the velocities of all scenes in one batch. Each knows only distances, residuals
or gradients of the simulator that it plans in, and returns the best velocity that it has simulated:
a descent takes a step only where the simulated distance falls.

An evaluation is one rollout of every scene, perturbed ones of finite differences included. For
`gradient` it is a rollout with its Jacobian. Seconds are those of the processor, so that other
programs do not lengthen them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clashsim.bench.rows import Row
from clashsim.bench.velocity_tasks import (
    CLOSE,
    GraphPlanning,
    MujocoPlanning,
    VelocityProblem,
    VelocityTask,
    distances,
)
from clashsim.optim.levenberg_marquardt import BatchDamping, levenberg_marquardt
from clashsim.optim.search import CmaEs

# m/s, by which finite differences change a velocity. Smaller ones see the steps that the outcome
# makes with the moment of the contact within a frame, and not its trend.
_DIFFERENCE = 0.1
_SMALL_DIFFERENCE = 1e-4  # m/s, for derivatives at a point
_CHECKED_STARTS = 10  # whose gradients are compared with finite differences
_POPULATION = 6  # of CMA-ES
_DAMPING = BatchDamping(initial=1e-2, decrease=4.0, increase=4.0, relative_floor=1e-2)


@dataclass(frozen=True, eq=False)
class Iterate:
    """The best velocities of all scenes after an iteration.

    Attributes:
        evaluations: Rollouts of each scene so far.
        seconds: Processor time so far, s.
        velocity: Velocities (n, d), m/s.
        distance: Their simulated distances (n,), m.
    """

    evaluations: int
    seconds: float
    velocity: np.ndarray
    distance: np.ndarray


class Record:
    """Keeps the best velocities of all scenes while a planner simulates."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.iterates: list[Iterate] = []
        self._best = Iterate(0, 0.0, np.zeros(shape), np.full(shape[0], np.inf))
        self._begin = time.process_time()

    def add(self, velocity: np.ndarray, residuals: np.ndarray, *, evaluations: int) -> None:
        """Record simulated velocities (n, d) and their residuals (n, o).

        Args:
            velocity: (n, d), m/s.
            residuals: (n, o), m.
            evaluations: Rollouts of each scene since the last call.
        """
        distance = distances(residuals)
        is_better = distance < self._best.distance
        self._best = Iterate(
            self._best.evaluations + evaluations,
            time.process_time() - self._begin,
            np.where(is_better[:, None], velocity, self._best.velocity),
            np.where(is_better, distance, self._best.distance),
        )

    def end_iteration(self) -> None:
        """Keep the best velocities so far as those of an iteration."""
        self.iterates.append(self._best)


def descend_by_gradient(simulator: Any, problem: VelocityProblem, budget: int) -> list[Iterate]:
    """Levenberg-Marquardt with the simulator's own Jacobians."""

    return _descend(simulator.residuals_with_jacobian, problem, steps=budget - 1, evaluations=1)


def descend_by_differences(simulator: Any, problem: VelocityProblem, budget: int) -> list[Iterate]:
    """Levenberg-Marquardt with Jacobians from forward differences."""

    def linearise(velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residuals = simulator.residuals(velocity)
        return residuals, _differences(simulator, velocity, residuals, step=_DIFFERENCE)

    rollouts = 1 + problem.first.shape[1]
    return _descend(linearise, problem, steps=budget // rollouts - 1, evaluations=rollouts)


def search_by_cmaes(simulator: Any, problem: VelocityProblem, budget: int) -> list[Iterate]:
    """A CMA-ES for each scene, which starts at its first velocity."""
    task = problem.task
    extent = task.high - task.low
    search = CmaEs((problem.first - task.low) / extent, _POPULATION, seed=0)
    record = Record(problem.first.shape)
    for _ in range(budget // _POPULATION):
        points = search.ask()
        costs = []
        for member in range(_POPULATION):
            velocity = task.low + points[:, member] * extent
            residuals = simulator.residuals(velocity)
            record.add(velocity, residuals, evaluations=1)
            costs.append(distances(residuals))
        search.tell(points, np.stack(costs, 1))
        record.end_iteration()
    return record.iterates


def _differences(
    simulator: Any, velocity: np.ndarray, residuals: np.ndarray, *, step: float
) -> np.ndarray:
    """Forward differences (n, o, d) of residuals, whose values at the velocities are given."""
    columns = []
    for axis in np.eye(velocity.shape[1]):
        moved = simulator.residuals(velocity + step * axis)
        columns.append((moved - residuals) / step)
    return np.stack(columns, 2)


def _descend(
    linearise: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    problem: VelocityProblem,
    *,
    steps: int,
    evaluations: int,
) -> list[Iterate]:
    """Descend from the first velocities, which are evaluated first.

    Args:
        linearise: Residuals (n, o) and Jacobian (n, o, d) at velocities (n, d).
        problem: The scenes.
        steps: Number of steps.
        evaluations: Rollouts of each scene in a linearisation.
    """
    record = Record(problem.first.shape)

    def recorded(velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residuals, jacobian = linearise(velocity)
        record.add(velocity, residuals, evaluations=evaluations)
        record.end_iteration()
        return residuals, jacobian

    task = problem.task
    levenberg_marquardt(
        recorded, problem.first, low=task.low, high=task.high, steps=steps, damping=_DAMPING
    )
    return record.iterates


@dataclass(frozen=True)
class VelocityPlanner:
    """A way to plan, and after how many evaluations it is judged.

    Attributes:
        simulator: Class of the simulator that it plans in.
        plan: Returns the iterates for a simulator, a problem and a number of evaluations.
        budgets: Numbers of evaluations, ascending.
    """

    simulator: Callable[[VelocityProblem], Any]
    plan: Callable[[Any, VelocityProblem, int], list[Iterate]]
    budgets: tuple[int, ...]


PLANNERS = {
    "gradient": VelocityPlanner(GraphPlanning, descend_by_gradient, (12,)),
    "finite-differences": VelocityPlanner(GraphPlanning, descend_by_differences, (12,)),
    "cma-es": VelocityPlanner(GraphPlanning, search_by_cmaes, (12,)),
    "mujoco-finite-differences": VelocityPlanner(MujocoPlanning, descend_by_differences, (12, 24)),
    "mujoco-cma-es": VelocityPlanner(MujocoPlanning, search_by_cmaes, (12, 48)),
}
_QUICK_BUDGETS = (6,)
_QUICK_FRAMES = 24


def quick_task(task: VelocityTask) -> VelocityTask:
    """The same task with rollouts that end early."""
    return replace(task, frames=_QUICK_FRAMES)


def planner_rows(name: str, problem: VelocityProblem, *, quick: bool) -> list[Row]:
    """Plan all scenes by one planner.

    Args:
        name: A key of `PLANNERS`.
        problem: The scenes.
        quick: Whether to stop after a few evaluations.

    Returns:
        A row for the last iteration within each number of evaluations.
    """
    planner = PLANNERS[name]
    budgets = _QUICK_BUDGETS if quick else planner.budgets
    if quick and planner.plan is descend_by_gradient:
        budgets = (2,)
    simulator = planner.simulator(problem)
    iterates = planner.plan(simulator, problem, budgets[-1])
    judge = MujocoPlanning(problem)
    rows = []
    for budget in budgets:
        last = [iterate for iterate in iterates if iterate.evaluations <= budget][-1]
        executed = distances(judge.residuals(last.velocity))
        rows.append(
            {
                "what": "plan",
                "task": problem.task.name,
                "method": name,
                "evaluations": last.evaluations,
                "within": float((last.distance < CLOSE).mean()),
                "distance_mm": _mean_millimetres(last.distance),
                "mujoco_within": float((executed < CLOSE).mean()),
                "mujoco_mm": _mean_millimetres(executed),
                "seconds": round(last.seconds, 2),
                "of": len(last.distance),
            }
        )
    return rows


def gradient_row(problem: VelocityProblem) -> Row:
    """Compare the graph simulator's gradients with its own finite differences.

    Returns:
        A row with medians over some starts: `gradient_error`, the difference of the Jacobian from
        the derivative of the simulated outcome, relative to the latter; and `trend_error`, the
        difference of that derivative from the change over 0.1 m/s, relative to the latter.
    """
    some = replace(
        problem,
        at_rest=problem.at_rest[:_CHECKED_STARTS],
        target=problem.target[:_CHECKED_STARTS],
        first=problem.first[:_CHECKED_STARTS],
    )
    simulator = GraphPlanning(some)
    residuals, jacobian = simulator.residuals_with_jacobian(some.first)
    derivative = _differences(simulator, some.first, residuals, step=_SMALL_DIFFERENCE)
    trend = _differences(simulator, some.first, residuals, step=_DIFFERENCE)
    return {
        "what": "gradient",
        "task": problem.task.name,
        "gradient_error": _median_relative_difference(jacobian, derivative),
        "trend_error": _median_relative_difference(derivative, trend),
        "of": len(residuals),
    }


def _median_relative_difference(jacobian: np.ndarray, reference: np.ndarray) -> float:
    """Median over n Jacobians (n, o, d) of the norm of their difference over the reference's."""
    difference = np.linalg.norm(jacobian - reference, axis=(1, 2))
    return round(float(np.median(difference / np.linalg.norm(reference, axis=(1, 2)))), 3)


def _mean_millimetres(metres: np.ndarray) -> float:
    return round(1e3 * float(metres.mean()), 2)
