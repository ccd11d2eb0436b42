"""Parameters and weights of a neural-augmented simulator in one call (Heiden et al. 2020, eq. 1).

The loss is the squared prediction error over windows of one step and of a short horizon, plus R
times the squared distance of the weights from
where they began: a last layer of zeros, so that the analytic part explains what it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.augmentation_spec import silence_networks, weight_slices
from clashsim.core.errors import DataError
from clashsim.core.params import from_unit, to_unit
from clashsim.fit.calibrate import Estimate, prior_sd
from clashsim.fit.gradient import FLOOR, told
from clashsim.fit.mjx_windows import StateWindows, one_sided, state_scales
from clashsim.optim.levenberg_marquardt import Evaluate, levenberg_marquardt
from clashsim.sim.augmented.simulator import AugmentedSim
from clashsim.sim.inputs import check_rollout


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained simulator, estimates in `scene.params` order, root mean square relative error over
    the windows, and the loss after each step.

    `without`: the same error with each neural scalar silenced in turn, in the blueprint's order;
    what hardly changes it did not matter.
    """

    sim: AugmentedSim
    estimates: tuple[Estimate, ...]
    error: float
    without: tuple[float, ...]
    trace: np.ndarray

    @property
    def theta(self) -> np.ndarray:
        """Values (p,), natural units."""
        return np.array([e.value for e in self.estimates])


def windows_of(states: np.ndarray, control: np.ndarray, *, steps: int, every: int) -> StateWindows:
    """Windows of `steps` steps that begin at every so many steps of trajectories states (N, T + 1,
    s), control (N, T, nu).
    """
    if (
        states.ndim != 3
        or control.ndim != 3
        or control.shape[:2] != (states.shape[0], states.shape[1] - 1)
        or not 1 <= steps <= control.shape[1]
        or every < 1
    ):
        raise DataError(
            f"trajectories of shapes {states.shape} and {control.shape} have no windows of {steps} steps at every {every}: they need (N, T + 1, s) and (N, T, nu)"
        )
    begins = range(0, control.shape[1] - steps + 1, every)
    observed = np.concatenate([states[:, k : k + steps + 1] for k in begins])
    return StateWindows(
        observed[:, 0], np.concatenate([control[:, k : k + steps] for k in begins]), observed
    )


def fit_augmented(
    sim: AugmentedSim,
    windows: Sequence[StateWindows],
    free: Sequence[int] = (),
    *,
    ridge: float = 1e-5,
    steps: int = 30,
    train: bool = True,
) -> Fitted:
    """Fit the parameters with indices `free` and, if `train`, all weights from where the simulator
    has them; `ridge` is R.

    windows: one set for each horizon (of one step, of a short horizon), which count alike: a
    residual is a state's difference over how much states of its unit change in the windows of that
    set.
    """
    for one in windows:
        check_rollout(sim.model, one.start, one.control)
        if (
            one.observed.shape != (len(one.start), one.control.shape[1] + 1, one.start.shape[1])
            or not np.isfinite(one.observed).all()
        ):
            raise DataError(
                f"observed needs shape {(len(one.start), one.control.shape[1] + 1, one.start.shape[1])} and no missing states, got {one.observed.shape}"
            )
    if not windows or not (len(free) or (train and len(sim.weights))):
        raise DataError(
            "nothing to fit: give at least one set of windows, and parameters or a blueprint with weights"
        )
    scene, chosen, q, w = sim.scene, list(free), len(free), len(sim.weights) if train else 0
    params, base = (
        [scene.params[i] for i in chosen],
        sim.theta if sim.theta is not None else scene.nominal,
    )
    centre, sd = to_unit(params, base[chosen]), prior_sd(scene, {}).numpy()[chosen]
    scaled = [_Scaled.of(sim, one, len(windows)) for one in windows]
    evaluate = _evaluate(sim, scaled, chosen, base, ridge=ridge, train=train, centre=centre, sd=sd)
    begin = np.concatenate([np.clip(centre, -0.98, 0.98), sim.weights[:w]])
    bound = np.concatenate([np.ones(q), np.full(w, np.inf)])
    end = levenberg_marquardt(
        evaluate, begin[None], low=-bound, high=bound, steps=steps, tolerance=1e-4
    )
    if not np.isfinite(end.loss[0]):
        raise DataError(
            "the simulator diverges on these windows from where its parameters and weights begin: give shorter windows or another theta"
        )
    point, data = end.points[0], slice(0, -(q + w))
    theta = np.array(base, float)
    theta[chosen] = from_unit(params, point[:q])
    done = sim.with_weights(point[q:] if train else sim.weights, theta)
    error = float((end.residual[0, data] ** 2).sum())
    spread = _deviation(end.jacobian[0, data], max(FLOOR**2, error) / _count(scaled), sd, ridge)
    without = tuple(
        float(np.sqrt(_error(done, scaled, silence_networks(sim.augmentation, done.weights, [i]))))
        for i in range(len(sim.augmentation))
    )
    return Fitted(
        done,
        told(scene, chosen, point[:q], spread, base=base, known={}),
        float(np.sqrt(error)),
        without,
        end.trace[:, 0],
    )


def curve(sim: AugmentedSim, which: int, values: np.ndarray) -> np.ndarray:
    """What neural scalar `which` of a simulator says (n,) at values (n, r) of what it reads: the
    curve to look at, and to put a formula in the place of.
    """
    return sim.augmentation[which].output(
        sim.weights[weight_slices(sim.augmentation)[which]], values
    )


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Windows with one over the size (T + 1, s) of each residual: their squared sum is then a mean
    over the windows, and over the sets.
    """

    windows: StateWindows
    observed: np.ndarray
    scale: np.ndarray

    @staticmethod
    def of(sim: AugmentedSim, windows: StateWindows, sets: int) -> _Scaled:
        observed = one_sided(sim.model, windows.observed)
        return _Scaled(
            windows,
            observed,
            1 / (state_scales(sim.model, observed) * np.sqrt(observed[:, 1:].size * sets)),
        )


def _evaluate(
    sim: AugmentedSim,
    scaled: list[_Scaled],
    chosen: list[int],
    base: np.ndarray,
    *,
    ridge: float,
    train: bool,
    centre: np.ndarray,
    sd: np.ndarray,
) -> Evaluate:
    """Residuals and slopes at points (m, q + w): of the windows, of what was expected of the
    parameters, and of the weights.
    """
    q, begun = len(chosen), sim.weights
    params, w = [sim.scene.params[i] for i in chosen], len(begun) if train else 0
    # The loss is a mean, so what was expected of a parameter counts as one window of them all: next
    # to nothing beside R, lest a network stand in for a parameter.
    strength = np.concatenate([FLOOR / sd / np.sqrt(_count(scaled)), np.full(w, np.sqrt(ridge))])
    origin = np.concatenate([centre, begun[:w]])

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = []
        for point in points:
            theta = np.array(base, float)
            theta[chosen] = from_unit(params, point[:q])
            off, turn = [], []
            for one in scaled:
                states, slope = sim.rollout_with_jacobian(
                    one.windows.start,
                    one.windows.control,
                    theta,
                    free=chosen,
                    weights=point[q:] if train else begun,
                    finite=False,
                )
                off.append(((states - one.observed) * one.scale)[:, 1:].ravel())
                turn.append((slope[..., : q + w] * one.scale[:, None])[:, 1:].reshape(-1, q + w))
            rows.append(
                (
                    np.concatenate([*off, strength * (point - origin)]),
                    np.concatenate([*turn, np.diag(strength)]),
                )
            )
        return np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows])

    return evaluate


def _error(sim: AugmentedSim, scaled: list[_Scaled], weights: np.ndarray) -> float:
    states = [
        sim.rollout(one.windows.start, one.windows.control, weights=weights) for one in scaled
    ]
    return sum(
        float((((s - one.observed) * one.scale)[:, 1:] ** 2).sum())
        for s, one in zip(states, scaled, strict=True)
    )


def _count(scaled: list[_Scaled]) -> int:
    return sum(len(one.windows.start) for one in scaled)


def _deviation(slope: np.ndarray, noise: float, sd: np.ndarray, ridge: float) -> np.ndarray:
    """Standard deviations (q,) of the parameters, at an error of variance `noise` in the mean over
    all windows.

    The weights are left open: what a network could explain as well is not told.
    """
    q = len(sd)
    prior = np.concatenate([1 / sd**2, np.full(slope.shape[1] - q, max(ridge, 1e-12) / noise)])
    return np.sqrt(np.diag(np.linalg.inv(slope.T @ slope / noise + np.diag(prior))))[:q]
