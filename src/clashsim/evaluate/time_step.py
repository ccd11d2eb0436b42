"""Whether a scene's time step is short enough for its contact, and which one is.

A contact whose oscillation is faster than the time steps is not resolved, so the stiffness that is
identified has a limit. Bodies that meet at some speed sink into each other at least as far as that
limit lets them: where this is a large part of their size, or where the limit is reached, the step
is too long (docs/decisions/0037).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_pairs import STRIKE
from clashsim.core.default_params import stiffness_limit
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.params import Param
from clashsim.core.scene import Scene

_STEPS = (1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5)  # s, that are advised
_MAX_DEPTH = 0.1  # of the struck body's radius of gyration, to which bodies may have to sink
_SAME_STIFFNESS = 1e-6  # relative difference of two values that are taken to be equal
_SHORTER = 0.25  # times the present step: the longest one that is advised; the limit grows by 16


@dataclass(frozen=True)
class TimeStepAdvice:
    """A time step that is too long.

    Attributes:
        used: The scene's time step, s.
        advised: One that is short enough, s.
        reason: A clause that says why the present one is not.
        element: What is written into the scene's file.
    """

    used: float
    advised: float
    reason: str
    element: str

    @property
    def sentence(self) -> str:
        """What is wrong and what to do about it."""
        return (
            f"the scene's time step of {_ms(self.used)} is too long for these impacts: "
            f"{self.reason}; write {self.element} into the scene ({_ms(self.advised)}) and "
            "calibrate again"
        )

    @property
    def cause(self) -> str:
        """The clause of a conclusion that names this cause."""
        return (
            f"the likely cause is the scene's time step of {_ms(self.used)}, which is too long for "
            f"the contact: use {_ms(self.advised)}"
        )


def advise_time_step(
    scene: Scene, speed: np.ndarray, estimates: Sequence[Estimate] = ()
) -> TimeStepAdvice | None:
    """Advise a shorter time step where the scene's is too long for recorded impacts.

    Args:
        scene: Scene of the pair.
        speed: Approach speeds (N,) of the impacts, m/s.
        estimates: Identified parameters in the order of `scene.params`; empty before the fit.

    Returns:
        The advice; None where the step is short enough, or where a settings file and not the step
        limits the stiffness.
    """
    model = scene.base
    limit = stiffness_limit(model)
    target = f"pair/{STRIKE}/solref[0]"
    row = next((i for i, param in enumerate(scene.params) if param.target == target), None)
    if row is None or abs(scene.params[row].high / limit - 1) > _SAME_STIFFNESS:
        return None
    used = float(model.opt.timestep)
    usual_speed = float(np.median(speed))
    depth = usual_speed / np.sqrt(limit)
    allowed = _MAX_DEPTH * inertia(scene, scene.struck_body).gyration
    longest = used * allowed / max(depth, 1e-12)  # never divides by zero
    if estimates and _is_at_upper_end(estimates[row], scene.params[row]):
        reason = f"the identified stiffness is at the {limit:.3g} 1/s^2 that it can resolve"
        longest = min(longest, _SHORTER * used)
    elif depth > allowed:
        reason = (
            "even the stiffest contact that it resolves lets the bodies sink "
            f"{1e3 * depth:.2g} mm into each other at {usual_speed:.2g} m/s"
        )
        longest = min(longest, _SHORTER * used)
    else:
        return None
    advised = next((step for step in _STEPS if step <= longest), _STEPS[-1])
    element = f'<option timestep="{advised:g}"/>'
    if "<robot" in scene.xml:
        element = f"<mujoco>{element}</mujoco>"
    return TimeStepAdvice(used, advised, reason, element)


def _is_at_upper_end(estimate: Estimate, param: Param) -> bool:
    """Whether an estimate is at the upper bound of its parameter."""
    middle = np.sqrt(param.low * param.high)
    return estimate.status is EstimateStatus.AT_BOUND and estimate.value > middle


def _ms(time: float) -> str:
    """A time as text."""
    return f"{1e3 * time:g} ms"
