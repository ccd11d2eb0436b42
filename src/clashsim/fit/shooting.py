"""Parameters, weights and a camera from trajectories whose starts are not known.

Each window is simulated from a start of its own (multiple shooting). What is recorded is not the
state but what a camera sees of it. A Levenberg-Marquardt step first eliminates the windows' own
starts and constants (Schur complement) and then follows with each. A window counts by
log(1 + its mean squared residual / noise): one that no model follows, for its motion is chaotic,
does not lead the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clashsim.core.errors import DataError
from clashsim.fit.shooting_problem import (
    LOST,
    FreeParameters,
    NormalEquations,
    ObservationModel,
    ShootingProblem,
    TrajectoryWindows,
    rollout_uncontrolled,
)
from clashsim.optim.levenberg_marquardt import (
    BatchDamping,
    BatchModel,
    BatchStopping,
    DescentSchedule,
    descend,
    descend_batch,
)
from clashsim.optim.normal_equations import EliminatedBlocks, eliminate_blocks
from clashsim.sim.augmented.simulator import AugmentedSim

__all__ = [
    "FreeParameters",
    "ObservationModel",
    "ShootingFit",
    "TrajectoryWindows",
    "fit_by_shooting",
    "rollout_uncontrolled",
    "shorten_windows",
]
_DAMPING = BatchDamping(
    initial=1e-3, relative_floor=1e-12, absolute_floor=1e-300, regularisation=1e-14
)
# Trying a damping costs a simulation without Jacobian, so three are tried in each step.
_SCHEDULE = DescentSchedule(
    initial=1e-3,
    decrease=1.0,
    increase=100.0,
    lowest=1e-8,
    highest=1e6,
    candidates=(0.1, 1.0, 10.0),
    rounds=4,
)
_LEAST_OWN_DAMPING = 1e-6


@dataclass(frozen=True, eq=False)
class ShootingFit:
    """What was found.

    Attributes:
        sim: The simulator.
        camera: The camera (k,).
        start: Starts of the windows (N, s).
        own: Own constants of the windows (N, e).
        error: Their mean squared residuals (N,) in units of the noise.
        trace: The loss at the start and after each step.
    """

    sim: AugmentedSim
    camera: np.ndarray
    start: np.ndarray
    own: np.ndarray
    error: np.ndarray
    trace: tuple[float, ...] = ()


def fit_by_shooting(
    sim: AugmentedSim,
    windows: TrajectoryWindows,
    observation: ObservationModel,
    *,
    camera: np.ndarray,
    free: FreeParameters = FreeParameters(),
    steps: int = 15,
    origin: np.ndarray | None = None,
) -> ShootingFit:
    """Fit what is free, and the starts, from where the simulator and the camera are.

    With nothing free only the starts are found, each window by itself.

    Args:
        sim: The simulator to begin with.
        windows: N windows with first guesses of their starts.
        observation: How observations follow from states.
        camera: The camera to begin with (k,).
        free: What is to be found.
        steps: At most so many steps.
        origin: Where the weights began (w,), if not here.

    Returns:
        What was found.
    """
    problem = ShootingProblem(
        sim=sim,
        windows=windows,
        observation=observation,
        free=free,
        origin=sim.weights if origin is None else origin,
        camera=camera,
    )
    if len(problem.shared_start()):
        return _fit_shared(problem, steps)
    return _fit_starts(problem, steps)


def shorten_windows(
    windows: TrajectoryWindows,
    frames: int,
    *,
    start: np.ndarray | None = None,
    own: np.ndarray | None = None,
) -> TrajectoryWindows:
    """The first frames of each window, from other guesses where they are given.

    Args:
        windows: N windows.
        frames: How many frames to keep.
        start: Other guesses of the starts (N, s).
        own: Other guesses of the own constants (N, e).

    Returns:
        The shorter windows.
    """
    return replace(
        windows,
        observed=windows.observed[:, :frames],
        start=windows.start if start is None else start,
        own=windows.own if own is None else own,
    )


def _fit_starts(problem: ShootingProblem, steps: int) -> ShootingFit:
    """Find each window's start by itself."""
    nothing = np.zeros(0)

    def linearise(own: np.ndarray) -> BatchModel:
        at = problem.normal_equations(nothing, own)
        return BatchModel(at.error, at.matrix, at.gradient)

    end = descend_batch(
        linearise, problem.own_start(), damping=_DAMPING, stopping=BatchStopping(steps)
    )
    start, own = problem.split_own(end.points)
    return ShootingFit(
        sim=problem.sim, camera=problem.camera, start=start, own=own, error=end.model.cost
    )


def _fit_shared(problem: ShootingProblem, steps: int) -> ShootingFit:
    """Find all that is free together with the starts."""
    own = problem.own_start()
    unknown = np.full(len(own), np.inf)
    start = _State(problem.shared_start(), own, unknown, np.inf)
    schedule = replace(_SCHEDULE, steps=steps, absolute_tolerance=problem.free.tolerance)
    end = descend(start, lambda state: _Linearised.at(problem, state), schedule)
    final = end.state
    if not np.isfinite(final.cost) or (final.error > LOST).all():
        raise DataError(
            "the simulator diverges on all windows from where its parameters and weights begin: "
            "give shorter windows or another theta"
        )
    sim, camera = problem.at(final.shared)
    starts, constants = problem.split_own(final.own)
    return ShootingFit(
        sim=sim, camera=camera, start=starts, own=constants, error=final.error, trace=end.trace
    )


@dataclass(frozen=True, eq=False)
class _State:
    """What is shared (v,), what is not (N, z), mean squared residuals (N,) and the loss."""

    shared: np.ndarray
    own: np.ndarray
    error: np.ndarray
    cost: float


def _loss(problem: ShootingProblem, shared: np.ndarray, error: np.ndarray) -> float:
    """Mean logarithmic loss of the windows, plus the ridge."""
    penalty, origin = problem.ridge()
    return float(np.log1p(error).mean() + (penalty * (shared - origin) ** 2).sum())


@dataclass(frozen=True, eq=False)
class _Linearised:
    """The normal equations of all windows at a state."""

    problem: ShootingProblem
    state: _State
    equations: NormalEquations

    @staticmethod
    def at(problem: ShootingProblem, state: _State) -> _Linearised:
        """Linearise; the state gets the loss of the linearised residuals."""
        equations = problem.normal_equations(state.shared, state.own)
        cost = _loss(problem, state.shared, equations.error)
        return _Linearised(problem, replace(state, error=equations.error, cost=cost), equations)

    def trial(self, damping: float) -> _State:
        """The state after a damped step."""
        shared_step, blocks = self._step(damping)
        limits = self.problem.limits()
        shared = np.clip(self.state.shared + shared_step, -limits, limits)
        own_steps = blocks.own_steps(shared - self.state.shared)
        own = self.state.own + np.where(self._usable[:, None], own_steps, 0)
        error = self.problem.errors(shared, own)
        return _State(shared, own, error, _loss(self.problem, shared, error))

    @property
    def _usable(self) -> np.ndarray:
        """Which windows (N,) the simulator can follow."""
        return self.equations.error < LOST

    def _step(self, damping: float) -> tuple[np.ndarray, EliminatedBlocks]:
        """The step (v,) of what is shared, and how the windows follow it."""
        error = self.equations.error
        n = len(error)
        v = len(self.state.shared)
        own_damping = np.full(n, max(damping, _LEAST_OWN_DAMPING))
        own_matrix = _DAMPING.apply(self.equations.matrix[:, v:, v:], own_damping)
        blocks = eliminate_blocks(self.equations.matrix, self.equations.gradient, own_matrix)
        weight = np.where(self._usable, 1 / (1 + error), 0) / n  # how the logarithm weighs a window
        penalty, origin = self.problem.ridge()
        hessian = np.einsum("n,nij->ij", weight, blocks.matrix) + np.diag(penalty)
        gradient = np.einsum("n,ni->i", weight, blocks.gradient)
        gradient = gradient + penalty * (self.state.shared - origin)
        damped = _DAMPING.apply(hessian[None], np.array([damping]))[0]
        return -np.linalg.solve(damped, gradient), blocks
