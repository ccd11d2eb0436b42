"""Recorded motion of a free body by the shipped graph network.

The network stands for MuJoCo's contact of convex bodies. Its contact parameters, and size, mass
centre, inertia and gravity, are those that are identified in MuJoCo with the settings that it was
trained with.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from clashsim.core.box import SUBSTEPS
from clashsim.core.errors import SceneError
from clashsim.core.floor_scenes import box_contact_params
from clashsim.core.mjcf_assets import parse_scene
from clashsim.core.motion_params import candidate_params
from clashsim.core.motion_scene import CONTACT, MotionScene
from clashsim.core.params import Param
from clashsim.fit.recorded_scene import RecordedScene
from clashsim.nets.contact_features import GRAVITY, USUAL_STEP
from clashsim.nets.network_file import shipped_net
from clashsim.sim.graph.scene_bodies import END_IMPEDANCE, free_bodies, model_surroundings
from clashsim.sim.graph.surroundings import refuse_untrained, unit_of_length

_SHAPE = ("gravity", "margin")  # beside the size, that are identified too
# Contact without units where identification starts, in the order of `CONTACT_NAMES`.
_NOMINAL_CONTACT = (0.25, 7.0, 3.4, 0.85, 0.04)
_LARGEST_MARGIN = 0.12  # of the unit of length, in training


def graph_scene(recorded: RecordedScene) -> RecordedScene:
    """The scene with the settings and parameters that the network takes.

    Args:
        recorded: The scene and the trials.

    Returns:
        The same with MuJoCo's settings of the training, and the parameters to identify.

    Raises:
        SceneError: The scene has something that the network does not cover.
    """
    scene = recorded.scene
    model = scene.author
    bodies = free_bodies(model)
    if len(bodies) > 1 or set(scene.contacts) != {CONTACT}:
        raise SceneError(
            f"--method graph takes one free body on fixed surfaces, and scene {scene.name!r} has "
            f"{len(bodies)} moving bodies and {len(scene.contacts)} kinds of contact; use mujoco"
        )
    domain = shipped_net().domain
    length = unit_of_length(domain, bodies)
    dt = USUAL_STEP * np.sqrt(length / GRAVITY)
    refuse_untrained(domain, bodies, model_surroundings(model), dt=dt)
    spec = parse_scene(scene.xml, scene.assets, scene.name)
    spec.option.timestep = dt / SUBSTEPS
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    for geom in spec.geoms:
        geom.solimp[1] = END_IMPEDANCE
    spec.compile()
    changed = MotionScene(spec.to_xml(), (), scene.assets, scene.name)
    params = []
    for candidate in candidate_params(changed, {CONTACT}):
        param = candidate.param
        wanted = candidate.default and candidate.group in ("inertia", "centres")
        if param.name == "margin":
            params.append(replace(param, high=_LARGEST_MARGIN * length))
        elif wanted or param.name in _SHAPE or candidate.group == "size":
            params.append(param)
    return replace(recorded, scene=changed.with_params(params + _contact_params(dt, length)))


def _contact_params(dt: float, length: float) -> list[Param]:
    """Contact parameters within the ranges of the network's training.

    Args:
        dt: s, duration of a step of the network.
        length: m, unit of length.
    """
    domain = shipped_net().domain
    ends = domain.contact_from_unit(np.array([[-1.0] * 5, [1.0] * 5]), dt=dt, length=length)
    nominal = np.array(_NOMINAL_CONTACT) * np.array([1.0, dt**-2, 1 / dt, 1.0, length])
    params = []
    for param, low, high, value in zip(box_contact_params(), *ends, nominal, strict=True):
        target = param.target.replace("pair/strike", f"pair/{CONTACT}")
        bounds = {"low": float(low), "high": float(high), "nominal": float(value)}
        params.append(replace(param, target=target, **bounds))
    return params
