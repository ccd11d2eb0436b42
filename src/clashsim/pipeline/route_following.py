"""Follow a route with a policy in the virtual laboratory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.core.outline import outline
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
from clashsim.loop.lab_rig import LabRig
from clashsim.rl.corridor_picture import animate, draw_corridor
from clashsim.rl.follow import RouteResult, follow, sample_start
from clashsim.rl.policy import Policy
from clashsim.rl.routes import Route

_START_STREAM = 7  # second word of the seed of a trial's start
# Columns of a planar `before` row that are the striker's position and velocity, world frame.
_STRIKER_POSITION = slice(6, 8)
_STRIKER_VELOCITY = slice(9, 11)


def follow_in_lab(policy: Policy, route: Route, setting: lab.Setting, seed: int) -> RouteResult:
    """One trial of a policy on a route in the virtual laboratory.

    Args:
        policy: The policy.
        route: Way points of the corridors.
        setting: Block, material and surface of the laboratory.
        seed: Of the start and of the scatter of arm, hand and camera.

    Returns:
        How far the body came, its poses and the strikes between them.
    """
    rig = LabRig(setting)
    rng = np.random.default_rng([seed, _START_STREAM])
    rig.begin(sample_start(route, policy.heading_offset, rng), seed)
    return follow(route, policy, rig)


def draw_route(path: Path, result: RouteResult, policy: Policy, route: Route, scene: Scene) -> None:
    """Draw a trial on a route as an animated picture.

    Args:
        path: Picture to write (.gif).
        result: The trial.
        policy: The policy that followed the route.
        route: Way points of the corridors.
        scene: Scene of the struck body.
    """
    body = outline(scene, scene.struck, scene.struck_body)
    strikes = dict(zip(policy.names, result.strikes.T, strict=True))
    before_at_origin, _ = before_from_strikes(scene, strikes)
    before = move_pair_to(before_at_origin, result.poses[:-1])
    frames = []
    for number, (pose, pair) in enumerate(zip(result.poses[:-1], before, strict=True), start=1):
        tip = np.r_[pair[_STRIKER_POSITION], pair[_STRIKER_VELOCITY]]
        title = f"strike {number}"
        frames.append(draw_corridor(body, pose, route.points, tip=tip, title=title))
    last = result.poses[-1]
    frames.append(draw_corridor(body, last, route.points, tip=None, title=result.reason))
    animate(path, frames)
