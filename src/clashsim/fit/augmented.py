"""Fit of parameters and weights of a neural-augmented simulator (Heiden et al. 2020, eq. 1).

The loss is the squared prediction error over windows of one step and of a short horizon, plus R
times the squared distance of the weights from their initial values. Initially the last layer is
zero, so this prefers explanations by the analytic part of the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.augmentation_spec import silence_networks, weight_slices
from clashsim.core.errors import DataError
from clashsim.core.estimates import Estimate
from clashsim.core.params import from_unit, to_unit
from clashsim.fit.gradient import NOISE_FLOOR
from clashsim.fit.mjx_windows import StateWindows, continuous_quaternions, state_scales
from clashsim.fit.priors import estimates_of_free, prior_std
from clashsim.optim.levenberg_marquardt import levenberg_marquardt
from clashsim.sim.augmented.simulator import AugmentedSim
from clashsim.sim.inputs import check_rollout

_START_RANGE = 0.98  # of the unit scale, to which the initial parameters are clipped
_TOLERANCE = 1e-4  # the fit ends when eight steps lower the loss by less than this share
_MIN_RIDGE = 1e-12  # keeps the covariance of the weights finite


@dataclass(frozen=True, eq=False)
class AugmentedFit:
    """A trained simulator.

    Attributes:
        sim: The simulator.
        estimates: Estimates of the parameters in `scene.params` order.
        error: Root mean square relative error over the windows.
        without: The same error with one neural scalar silenced (set to zero) at a time, in the
            augmentation's order; a scalar whose silencing hardly raises the error is not needed.
        trace: The loss at the start and after each step.
    """

    sim: AugmentedSim
    estimates: tuple[Estimate, ...]
    error: float
    without: tuple[float, ...]
    trace: np.ndarray

    @property
    def theta(self) -> np.ndarray:
        """Values (p,), natural units."""
        return np.array([estimate.value for estimate in self.estimates])


def windows_of(states: np.ndarray, control: np.ndarray, *, steps: int, every: int) -> StateWindows:
    """Cut trajectories into windows.

    Args:
        states: States of N trajectories (N, T + 1, s).
        control: Controls (N, T, nu).
        steps: Time steps of a window.
        every: Time steps from the start of one window to the start of the next.

    Returns:
        The windows.
    """
    arrays = states.ndim == 3 and control.ndim == 3
    fitting = arrays and control.shape[:2] == (states.shape[0], states.shape[1] - 1)
    if not fitting or not 1 <= steps <= control.shape[1] or every < 1:
        raise DataError(
            f"trajectories of shapes {states.shape} and {control.shape} have no windows of "
            f"{steps} steps at every {every}: they need (N, T + 1, s) and (N, T, nu)"
        )
    begins = range(0, control.shape[1] - steps + 1, every)
    observed = np.concatenate([states[:, k : k + steps + 1] for k in begins])
    controls = np.concatenate([control[:, k : k + steps] for k in begins])
    return StateWindows(observed[:, 0], controls, observed)


def fit_augmented(
    sim: AugmentedSim,
    windows: Sequence[StateWindows],
    free: Sequence[int] = (),
    *,
    ridge: float = 1e-5,
    steps: int = 30,
    train: bool = True,
) -> AugmentedFit:
    """Fit parameters and weights, beginning with those of the simulator.

    Args:
        sim: The simulator.
        windows: One set of windows for each horizon (one step, several steps). All sets have the
            same weight. A residual is the error of a state's entry, divided by how much the entries
            of the same unit change in the windows of that set.
        free: Indices of the parameters to fit.
        ridge: R, the weight of the squared distance of the weights from their initial values.
        steps: Largest number of optimisation steps.
        train: Whether the weights are fitted too.

    Returns:
        The trained simulator.
    """
    for one in windows:
        _check_windows(sim, one)
    if not windows or not (len(free) or (train and len(sim.weights))):
        raise DataError(
            "nothing to fit: give at least one set of windows, and parameters or an augmentation "
            "with weights"
        )
    problem = _AugmentedProblem(sim, windows, list(free), ridge=ridge, train=train)
    bound = problem.bounds()
    end = levenberg_marquardt(
        problem.evaluate,
        problem.start()[None],
        low=-bound,
        high=bound,
        steps=steps,
        tolerance=_TOLERANCE,
    )
    if not np.isfinite(end.loss[0]):
        raise DataError(
            "the simulator diverges on these windows from where its parameters and weights begin: "
            "give shorter windows or another theta"
        )
    point = end.points[0]
    of_windows = slice(0, -len(point))  # without the last residuals, those of prior and ridge
    squared_error = float((end.residual[0, of_windows] ** 2).sum())
    std = problem.parameter_std(end.jacobian[0, of_windows], squared_error)
    trained = problem.trained(point)
    return AugmentedFit(
        sim=trained,
        estimates=estimates_of_free(
            sim.scene, free, point[: len(free)], std, base=problem.base_theta, known={}
        ),
        error=float(np.sqrt(squared_error)),
        without=problem.errors_without_each_network(trained),
        trace=end.trace[:, 0],
    )


def curve(sim: AugmentedSim, which: int, values: np.ndarray) -> np.ndarray:
    """Evaluate one neural scalar, for plotting it or finding a formula for it.

    Args:
        sim: The simulator.
        which: Index of the neural scalar.
        values: Its inputs (n, r).

    Returns:
        Its outputs (n,).
    """
    weights = sim.weights[weight_slices(sim.augmentation)[which]]
    return sim.augmentation[which].output(weights, values)


def _check_windows(sim: AugmentedSim, windows: StateWindows) -> None:
    """Raise unless a simulator can be fitted to windows."""
    check_rollout(sim.model, windows.start, windows.control)
    expected = (len(windows.start), windows.control.shape[1] + 1, windows.start.shape[1])
    if windows.observed.shape != expected or not np.isfinite(windows.observed).all():
        raise DataError(
            f"observed needs shape {expected} and no missing states, got {windows.observed.shape}"
        )


@dataclass(frozen=True, eq=False)
class _WeightedWindows:
    """Windows with the weight of each residual.

    Attributes:
        windows: The windows.
        observed: Their states with continuous quaternions (N, T + 1, s).
        weight: Factors (s,) of the residuals, such that their squared sum is the mean squared
            relative error over windows, divided by the number of sets.
    """

    windows: StateWindows
    observed: np.ndarray
    weight: np.ndarray

    @staticmethod
    def of(sim: AugmentedSim, windows: StateWindows, num_sets: int) -> _WeightedWindows:
        """Weights for one of several sets."""
        observed = continuous_quaternions(sim.model, windows.observed)
        count = observed[:, 1:].size * num_sets
        weight = 1 / (state_scales(sim.model, observed) * np.sqrt(count))
        return _WeightedWindows(windows, observed, weight)

    def residuals(self, states: np.ndarray) -> np.ndarray:
        """Weighted differences (N, T, s) of simulated states (N, T + 1, s)."""
        return ((states - self.observed) * self.weight)[:, 1:]


class _AugmentedProblem:
    """Residuals of windows, prior and ridge.

    A point (q + w,) consists of q parameters on the unit scale, then w weights.

    Attributes:
        base_theta: Initial theta (p,) of the simulator, natural units.
    """

    def __init__(
        self,
        sim: AugmentedSim,
        windows: Sequence[StateWindows],
        free: list[int],
        *,
        ridge: float,
        train: bool,
    ) -> None:
        self.base_theta = sim.theta if sim.theta is not None else sim.scene.nominal
        self._sim = sim
        self._free = free
        self._ridge = ridge
        self._train = train
        self._params = [sim.scene.params[i] for i in free]
        self._sets = [_WeightedWindows.of(sim, one, len(windows)) for one in windows]
        self._centre = to_unit(self._params, self.base_theta[free])
        self._std = prior_std(sim.scene, {}).numpy()[free]
        self._num_weights = len(sim.weights) if train else 0
        # The loss is a mean over windows, so the prior of a parameter has the weight of one window.
        # That is small compared with R: moving a parameter is cheaper than moving the weights.
        prior = NOISE_FLOOR / self._std / np.sqrt(self._num_windows)
        self._pull = np.concatenate([prior, np.full(self._num_weights, np.sqrt(ridge))])
        self._origin = np.concatenate([self._centre, sim.weights[: self._num_weights]])

    @property
    def _num_windows(self) -> int:
        """Number of windows in all sets."""
        return sum(len(one.windows.start) for one in self._sets)

    def start(self) -> np.ndarray:
        """The initial point (q + w,)."""
        parameters = np.clip(self._centre, -_START_RANGE, _START_RANGE)
        return np.concatenate([parameters, self._sim.weights[: self._num_weights]])

    def bounds(self) -> np.ndarray:
        """Largest absolute value (q + w,) of each entry of a point."""
        return np.concatenate([np.ones(len(self._free)), np.full(self._num_weights, np.inf)])

    def evaluate(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (m, r) and Jacobian (m, r, q + w) at points (m, q + w)."""
        residuals = []
        jacobians = []
        for point in points:
            residual, jacobian = self._evaluate_one(point)
            residuals.append(residual)
            jacobians.append(jacobian)
        return np.stack(residuals), np.stack(jacobians)

    def _evaluate_one(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (r,) and Jacobian (r, q + w) at a point."""
        theta = self._theta(point)
        weights = point[len(self._free) :] if self._train else self._sim.weights
        residuals = []
        jacobians = []
        for one in self._sets:
            states, jacobian = self._sim.rollout_with_jacobian(
                one.windows.start,
                one.windows.control,
                theta,
                free=self._free,
                weights=weights,
                finite=False,
            )
            weighted = jacobian[..., : len(point)] * one.weight[:, None]
            residuals.append(one.residuals(states).ravel())
            jacobians.append(weighted[:, 1:].reshape(-1, len(point)))
        residuals.append(self._pull * (point - self._origin))
        jacobians.append(np.diag(self._pull))
        return np.concatenate(residuals), np.concatenate(jacobians)

    def _theta(self, point: np.ndarray) -> np.ndarray:
        """Theta (p,), natural units, at a point (q + w,)."""
        theta = np.array(self.base_theta, float)
        theta[self._free] = from_unit(self._params, point[: len(self._free)])
        return theta

    def trained(self, point: np.ndarray) -> AugmentedSim:
        """The simulator with the parameters and weights of a point (q + w,)."""
        weights = point[len(self._free) :] if self._train else self._sim.weights
        return self._sim.with_weights(weights, self._theta(point))

    def parameter_std(self, jacobian: np.ndarray, squared_error: float) -> np.ndarray:
        """Standard deviations (q,) of the parameters on the unit scale.

        They are marginal over the weights: a parameter whose effect a network could explain as well
        gets a large one.

        Args:
            jacobian: Jacobian of the windows' residuals (r, q + w).
            squared_error: Mean squared error over the windows.
        """
        noise = max(NOISE_FLOOR**2, squared_error) / self._num_windows
        q = len(self._std)
        ridge = np.full(jacobian.shape[1] - q, max(self._ridge, _MIN_RIDGE) / noise)
        precision = np.concatenate([1 / self._std**2, ridge])
        covariance = np.linalg.inv(jacobian.T @ jacobian / noise + np.diag(precision))
        return np.sqrt(np.diag(covariance))[:q]

    def errors_without_each_network(self, sim: AugmentedSim) -> tuple[float, ...]:
        """Root mean square errors of a simulator with one neural scalar silenced at a time."""
        errors = []
        for i in range(len(sim.augmentation)):
            weights = silence_networks(sim.augmentation, sim.weights, [i])
            total = 0.0
            for one in self._sets:
                states = sim.rollout(one.windows.start, one.windows.control, weights=weights)
                total += float((one.residuals(states) ** 2).sum())
            errors.append(float(np.sqrt(total)))
        return tuple(errors)
