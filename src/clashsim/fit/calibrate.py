"""From a distilled model and a few real impacts to a calibrated one.

A calibration holds theta with intervals and statuses, parameter fields, a residual, and a local
correction from similar impacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame, contact_frame, inertia
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.impacts import Impacts
from clashsim.core.params import to_unit
from clashsim.fit.distil import DistilledModel
from clashsim.fit.field_descent import FieldData
from clashsim.fit.field_kernels import CONSTANTS_ONLY, PriorScales
from clashsim.fit.fields import (
    TEMPER,
    Posterior,
    fit_constants,
    fit_posterior,
    predict_posterior,
)
from clashsim.fit.input_scaling import InputScaling
from clashsim.fit.local_correction import LocalCorrection
from clashsim.fit.priors import prior_std, unit_estimate

# The prior scales that evidence chooses from.
PRIOR_SCALES = (
    PriorScales(),
    PriorScales(field=0.1),
    PriorScales(noise=0.015),
    PriorScales(noise=0.06),
)
# Relative noise that constants alone may leave, chosen by evidence.
_NOISES = (0.02, 0.05, 0.1)
# Of the evidence that weighs prior scales: with ten impacts a few nats are chance, with a hundred
# they are many.
_TEMPERATURE = 4.0
_LEAST_WEIGHT = 0.1  # of a fit, relative to the most probable one


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated collision model; an `ImpactModel`.

    Attributes:
        base: The distilled model.
        theta: Estimates in `scene.params` order.
        posteriors: Fits with different prior scales, each with its samples.
        weights: How much each of them counts.
        scaling: Standardisation of the circumstances.
        local_correction: What similar impacts did, without physics. It counts near the impacts that
            were fitted, as far as its variance is the smaller one.
    """

    base: DistilledModel
    theta: tuple[Estimate, ...]
    posteriors: tuple[Posterior, ...]
    weights: tuple[float, ...]
    scaling: InputScaling
    local_correction: LocalCorrection | None

    @property
    def noise_variance(self) -> float:
        """Relative variance of the measurement noise, the mean over the fits."""
        return self._mean_over_fits([p.scales.noise**2 for p in self.posteriors])

    def predict_samples(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> list[np.ndarray]:
        """Twists after impact of each sample of each posterior, (M, N, k) each."""
        frame = frame or contact_frame(self.base.scene, impacts)
        data = self.scaling.data(self.base, frame, impacts.known)
        predictions = []
        for posterior in self.posteriors:
            change, _ = predict_posterior(posterior, data)
            predictions.append(frame.decode(change.numpy()))
        return predictions

    def predict(self, impacts: Impacts) -> np.ndarray:
        """Twist after impact (N, k)."""
        return self.predict_with_std(impacts)[0]

    def std(self, impacts: Impacts) -> np.ndarray:
        """One standard deviation of the twist after impact (N, k).

        It holds what samples and fits disagree on, and the fitted noise.
        """
        return self.predict_with_std(impacts)[1]

    def predict_with_std(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`predict` and `std` at the cost of one.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, where these are known already.

        Returns:
            Twist after impact and one standard deviation of it, (N, k) each.
        """
        frame = frame or contact_frame(self.base.scene, impacts)
        samples = self.predict_samples(impacts, frame)
        centre = np.zeros_like(impacts.after)
        for weight, sample in zip(self.weights, samples, strict=True):
            centre = centre + weight * sample.mean(0)
        gyration = inertia(self.base.scene, self.base.scene.struck_body).gyration
        linear = 2 if impacts.planar else 3
        angular = centre.shape[1] - linear
        # The noise is relative to the size of (v, gyration * w).
        unit = np.r_[np.ones(linear), np.full(angular, 1 / gyration)]
        size = np.linalg.norm(centre / unit, axis=1, keepdims=True)
        variance = self._variance(samples, centre, size * unit)
        if self.local_correction is None:
            return centre, np.sqrt(variance)
        return self._corrected(self.local_correction, impacts, frame, (centre, variance), unit)

    def _variance(
        self, samples: list[np.ndarray], centre: np.ndarray, size: np.ndarray
    ) -> np.ndarray:
        """Variance (N, k) of predictions: within each fit, between fits, and of the noise."""
        variance = np.zeros_like(centre)
        for weight, sample, posterior in zip(self.weights, samples, self.posteriors, strict=True):
            within = sample.var(0) / TEMPER**2
            between = (sample.mean(0) - centre) ** 2
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
        """Mean and standard deviation (N, k) of physics and local correction combined.

        Each counts by the inverse of its variance; the correction at most by its proximity weight.
        """
        centre, variance = physics
        size = np.linalg.norm(centre / unit, axis=1, keepdims=True)
        local = correction.predict(self.base.scene, frame, impacts)
        loo_error = self._mean_over_fits([p.loo_error for p in self.posteriors])
        # The root, because ten impacts estimate their own leave-one-out error only roughly.
        physics_variance = np.sqrt(loo_error) * (variance / unit**2).sum(1)
        local_variance = local.variance.sum(1)
        share = local.proximity * physics_variance / (physics_variance + local_variance + 1e-12)
        share = share[:, None]
        local_part = local_variance[:, None] / len(unit) + self.noise_variance * size**2
        variance = (1 - share) * variance + share * local_part * unit**2
        return (1 - share) * centre + share * local.twist_after, np.sqrt(variance)

    def _mean_over_fits(self, values: list[float]) -> float:
        """The mean of a number of each fit, by the fits' weights."""
        return sum(weight * value for weight, value in zip(self.weights, values, strict=True))


def calibrate(
    base: DistilledModel,
    impacts: Impacts,
    *,
    seed: int = 0,
    posterior_samples: int = 5,
    prior_scales: tuple[PriorScales, ...] | None = None,
    frame: ContactFrame | None = None,
) -> Calibration:
    """Fit a distilled model to real impacts.

    How far it may depart from MuJoCo is weighed by the evidence of these impacts alone.

    Args:
        base: The distilled model.
        impacts: About ten recorded impacts.
        seed: Seed of the posterior samples.
        posterior_samples: Samples of each fit.
        prior_scales: Prior scales to choose from; `PRIOR_SCALES` by default.
        frame: The impacts in their contact frames, where these are known already.

    Returns:
        The calibrated model.
    """
    impacts = impacts.checked()
    frame = frame or contact_frame(base.scene, impacts)
    scaling = InputScaling.of(base, frame, impacts.known)
    fitter = _Fitter(
        scaling.data(base, frame, impacts.known, impacts.after),
        prior_std(base.scene, impacts.known),
        seed,
    )
    choices = prior_scales or PRIOR_SCALES
    kept, weights = _weigh(fitter, choices)
    posteriors = tuple(_without_outliers(fitter.fit(choices[i], posterior_samples)) for i in kept)
    # Values and statuses are those of constants alone, which is what a MuJoCo model can hold;
    # fields and residual only serve prediction.
    constant_fits = [fitter.fit(replace(CONSTANTS_ONLY, noise=noise), 1) for noise in _NOISES]
    constants = max(constant_fits, key=lambda posterior: posterior.evidence)
    return Calibration(
        base=base,
        theta=_estimates(base, constants, impacts.known),
        posteriors=posteriors,
        weights=weights,
        scaling=scaling,
        local_correction=LocalCorrection.of(base.scene, frame, impacts),
    )


class _Fitter:
    """Fits to the same impacts from the same constants and the same random numbers."""

    def __init__(self, data: FieldData, std: Tensor, seed: int) -> None:
        self._data = data
        self._std = std
        self._seed = seed
        self._anchor = fit_constants(data, std)

    def fit(self, scales: PriorScales, posterior_samples: int) -> Posterior:
        """A fit with some prior scales."""
        return fit_posterior(
            self._data,
            self._std,
            scales=scales,
            posterior_samples=posterior_samples,
            anchor=self._anchor,
            generator=torch.Generator().manual_seed(self._seed),
        )


def _weigh(
    fitter: _Fitter, choices: tuple[PriorScales, ...]
) -> tuple[list[int], tuple[float, ...]]:
    """Indices of the prior scales that evidence supports, the best first, and their weights."""
    if len(choices) == 1:
        return [0], (1.0,)
    evidence = np.array([fitter.fit(scales, 1).evidence for scales in choices])
    weights = np.exp((evidence - evidence.max()) / _TEMPERATURE)
    kept = [int(i) for i in np.argsort(-weights) if weights[i] > _LEAST_WEIGHT]
    shares = weights[kept] / weights[kept].sum()
    return kept, tuple(map(float, shares))


def _without_outliers(posterior: Posterior) -> Posterior:
    """Drop samples that ended in a poor local optimum."""
    middle = posterior.cost.median()
    deviation = (posterior.cost - middle).abs().median()
    good = posterior.cost <= middle + 5 + 4 * deviation
    good[0] = True  # the maximum of the posterior, which values and intervals are taken about
    return posterior.select(good)


def _estimates(
    base: DistilledModel, constants: Posterior, known: Mapping[str, np.ndarray]
) -> tuple[Estimate, ...]:
    """Estimates in `scene.params` order from a fit of constants alone."""
    params = base.scene.params
    unit = to_unit(params, base.scene.nominal) + constants.theta[0].numpy()
    estimates = []
    for i, param in enumerate(params):
        if param.name in known:
            measured = known[param.name]
            mean = float(np.mean(measured))
            low = float(measured.min())
            high = float(measured.max())
            estimates.append(Estimate(param.name, mean, low, high, EstimateStatus.KNOWN))
        else:
            std = float(constants.constants_std[i])
            estimates.append(unit_estimate(param, float(unit[i]), std, clip_unit=False))
    return tuple(estimates)
