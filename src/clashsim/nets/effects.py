"""Effects that act on a predicted outcome by a formula, differentiable in their parameters.

- drag (m/s): speed that a struck body has lost to the ground between parting and the moment its
  twist was measured.
- height (m) and pitch (rad) of the striker, tip_height, tip_reach, tip_pitch, tip_gyration: a body
  on the ground that is hit above or
  below its mass centre tips and takes less of the impulse. The lever c = height + tip_height -
  tip_reach * tanh((pitch - tip_pitch) / 0.04) moves with the striker's pitch as its upper or lower
  rim touches first; the change of twist shrinks by k / (k + (c / tip_gyration)^2), k = 1 + struck
  mass / striker mass.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clashsim.core.contact_frame import inertia
from clashsim.core.params import Param
from clashsim.core.scene import EXACT_EFFECTS, Scene

_EDGE = 0.04  # rad: over which contact passes from one rim of a flat striker to the other


def analytic_params(scene: Scene) -> list[int]:
    """Positions of the parameters that act by formula."""
    return [i for i, p in enumerate(scene.params) if p.target in EXACT_EFFECTS]


def network_params(scene: Scene) -> list[int]:
    """Positions of the parameters that a network has to learn."""
    return [i for i, p in enumerate(scene.params) if p.target not in EXACT_EFFECTS]


def apply_analytic_effects(
    scene: Scene, change: Tensor, start: Tensor, speed: Tensor, unit: Tensor
) -> Tensor:
    """Change of twist (..., N, k) with the exact effects of theta, unit (..., N, p); start (N, k),
    speed (N,) as in `ContactFrame`.
    """
    column = {p.target: _natural(p, unit[..., i]) for i, p in enumerate(scene.params)}
    if "effect/tip_gyration" in column:
        striker = scene.striker_body
        own = torch.tensor(inertia(scene, striker).mass, dtype=unit.dtype)
        mass = column.get(f"body/{striker.name}/mass", own)
        k = 1 + inertia(scene, scene.struck_body).mass / mass
        lever = (
            column["effect/height"]
            + column["effect/tip_height"]
            - column["effect/tip_reach"]
            * torch.tanh((column["effect/pitch"] - column["effect/tip_pitch"]) / _EDGE)
        )
        change = change * (k / (k + (lever / column["effect/tip_gyration"]).square()))[..., None]
    if "effect/drag" in column:
        after = change + start
        linear = after[..., : (2 if after.shape[-1] == 3 else 3)]
        lost = column["effect/drag"] / speed / (linear.square().sum(-1) + 1e-3).sqrt()
        change = change - after * lost.clamp(max=0.5)[..., None]
    return change


def _natural(p: Param, unit: Tensor) -> Tensor:
    if p.scale == "log":
        return torch.exp(math.log(p.low) + (unit + 1) / 2 * (math.log(p.high) - math.log(p.low)))
    return p.low + (unit + 1) / 2 * (p.high - p.low)
