"""Restitution of a head-on impact that solver parameters result in."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from clashsim.core.scene import STRIKE, Scene

_DURATION = 0.5  # s; bodies that are still in contact then do not separate
_RADIUS = 0.1  # m, of the sphere
_MIN_PENETRATION = 1e-9  # m, at the start, so that the contact is active in the first step


def restitution_at_speeds(
    scene: Scene, theta: np.ndarray | Sequence[float], speeds: Sequence[float]
) -> dict[float, float]:
    """Restitution of the striking pair at some approach speeds.

    It is measured in a simulation of a sphere on a slide joint that hits a plane, with the contact
    parameters of the pair and the scene's time step, integrator and cone. MuJoCo's solref acts on
    accelerations, so the result holds for bodies of any mass and shape that collide head-on.

    Args:
        scene: The scene.
        theta: Parameters (p,), natural units.
        speeds: Approach speeds, m/s.

    Returns:
        Restitution by speed; 0 for a pair that does not separate again.
    """
    model = scene.model(np.asarray(theta, float))
    drop = _drop_model(model)
    return {float(speed): _bounce(drop, float(speed)) for speed in speeds}


def _drop_model(model: mujoco.MjModel) -> mujoco.MjModel:
    """A model of a sphere on a plane, with the contact parameters of a model's striking pair."""
    row = model.pair(STRIKE).id
    spec = mujoco.MjSpec()
    spec.option.timestep = model.opt.timestep
    spec.option.integrator = model.opt.integrator
    spec.option.cone = model.opt.cone
    spec.option.gravity = [0, 0, 0]
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 0.1])
    body = spec.worldbody.add_body(pos=[0, 0, _RADIUS])
    body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 0, 1])
    body.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[_RADIUS, 0, 0], mass=1.0)
    pair = spec.add_pair(
        name=STRIKE, geomname1="ball", geomname2="floor", condim=int(model.pair_dim[row])
    )
    for name in ("friction", "solref", "solreffriction", "solimp"):
        setattr(pair, name, getattr(model, f"pair_{name}")[row])
    return spec.compile()


def _bounce(model: mujoco.MjModel, speed: float) -> float:
    """Speed after the impact over the speed before (m/s); 0 if the sphere does not separate."""
    data = mujoco.MjData(model)
    data.qpos[0] = -_MIN_PENETRATION
    data.qvel[0] = -speed
    for _ in range(round(_DURATION / model.opt.timestep)):
        mujoco.mj_step(model, data)
        if data.qpos[0] > 0:
            return max(0.0, float(data.qvel[0]) / speed)
    return 0.0
