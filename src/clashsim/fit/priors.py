"""Priors of the scene's parameters, and their estimates after a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.core.effects import RIGID_STIFFNESS, TANGENTIAL_SPRING
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.core.scene_model import SceneModel

# Prior standard deviations on the unit scale [-1, 1] of a parameter.
_DEFAULT_STD = 0.5  # the range reaches two standard deviations either side
_KNOWN_STD = 0.1  # of a parameter that was measured with each impact, perhaps with an offset
FIXED_STD = 1e-3  # of a parameter that is not fitted
_NORMAL_90 = 1.64  # standard deviations either side of the mean that contain 90 %
_AT_BOUND = 0.97  # estimates beyond this on the unit scale are at the end of their range
# Standard deviations of estimates, as shares of the prior's.
_BOUND_STD = 0.5  # an estimate at the end of its range has status AT_BOUND only below this
_FITTED_STD = 0.25  # up to this an estimate has status FITTED


def unit_std(param: Param) -> float:
    """Prior standard deviation of a parameter on its unit scale."""
    if param.sd is None:
        return _DEFAULT_STD
    if param.scale == "log":
        return 2 * param.sd / float(np.log(param.high / param.low))
    return 2 * param.sd / (param.high - param.low)


def prior_std(scene: SceneModel, known: Mapping[str, np.ndarray]) -> Tensor:
    """Prior standard deviations (p,) of theta on its unit scale.

    Args:
        scene: The scene.
        known: Quantities measured with each impact, by name.
    """
    deviations = [_KNOWN_STD if p.name in known else unit_std(p) for p in scene.params]
    return torch.tensor(deviations, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class ThetaPrior:
    """A normal prior of theta on its unit scale.

    Attributes:
        mean: (p,), as differences from the nominal values.
        std: (p,), standard deviations.
    """

    mean: Tensor
    std: Tensor


def theta_prior(scene: Scene, known: Mapping[str, np.ndarray]) -> ThetaPrior:
    """The prior of all parameters.

    Args:
        scene: The scene.
        known: Quantities measured with each impact, by name.
    """
    std = prior_std(scene, known)
    return ThetaPrior(torch.zeros_like(std), std)


def contact_prior(scene: Scene, known: Mapping[str, np.ndarray]) -> ThetaPrior:
    """The prior of contact parameters alone: MuJoCo's contact, with nothing added to it.

    Masses and offsets stay at their nominal values, and no tangential spring acts.

    Args:
        scene: The scene.
        known: Quantities measured with each impact, by name.
    """
    prior = theta_prior(scene, known)
    mean, std = prior.mean.clone(), prior.std.clone()
    for i, param in enumerate(scene.params):
        if param.target.startswith("pair/") or param.name in known:
            continue
        std[i] = FIXED_STD
        if param.target == TANGENTIAL_SPRING and param.high >= RIGID_STIFFNESS:
            mean[i] = 1.0 - float(to_unit([param], np.array([param.nominal]))[0])
    return ThetaPrior(mean, std)


def identifiability_status(param: Param, unit: float, std: float) -> EstimateStatus:
    """Classify how well a parameter was identified.

    Args:
        param: The parameter.
        unit: Its estimate on the unit scale.
        std: Standard deviation of the estimate on the unit scale.
    """
    share = std / unit_std(param)
    if abs(unit) > _AT_BOUND and share < _BOUND_STD:
        return EstimateStatus.AT_BOUND
    if share > _FITTED_STD:
        return EstimateStatus.UNIDENTIFIABLE
    return EstimateStatus.FITTED


def unit_estimate(param: Param, unit: float, std: float, *, clip_unit: bool) -> Estimate:
    """An estimate with its interval from a point and a standard deviation on the unit scale.

    Args:
        param: The parameter.
        unit: Its estimate on the unit scale.
        std: Standard deviation on the unit scale.
        clip_unit: Whether the interval is clipped to the range before it is converted to natural
            units; otherwise it is clipped afterwards.
    """
    ends = np.array([[unit - _NORMAL_90 * std], [unit], [unit + _NORMAL_90 * std]])
    if clip_unit:
        low, value, high = from_unit([param], np.clip(ends, -1, 1))[:, 0]
    else:
        low, value, high = np.clip(from_unit([param], ends)[:, 0], param.low, param.high)
    status = identifiability_status(param, unit, std)
    return Estimate(param.name, float(value), float(low), float(high), status)


def estimates_of_free(
    scene: SceneModel,
    free: Sequence[int],
    unit: np.ndarray,
    std: np.ndarray,
    *,
    base: np.ndarray,
    known: Mapping[str, np.ndarray],
) -> tuple[Estimate, ...]:
    """Estimates of all parameters after a fit of some of them.

    Args:
        scene: The scene.
        free: Indices of the fitted parameters (q,).
        unit: Estimates (q,) of the fitted parameters on the unit scale.
        std: Standard deviations (q,) of `unit`.
        base: Theta (p,), natural units; used for parameters that were neither fitted nor measured.
        known: Quantities measured with each impact, by name; an estimate is their mean.

    Returns:
        Estimates in `scene.params` order.
    """
    position = {index: j for j, index in enumerate(free)}
    estimates = []
    for i, param in enumerate(scene.params):
        if i in position:
            j = position[i]
            estimates.append(unit_estimate(param, unit[j], std[j], clip_unit=True))
            continue
        if param.name in known:
            value = float(np.mean(known[param.name]))
            status = EstimateStatus.KNOWN
        else:
            value = float(base[i])
            status = EstimateStatus.UNIDENTIFIABLE
        estimates.append(Estimate(param.name, value, value, value, status))
    return tuple(estimates)
