"""What a fit to whole trajectories minimises, and its Gauss-Newton model.

The loss of a window of a segment is log(1 + mean squared residual over that of the noise), so that
motion which no model can follow, after many contacts or in chaos, has little influence, and no unit
has to be chosen. A segment may have several windows, from its first frames to all of them: after
some bounces the smallest change alters the whole motion, so a whole segment may be fitted by
chance, but its first frames cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clashsim.core.params import to_unit
from clashsim.fit.motion_problem import MotionProblem, Starts
from clashsim.fit.priors import unit_std

_INTERVAL_ROUNDS = 2  # of differences as wide as the uncertainty that the last ones found
_LONGEST_STEP = 0.1  # of these, on the unit scale
# Residuals (n, F, r) and their derivatives (n, F, r, p) at a point (p,) of the unit scale.
Linearise = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class MotionPoint:
    """Parameters and their cost.

    Attributes:
        unit: Parameters (p,) on the unit scale.
        cost: Half the negative logarithm of the posterior, up to a constant.
    """

    unit: np.ndarray
    cost: float


class MotionLoss:
    """The loss of windows of segments, and the prior of the parameters.

    Attributes:
        problem: The segments.
        starts: Their starts.
    """

    def __init__(
        self,
        problem: MotionProblem,
        starts: Starts,
        *,
        noise: float,
        windows: np.ndarray | None = None,
        observations: float = 30.0,
        difference: float = 1e-3,
    ) -> None:
        """Prepare the loss.

        Args:
            problem: The segments.
            starts: Their starts.
            noise: Root mean square residual that the recording's noise explains, sizes.
            windows: Ends (w, n) of the windows of each segment, s from its first frame; None for
                one window over all frames.
            observations: Number of independent numbers that a segment counts as.
            difference: Step of finite differences, on the unit scale.
        """
        self.problem = problem
        self.starts = starts
        self._noise = noise
        self._observations = observations
        self._difference = difference
        ends = np.full((1, len(problem.segments)), np.inf) if windows is None else windows
        inside = problem.times <= ends[..., None] + 1e-9  # (w, n, F)
        recorded = problem.recorded[None] & inside[..., None]  # (w, n, F, r)
        count = recorded.sum(axis=(2, 3), keepdims=True)
        self._share = recorded / np.maximum(count, 1)
        params = problem.scene.params
        self._centre = to_unit(params, problem.scene.nominal)
        self._std = np.array([unit_std(param) for param in params])

    def residuals(self, unit: np.ndarray) -> np.ndarray:
        """Residuals (m, n, F, r) at points (m, p)."""
        return self.problem.residuals(
            self.problem.moved(self.starts, unit), self.problem.theta(unit)
        )

    def costs(self, unit: np.ndarray) -> np.ndarray:
        """Costs (m,) of points (m, p)."""
        return self._costs(unit, self.mean_squares(self.residuals(unit)))

    def mean_squares(self, residuals: np.ndarray) -> np.ndarray:
        """Mean squares (m, w, n) of residuals (m, n, F, r) in each window."""
        return np.einsum("mnfr,wnfr->mwn", residuals**2, self._share)

    def _costs(self, unit: np.ndarray, mean_squares: np.ndarray) -> np.ndarray:
        misfit = np.log1p(mean_squares / self._noise**2).mean(axis=1).sum(axis=1)
        prior = (((unit - self._centre) / self._std) ** 2).sum(axis=1)
        return 0.5 * (self._observations * misfit + prior)

    def point(self, unit: np.ndarray) -> MotionPoint:
        """A point (p,) with its cost."""
        return MotionPoint(unit, float(self.costs(unit[None])[0]))

    def by_differences(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (n, F, r) and their derivatives (n, F, r, p) at a point (p,)."""
        p = len(unit)
        # Steps go inwards, so that no parameter leaves its range.
        sign = np.where(unit > 0, -1.0, 1.0)
        points = np.concatenate([unit[None], unit + self._difference * np.diag(sign)])
        residuals = self.residuals(points)
        scale = (self._difference * sign).reshape(p, 1, 1, 1)
        return residuals[0], np.moveaxis((residuals[1:] - residuals[0]) / scale, 0, -1)

    def linearised(self, unit: np.ndarray, linearise: Linearise) -> LinearisedMotion:
        """The Gauss-Newton model at a point (p,)."""
        residual, jacobian = linearise(unit)
        return self._linearised(unit, residual, jacobian)

    def linearised_for_intervals(self, unit: np.ndarray) -> LinearisedMotion:
        """The Gauss-Newton model at a point (p,) by differences as wide as the uncertainty.

        Stops, dry friction and contact act in one time step or the next, which makes residuals
        rough. Short differences along each parameter are those of the roughness, which would be
        all that seems to tell parameters apart that replace each other. So differences are taken
        along the principal directions of what is known, each two standard deviations wide.
        """
        model = self.linearised(unit, self.by_differences)
        for _ in range(_INTERVAL_ROUNDS):
            steps = _uncertainty(model)
            above, below = np.clip(unit + steps, -1, 1), np.clip(unit - steps, -1, 1)
            residuals = self.residuals(np.concatenate([unit[None], above, below]))
            upper, lower = np.split(residuals[1:], 2)
            by_step = np.moveaxis(upper - lower, 0, -1)
            # Steps that the ranges cut point in other directions.
            jacobian = by_step @ np.linalg.pinv((above - below).T)
            model = self._linearised(unit, residuals[0], jacobian)
        return model

    def _linearised(
        self, unit: np.ndarray, residual: np.ndarray, jacobian: np.ndarray
    ) -> LinearisedMotion:
        """The Gauss-Newton model from residuals (n, F, r) and derivatives (n, F, r, p)."""
        mean_squares = self.mean_squares(residual[None])
        cost = float(self._costs(unit[None], mean_squares)[0])
        # Derivative of the loss by the mean square of each window.
        weight = self._observations / (self._noise**2 + mean_squares[0]) / len(mean_squares[0])
        of_residuals = np.einsum("wn,wnfr->nfr", weight, self._share)
        flat = jacobian.reshape(-1, len(unit))
        weighted = flat * of_residuals.reshape(-1, 1)
        precision = 1 / self._std**2
        n = len(residual)
        own = (weighted * residual.reshape(-1, 1)).reshape(n, -1, len(unit)).sum(axis=1)
        return LinearisedMotion(
            loss=self,
            state=MotionPoint(unit, cost),
            hessian=flat.T @ weighted + np.diag(precision),
            gradient=own.sum(axis=0) + precision * (unit - self._centre),
            precision=precision,
            own=own,
        )


def _uncertainty(model: LinearisedMotion) -> np.ndarray:
    """Steps (p, p), one a row, along the principal directions of what is known.

    Directions are principal relative to the prior; each step is one standard deviation, and no
    longer than a part of the range.
    """
    scale = 1 / np.sqrt(model.precision)
    data = (model.hessian - np.diag(model.precision)) * np.outer(scale, scale)
    values, vectors = np.linalg.eigh(data)
    steps = (vectors * scale[:, None] / np.sqrt(1 + np.maximum(values, 0.0))).T
    longest = np.abs(steps).max(axis=1, keepdims=True)
    return steps * np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, 1e-12))


@dataclass(frozen=True, eq=False)
class LinearisedMotion:
    """Gauss-Newton model of a loss at a point.

    Attributes:
        loss: The loss.
        state: The point.
        hessian: (p, p).
        gradient: (p,).
        precision: Of the prior (p,).
        own: Gradients (n, p) of each segment, without the prior.
    """

    loss: MotionLoss
    state: MotionPoint
    hessian: np.ndarray
    gradient: np.ndarray
    precision: np.ndarray
    own: np.ndarray

    def trial(self, damping: float) -> MotionPoint:
        """The point after a step with a damping factor, kept within the ranges."""
        unit = self.state.unit
        free = np.ones(len(unit), bool)
        step = np.zeros(len(unit))
        # A parameter at the end of its range that would leave it is held there.
        for _ in range(len(unit)):
            matrix = self.hessian[np.ix_(free, free)]
            damped = matrix + damping * np.diag(np.diag(matrix))
            step = np.zeros(len(unit))
            step[free] = -np.linalg.solve(damped, self.gradient[free])
            leaves = free & (np.abs(unit) >= 1) & (np.sign(step) == np.sign(unit))
            if not leaves.any():
                break
            free &= ~leaves
            if not free.any():
                break
        return self.loss.point(np.clip(unit + step, -1, 1))

    def std(self, inflation: float = 1.0) -> np.ndarray:
        """Standard deviations on the unit scale.

        They are the larger of two: from the curvature of the loss, and from how much segments
        disagree (the sandwich estimator), which also holds where a model is wrong.

        Args:
            inflation: Factor of the variance that follows from the curvature.

        Returns:
            Standard deviations (p,).
        """
        prior = np.diag(self.precision)
        data = self.hessian - prior
        by_curvature = np.diag(np.linalg.inv(data / inflation + prior))
        n = len(self.own)
        apart = self.own - self.own.mean(axis=0)
        inverse = np.linalg.inv(self.hessian)
        between = inverse @ (n / max(n - 1, 1) * apart.T @ apart + prior) @ inverse
        largest = np.minimum(np.maximum(by_curvature, np.diag(between)), 1 / self.precision)
        return np.sqrt(largest)
