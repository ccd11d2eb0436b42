"""Calibration: fits a distilled model to a few real impacts.

A calibration holds theta (the scene's parameters) with intervals and statuses, parameter fields, a
residual, and a local correction from similar impacts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from clashsim.core.contact_frame import ContactFrame, contact_frame
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.impacts import Impacts
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.base import BaseModel
from clashsim.fit.both_bodies import FittedImpacts
from clashsim.fit.calibration import Calibration
from clashsim.fit.calibration_file import in_row_order
from clashsim.fit.field_kernels import CONSTANTS_ONLY, PriorScales
from clashsim.fit.fields import (
    PlannedFit,
    Posterior,
    fit_constants,
    fit_posteriors,
)
from clashsim.fit.input_scaling import InputScaling
from clashsim.fit.local_correction import LocalCorrection
from clashsim.fit.lockstep import FieldData, Fit, run_fits
from clashsim.fit.prediction import Prediction, average
from clashsim.fit.predictive_variance import pose_variance
from clashsim.fit.priors import FIXED_STD, contact_prior, theta_prior, unit_estimate
from clashsim.fit.rigid_law import RigidLaw

# Prior scales of candidate fits: constants or fields, without and with a residual. How well each
# predicts groups of impacts that were left out decides its weight; its noise is fitted too.
_FIELDS = (0.0, 0.1, 0.3)
# Logarithm of the prior weight of a fit by the amplitude of its fields. Fields that vary strongly
# can follow ten impacts by chance: they have to predict left-out groups clearly better.
_LOG_PRIOR_WEIGHT = {0.3: -2.0}
PRIOR_SCALES = tuple(
    scales
    for field in _FIELDS
    for scales in (
        replace(CONSTANTS_ONLY, field=field, about_mean=True),
        PriorScales(field=field, about_mean=True),
    )
)
# Log densities of left-out groups are divided by this before they weigh fits: with ten impacts a
# difference of a few nats is chance.
_TEMPERATURE = 3.0
# Largest error of a left-out impact over the size of its outcome. The linearised model is far off
# where few impacts leave a direction open, and the model itself is not.
_MAX_LEFT_OUT_ERROR = 0.5
_MAX_FITS = 4  # that are averaged
_MIN_WEIGHT = 0.05  # relative to the best fit; fits of a lower weight are dropped


def calibrate(
    base: BaseModel,
    impacts: Impacts,
    *,
    prior_scales: tuple[PriorScales, ...] | None = None,
    frame: ContactFrame | None = None,
) -> Calibration:
    """Fit a distilled model to real impacts.

    How far the model may depart from MuJoCo is decided by the evidence of these impacts alone.

    Args:
        base: The base model.
        impacts: About ten recorded impacts.
        prior_scales: Prior scales to choose from; `PRIOR_SCALES` by default.
        frame: The impacts in their contact frames, if already computed.

    Returns:
        The calibrated model.
    """
    impacts = impacts.checked()
    frame = frame or contact_frame(base.scene, impacts)
    plan = _CalibrationPlan(prior_scales or PRIOR_SCALES)
    (calibration,) = _calibrate_subsets(base, impacts, frame, [np.arange(len(impacts))], plan)
    return calibration


def calibrate_subsets(
    calibration: Calibration, impacts: Impacts, subsets: Sequence[np.ndarray]
) -> list[Calibration]:
    """Calibrate again on several subsets of the impacts, in less time than one after the other.

    Args:
        calibration: The calibration on all impacts. The fits begin at its constants instead of
            searching the whole prior; where they end is decided by the impacts of their subsets.
        impacts: The recorded impacts.
        subsets: Indices of the impacts of each subset.

    Returns:
        The calibrated model of each subset.
    """
    base = calibration.base
    plan = _CalibrationPlan(PRIOR_SCALES, calibration.constants)
    frame = contact_frame(base.scene, impacts)
    return _calibrate_subsets(base, impacts, frame, subsets, plan)


@dataclass(frozen=True)
class _CalibrationPlan:
    """How to fit each subset.

    Attributes:
        prior_scales: Prior scales to choose from.
        near: Constants (p,) to begin at; None to search for them.
    """

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
        of_both = fitted.reconciled(scaling, np.asarray(rows), ended.constants.theta)
        calibrations.append(_calibration(base, of_both, frame[rows], ended))
    return calibrations


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Fits to one set of impacts.

    Attributes:
        posteriors: The fits that the evidence supports.
        weights: Their weights.
        constants: The most probable fit of constants alone.
        pose_variance: Variance (N, k) of the impacts' outcomes because each recorded pose is a
            little off, over their squared size.
    """

    posteriors: tuple[Posterior, ...]
    weights: tuple[float, ...]
    constants: Posterior
    pose_variance: np.ndarray


def _fit_posteriors(
    scene: Scene, data: FieldData, known: Mapping[str, np.ndarray], plan: _CalibrationPlan
) -> Fit[_Fitted]:
    """Fit all candidates to the impacts, and keep those that the evidence supports."""
    priors = [theta_prior(scene, known)]
    contact = contact_prior(scene, known)
    if not torch.equal(contact.std, priors[0].std):
        priors.append(contact)
    anchors = yield from fit_constants(data, priors, plan.near)
    plans = [
        PlannedFit(scales, prior, best)
        for prior, (best, *_) in zip(priors, anchors, strict=True)
        for scales in plan.prior_scales
    ]
    fits = yield from fit_posteriors(data, plans)
    kept, weights = _weigh(fits)
    # The reported values and statuses come from a fit of constants alone, because a MuJoCo model
    # can only hold constants; fields and residual are used for prediction.
    constant_fits = [fit for fit in fits if fit.scales.field == 0]
    constants = max(constant_fits, key=lambda posterior: posterior.evidence)
    # The first fit has all parameters free, so that its Jacobian has all columns.
    of_poses = pose_variance(scene, fits[0].struck_jacobian).numpy()
    return _Fitted(tuple(fits[i] for i in kept), weights, constants, of_poses)


def _calibration(
    base: BaseModel, impacts: Impacts, frame: ContactFrame, fitted: _Fitted
) -> Calibration:
    """The calibration of fits to impacts, with what predictions fall back to and correct it."""
    scene = base.scene
    size = fitted.posteriors[0].leave_one_out.size.numpy()
    left_out = _left_out(fitted)
    law = RigidLaw.of(scene, frame, impacts, size=size, reference=left_out.mean)
    if law is not None:
        left_out = left_out.mixed_with(law.left_out, law.share)
    local = LocalCorrection.of(scene, frame, impacts, size=size, reference=left_out.mean)
    if local is not None:
        left_out = left_out.mixed_with(local.left_out, local.credit)
    return Calibration(
        base=base,
        theta=_estimates(base, fitted.constants, impacts.known),
        posteriors=in_row_order(fitted.posteriors),
        weights=fitted.weights,
        scaling=InputScaling.of(base, frame, impacts.known),
        rigid_law=in_row_order(law),
        local_correction=in_row_order(local),
        left_out=in_row_order(left_out),
        recorded=in_row_order(frame.before),
    )


def _left_out(fitted: _Fitted) -> Prediction:
    """Errors of leaving groups out, of the average of the fits."""
    of_fits = [posterior.leave_group_out for posterior in fitted.posteriors]
    predictions = []
    for fit in of_fits:
        error = Prediction(fit.error.numpy(), fit.variance.numpy() + fitted.pose_variance)
        predictions.append(error.shortened(_MAX_LEFT_OUT_ERROR))
    return average(predictions, fitted.weights)


def _weigh(fits: list[Posterior]) -> tuple[list[int], tuple[float, ...]]:
    """Indices of the fits that predict left-out groups best, best first, and their weights."""
    score = np.array([fit.leave_group_out.log_density for fit in fits])
    prior = np.array([_LOG_PRIOR_WEIGHT.get(fit.scales.field, 0.0) for fit in fits])
    log_weights = score / _TEMPERATURE + prior
    weights = np.exp(log_weights - log_weights.max())
    best = np.argsort(-weights)[:_MAX_FITS]
    kept = [int(i) for i in best if weights[i] > _MIN_WEIGHT]
    shares = weights[kept] / weights[kept].sum()
    return kept, tuple(map(float, shares))


def _estimates(
    base: BaseModel, constants: Posterior, known: Mapping[str, np.ndarray]
) -> tuple[Estimate, ...]:
    """Estimates in `scene.params` order from a fit of constants alone."""
    params = base.scene.params
    unit = to_unit(params, base.scene.nominal) + constants.theta.numpy()  # (p,) on [-1, 1]
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
