"""Fit of parameters, weights and a camera to trajectories with unknown initial states.

Each window is simulated from a start (initial state) of its own: multiple shooting. Observations
are not the states but what a camera sees of them. A Levenberg-Marquardt step eliminates the own
unknowns of the windows by the Schur complement, solves for the shared ones, and then updates the
own ones. The loss of a window is log(1 + mean squared residual, in units of the noise), so that
windows with chaotic motion, which no model can follow, have little influence.
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
# A trial of a damping only needs a simulation without Jacobian, so three are tried in each step.
_SCHEDULE = DescentSchedule(
    initial=1e-3,
    decrease=1.0,
    increase=100.0,
    lowest=1e-8,
    highest=1e6,
    candidates=(0.1, 1.0, 10.0),
    rounds=4,
)
_MIN_OWN_DAMPING = 1e-6  # of the windows' own unknowns


@dataclass(frozen=True, eq=False)
class ShootingFit:
    """The result of a fit.

    Attributes:
        sim: The fitted simulator.
        camera: The fitted camera (k,).
        start: Fitted initial states of the windows (N, s).
        own: Fitted own constants of the windows (N, e).
        error: Mean squared residuals of the windows (N,) in units of the noise.
        trace: The loss at the start and after each step; empty if only starts were fitted.
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
    """Fit the free shared unknowns together with the windows' own starts and constants.

    If no shared unknown is free, each window is fitted separately.

    Args:
        sim: The initial simulator.
        windows: N windows with first guesses of their starts.
        observation: How observations follow from states.
        camera: The initial camera (k,).
        free: The shared unknowns to fit.
        steps: Largest number of optimisation steps.
        origin: Weights (w,) that the ridge penalty is about; those of `sim` by default.

    Returns:
        The fitted simulator, camera and windows.
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
    """Keep the first frames of each window, optionally with other first guesses.

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
    """Fit the own unknowns of each window separately."""
    no_shared = np.zeros(0)

    def linearise(own: np.ndarray) -> BatchModel:
        at = problem.normal_equations(no_shared, own)
        return BatchModel(at.error, at.matrix, at.gradient)

    end = descend_batch(
        linearise, problem.own_start(), damping=_DAMPING, stopping=BatchStopping(steps)
    )
    start, own = problem.split_own(end.points)
    return ShootingFit(
        sim=problem.sim, camera=problem.camera, start=start, own=own, error=end.model.cost
    )


def _fit_shared(problem: ShootingProblem, steps: int) -> ShootingFit:
    """Fit the shared unknowns together with the own unknowns of the windows."""
    own = problem.own_start()
    no_errors_yet = np.full(len(own), np.inf)  # `_Linearised.at` computes them
    start = _State(problem.shared_start(), own, no_errors_yet, np.inf)
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
    """Shared unknowns (v,), own unknowns (N, z), mean squared residuals (N,) and the loss."""

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
        """Linearise at a state, whose errors and loss are computed as well."""
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
        """Step (v,) of the shared unknowns, and the blocks that give the own steps from it."""
        error = self.equations.error
        n = len(error)
        v = len(self.state.shared)
        own_damping = np.full(n, max(damping, _MIN_OWN_DAMPING))
        own_matrix = _DAMPING.apply(self.equations.matrix[:, v:, v:], own_damping)
        blocks = eliminate_blocks(self.equations.matrix, self.equations.gradient, own_matrix)
        # Derivative of the loss log(1 + error) by the error of each window.
        weight = np.where(self._usable, 1 / (1 + error), 0) / n
        penalty, origin = self.problem.ridge()
        hessian = np.einsum("n,nij->ij", weight, blocks.matrix) + np.diag(penalty)
        gradient = np.einsum("n,ni->i", weight, blocks.gradient)
        gradient = gradient + penalty * (self.state.shared - origin)
        damped = _DAMPING.apply(hessian[None], np.array([damping]))[0]
        return -np.linalg.solve(damped, gradient), blocks
