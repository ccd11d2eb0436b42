"""The Gymnasium environment `clashsim/Push-v0`, from a run folder or a shipped scene.

`gymnasium.make("clashsim.push_env:clashsim/Push-v0", run="runs/demo")` imports this module, which
registers the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.run_folder import load
from clashsim.fit.solved_model import SolvedModel

# gymnasium comes from there, where a missing extra is explained in one sentence.
from clashsim.rl.env import PushEnv, gymnasium
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.sim.stepped_strikes import SteppedStrikes
from clashsim.slides.support_patch import scene_slide_model

ID = "clashsim/Push-v0"
Physics = Literal["map", "hybrid", "mujoco"]
_TIMESTEP = 0.005  # s, of the hybrid simulator


def make(
    run: str | Path | CalibratedRun | None = None,
    *,
    physics: Physics = "map",
    scene: str = "semi_cylinder",
    **options: Any,
) -> PushEnv:
    """Make the environment of a run, or of a shipped scene with its author's values.

    Args:
        run: Run folder or loaded run; None takes `scene`.
        physics: "map" looks strikes up in a table of learned collision and slide; "hybrid" steps
            MuJoCo with the learned collision; "mujoco" steps MuJoCo alone.
        scene: Name of a shipped scene, without a run.
        **options: Those of `PushEnv`.
    """
    calibrated = load(run) if isinstance(run, str | Path) else run
    of_env = Scene.load(scene) if calibrated is None else calibrated.scene
    return PushEnv(of_env, _strike_model(calibrated, of_env, physics), **options)


def _strike_model(calibrated: CalibratedRun | None, scene: Scene, physics: Physics) -> StrikeModel:
    """The model that predicts where strikes bring the body."""
    if physics not in get_args(Physics):
        hint = did_you_mean(str(physics), get_args(Physics))
        raise DataError(f"there is no physics {physics!r}; {hint}")
    theta = scene.nominal if calibrated is None else calibrated.theta
    if physics == "mujoco":
        return SteppedStrikes(MujocoSim(scene, theta), scene, theta)
    if physics == "hybrid":
        if calibrated is None:
            hybrid = HybridSim(scene, SolvedModel(scene), theta, timestep=_TIMESTEP)
        else:
            hybrid = calibrated.hybrid(slide_model=None, timestep=_TIMESTEP)
        hybrid_theta = theta if hybrid.theta is None else hybrid.theta
        return SteppedStrikes(hybrid, scene, hybrid_theta)
    if calibrated is not None:
        return calibrated.strike_table()
    slide_model = scene_slide_model(scene)
    return strike_table(HybridSim(scene, SolvedModel(scene), theta, slide_model=slide_model))


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point="clashsim.push_env:make")
