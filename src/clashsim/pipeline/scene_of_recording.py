"""The scene of a pair as its recording needs it: in a plane or in space, and with which ground."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clashsim.core.errors import SceneError
from clashsim.core.ground_surface import GROUND_GEOMS, GroundSurface
from clashsim.core.impacts import Impacts
from clashsim.core.resting import settled_on_ground
from clashsim.core.scene import Scene, scene_params
from clashsim.pipeline.arguments import has_settings

_LEAST_COSINE = 0.5  # between a ground's normal and the direction against gravity


def scene_of_recording(
    scene: Scene, source: str, impacts: Impacts, *, ground_is_named: bool = False
) -> Scene:
    """The scene for recorded impacts.

    In a plane it is as it was loaded. In space the ground is a contact of its own. Where nobody
    named it, it is the thing on which struck bodies were recorded to lie, and there is none where
    all of them are in flight: what they may touch is then one of the things in the scene.

    Args:
        scene: The scene of the pair, as it was loaded.
        source: What it was loaded from.
        impacts: The recorded impacts of the pair.
        ground_is_named: Whether the user named the ground.
    """
    if impacts.planar:
        return scene
    in_space = scene.recorded_in_space()
    if ground_is_named or has_settings(source) or not scene.struck_body.free:
        if scene.ground is None or has_settings(source):
            return in_space
        return in_space.with_params(scene_params(in_space))
    chosen, most = replace(scene, ground=None, params=()), 0
    for ground in _possible_grounds(scene):
        candidate = replace(scene, ground=ground, in_space=True, params=())
        lying = _num_lying(candidate, impacts)
        if lying > most:
            chosen, most = candidate, lying
    return chosen.with_params(scene_params(chosen))


def _possible_grounds(scene: Scene) -> list[str]:
    """Names of geoms on which the struck body could lie, the chosen ground first."""
    model = scene.base
    against_gravity = -np.asarray(model.opt.gravity)
    strikers = {name for _, name in scene.strike_geoms}
    found: list[str] = []
    for geom in range(model.ngeom):
        name = str(model.geom(geom).name)
        stands = int(model.body_weldid[model.geom_bodyid[geom]]) == 0
        collides = bool(model.geom_contype[geom] or model.geom_conaffinity[geom])
        if name == scene.ground:
            found.insert(0, name)
        elif (
            stands
            and collides
            and name not in strikers
            and int(model.geom_type[geom]) in GROUND_GEOMS
            and int(model.body_mocapid[model.body_rootid[model.geom_bodyid[geom]]]) < 0
        ):
            normal = GroundSurface.of(model, name).normal
            if normal @ against_gravity > _LEAST_COSINE * np.linalg.norm(against_gravity):
                found.append(name)
    return found


def _num_lying(scene: Scene, impacts: Impacts) -> int:
    """How many struck bodies lie on the ground of a scene; none where they cannot touch it."""
    try:
        return int(settled_on_ground(scene, impacts.before).lies.sum())
    except SceneError:  # the author excludes their contact
        return 0
