"""Effects that act on a predicted outcome by a formula, differentiable in their parameters.

- drag (m/s): speed that a struck body has lost to the ground between parting and the moment its
  twist was measured.
- delay (s): time between parting and the moment at which the twist was measured, in which gravity
  goes on. It is negative where flights that were fitted on both sides are compared at the touch.
- height (m) and pitch (rad) of the striker, tip_height, tip_reach, tip_pitch, tip_gyration: a body
  on the ground that is hit above or below its mass centre tips, and takes less of the impulse. The
  arm of the impulse is c = height + tip_height - tip_reach * tanh((pitch - tip_pitch) / 0.04). It
  moves with the striker's pitch, as its upper or lower rim touches first. The change of twist
  shrinks by k / (k + (c / tip_gyration)^2), with k = 1 + struck mass / striker mass.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clashsim.core.contact_frame import inertia
from clashsim.core.params import Param
from clashsim.core.scene import EXACT_EFFECTS, Scene
from clashsim.core.scene_model import DELAY

_RIM_PITCH = 0.04  # rad: over which contact passes from one rim of a flat striker to the other
# Under the root of a speed, in squares of the approach speed: keeps the gradient finite at rest.
_TINY_SQUARE = 1e-3
_MAX_LOST_SHARE = 0.5  # largest share of its twist that a body can lose to drag


def analytic_params(scene: Scene) -> list[int]:
    """Indices of the parameters that act by formula."""
    return [i for i, param in enumerate(scene.params) if param.target in EXACT_EFFECTS]


def network_params(scene: Scene) -> list[int]:
    """Indices of the parameters that a network has to learn."""
    return [i for i, param in enumerate(scene.params) if param.target not in EXACT_EFFECTS]


def apply_analytic_effects(
    scene: Scene, change: Tensor, start: Tensor, speed: Tensor, unit: Tensor
) -> Tensor:
    """Apply the effects that act by formula to changes of twist.

    Args:
        scene: Whose parameters define the effects.
        change: (..., N, k), dimensionless change of twist, as of `ContactFrame.encode`.
        start: (N, k), twist before the impact divided by the approach speed, along the contact's
            axes.
        speed: (N,), approach speed, m/s.
        unit: (..., N, p), theta on the unit scale.

    Returns:
        Changes of twist (..., N, k).
    """
    return apply_drag(scene, apply_tipping(scene, change, unit), start, speed, unit)


def apply_tipping(scene: Scene, change: Tensor, unit: Tensor) -> Tensor:
    """Lower changes of twist by the tipping of the body; see `apply_analytic_effects`."""
    values = _values(scene, unit)
    if "effect/tip_gyration" not in values:
        return change
    return change * _tipping_factor(scene, values)[..., None]


def apply_drag(scene: Scene, change: Tensor, start: Tensor, speed: Tensor, unit: Tensor) -> Tensor:
    """Lower the speed after impacts by the drag of the ground; see `apply_analytic_effects`."""
    values = _values(scene, unit)
    if "effect/drag" in values:
        after = change + start
        linear_entries = 2 if after.shape[-1] == 3 else 3
        linear = after[..., :linear_entries]
        speed_after = (linear.square().sum(-1) + _TINY_SQUARE).sqrt()
        lost_share = values["effect/drag"] / speed / speed_after
        change = change - after * lost_share.clamp(max=_MAX_LOST_SHARE)[..., None]
    return change


def apply_delay(scene: Scene, change: Tensor, fall: Tensor, unit: Tensor) -> Tensor:
    """Add what gravity does until the twist is measured to changes of twist.

    Args:
        scene: Whose parameters define the effects.
        change: (..., N, k), dimensionless change of twist, as of `ContactFrame.encode`.
        fall: (N, k), the same quantity that a second of free fall changes.
        unit: (..., N, p), theta on the unit scale.

    Returns:
        Changes of twist (..., N, k).
    """
    values = _values(scene, unit)
    if DELAY not in values:
        return change
    return change + values[DELAY][..., None] * fall


def _values(scene: Scene, unit: Tensor) -> dict[str, Tensor]:
    """Parameters (..., N) in natural units from theta on the unit scale (..., N, p), by target."""
    return {param.target: _from_unit(param, unit[..., i]) for i, param in enumerate(scene.params)}


def _tipping_factor(scene: Scene, values: dict[str, Tensor]) -> Tensor:
    """Factor (..., N), below 1, on the change of twist of a body that tips."""
    striker = scene.striker_body
    pitch = values["effect/pitch"] - values["effect/tip_pitch"]
    author_mass = torch.tensor(inertia(scene, striker).mass, dtype=pitch.dtype)
    striker_mass = values.get(f"body/{striker.name}/mass", author_mass)
    k = 1 + inertia(scene, scene.struck_body).mass / striker_mass
    arm = (
        values["effect/height"]
        + values["effect/tip_height"]
        - values["effect/tip_reach"] * torch.tanh(pitch / _RIM_PITCH)
    )
    return k / (k + (arm / values["effect/tip_gyration"]).square())


def _from_unit(param: Param, unit: Tensor) -> Tensor:
    """Natural values of a parameter from those on the unit scale, -1 to 1."""
    share = (unit + 1) / 2
    if param.scale == "log":
        log_low = math.log(param.low)
        return torch.exp(log_low + share * (math.log(param.high) - log_low))
    return param.low + share * (param.high - param.low)
