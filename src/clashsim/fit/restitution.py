"""What identified solver parameters mean: the restitution of a head-on impact."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from clashsim.core.scene import STRIKE, Scene

_DURATION = 0.5  # s: a contact that has not parted by then sticks


def restitution_at_speeds(
    scene: Scene, theta: np.ndarray | Sequence[float], speeds: Sequence[float]
) -> dict[float, float]:
    """Restitution of the striking pair at some approach speeds.

    A sphere on a slide joint meets a plane through the pair's own contact parameters. MuJoCo's
    solref acts on accelerations, so this holds for bodies of any mass and shape that meet head-on;
    timestep, integrator and cone are the scene's.

    Args:
        scene: The scene.
        theta: Parameters (p,).
        speeds: Approach speeds, m/s.

    Returns:
        Restitution by speed; 0 for a pair that does not part again.
    """
    model = scene.model(np.asarray(theta, float))
    drop = _drop_model(model)
    return {float(speed): _bounce(drop, float(speed)) for speed in speeds}


def _drop_model(model: mujoco.MjModel) -> mujoco.MjModel:
    """A sphere that meets a plane with the contact parameters of a model's striking pair."""
    row = model.pair(STRIKE).id
    spec = mujoco.MjSpec()
    spec.option.timestep = model.opt.timestep
    spec.option.integrator = model.opt.integrator
    spec.option.cone = model.opt.cone
    spec.option.gravity = [0, 0, 0]
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 0.1])
    body = spec.worldbody.add_body(pos=[0, 0, 0.1])
    body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 0, 1])
    body.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0, 0], mass=1.0)
    pair = spec.add_pair(
        name=STRIKE, geomname1="ball", geomname2="floor", condim=int(model.pair_dim[row])
    )
    for name in ("friction", "solref", "solreffriction", "solimp"):
        setattr(pair, name, getattr(model, f"pair_{name}")[row])
    return spec.compile()


def _bounce(model: mujoco.MjModel, speed: float) -> float:
    """Speed after the impact over the speed before."""
    data = mujoco.MjData(model)
    data.qpos[0] = -1e-9
    data.qvel[0] = -speed
    for _ in range(round(_DURATION / model.opt.timestep)):
        mujoco.mj_step(model, data)
        if data.qpos[0] > 0:
            return max(0.0, float(data.qvel[0]) / speed)
    return 0.0
