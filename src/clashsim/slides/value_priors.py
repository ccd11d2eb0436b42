"""The prior of a slide model's values, and the scale on which they are fitted.

Values that must stay above zero are fitted as logarithms. The prior mean is a uniform pressure
under the support patch.
"""

from __future__ import annotations

import numpy as np

from clashsim.slides.law import VALUE_NAMES, SlideModel
from clashsim.slides.support_patch import SupportPatch

_POSITIVE = ("friction", "torsion_radius", "pressure_radius_x", "pressure_radius_y")
_IS_LOG = np.array([name in _POSITIVE for name in VALUE_NAMES])
_RATE_DEPENDENCE = VALUE_NAMES.index("rate_dependence")
_ANISOTROPY = slice(VALUE_NAMES.index("anisotropy"), VALUE_NAMES.index("anisotropy_xy") + 1)
_MAX_ANISOTROPY = 0.6  # at 1 friction would accelerate the body
_MAX_RATE_DEPENDENCE = 2.0
_LOG_RANGE = (-12, 3)  # of the logarithms that are fitted, so that their exponentials stay finite


def expected_values(patch: SupportPatch) -> tuple[np.ndarray, np.ndarray]:
    """Prior means (11,) and standard deviations (11,) of the values on the scale of the fit."""
    moments = patch.moments
    # Cholesky factor of the second moments, as the slide model has them.
    radius_x = np.sqrt(moments[0, 0])
    radius_xy = moments[0, 1] / radius_x
    radius_y = np.sqrt(max(moments[1, 1] - radius_xy**2, 1e-3 * moments[1, 1]))
    mean_and_std = {
        "friction": (np.log(0.3), 1.0),
        "rate_dependence": (0.0, 0.3),
        "torsion_radius": (np.log(patch.mean_distance), 0.3),
        "pressure_radius_x": (np.log(radius_x), 0.3),
        "pressure_radius_y": (np.log(radius_y), 0.3),
        "pressure_radius_xy": (radius_xy, 0.15 * patch.gyration),
        "pressure_x": (0.0, 0.1 * patch.gyration),
        "pressure_y": (0.0, 0.1 * patch.gyration),
        "pressure_offset": (0.25 * patch.height, 0.15 * patch.height),
        "anisotropy": (0.0, 0.05),
        "anisotropy_xy": (0.0, 0.05),
    }
    ordered = np.array([mean_and_std[name] for name in VALUE_NAMES])
    return ordered[:, 0], ordered[:, 1]


def natural_values(fitted: np.ndarray) -> np.ndarray:
    """Values (..., 11) in natural units, from values (..., 11) on the scale of the fit."""
    return np.where(_IS_LOG, np.exp(np.where(_IS_LOG, fitted, 0.0)), fitted)


def bounded_values(fitted: np.ndarray) -> np.ndarray:
    """Values (11,) on the scale of the fit, clipped so that friction slows the body down."""
    out = fitted.copy()
    anisotropy = float(np.hypot(*out[_ANISOTROPY]))
    if anisotropy > _MAX_ANISOTROPY:
        out[_ANISOTROPY] *= _MAX_ANISOTROPY / anisotropy
    out[_RATE_DEPENDENCE] = np.clip(
        out[_RATE_DEPENDENCE], -_MAX_RATE_DEPENDENCE, _MAX_RATE_DEPENDENCE
    )
    return np.where(_IS_LOG, np.clip(out, *_LOG_RANGE), out)


def model_from_fit(fitted: np.ndarray, body: SlideModel) -> SlideModel:
    """The slide model with fitted values (11,), and with the body and the gravity of `body`."""
    natural = natural_values(bounded_values(fitted))
    values = dict(zip(VALUE_NAMES, natural.tolist(), strict=True))
    return SlideModel(values, gyration=body.gyration, centre=body.centre, gravity=body.gravity)
