"""Calibration: fits a distilled model to a few real impacts.

A calibration holds theta (the scene's parameters) with intervals and statuses, parameter fields, a
residual, and a local correction from similar impacts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from clashsim.core.contact_frame import ContactFrame, contact_frame, inertia
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.impacts import Impacts
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.base import BaseModel
from clashsim.fit.both_bodies import FittedImpacts, predict_striker
from clashsim.fit.field_descent import FieldData, Fit, run_fits
from clashsim.fit.field_kernels import CONSTANTS_ONLY, PriorScales
from clashsim.fit.fields import (
    TEMPER,
    PlannedFit,
    Posterior,
    fit_constants,
    fit_posteriors,
    predict_posterior,
)
from clashsim.fit.input_scaling import InputScaling
from clashsim.fit.local_correction import LocalCorrection
from clashsim.fit.priors import FIXED_STD, contact_prior, theta_prior, unit_estimate

# Candidate prior scales, besides constants without fields; the evidence of the impacts decides how
# much each of them weighs.
PRIOR_SCALES = (
    PriorScales(),
    PriorScales(field=0.1),
    PriorScales(noise=0.015),
    PriorScales(noise=0.06),
)
# Candidate noises, relative to the outcome, of fits of constants alone.
_NOISES = (0.02, 0.05, 0.1)
# Log evidence is divided by this before it weighs prior scales: with ten impacts a difference of a
# few nats is chance.
_TEMPERATURE = 4.0
# Nats by which constants alone must be better than fields: no real contact is the same everywhere.
_CONSTANTS_MARGIN = 5.0
_MAX_FITS = 3  # that are averaged
_MIN_WEIGHT = 0.1  # relative to the most probable fit; fits of a lower weight are dropped
# A posterior sample is dropped if its cost exceeds the median by more than _COST_MARGIN plus
# _COST_DEVIATIONS median absolute deviations of the costs.
_COST_MARGIN = 5.0
_COST_DEVIATIONS = 4.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated collision model; an `ImpactModel`.

    Attributes:
        base: The base model.
        theta: Estimates in `scene.params` order.
        posteriors: Fits with different prior scales, each with its samples.
        weights: Weight of each posterior in the predictions; they sum to 1.
        scaling: Standardisation of the circumstances of an impact.
        local_correction: Regression on similar impacts, without physics. Near the fitted impacts it
            is averaged with the physics by inverse variances.
    """

    base: BaseModel
    theta: tuple[Estimate, ...]
    posteriors: tuple[Posterior, ...]
    weights: tuple[float, ...]
    scaling: InputScaling
    local_correction: LocalCorrection | None

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise relative to the outcome, the mean over the fits."""
        return self._mean_over_fits([p.scales.noise**2 for p in self.posteriors])

    @property
    def constants(self) -> torch.Tensor:
        """Constants (p,) of the most probable fit, on the unit scale, from nominal values."""
        return self.posteriors[int(np.argmax(self.weights))].anchor[0]

    @cached_property
    def most_probable(self) -> Calibration:
        """The same with one sample of each fit, the most probable one.

        Its predictions take a fraction of the time; the standard deviations lack the disagreement
        of samples.
        """
        first = torch.zeros(1, dtype=torch.long)
        return replace(self, posteriors=tuple(p.select(first) for p in self.posteriors))

    def predict_samples(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> list[np.ndarray]:
        """Twists after impact (m/s, rad/s) of each posterior's samples.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, if already computed.

        Returns:
            One array (M, N, k) per posterior, M its number of samples.
        """
        frame = frame or contact_frame(self.base.scene, impacts)
        data = self.scaling.data(self.base, frame, impacts.known)
        predictions = []
        for posterior in self.posteriors:
            change, _ = predict_posterior(posterior, data)
            predictions.append(frame.decode(change.numpy()))
        return predictions

    def predict(self, impacts: Impacts) -> np.ndarray:
        """Mean twist after impact (N, k), m/s and rad/s."""
        return self.predict_with_std(impacts)[0]

    def predict_striker(self, impacts: Impacts, frame: ContactFrame | None = None) -> np.ndarray:
        """The striker's twist after impact (N, k), m/s and rad/s, by the impulse of `predict`.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, if already computed.
        """
        frame = frame or contact_frame(self.base.scene, impacts)
        twist_after, _ = self.predict_with_std(impacts, frame)
        data = self.scaling.data(self.base, frame, impacts.known)
        phi = torch.zeros(len(impacts), len(self.base.scene.params), dtype=torch.float64)
        for weight, posterior in zip(self.weights, self.posteriors, strict=True):
            phi += weight * predict_posterior(posterior, data)[1].mean(0)
        return predict_striker(self.base, impacts, frame, phi=phi, twist_after=twist_after)

    def std(self, impacts: Impacts) -> np.ndarray:
        """Standard deviations of the twist after impact (N, k), m/s and rad/s.

        They include the disagreement of samples, the disagreement of fits, and the fitted noise.
        """
        return self.predict_with_std(impacts)[1]

    def predict_with_std(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`predict` and `std` in one evaluation.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, if already computed.

        Returns:
            Mean twist after impact and its standard deviations, (N, k) each.
        """
        frame = frame or contact_frame(self.base.scene, impacts)
        samples = self.predict_samples(impacts, frame)
        mean = np.zeros_like(impacts.after)
        for weight, sample in zip(self.weights, samples, strict=True):
            mean = mean + weight * sample.mean(0)
        gyration = inertia(self.base.scene, self.base.scene.struck_body).gyration
        num_linear = 2 if impacts.planar else 3
        num_angular = mean.shape[1] - num_linear
        # The noise is relative to the size of (v, gyration * w); `unit` is the twist's change (k,)
        # for a change of 1 m/s in each entry of that vector.
        unit = np.r_[np.ones(num_linear), np.full(num_angular, 1 / gyration)]
        size = np.linalg.norm(mean / unit, axis=1, keepdims=True)
        variance = self._variance(samples, mean, size * unit)
        if self.local_correction is None:
            return mean, np.sqrt(variance)
        return self._corrected(self.local_correction, impacts, frame, (mean, variance), unit)

    def _variance(
        self, samples: list[np.ndarray], mean: np.ndarray, size: np.ndarray
    ) -> np.ndarray:
        """Variance (N, k) of predictions: within each fit, between fits, and of the noise.

        Args:
            samples: Predicted twists (M, N, k) of each fit.
            mean: Their weighted mean (N, k).
            size: What the noise of each entry is relative to (N, k).
        """
        variance = np.zeros_like(mean)
        for weight, sample, posterior in zip(self.weights, samples, self.posteriors, strict=True):
            within = sample.var(0) / TEMPER**2  # samples are perturbed by TEMPER times the noise
            between = (sample.mean(0) - mean) ** 2
            variance += weight * (within + between + (posterior.scales.noise * size) ** 2)
        return variance

    def _corrected(
        self,
        correction: LocalCorrection,
        impacts: Impacts,
        frame: ContactFrame,
        physics: tuple[np.ndarray, np.ndarray],
        unit: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Combine physics and local correction.

        Both are weighted by the inverse of their variance, the correction also by its proximity.

        Args:
            correction: The local correction.
            impacts: N impacts.
            frame: The impacts in their contact frames.
            physics: Mean and variance (N, k) of the twist after impact.
            unit: Change of the twist (k,) for 1 m/s in each entry of (v, gyration * w).

        Returns:
            Mean and standard deviation (N, k) of the twist after impact.
        """
        mean, variance = physics
        size = np.linalg.norm(mean / unit, axis=1, keepdims=True)
        local = correction.predict(self.base.scene, frame, impacts)
        loo_error = self._mean_over_fits([p.loo_error for p in self.posteriors])
        # The square root, because ten impacts estimate the leave-one-out error only roughly.
        physics_variance = np.sqrt(loo_error) * (variance / unit**2).sum(1)
        local_variance = local.variance.sum(1)
        share = local.proximity * physics_variance / (physics_variance + local_variance + 1e-12)
        share = share[:, None]
        # Variance of each entry of (v, gyration * w), noise included.
        local_entry_variance = local_variance[:, None] / len(unit) + self.noise_variance * size**2
        variance = (1 - share) * variance + share * local_entry_variance * unit**2
        return (1 - share) * mean + share * local.twist_after, np.sqrt(variance)

    def _mean_over_fits(self, values: list[float]) -> float:
        """Weighted mean of one number per fit."""
        return sum(weight * value for weight, value in zip(self.weights, values, strict=True))


def calibrate(
    base: BaseModel,
    impacts: Impacts,
    *,
    seed: int = 0,
    posterior_samples: int = 5,
    prior_scales: tuple[PriorScales, ...] | None = None,
    frame: ContactFrame | None = None,
) -> Calibration:
    """Fit a distilled model to real impacts.

    How far the model may depart from MuJoCo is decided by the evidence of these impacts alone.

    Args:
        base: The base model.
        impacts: About ten recorded impacts.
        seed: Seed of the posterior samples.
        posterior_samples: Number of samples of each fit.
        prior_scales: Prior scales to choose from; `PRIOR_SCALES` by default.
        frame: The impacts in their contact frames, if already computed.

    Returns:
        The calibrated model.
    """
    impacts = impacts.checked()
    frame = frame or contact_frame(base.scene, impacts)
    plan = _CalibrationPlan(seed, posterior_samples, prior_scales or PRIOR_SCALES)
    (calibration,) = _calibrate_subsets(base, impacts, frame, [np.arange(len(impacts))], plan)
    return calibration


def calibrate_subsets(
    calibration: Calibration,
    impacts: Impacts,
    subsets: Sequence[np.ndarray],
    *,
    seed: int = 0,
    posterior_samples: int = 5,
) -> list[Calibration]:
    """Calibrate again on several subsets of the impacts, in less time than one after the other.

    Args:
        calibration: The calibration on all impacts. The fits begin at its constants instead of
            searching the whole prior; where they end is decided by the impacts of their subsets.
        impacts: The recorded impacts.
        subsets: Indices of the impacts of each subset.
        seed: Seed of the posterior samples.
        posterior_samples: Number of samples of each fit.

    Returns:
        The calibrated model of each subset.
    """
    base = calibration.base
    plan = _CalibrationPlan(seed, posterior_samples, PRIOR_SCALES, calibration.constants)
    frame = contact_frame(base.scene, impacts)
    return _calibrate_subsets(base, impacts, frame, subsets, plan)


@dataclass(frozen=True)
class _CalibrationPlan:
    """How to fit each subset.

    Attributes:
        seed: Of the posterior samples.
        posterior_samples: Number of samples of each fit.
        prior_scales: Prior scales to choose from.
        near: Constants (p,) to begin at; None to search for them.
    """

    seed: int
    posterior_samples: int
    prior_scales: tuple[PriorScales, ...]
    near: torch.Tensor | None = None


def _calibrate_subsets(
    base: BaseModel,
    impacts: Impacts,
    frame: ContactFrame,
    subsets: Sequence[np.ndarray],
    plan: _CalibrationPlan,
) -> list[Calibration]:
    """Calibrate on each subset of the impacts, all of them in lockstep."""
    fitted = FittedImpacts(base, impacts, frame)
    fits = []
    for rows in subsets:
        subset = impacts[rows].checked()
        scaling = InputScaling.of(base, frame[rows], subset.known)
        data = fitted.data(scaling, np.asarray(rows))
        fits.append(_fit_posteriors(base.scene, data, subset.known, plan))
    calibrations = []
    for rows, ended in zip(subsets, run_fits(fitted.physics, fits), strict=True):
        scaling = InputScaling.of(base, frame[rows], impacts[rows].known)
        of_both = fitted.reconciled(scaling, np.asarray(rows), ended.constants.theta[0])
        calibrations.append(_calibration(base, of_both, frame[rows], ended))
    return calibrations


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Fits to one set of impacts.

    Attributes:
        posteriors: The fits that the evidence supports.
        weights: Their weights.
        constants: The most probable fit of constants alone.
    """

    posteriors: tuple[Posterior, ...]
    weights: tuple[float, ...]
    constants: Posterior


def _fit_posteriors(
    scene: Scene, data: FieldData, known: Mapping[str, np.ndarray], plan: _CalibrationPlan
) -> Fit[_Fitted]:
    """Fit all candidates to the impacts, and those that the evidence supports with samples."""
    priors = [theta_prior(scene, known)]
    contact = contact_prior(scene, known)
    if not torch.equal(contact.std, priors[0].std):
        priors.append(contact)
    anchors = yield from fit_constants(data, priors, plan.near)
    plans = [PlannedFit(scales, 1, priors[0], anchors[0]) for scales in plan.prior_scales]
    for prior, anchor in zip(priors, anchors, strict=True):
        for noise in _NOISES:
            plans.append(PlannedFit(replace(CONSTANTS_ONLY, noise=noise), 1, prior, anchor))
    fits = yield from fit_posteriors(data, plans, seed=plan.seed)
    kept, weights = _weigh(fits)
    # Only the fits that the evidence supports get more samples than the most probable one.
    samples = plan.posterior_samples
    sampled = yield from fit_posteriors(
        data,
        [replace(plans[i], samples=samples, begin=fits[i].dual[0]) for i in kept],
        seed=plan.seed,
    )
    posteriors = tuple(_without_outliers(posterior) for posterior in sampled)
    # The reported values and statuses come from a fit of constants alone, because a MuJoCo model
    # can only hold constants; fields and residual are used for prediction.
    constant_fits = [fit for fit in fits if fit.scales.field == 0]
    constants = max(constant_fits, key=lambda posterior: posterior.evidence)
    return _Fitted(posteriors, weights, constants)


def _calibration(
    base: BaseModel, impacts: Impacts, frame: ContactFrame, fitted: _Fitted
) -> Calibration:
    """The calibration of fits to impacts, with its local correction."""
    correction = LocalCorrection.of(base.scene, frame, impacts)
    errors = [posterior.loo_median for posterior in fitted.posteriors]
    physics_error = float(np.dot(fitted.weights, errors))
    return Calibration(
        base=base,
        theta=_estimates(base, fitted.constants, impacts.known),
        posteriors=fitted.posteriors,
        weights=fitted.weights,
        scaling=InputScaling.of(base, frame, impacts.known),
        local_correction=None if correction is None else correction.beside(physics_error),
    )


def _weigh(fits: list[Posterior]) -> tuple[list[int], tuple[float, ...]]:
    """Indices of the fits that the evidence supports, best first, and their weights."""
    margins = [_CONSTANTS_MARGIN if fit.scales.field == 0 else 0.0 for fit in fits]
    evidence = np.array([fit.evidence for fit in fits]) - margins
    weights = np.exp((evidence - evidence.max()) / _TEMPERATURE)
    best = np.argsort(-weights)[:_MAX_FITS]
    kept = [int(i) for i in best if weights[i] > _MIN_WEIGHT]
    shares = weights[kept] / weights[kept].sum()
    return kept, tuple(map(float, shares))


def _without_outliers(posterior: Posterior) -> Posterior:
    """Drop samples that ended in a poor local optimum."""
    middle = posterior.cost.median()
    deviation = (posterior.cost - middle).abs().median()
    good = posterior.cost <= middle + _COST_MARGIN + _COST_DEVIATIONS * deviation
    good[0] = True  # the maximum of the posterior, whose values are reported
    return posterior.select(good)


def _estimates(
    base: BaseModel, constants: Posterior, known: Mapping[str, np.ndarray]
) -> tuple[Estimate, ...]:
    """Estimates in `scene.params` order from a fit of constants alone."""
    params = base.scene.params
    unit = to_unit(params, base.scene.nominal) + constants.theta[0].numpy()  # (p,) on [-1, 1]
    estimates = []
    for i, param in enumerate(params):
        if param.name in known:
            measured = known[param.name]
            mean = float(np.mean(measured))
            low = float(measured.min())
            high = float(measured.max())
            estimates.append(Estimate(param.name, mean, low, high, EstimateStatus.KNOWN))
        elif float(constants.std[i]) == FIXED_STD:
            value = float(np.clip(from_unit([param], unit[i : i + 1])[0], param.low, param.high))
            status = EstimateStatus.UNIDENTIFIABLE
            estimates.append(Estimate(param.name, value, param.low, param.high, status))
        else:
            std = float(constants.constants_std[i])
            estimates.append(unit_estimate(param, float(unit[i]), std, clip_unit=False))
    return tuple(estimates)
