"""Routes that a policy follows in the virtual laboratory."""

from __future__ import annotations

import numpy as np

from clashsim import lab
from clashsim.loop.lab_rig import LabRig
from clashsim.rl.follow import RouteResult, follow, sample_start
from clashsim.rl.policy import Policy
from clashsim.rl.routes import Route

_START_STREAM = 7  # added to the seed, so that starts differ from the laboratory's random numbers


def follow_in_lab(policy: Policy, route: Route, setting: lab.Setting, *, seed: int) -> RouteResult:
    """Let a policy strike a block along a route, once.

    Args:
        policy: Chooses the strikes.
        route: Sub-goals of the block.
        setting: Shape, material and surface in the laboratory.
        seed: Seed of the block's first pose, and of what varies between strikes.
    """
    rig = LabRig(setting)
    rng = np.random.default_rng([seed, _START_STREAM])
    start = sample_start(route, policy.heading_offset, rng)
    rig.begin(start, seed)
    return follow(route, policy, rig)
