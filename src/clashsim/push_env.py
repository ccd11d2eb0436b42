"""`clashsim/Push-v0`, made from a run folder or from a shipped scene:
`gymnasium.make("clashsim.push_env:clashsim/Push-v0", run="runs/demo")`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.fit.base import base_model
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.run_folder import load
from clashsim.rl.env import (
    PushEnv,
    gymnasium,
)  # from there, where a missing extra is said in a sentence
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.sim.stepped_strikes import SteppedStrikes
from clashsim.slides.support_patch import scene_slide_model

ID = "clashsim/Push-v0"
Physics = Literal["map", "hybrid", "mujoco"]
_COARSE = 0.005  # s: timestep of the hybrid simulator


def make(
    run: str | Path | CalibratedRun | None = None,
    *,
    physics: Physics = "map",
    scene: str = "semi_cylinder",
    **options: Any,
) -> PushEnv:
    """The environment of a run (folder or loaded), or without one of a shipped scene as its author
    has it; options are those of `PushEnv`.

    physics: map, learned collision and slide as one table; hybrid, MuJoCo with learned collisions,
    stepped; mujoco, stepped.
    """
    made = load(run) if isinstance(run, str | Path) else run
    world = made.scene if made is not None else Scene.load(scene)
    return PushEnv(world, _model(made, world, physics), **options)


def _model(run: CalibratedRun | None, scene: Scene, physics: Physics) -> StrikeModel:
    if physics not in ("map", "hybrid", "mujoco"):
        raise DataError(
            f"there is no physics {physics!r}; {did_you_mean(str(physics), ('map', 'hybrid', 'mujoco'))}"
        )
    theta = scene.nominal if run is None else run.theta
    if physics == "mujoco":
        return SteppedStrikes(MujocoSim(scene, theta), scene, theta)
    if physics == "hybrid":
        hybrid = (
            HybridSim(scene, base_model(scene), theta, timestep=_COARSE)
            if run is None
            else run.hybrid(slide_model=None, timestep=_COARSE)
        )
        return SteppedStrikes(hybrid, scene, theta if hybrid.theta is None else hybrid.theta)
    if run is not None:
        return run.strikes()
    return strike_table(
        HybridSim(scene, base_model(scene), theta, slide_model=scene_slide_model(scene))
    )


if ID not in gymnasium.registry:  # importing this module makes it known
    gymnasium.register(ID, entry_point="clashsim.push_env:make")
