"""Restitution of a head-on impact that solver parameters result in."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from clashsim.core.scene import STRIKE, Scene
from clashsim.sim.mujoco.drop import DropConditions, drop, drop_model

_DURATION = 0.5  # s; bodies that are still in contact then do not separate
_MIN_PENETRATION = 1e-9  # m, at the start, so that the contact is active in the first step


def restitution_at_speeds(
    scene: Scene, theta: np.ndarray | Sequence[float], speeds: Sequence[float]
) -> dict[float, float]:
    """Restitution of the striking pair at some approach speeds.

    It is measured in a simulation of a sphere that hits a plane without gravity, with the contact
    parameters of the pair and the scene's time step, integrator and cone. MuJoCo's solref acts on
    accelerations, so the result holds for bodies of any mass and shape that collide head-on.

    Args:
        scene: The scene.
        theta: Parameters (p,), natural units.
        speeds: Approach speeds, m/s.

    Returns:
        Restitution by speed; 0 for a pair that does not separate again.
    """
    model = _drop_model(scene.model(np.asarray(theta, float)))
    found = {}
    for speed in speeds:
        drops = drop(model, float(speed), heights=[-_MIN_PENETRATION], longest=_DURATION)
        found[float(speed)] = float(drops.restitution[0])
    return found


def _drop_model(model: mujoco.MjModel) -> mujoco.MjModel:
    """A model of a sphere on a plane, with the contact parameters of a model's striking pair."""
    row = model.pair(STRIKE).id
    dropped = drop_model(
        DropConditions(timestep=float(model.opt.timestep), gravity=0.0),
        condim=int(model.pair_dim[row]),
        solref=model.pair_solref[row],
        solimp=model.pair_solimp[row],
        friction=model.pair_friction[row],
        solreffriction=model.pair_solreffriction[row],
    )
    dropped.opt.integrator = model.opt.integrator
    dropped.opt.cone = model.opt.cone
    return dropped
