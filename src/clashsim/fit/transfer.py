"""Transfer: what was identified on one object as the prior of another of the same material.

Friction, restitution and stiffness belong to the materials that meet, not to the shape, and the
effective mass of a striker to what carries it. Offsets of recorded frames, sizes and inertias
belong to one object and are not transferred.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.estimates import Estimate
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.fit.calibrate import Calibration
from clashsim.fit.priors import unit_std

_MATERIAL = ("pair/", "effect/tangential_stiffness", "effect/drag")
_STIFFNESS = "solref[0]"
_DAMPING = "solref[1]"
_NORMAL_90 = 1.64  # standard deviations either side of the mean that contain 90 %
# By how much parameters of one material differ from object to object, in standard deviations of
# the prior that they would have without a transfer.
_OBJECT_SCATTER = 0.3


def with_prior_from(scene: Scene, source: Calibration) -> Scene:
    """Take the posterior of another object's calibration as the prior of a scene's parameters.

    Args:
        scene: The scene.
        source: Calibration of an object of the same material.

    Returns:
        The scene with other nominal values and standard deviations, for parameters that both
        scenes have. Also those that were not identified on their own: they were fitted together.
    """
    stiffness_ratio = _effective_mass(source.base.scene) / _effective_mass(scene)
    known = {}
    for param, estimate in zip(source.base.scene.params, source.theta, strict=True):
        known[param.target] = (param, estimate)
    params = []
    transferred = (*_MATERIAL, f"body/{scene.striker_body.name}/mass")
    for param in scene.params:
        is_shared = param.target.startswith(transferred) and param.target in known
        if is_shared and known[param.target][0].scale == param.scale:
            params.append(_with_prior(param, known[param.target][1], stiffness_ratio))
        else:
            params.append(param)
    return scene.with_params(params)


def _with_prior(param: Param, estimate: Estimate, stiffness_ratio: float) -> Param:
    """A parameter with an estimate of another object as its prior."""
    factor = 1.0
    if param.sign < 0:  # direct stiffness and damping, which are over the mass that is moved
        if param.target.endswith(_STIFFNESS):
            factor = stiffness_ratio
        elif param.target.endswith(_DAMPING):
            factor = float(np.sqrt(stiffness_ratio))  # the same restitution
    ends = np.array([estimate.low, estimate.value, estimate.high]) * factor
    ends = np.clip(ends, param.low, param.high)
    value = float(ends[1])
    if param.scale == "log":
        ends = np.log(ends)
        width = float(np.log(param.high / param.low))
    else:
        width = param.high - param.low
    own = (ends[2] - ends[0]) / (2 * _NORMAL_90)
    scatter = _OBJECT_SCATTER * unit_std(param) * width / 2
    return replace(param, nominal=value, sd=float(np.hypot(own, scatter)))


def _effective_mass(scene: Scene) -> float:
    """Mass (kg) that two bodies show to each other along a line through both mass centres."""
    masses = [inertia(scene, body).mass for body in (scene.struck_body, scene.striker_body)]
    return 1 / sum(1 / mass for mass in masses)
