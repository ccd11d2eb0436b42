"""The least-squares problem of fitting windows of trajectories with unknown initial states.

Every window has its own start (initial state) and own constants. All windows share the parameters
(on the unit scale), the weights and the camera. Normal equations are kept window by window, so that
the own unknowns can be eliminated.

Sizes: N windows of T frames, s entries of a state, e own constants, z = s + e own unknowns of a
window, k entries of the camera, o entries of an observation, v shared unknowns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clashsim.core.params import Param, from_unit, to_unit
from clashsim.sim.augmented.simulator import AugmentedSim, JacobianBlocks

# (states (N, T, s), camera (k,), own constants (N, e)) -> observations (N, T, o)
Observe = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# The same, followed by its Jacobians (N, T, o, s), (N, T, o, k), (N, T, o, e).
ObserveWithJacobian = Callable[
    [np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
]
# Windows in one call of the simulator: always the same number, as another one would compile again.
_ROWS = 256
_BLOCK = 32  # windows whose Jacobians are in memory at once
_NOT_FINITE = 1e30  # error that is assigned to a window whose simulation is not finite
LOST = 1e20  # windows with a larger error are excluded: the simulator cannot follow them


@dataclass(frozen=True, eq=False)
class TrajectoryWindows:
    """N windows of T frames.

    Attributes:
        observed: What was recorded (N, T, o).
        noise: Standard deviations (o,) of the observations.
        start: First guesses of the starts (N, s).
        own: First guesses of the windows' own constants (N, e).
        own_std: Standard deviations (e,) of the guesses of the own constants.
    """

    observed: np.ndarray
    noise: np.ndarray
    start: np.ndarray
    own: np.ndarray
    own_std: np.ndarray


@dataclass(frozen=True)
class FreeParameters:
    """The shared unknowns to fit.

    Attributes:
        params: Indices of the parameters to fit.
        camera: Indices of the camera's entries to fit.
        train: Whether the weights are fitted too.
        ridge: Weight of the squared distance of the weights from their initial values.
        tolerance: The fit ends when a step lowers the loss by less than this.
    """

    params: tuple[int, ...] = ()
    camera: tuple[int, ...] = ()
    train: bool = False
    ridge: float = 1e-4
    tolerance: float = 2e-4


@dataclass(frozen=True)
class ObservationModel:
    """How observations follow from states.

    Attributes:
        observe: Computes observations, without Jacobians.
        observe_with_jacobian: Computes observations and their Jacobians.
    """

    observe: Observe
    observe_with_jacobian: ObserveWithJacobian


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Gauss-Newton models of N windows.

    Attributes:
        error: Mean squared residuals (N,).
        matrix: Normal matrices (N, v + z, v + z); shared unknowns first, then the window's own.
        gradient: Half gradients of the errors (N, v + z), in the same order.
    """

    error: np.ndarray
    matrix: np.ndarray
    gradient: np.ndarray


@dataclass(frozen=True, eq=False)
class ShootingProblem:
    """Windows, and the unknowns to fit.

    Attributes:
        sim: The initial simulator.
        windows: The windows.
        observation: How observations follow from states.
        free: The shared unknowns to fit.
        origin: Weights (w,) that the ridge penalty is about.
        camera: The initial camera (k,).
    """

    sim: AugmentedSim
    windows: TrajectoryWindows
    observation: ObservationModel
    free: FreeParameters
    origin: np.ndarray
    camera: np.ndarray

    @property
    def _params(self) -> list[Param]:
        """The parameters to fit, q of them."""
        return [self.sim.scene.params[i] for i in self.free.params]

    @property
    def _theta(self) -> np.ndarray:
        """Initial theta (p,), natural units."""
        theta = self.sim.theta if self.sim.theta is not None else self.sim.scene.nominal
        return np.array(theta, float)

    @property
    def _num_weights(self) -> int:
        """Number of weights to fit."""
        return len(self.sim.weights) if self.free.train else 0

    def own_start(self) -> np.ndarray:
        """Initial own unknowns of the windows (N, z): starts, then own constants."""
        return np.concatenate([self.windows.start, self.windows.own], 1)

    def split_own(self, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split own unknowns (N, z) into starts (N, s) and own constants (N, e)."""
        num_states = self.windows.start.shape[1]
        return own[:, :num_states], own[:, num_states:]

    def shared_start(self) -> np.ndarray:
        """Initial shared unknowns (v,): parameters on the unit scale, weights, camera."""
        unit = to_unit(self._params, self._theta[list(self.free.params)])
        weights = self.sim.weights if self.free.train else np.zeros(0)
        return np.concatenate([unit, weights, self.camera[list(self.free.camera)]])

    def at(self, shared: np.ndarray) -> tuple[AugmentedSim, np.ndarray]:
        """The simulator and the camera (k,) at a point (v,)."""
        q = len(self.free.params)
        w = self._num_weights
        theta = self._theta
        theta[list(self.free.params)] = from_unit(self._params, shared[:q])
        camera = np.array(self.camera, float)
        camera[list(self.free.camera)] = shared[q + w :]
        weights = shared[q : q + w] if self.free.train else self.sim.weights
        return self.sim.with_weights(weights, theta), camera

    def limits(self) -> np.ndarray:
        """Largest absolute values (v,) of the shared unknowns: parameters stay in their ranges."""
        num_unbounded = self._num_weights + len(self.free.camera)
        return np.concatenate([np.ones(len(self.free.params)), np.full(num_unbounded, np.inf)])

    def ridge(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (v,) and origins (v,) of the ridge penalty; only network weights have one."""
        none = np.zeros(len(self.free.params))
        camera = np.zeros(len(self.free.camera))
        origin = self.origin if self.free.train else np.zeros(0)
        penalty = np.full(len(origin), self.free.ridge)
        return np.concatenate([none, penalty, camera]), np.concatenate([none, origin, camera])

    def errors(self, shared: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Mean squared residuals (N,), without the costly Jacobians.

        Args:
            shared: Shared unknowns (v,).
            own: Own unknowns of the windows (N, z).
        """
        sim, camera = self.at(shared)
        starts, constants = self.split_own(own)
        # A step may give NaN. The simulator then gets the first guess of the start, and the NaN in
        # the own constants makes the window's error `_NOT_FINITE`.
        finite = np.isfinite(own).all(1)
        starts = np.where(finite[:, None], starts, self.windows.start)
        frames = self.windows.observed.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            states = rollout_uncontrolled(sim, starts, steps=frames - 1)
            observed = self.observation.observe(states, camera, constants)
            residual = (observed - self.windows.observed) / self.windows.noise
            guess = (constants - self.windows.own) / self.windows.own_std
            prior = (guess**2).sum(1) / self.windows.observed[0].size
            error = (residual**2).mean((1, 2)) + prior
        return np.where(np.isfinite(error), error, _NOT_FINITE)

    def normal_equations(self, shared: np.ndarray, own: np.ndarray) -> NormalEquations:
        """Mean squared residuals and normal equations of the windows.

        Args:
            shared: Shared unknowns (v,).
            own: Own unknowns of the windows (N, z).
        """
        sim, camera = self.at(shared)
        starts, _ = self.split_own(own)
        n = len(own)
        steps = self.windows.observed.shape[1] - 1
        blocks = []
        for first in range(0, n, _ROWS):
            last = min(first + _ROWS, n)
            rows = _padded(starts[first:last], n)
            with np.errstate(over="ignore", invalid="ignore"):
                states, jacobian = sim.rollout_with_jacobian(
                    rows,
                    np.zeros((len(rows), steps, sim.model.nu)),
                    free=self.free.params,
                    finite=False,
                    blocks=JacobianBlocks(weights=self.free.train, start=True),
                )
            for begin in range(first, last, _BLOCK):
                end = min(begin + _BLOCK, last)
                in_call = slice(begin - first, end - first)
                blocks.append(
                    self._block(states[in_call], jacobian[in_call], camera, own, slice(begin, end))
                )
        return NormalEquations(
            np.concatenate([block.error for block in blocks]),
            np.concatenate([block.matrix for block in blocks]),
            np.concatenate([block.gradient for block in blocks]),
        )

    def _block(
        self,
        states: np.ndarray,
        state_jacobian: np.ndarray,
        camera: np.ndarray,
        own: np.ndarray,
        rows: slice,
    ) -> NormalEquations:
        """Normal equations of the n windows `rows`.

        Args:
            states: Simulated states of these windows (n, T, s).
            state_jacobian: Their derivatives by parameters and weights, then by the start
                (n, T, s, ...).
            camera: The camera (k,).
            own: Own unknowns of all windows (N, z).
            rows: Which of the N windows.
        """
        _, constants = self.split_own(own[rows])
        n, e = constants.shape
        num_states = self.windows.start.shape[1]
        num_shared = state_jacobian.shape[-1] - num_states
        observed, by_state, by_camera, by_own = self.observation.observe_with_jacobian(
            states, camera, constants
        )
        with np.errstate(over="ignore", invalid="ignore"):
            through_states = by_state @ state_jacobian
            columns = [
                through_states[..., :num_shared],
                by_camera[..., list(self.free.camera)],
                through_states[..., num_shared:],
                by_own,
            ]
            jacobian = np.concatenate(columns, -1) / self.windows.noise[:, None]
            residual = (observed - self.windows.observed[rows]) / self.windows.noise
            size = residual[0].size
            residual = residual.reshape(n, size)
            jacobian = jacobian.reshape(n, size, -1)
            transposed = jacobian.transpose(0, 2, 1)
            matrix = transposed @ jacobian / size
            gradient = (transposed @ residual[..., None])[..., 0] / size
            # The priors of the own constants are further residuals.
            own_std = self.windows.own_std
            guess = (constants - self.windows.own[rows]) / own_std
            own_columns = slice(matrix.shape[1] - e, None)  # none where windows have no constants
            matrix[:, own_columns, own_columns] += np.diag(1 / own_std**2) / size
            gradient[:, own_columns] += guess / own_std / size
            error = (residual**2).mean(1) + (guess**2).sum(1) / size
        finite = np.isfinite(error) & np.isfinite(gradient).all(1)
        finite &= np.isfinite(matrix).all((1, 2))
        identity = np.eye(matrix.shape[1])
        return NormalEquations(
            np.where(finite, error, _NOT_FINITE),
            np.where(finite[:, None, None], matrix, identity),
            np.where(finite[:, None], gradient, 0),
        )


def rollout_uncontrolled(sim: AugmentedSim, start: np.ndarray, *, steps: int) -> np.ndarray:
    """Simulated states (N, steps + 1, s) with zero control, from starts (N, s)."""
    out = []
    for first in range(0, len(start), _ROWS):
        rows = _padded(start[first : first + _ROWS], len(start))
        control = np.zeros((len(rows), steps, sim.model.nu))
        out.append(sim.rollout(rows, control)[: len(start) - first])
    return np.concatenate(out)


def _padded(rows: np.ndarray, n: int) -> np.ndarray:
    """Rows of one call, padded to `_ROWS` if the n rows of all calls do not fit into one."""
    if n <= _ROWS:
        return rows
    return np.concatenate([rows, np.repeat(rows[:1], _ROWS - len(rows), 0)])
