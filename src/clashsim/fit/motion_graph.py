"""Recorded tosses of a cube by the shipped graph network.

The network stands for MuJoCo's contact of cubes on a floor. Its contact parameters, and size, mass
centre, inertia and gravity, are those that are identified in MuJoCo with the settings that it was
trained with.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from clashsim.core.box import SUBSTEPS, Box
from clashsim.core.errors import SceneError
from clashsim.core.floor_scenes import box_contact_params
from clashsim.core.mjcf_assets import parse_scene
from clashsim.core.motion_params import candidate_params
from clashsim.core.motion_scene import CONTACT, MotionScene
from clashsim.fit.motion_fit import MotionFit
from clashsim.fit.motion_run import GraphValues
from clashsim.fit.recorded_scene import RecordedScene
from clashsim.nets.trained_domain import CONTACT_NAMES
from clashsim.sim.graph.surroundings import shipped_contact

RATE = 148.0  # steps per second for which the network was trained
_HALF_RANGE = (0.0445, 0.0555)  # m, half sides of the cubes that it was trained on
_MASS_RANGE = (0.2, 0.6)  # kg
_GRAVITY_RANGE = (9.3, 10.0)  # m/s^2
_SAME_SIDE = 0.02  # relative difference of sides up to which a box counts as a cube
_UPRIGHT = 1 - 1e-6  # cosine between the floor's normal and the vertical
_SHAPE = ("gravity", "margin")  # beside the size, that are identified too


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
    geom = _cube(scene)
    _check_surroundings(scene, geom)
    spec = parse_scene(scene.xml, scene.assets, scene.name)
    spec.option.timestep = 1 / RATE / SUBSTEPS
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.compile()
    changed = MotionScene(spec.to_xml(), (), scene.assets, scene.name)
    params = []
    for candidate in candidate_params(changed, {CONTACT}):
        name = candidate.param.name
        wanted = candidate.default and candidate.group in ("inertia", "centres")
        if wanted or name in _SHAPE or name == f"{geom}_size":
            params.append(candidate.param)
    for param in box_contact_params():
        target = param.target.replace("pair/strike", f"pair/{CONTACT}")
        params.append(replace(param, target=target))
    return replace(recorded, scene=changed.with_params(params))


def graph_values(scene: MotionScene, fit: MotionFit) -> GraphValues:
    """What the graph simulator needs, from identified parameters.

    Args:
        scene: The scene of `graph_scene`.
        fit: Its identified parameters.
    """
    theta = fit.theta
    values = {param.name: float(value) for param, value in zip(scene.params, theta, strict=True)}
    model = scene.model(theta)
    geom = model.geom(_cube(scene))
    body = int(geom.bodyid[0])
    contact = np.array([values[name] for name in CONTACT_NAMES])
    half, mass = float(geom.size[0]), float(model.body_mass[body])
    first, second, third = (float(moment) for moment in model.body_inertia[body])
    x, y, z = (float(coordinate) for coordinate in model.body_ipos[body])
    box = Box((half, half, half), mass, (first, second, third), (x, y, z))
    return GraphValues(
        box=box,
        contact=shipped_contact(box, contact, dt=1 / RATE),
        gravity=-float(model.opt.gravity[2]),
        floor=_floor_height(scene),
        dt=1 / RATE,
        rounding=values["margin"],
    )


def _cube(scene: MotionScene) -> str:
    """Name of the only moving geom, a cube; raises a SceneError where there is another."""
    model = scene.author
    moving = [g for g in range(model.ngeom) if model.body_weldid[model.geom_bodyid[g]] != 0]
    bodies = {int(model.geom_bodyid[g]) for g in moving}
    free = int(mujoco.mjtJoint.mjJNT_FREE)
    if model.njnt != 1 or int(model.jnt_type[0]) != free or len(bodies) != 1 or len(moving) != 1:
        raise _refusal(scene, "it needs a single free body with a single geom")
    geom = model.geom(moving[0])
    size = np.array(geom.size)
    if int(geom.type[0]) != int(mujoco.mjtGeom.mjGEOM_BOX) or np.ptp(size) > _SAME_SIDE * size[0]:
        raise _refusal(scene, f"geom {geom.name!r} is not a cube")
    if np.abs(geom.pos).max() > _SAME_SIDE * size[0]:
        raise _refusal(scene, f"geom {geom.name!r} is not in the middle of its body")
    low, high = _HALF_RANGE
    if not low <= size[0] <= high:
        raise _refusal(
            scene,
            f"cube {geom.name!r} has a side of {2e3 * size[0]:.0f} mm, and it was trained for "
            f"{2e3 * low:.0f} to {2e3 * high:.0f} mm",
        )
    mass = float(model.body_mass[int(geom.bodyid[0])])
    if not _MASS_RANGE[0] <= mass <= _MASS_RANGE[1]:
        low, high = _MASS_RANGE
        raise _refusal(
            scene, f"the cube has {mass:.3g} kg, and it was trained for {low:g} to {high:g} kg"
        )
    return str(geom.name)


def _check_surroundings(scene: MotionScene, cube: str) -> None:
    """Raise a SceneError unless a level floor is all that the cube may touch."""
    model = scene.author
    others = {name for pair in scene.contacts.get(CONTACT, ()) for name in pair} - {cube}
    if len(others) != 1:
        raise _refusal(scene, f"the cube may touch {len(others)} geoms, and it needs one: a floor")
    floor = model.geom(others.pop())
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    is_plane = int(floor.type[0]) == int(mujoco.mjtGeom.mjGEOM_PLANE)
    if not is_plane or data.geom(floor.name).xmat[8] < _UPRIGHT:
        raise _refusal(scene, f"geom {floor.name!r} is not a level plane")
    gravity = -float(model.opt.gravity[2])
    low, high = _GRAVITY_RANGE
    if np.abs(model.opt.gravity[:2]).max() > 0 or not low < gravity < high:
        raise _refusal(scene, f"it was trained for gravity downwards, about 9.8, got {gravity:g}")


def _floor_height(scene: MotionScene) -> float:
    """Height of the floor, m."""
    model = scene.author
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    names = {name for pair in scene.contacts[CONTACT] for name in pair} - {_cube(scene)}
    return float(data.geom(names.pop()).xpos[2])


def _refusal(scene: MotionScene, reason: str) -> SceneError:
    """A sentence on what the network does not cover."""
    return SceneError(
        f"the graph network does not cover scene {scene.name!r}: {reason}; use mujoco"
    )
