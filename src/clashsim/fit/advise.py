"""Advice on which strikes to record next: those that reduce the model's uncertainty most.

The uncertainty is that of the linearised model: parameters as fields through their Jacobian, and a
residual with a larger amplitude and a shorter length scale than a calibration assumes, since the
residual is where models are wrong. The disagreement of a calibration's fits is added. The best
strike is the one that most lowers the logarithm of the variance, averaged over the candidate
strikes with their weights. The mean of the variance itself (A-optimal design) is dominated by a few
extreme strikes that the model predicts poorly whatever is measured; in the benchmarks it was worse
than random strikes (docs/benchmarks.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame, contact_frame, inertia
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.fit.base import BaseModel
from clashsim.fit.calibrate import Calibration
from clashsim.fit.field_kernels import Context, PriorScales, prior_covariance
from clashsim.fit.fields import outcome_jacobian, predict_posteriors
from clashsim.fit.input_scaling import InputScaling
from clashsim.fit.lockstep import FieldData
from clashsim.fit.predictive_variance import pose_variance
from clashsim.fit.priors import prior_std

# Prior scales with which strikes are chosen; see the module's docstring.
_WIDE = PriorScales(residual=0.15, residual_length_scale=0.45)
_SCATTER = 0.12  # of the parameters from hit to hit, in standard deviations of their prior
# More strikes are worthwhile if the expected error after `_AHEAD` further strikes is less than this
# share of the present error.
_WORTHWHILE = 0.9
_AHEAD = 10
_MIN_SIZE = 0.02  # of an outcome, over the approach speed, as in `outcome_jacobian`
_JITTER = 1e-6  # added to the variance of the measurement noise


@dataclass(frozen=True, eq=False)
class Advice:
    """Which strikes to record next, and the errors expected after them.

    Errors are relative to the outcome, root mean square over the candidates with their weights, and
    include the noise of the measurement.

    Attributes:
        rows: Indices (k,) of the chosen candidates, best first.
        error: Typical expected errors (k + 1,): before any of the strikes, and after each.
        after_ten: Expected error after ten strikes.
        floor: Error due to the noise, and to poses that are a little off, alone.
    """

    rows: np.ndarray
    error: np.ndarray
    after_ten: float
    floor: float

    @property
    def worthwhile(self) -> bool:
        """Whether ten more strikes are expected to help."""
        return self.after_ten < _WORTHWHILE * float(self.error[0])


def advise(
    model: Calibration | BaseModel,
    candidates: Impacts,
    k: int,
    *,
    weights: np.ndarray | None = None,
) -> Advice:
    """Choose `k` of the candidates, one after the other.

    Args:
        model: A calibration, or a distilled model of which no impact was recorded yet.
        candidates: N strikes to choose from; their outcomes are not used.
        k: How many to choose.
        weights: Importance of predicting each candidate well (N,); equal by default.

    Returns:
        The choice and the expected errors.
    """
    n = len(candidates)
    if not 1 <= k <= n:
        raise DataError(f"{k} strikes cannot be chosen from {n}")
    share = _shares(weights, n)
    if isinstance(model, BaseModel):
        belief = _belief_before(model, candidates)
    else:
        belief = _belief_after(model, candidates)
    # At least ten strikes are ranked, because the error after ten is forecast.
    num_ranked = max(k, min(n, _AHEAD))
    rows, left = choose(belief.covariance, belief.noise, num_ranked, torch.as_tensor(share))
    # The present error is the model's own estimate. The share of it that is left after each strike
    # comes from the belief with the wider prior.
    now = _typical(belief.squared_error, share)
    floor = _typical(belief.floor, share)
    reducible = max(now - floor, 0.0)
    error = np.sqrt(floor + reducible * left / max(float(left[0]), 1e-300))
    after_ten = float(error[min(_AHEAD, n)])
    return Advice(rows[:k], error[: k + 1], after_ten, float(np.sqrt(floor)))


def _typical(squared_error: np.ndarray, share: np.ndarray) -> float:
    """Geometric mean of squared errors (n,), in which a few strikes on corners do not dominate."""
    return float(np.exp(share @ np.log(np.maximum(squared_error, 1e-300))))


def _shares(weights: np.ndarray | None, n: int) -> np.ndarray:
    """Weights (n,) that sum to one."""
    share = np.ones(n) if weights is None else np.asarray(weights, float)
    usable = share.shape == (n,) and np.isfinite(share).all()
    if not usable or (share < 0).any() or share.sum() <= 0:
        raise DataError(f"weights must be {n} numbers that are not negative and not all zero")
    return share / share.sum()


def choose(
    covariance: Tensor, noise: Tensor, k: int, share: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Greedily choose measurements of a Gaussian vector.

    Args:
        covariance: Covariance (N d, N d) of N outcomes of d numbers each.
        noise: Covariance (N, d, d) of the noise of measuring each outcome.
        k: How many to choose.
        share: Weights (N,) of the outcomes; they sum to 1.

    Returns:
        Indices (k,) of the chosen outcomes, and the remaining variance (k + 1,) before any
        measurement and after each. It is the weighted geometric mean over the outcomes of variance
        plus noise, minus the noise.
    """
    n, d = noise.shape[:2]
    floor = (share @ noise.diagonal(dim1=1, dim2=2).sum(1)).clamp_min(1e-12)
    covariance = covariance.clone()
    rows = list[int]()

    def left(variance: Tensor) -> Tensor:
        """Geometric mean over the outcomes of variance plus noise, minus the noise."""
        return ((variance.clamp_min(0.0) + floor).log() @ share).exp() - floor

    trace = [float(left(_variance(covariance, n)))]
    for _ in range(k):
        blocks = covariance.reshape(n, d, n, d).diagonal(dim1=0, dim2=2).permute(2, 0, 1) + noise
        # Covariance of each measured outcome with all predicted numbers, (N, d, N d).
        cross = covariance.reshape(n * d, n, d).permute(1, 2, 0)
        # (N, N): by how much each measurement (row) lowers the variance of each outcome (column).
        explained = (torch.linalg.solve(blocks, cross) * cross).sum(1)
        explained = explained.reshape(n, n, d).sum(2)
        after = left(_variance(covariance, n) - explained)
        after[rows] = torch.inf  # each is chosen once
        i = int(after.argmin())
        block = slice(i * d, (i + 1) * d)
        gain = torch.linalg.solve(covariance[block, block] + noise[i], covariance[block, :])
        covariance = covariance - covariance[:, block] @ gain
        rows.append(i)
        trace.append(float(left(_variance(covariance, n))))
    return np.array(rows), np.maximum(trace, 0.0)


@dataclass(frozen=True, eq=False)
class _Belief:
    """The uncertainty of the outcomes of N strikes, relative to their size.

    Attributes:
        covariance: Covariance of the outcomes (N k, N k), with the wide prior.
        noise: Covariance of the noise of measuring each outcome (N, k, k), with the wide prior.
        squared_error: Squared relative error (N,) that the model itself expects, noise included.
        floor: Squared relative error (N,) that no further strikes lower: that due to the noise, and
            to poses that are a little off.
    """

    covariance: Tensor
    noise: Tensor
    squared_error: np.ndarray
    floor: np.ndarray


def _variance(covariance: Tensor, n: int) -> Tensor:
    """Variance (n,) of whole outcomes: the sum over their numbers."""
    return covariance.diagonal().reshape(n, -1).sum(1)


def _belief_before(base: BaseModel, candidates: Impacts) -> _Belief:
    """The uncertainty of a distilled model before any impact is recorded."""
    frame = contact_frame(base.scene, candidates)
    data = InputScaling.of(base, frame, candidates.known).data(base, frame, candidates.known)
    std = prior_std(base.scene, candidates.known)
    nominal = torch.zeros(len(candidates), len(std), dtype=torch.float64)
    jacobian, _ = outcome_jacobian(data, nominal)
    usual = PriorScales()
    floor = jacobian.shape[1] * usual.noise**2
    at_candidates = (jacobian, data.context)
    expected = prior_covariance(at_candidates, at_candidates, std, usual)
    return _Belief(
        prior_covariance(at_candidates, at_candidates, std, _WIDE),
        _measurement_noise(jacobian, std),
        _variance(expected, len(candidates)).numpy() + floor,
        np.full(len(candidates), floor),
    )


def _belief_after(model: Calibration, candidates: Impacts) -> _Belief:
    """The uncertainty that remains after a calibration."""
    fitted = model.posteriors[0]  # the first has the most probable prior scales
    frame = contact_frame(model.base.scene, candidates)
    data = model.scaling.data(model.base, frame, candidates.known)
    ((_, phi),) = predict_posteriors([fitted], data)
    jacobian, size = outcome_jacobian(data, phi)
    # The circumstances are scaled by the candidates, not by the few strikes that were recorded.
    scaling = _without_ignored_columns(
        InputScaling.of(model.base, frame, candidates.known), model.scaling
    )
    context = scaling.data(model.base, frame, candidates.known).context
    at_candidates = (jacobian, context)
    jacobian_fitted = fitted.struck_jacobian
    at_fitted = (jacobian_fitted, _rescaled(fitted.context, model.scaling, scaling))
    fitted_noise = torch.block_diag(*_measurement_noise(jacobian_fitted, fitted.std))
    measured = prior_covariance(at_fitted, at_fitted, fitted.std, _WIDE) + fitted_noise
    white = torch.linalg.solve_triangular(
        torch.linalg.cholesky(measured),
        prior_covariance(at_fitted, at_candidates, fitted.std, _WIDE),
        upper=False,
    )
    prior = prior_covariance(at_candidates, at_candidates, fitted.std, _WIDE)
    covariance = prior - white.T @ white + _disagreement(model, data, size)
    expected = _expected_squared_error(model, candidates, frame)
    # Further strikes lower neither the noise nor what poses that are a little off do.
    of_poses = pose_variance(model.base.scene, jacobian).sum(1).numpy()
    of_poses = of_poses * model.interval_widths.std**2
    floor = jacobian.shape[1] * model.noise_variance + of_poses
    return _Belief(covariance, _measurement_noise(jacobian, fitted.std), expected, floor)


def _expected_squared_error(
    model: Calibration, candidates: Impacts, frame: ContactFrame
) -> np.ndarray:
    """Squared relative error (N,) that a calibration itself expects."""
    scene = model.base.scene
    mean, std = model.predict_with_std(candidates, frame)
    num_linear = 2 if candidates.planar else 3
    gyration = inertia(scene, scene.struck_body).gyration
    # Factors (k,) from a twist (v, w) to (v, gyration * w), m/s.
    to_speed = np.r_[np.ones(num_linear), np.full(mean.shape[1] - num_linear, gyration)]
    smallest = (_MIN_SIZE * frame.speed) ** 2
    size_squared = np.maximum(((mean * to_speed) ** 2).sum(1), smallest)
    return ((std * to_speed) ** 2).sum(1) / size_squared


def _without_ignored_columns(scaling: InputScaling, fitted: InputScaling) -> InputScaling:
    """The scaling with infinite widths for the columns that the fit ignored."""
    widths = []
    for width, fitted_width in zip(scaling.widths, fitted.widths, strict=True):
        widths.append(np.where(np.isfinite(fitted_width), width, np.inf))
    return replace(scaling, widths=tuple(widths))


def _rescaled(context: Context, old: InputScaling, new: InputScaling) -> Context:
    """A context standardised by scaling `new` instead of `old`."""
    groups = []
    for i, group in enumerate(context.groups):
        old_centre = torch.as_tensor(old.centres[i])
        old_width = torch.as_tensor(old.widths[i])
        new_centre = torch.as_tensor(new.centres[i])
        new_width = torch.as_tensor(new.widths[i])
        raw = torch.nan_to_num(group * old_width) + old_centre
        moved = (raw - new_centre) / new_width
        groups.append(torch.where(old_width.isfinite(), moved, 0.0))
    return Context(tuple(groups), torch.cat(groups, 1))


def _measurement_noise(jacobian: Tensor, std: Tensor) -> Tensor:
    """Covariance (N, k, k) of what differs from hit to hit, relative to the outcome.

    It is the scatter of the parameters through their Jacobian (N, k, p), plus the noise of the
    measurement.
    """
    scaled = _SCATTER * jacobian * std
    identity = torch.eye(jacobian.shape[1], dtype=jacobian.dtype)
    return scaled @ scaled.transpose(1, 2) + (_WIDE.noise**2 + _JITTER) * identity


def _disagreement(model: Calibration, data: FieldData, size: Tensor) -> Tensor:
    """Covariance (N k, N k) of the outcomes between a calibration's fits, over their size (N,)."""
    predictions = []
    for change, _ in predict_posteriors(model.posteriors, data):
        predictions.append((change / size[:, None]).flatten())
    stacked = torch.stack(predictions)
    share = torch.tensor(model.weights, dtype=torch.float64)
    deviation = (stacked - share @ stacked) * share.sqrt()[:, None]
    return deviation.T @ deviation
