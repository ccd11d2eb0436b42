"""The Levenberg-Marquardt method, in the two forms that clashsim's fits need.

`descend_batch` moves many starts at once, each with its own damping. Every trial point is
linearised when it is evaluated. It suits simulators that return residuals and Jacobian together;
`levenberg_marquardt` is its usual form, on residuals.

`descend` moves one state. A linearisation costs much more than a trial, so several dampings are
tried on one linearisation. Its problems may have blocks of parameters that only one part of the
data depends on (the start of each slide, the start of each window): see `eliminate_blocks` in
`clashsim.optim.normal_equations`.

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
_STALLED_STEPS = 8  # refused that often in a row, steps have become tiny


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
        relative_floor: Smallest diagonal entry that counts, relative to the largest.
        absolute_floor: Added to that floor.
        regularisation: Added to the diagonal whatever the factor is, relative to the largest entry.
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
        steps: At most so many trial steps.
        tolerance: It ends when no cost fell by more than this share of itself in eight steps;
            0 never ends it early.
        smallest_step: It ends when every start took a step whose largest entry is below this;
            0 never ends it early.
        largest_step: No entry of a step is longer than this.
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
        gradient: Gradients (m, q), of half the cost.
        details: Further arrays (m, ...) that are wanted of the final points.
    """

    cost: np.ndarray
    hessian: np.ndarray
    gradient: np.ndarray
    details: dict[str, np.ndarray] = field(default_factory=dict)

    def copy(self) -> BatchModel:
        """The same model with arrays of its own."""
        details = {name: array.copy() for name, array in self.details.items()}
        return BatchModel(self.cost.copy(), self.hessian.copy(), self.gradient.copy(), details)

    def take_rows(self, other: BatchModel, rows: np.ndarray) -> None:
        """Overwrite the rows (m,) of booleans with those of another model, in place."""
        self.cost[rows] = other.cost[rows]
        self.hessian[rows] = other.hessian[rows]
        self.gradient[rows] = other.gradient[rows]
        for name, array in self.details.items():
            array[rows] = other.details[name][rows]


@dataclass(frozen=True, eq=False)
class BatchDescent:
    """Where `descend_batch` ended.

    Attributes:
        points: (m, q).
        model: Cost, Hessian and gradient there.
        damping: Factors (m,) to go on with.
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
        linearise: Costs and Gauss-Newton models at points (m, q).
        starts: (m, q).
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
        better = trial.cost < model.cost
        length = np.abs(trial_points - points).max(1, initial=0.0)
        points[better] = trial_points[better]
        model.take_rows(trial, better)
        factor = np.where(better, factor / damping.decrease, factor * damping.increase)
        factor = np.clip(factor, damping.lowest, damping.highest)
        trace.append(model.cost.copy())
        if (better & (length < stopping.smallest_step)).all():
            break
        if _stalled(trace, stopping.tolerance):
            break
    return BatchDescent(points, model, factor, np.stack(trace))


def _stalled(trace: list[np.ndarray], tolerance: float) -> bool:
    """Whether no cost fell by more than a share of itself over the last steps."""
    if not tolerance or len(trace) <= _STALLED_STEPS:
        return False
    earlier = trace[-1 - _STALLED_STEPS]
    return bool((earlier - trace[-1] <= tolerance * earlier).all())


@dataclass(frozen=True, eq=False)
class Descent:
    """Where `levenberg_marquardt` ended.

    Attributes:
        points: (m, q).
        loss: Sums of squared residuals (m,).
        damping: Damping factors (m,) to go on with.
        residual: Residuals (m, n) there.
        jacobian: Their Jacobian (m, n, q).
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

    A residual that is not finite counts as a step to be taken back.

    Args:
        evaluate: Residuals (m, n) and Jacobian (m, n, q) at points (m, q).
        starts: (m, q).
        low: Lower bounds of a point, (q,) or one number.
        high: Upper bounds.
        steps: At most so many trial steps.
        tolerance: Ends when no loss fell by more than this share of itself in eight steps.
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
    """The model of residuals; where they are not finite, the cost is infinite and no step made."""
    finite = np.isfinite(residual).all(1) & np.isfinite(jacobian).all((1, 2))
    with np.errstate(over="ignore"):  # a simulation on its way to infinity
        squares = np.where(np.isfinite(residual), residual, 0) ** 2
        cost = np.where(finite, squares.sum(1), np.inf)
    usable = np.isfinite(cost)
    used_residual = np.where(usable[:, None], residual, 0)
    used_jacobian = np.where(usable[:, None, None], jacobian, 0)
    transposed = used_jacobian.transpose(0, 2, 1)
    return BatchModel(
        cost,
        transposed @ used_jacobian,
        (transposed @ used_residual[..., None])[..., 0],
        {"residual": residual, "jacobian": jacobian},
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
        """The state after a step with this damping factor, and its cost."""
        ...


@dataclass(frozen=True)
class DescentSchedule:
    """How `descend` damps its steps, and when it ends.

    Attributes:
        initial: Damping factor of the first step.
        decrease: Divisor of the factor after a step that was taken.
        increase: Multiplier of the factor after a round of trials that all failed.
        lowest: Lower limit of the factor between steps.
        highest: Upper limit.
        candidates: Multiples of the factor that one round tries; the best of them is kept.
        rounds: Rounds of trials on one linearisation before it gives up.
        steps: At most so many steps.
        absolute_tolerance: It ends after a step that lowers the cost by less than this,
        relative_tolerance: or by less than this share of the cost before.
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
        start: Where to begin.
        linearise: The linearisation at a state. Its own state may carry a cost that was computed
            with more care than that of the trial.
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
        smallest = max(schedule.absolute_tolerance, schedule.relative_tolerance * current.cost)
        current = accepted
        trace.append(current.cost)
        factor = min(max(factor / schedule.decrease, schedule.lowest), schedule.highest)
        if decrease < smallest:
            break
    return StateDescent(current, model, tuple(trace))


def _try_rounds(
    model: LocalModel[State], factor: float, schedule: DescentSchedule
) -> tuple[State, float] | None:
    """The first better state and the factor that led to it; None if no round finds one."""
    for _ in range(schedule.rounds):
        trials = {}
        for multiple in schedule.candidates:
            trials[factor * multiple] = model.trial(factor * multiple)
        best = min(trials, key=lambda tried: trials[tried].cost)
        if trials[best].cost < model.state.cost:
            return trials[best], best
        factor = best * schedule.increase
    return None
