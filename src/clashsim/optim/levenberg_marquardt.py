"""The Levenberg-Marquardt method, in the two forms that clashsim's fits need.

`descend_batch` descends from many starts at once, each with its own damping. Every trial point is
linearised when it is evaluated, which suits simulators that return residuals and Jacobian together.
`levenberg_marquardt` is the same method for a function that returns residuals and Jacobian.

`descend` descends from one state. It suits problems in which a linearisation costs much more than
the cost of a trial state: several dampings are tried on one linearisation. Such problems may have
blocks of parameters that only one part of the data depends on (the start of each slide, the start
of each window): see `eliminate_blocks` in `clashsim.optim.normal_equations`.

Reference: D. W. Marquardt, "An Algorithm for Least-Squares Estimation of Nonlinear Parameters",
SIAM J. 11 (1963).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

# Points (m, q) -> residuals (m, n) and their Jacobian (m, n, q).
Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
# Number of last steps in which a cost must have fallen. After eight refused steps in a row, the
# damping is so large that further steps are tiny.
_STALLED_STEPS = 8


@dataclass(frozen=True)
class BatchDamping:
    """How `descend_batch` damps its steps.

    Attributes:
        initial: Damping factor of the first step.
        decrease: Divisor of the factor after a step that was taken.
        increase: Multiplier of the factor after a step that was refused.
        lowest: Lower limit of the factor.
        highest: Upper limit of the factor.
        scaling: What the factor multiplies: the diagonal of the Hessian (Marquardt), so that
            parameters of any size move alike, or the identity (Levenberg).
        relative_floor: Lower limit of the diagonal entries that scale the damping, relative to the
            largest entry.
        absolute_floor: Added to that lower limit.
        regularisation: Added to the diagonal independently of the factor, relative to the largest
            entry.
    """

    initial: float = 1e-2
    decrease: float = 5.0
    increase: float = 8.0
    lowest: float = 1e-9
    highest: float = 1e9
    scaling: Literal["diagonal", "identity"] = "diagonal"
    relative_floor: float = 1e-6
    absolute_floor: float = 1e-12
    regularisation: float = 0.0

    def apply(self, hessian: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Add the damping to Hessians.

        Args:
            hessian: (m, q, q).
            factor: Damping factors (m,).

        Returns:
            Damped Hessians (m, q, q).
        """
        identity = np.eye(hessian.shape[-1])
        if self.scaling == "identity":
            return hessian + factor[:, None, None] * identity
        diagonal = np.einsum("mii->mi", hessian)
        largest = diagonal.max(1, keepdims=True)
        scale = np.maximum(diagonal, self.relative_floor * largest + self.absolute_floor)
        damped = hessian + (factor[:, None] * scale)[:, :, None] * identity
        if self.regularisation:
            damped = damped + self.regularisation * scale.max(1)[:, None, None] * identity
        return damped


@dataclass(frozen=True)
class BatchStopping:
    """When `descend_batch` ends.

    Attributes:
        steps: Maximum number of trial steps.
        tolerance: The descent ends when no cost fell by more than this fraction of itself in eight
            steps; 0 to never end for this reason.
        smallest_step: The descent ends when all points accept a step whose largest entry is below
            this; 0 to never end for this reason.
        largest_step: Limit of the absolute value of each entry of a step.
    """

    steps: int = 20
    tolerance: float = 0.0
    smallest_step: float = 0.0
    largest_step: float = np.inf


@dataclass(frozen=True, eq=False)
class BatchModel:
    """Costs and their Gauss-Newton models at m points.

    Attributes:
        cost: (m,). Infinite where a point cannot be evaluated.
        hessian: Gauss-Newton Hessians (m, q, q).
        gradient: Gradients (m, q) of half the cost.
        details: Further arrays (m, ...), by name, that the caller needs at the final points.
    """

    cost: np.ndarray
    hessian: np.ndarray
    gradient: np.ndarray
    details: dict[str, np.ndarray] = field(default_factory=dict)

    def copy(self) -> BatchModel:
        """Copy the model and all its arrays."""
        details = {name: array.copy() for name, array in self.details.items()}
        return BatchModel(self.cost.copy(), self.hessian.copy(), self.gradient.copy(), details)

    def take_rows(self, other: BatchModel, rows: np.ndarray) -> None:
        """Replace, in place, the rows that a mask (m,) marks by those of another model."""
        self.cost[rows] = other.cost[rows]
        self.hessian[rows] = other.hessian[rows]
        self.gradient[rows] = other.gradient[rows]
        for name, array in self.details.items():
            array[rows] = other.details[name][rows]


@dataclass(frozen=True, eq=False)
class BatchDescent:
    """Where `descend_batch` ended.

    Attributes:
        points: Points (m, q) that were reached.
        model: Costs, Hessians and gradients at these points.
        damping: Damping factors (m,) with which a further descent should start.
        trace: Costs (steps + 1, m) at the start and after each step.
    """

    points: np.ndarray
    model: BatchModel
    damping: np.ndarray
    trace: np.ndarray


def descend_batch(
    linearise: Callable[[np.ndarray], BatchModel],
    starts: np.ndarray,
    *,
    low: np.ndarray | float = -np.inf,
    high: np.ndarray | float = np.inf,
    damping: BatchDamping = BatchDamping(),
    stopping: BatchStopping = BatchStopping(),
) -> BatchDescent:
    """Descend from many starts at once; a step is taken only where it lowers the cost.

    Args:
        linearise: Returns costs and Gauss-Newton models at points (m, q).
        starts: Points (m, q) at which the descents start.
        low: Lower bounds of a point, (q,) or one number.
        high: Upper bounds.
        damping: How steps are damped.
        stopping: When to end.

    Returns:
        The points reached.
    """
    points = np.clip(np.array(starts, float), low, high)
    model = linearise(points).copy()
    factor = np.full(len(points), damping.initial)
    trace = [model.cost.copy()]
    for _ in range(stopping.steps):
        damped = damping.apply(model.hessian, factor)
        step = -np.linalg.solve(damped, model.gradient[..., None])[..., 0]
        step = np.clip(step, -stopping.largest_step, stopping.largest_step)
        trial_points = np.clip(points + step, low, high)
        trial = linearise(trial_points)
        is_better = trial.cost < model.cost
        step_size = np.abs(trial_points - points).max(1, initial=0.0)
        points[is_better] = trial_points[is_better]
        model.take_rows(trial, is_better)
        factor = np.where(is_better, factor / damping.decrease, factor * damping.increase)
        factor = np.clip(factor, damping.lowest, damping.highest)
        trace.append(model.cost.copy())
        if (is_better & (step_size < stopping.smallest_step)).all():
            break
        if _stalled(trace, stopping.tolerance):
            break
    return BatchDescent(points, model, factor, np.stack(trace))


def _stalled(trace: list[np.ndarray], tolerance: float) -> bool:
    """Whether no cost fell by more than a fraction `tolerance` of itself over the last steps."""
    if not tolerance or len(trace) <= _STALLED_STEPS:
        return False
    earlier = trace[-1 - _STALLED_STEPS]
    return bool((earlier - trace[-1] <= tolerance * earlier).all())


@dataclass(frozen=True, eq=False)
class Descent:
    """Where `levenberg_marquardt` ended.

    Attributes:
        points: Points (m, q) that were reached.
        loss: Sums of squared residuals (m,) at the points.
        damping: Damping factors (m,) with which a further descent should start.
        residual: Residuals (m, n) at the points.
        jacobian: Jacobian (m, n, q) of the residuals.
        trace: Losses (steps + 1, m) at the start and after each step.
    """

    points: np.ndarray
    loss: np.ndarray
    damping: np.ndarray
    residual: np.ndarray
    jacobian: np.ndarray
    trace: np.ndarray


def levenberg_marquardt(
    evaluate: Evaluate,
    starts: np.ndarray,
    *,
    low: np.ndarray | float = -1.0,
    high: np.ndarray | float = 1.0,
    steps: int = 20,
    tolerance: float = 0.0,
    damping: BatchDamping = BatchDamping(),
) -> Descent:
    """Minimise sums of squared residuals from many starts at once.

    A step to a point with a residual that is not finite is refused.

    Args:
        evaluate: Returns residuals (m, n) and their Jacobian (m, n, q) at points (m, q).
        starts: Points (m, q) at which the descents start.
        low: Lower bounds of a point, (q,) or one number.
        high: Upper bounds.
        steps: Maximum number of trial steps.
        tolerance: As in `BatchStopping`.
        damping: How steps are damped.

    Returns:
        The points reached.
    """

    def linearise(points: np.ndarray) -> BatchModel:
        residual, jacobian = evaluate(points)
        return _gauss_newton(residual, jacobian)

    end = descend_batch(
        linearise,
        starts,
        low=low,
        high=high,
        damping=damping,
        stopping=BatchStopping(steps, tolerance),
    )
    return Descent(
        points=end.points,
        loss=end.model.cost,
        damping=end.damping,
        residual=end.model.details["residual"],
        jacobian=end.model.details["jacobian"],
        trace=end.trace,
    )


def _gauss_newton(residual: np.ndarray, jacobian: np.ndarray) -> BatchModel:
    """Gauss-Newton models of residuals; the cost is infinite where residuals are not finite."""
    finite = np.isfinite(residual).all(1) & np.isfinite(jacobian).all((1, 2))
    with np.errstate(over="ignore"):  # residuals of a simulation that diverges
        squares = np.where(np.isfinite(residual), residual, 0) ** 2
        cost = np.where(finite, squares.sum(1), np.inf)
    usable = np.isfinite(cost)
    used_residual = np.where(usable[:, None], residual, 0)
    used_jacobian = np.where(usable[:, None, None], jacobian, 0)
    transposed = used_jacobian.transpose(0, 2, 1)
    return BatchModel(
        cost=cost,
        hessian=transposed @ used_jacobian,
        gradient=(transposed @ used_residual[..., None])[..., 0],
        details={"residual": residual, "jacobian": jacobian},
    )


class HasCost(Protocol):
    """A state that `descend` can compare with another."""

    @property
    def cost(self) -> float:
        """What is minimised."""
        ...


State = TypeVar("State", bound=HasCost)
StateOut = TypeVar("StateOut", bound=HasCost, covariant=True)


class LocalModel(Protocol[StateOut]):
    """The linearisation of a problem at a state, from which steps of any damping can be tried."""

    @property
    def state(self) -> StateOut:
        """Where the problem was linearised."""
        ...

    def trial(self, damping: float) -> StateOut:
        """Return the state, with its cost, after a step with a given damping factor."""
        ...


@dataclass(frozen=True)
class DescentSchedule:
    """How `descend` damps its steps, and when it ends.

    Attributes:
        initial: Damping factor of the first step.
        decrease: Divisor of the factor after a step that was taken.
        increase: Multiplier of the factor after a round of trials none of which lowered the cost.
        lowest: Lower limit of the factor between steps.
        highest: Upper limit.
        candidates: Multiples of the factor that one round tries; the best trial is kept.
        rounds: Maximum number of rounds on one linearisation before the descent ends.
        steps: Maximum number of steps.
        absolute_tolerance: The descent ends after a step that lowers the cost by less than this.
        relative_tolerance: The descent ends after a step that lowers the cost by less than this
            fraction of its value before the step.
    """

    initial: float = 1e-2
    decrease: float = 5.0
    increase: float = 6.0
    lowest: float = 0.0
    highest: float = np.inf
    candidates: tuple[float, ...] = (1.0,)
    rounds: int = 8
    steps: int = 30
    absolute_tolerance: float = 0.0
    relative_tolerance: float = 0.0


@dataclass(frozen=True, eq=False)
class StateDescent(Generic[State]):
    """Where `descend` ended.

    Attributes:
        state: The state reached.
        model: The last linearisation, at the state before the last step.
        trace: Costs at the start and after each step.
    """

    state: State
    model: LocalModel[State]
    trace: tuple[float, ...]


def descend(
    start: State,
    linearise: Callable[[State], LocalModel[State]],
    schedule: DescentSchedule,
) -> StateDescent[State]:
    """Descend from one state, trying several dampings on each linearisation.

    Args:
        start: The state to start from.
        linearise: Returns the linearisation at a state. The state in it may have a more accurate
            cost than the trial state that was passed.
        schedule: How steps are damped, and when to end.

    Returns:
        The state reached.
    """
    model = linearise(start)
    current = model.state
    factor = schedule.initial
    trace = [current.cost]
    for step in range(schedule.steps):
        if step > 0:
            model = linearise(current)
            current = model.state
        found = _try_rounds(model, factor, schedule)
        if found is None:
            break
        accepted, factor = found
        decrease = current.cost - accepted.cost
        smallest_decrease = max(
            schedule.absolute_tolerance, schedule.relative_tolerance * current.cost
        )
        current = accepted
        trace.append(current.cost)
        factor = min(max(factor / schedule.decrease, schedule.lowest), schedule.highest)
        if decrease < smallest_decrease:
            break
    return StateDescent(current, model, tuple(trace))


def _try_rounds(
    model: LocalModel[State], factor: float, schedule: DescentSchedule
) -> tuple[State, float] | None:
    """The first state of lower cost, and its damping factor; None if no round finds one."""
    for _ in range(schedule.rounds):
        trials = {}
        for multiple in schedule.candidates:
            trials[factor * multiple] = model.trial(factor * multiple)
        best_factor = min(trials, key=lambda tried: trials[tried].cost)
        if trials[best_factor].cost < model.state.cost:
            return trials[best_factor], best_factor
        factor = best_factor * schedule.increase
    return None
