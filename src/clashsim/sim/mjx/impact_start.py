"""Where impacts begin, for every way of running them in MJX."""

from __future__ import annotations

import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.scene import Scene
from clashsim.sim.mujoco.impacts import (
    after_touch,
    raised_onto_ground,
    rest_height,
    velocity_servos,
)


def impact_start(
    scene: Scene, before: np.ndarray, theta: np.ndarray
) -> tuple[PairPoser, dict[str, np.ndarray]]:
    """Put pairs at the start of their impacts.

    Args:
        scene: Whose pair collides.
        before: (n, d), columns as in `Impacts`.
        theta: (n, p), parameters of the scene.

    Returns:
        The `PairPoser` of these impacts, which also reads twists after them, and arrays (n, ...) by
        MuJoCo's names: qpos, qvel and ctrl.
    """
    n = len(before)
    model = scene.base
    poser = PairPoser(scene, rest_height(scene, theta))
    qpos = np.tile(model.qpos0, (n, 1))
    qvel = np.zeros((n, model.nv))
    control = np.zeros((n, model.nu))
    poser.write(raised_onto_ground(scene, before, theta), qpos, qvel)
    for actuator, dof in velocity_servos(scene):
        control[:, actuator] = qvel[:, dof]
    qpos = after_touch(scene, qpos, qvel)
    return poser, {"qpos": qpos, "qvel": qvel, "ctrl": control}
