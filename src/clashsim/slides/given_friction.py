"""A slide model of a body whose ground friction is known and whose slides were not recorded."""

from __future__ import annotations

import numpy as np

from clashsim.core.errors import ParamError
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.slides.identify import SlideFit
from clashsim.slides.law import VALUE_NAMES, SlideModel
from clashsim.slides.support_patch import SupportPatch
from clashsim.slides.value_priors import expected_values, model_from_fit, natural_values

_MAX_FRICTION = 2.0
_FRICTION_STD = 0.1  # of the logarithm of a friction that somebody gives
_NORMAL_90 = 1.645  # standard deviations either side of the mean that contain 90 %
_FRICTION = VALUE_NAMES.index("friction")


def slides_with_friction(friction: float, patch: SupportPatch, *, gravity: float) -> SlideFit:
    """The slide model of a body with a given friction and the expected pressure on its patch.

    Args:
        friction: Coefficient of friction between body and ground.
        patch: The support patch of the body.
        gravity: m/s^2.

    Returns:
        The model, with the prior standard deviations of all other values.
    """
    if not 0 < friction <= _MAX_FRICTION:
        raise ParamError(
            f"a ground friction is above 0 and at most {_MAX_FRICTION:g}, got {friction}"
        )
    mean, std = expected_values(patch)
    mean[_FRICTION] = np.log(friction)
    std[_FRICTION] = _FRICTION_STD
    body = SlideModel(
        {"friction": friction}, gyration=patch.gyration, centre=patch.centre, gravity=gravity
    )
    low = natural_values(mean - _NORMAL_90 * std)
    value = natural_values(mean)
    high = natural_values(mean + _NORMAL_90 * std)
    estimates = []
    for i, name in enumerate(VALUE_NAMES):
        is_given = i == _FRICTION
        status = EstimateStatus.KNOWN if is_given else EstimateStatus.UNIDENTIFIABLE
        estimates.append(Estimate(name, float(value[i]), float(low[i]), float(high[i]), status))
    return SlideFit(
        # The length of a slide is in inverse proportion to friction.
        model=model_from_fit(mean, body).with_rest_std(_FRICTION_STD),
        estimates=tuple(estimates),
        misfit=np.zeros(3),
        friction_std=0.0,
        mean=mean,
        covariance=np.diag(std**2),
        slides=0,
    )
