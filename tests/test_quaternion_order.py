"""Quaternions of a tumbling body in the wrong order are found by the impacts in its trials."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.readers.convert import AXES_FOR_UP
from clashsim.data.trial_files import write_trials
from clashsim.pipeline.calibration import calibrate_run
from clashsim.pipeline.quaternion_order import check_quaternion_order
from clashsim.pipeline.recorded_impacts import check_conventions, read_recorded_impacts

BRICK = """
<mujoco>
  <option timestep="0.0005"/>
  <worldbody>
    <geom name="slab" type="box" size="0.8 0.8 0.05" pos="0 0 -0.05" solref="-600000 -250"/>
    <body name="brick" pos="0 0 0.3">
      <freejoint/>
      <geom name="brick" type="box" size="0.05 0.04 0.025" mass="0.31" solref="-600000 -250"/>
    </body>
  </worldbody>
</mujoco>
"""
XYZW = [1, 2, 3, 0]  # indices of wxyz that give it


def tossed(model: mujoco.MjModel, seed: int) -> Trial:
    """A toss onto the slab, as a camera with 200 frames per second sees it."""
    rng = np.random.default_rng(seed)
    data = mujoco.MjData(model)
    data.qpos[2] = rng.uniform(0.25, 0.4)
    data.qpos[3:] = Rotation.random(rng=rng).as_quat(scalar_first=True)
    data.qvel[:] = [*rng.uniform(-0.8, 0.8, 2), -0.5, *rng.uniform(-5, 5, 3)]
    poses = []
    for step in range(1000):
        if step % 10 == 0:
            noise = Rotation.from_rotvec(rng.normal(0, 3e-3, 3))
            rotation = noise * Rotation.from_quat(data.qpos[3:], scalar_first=True)
            position = data.qpos[:3] + rng.normal(0, 3e-4, 3)
            poses.append([*position, *rotation.as_quat(scalar_first=True)])
        mujoco.mj_step(model, data)
    t = np.arange(len(poses)) / 200
    return Trial(f"toss {seed}", t, {"brick": np.array(poses)})


@pytest.fixture(scope="module")
def scene_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("brick") / "brick.xml"
    path.write_text(BRICK)
    return path


@pytest.fixture(scope="module")
def trials():
    model = mujoco.MjModel.from_xml_string(BRICK)
    return Trials(tuple(tossed(model, seed) for seed in range(16)))


def misread(trials: Trials, up: str) -> Trials:
    """Trials as read from a file with xyzw in the columns of wxyz, in which `up` points up."""
    axes = np.array(AXES_FOR_UP[up], float)
    found = []
    for trial in trials:
        pose = trial.poses["brick"]
        in_file = np.column_stack([pose[:, 3], pose[:, 4:] @ axes])[:, XYZW]
        read = np.column_stack([pose[:, :3], in_file[:, 0], in_file[:, 1:] @ axes.T])
        found.append(replace(trial, poses={"brick": read}))
    return Trials(tuple(found))


@pytest.mark.parametrize("up", ["z", "y"])
def test_the_wrong_order_of_a_tumbling_body_stops_a_calibration(trials, scene_file, tmp_path, up):
    write_trials(tmp_path / "wrong.safetensors", misread(trials, up))
    with pytest.raises(DataError, match=r"quaternion_order: no impulse .*import again"):
        calibrate_run(str(scene_file), tmp_path / "wrong.safetensors", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_right_order_does_not(trials, scene_file, tmp_path):
    scene = Scene.load(scene_file).recorded_in_space()
    noted = Trials(trials.items, notes=("up_axis, brick: check it", "dropout, brick: 3 rows"))
    write_trials(tmp_path / "right.safetensors", noted)
    recorded = read_recorded_impacts(tmp_path / "right.safetensors", scene, (), str)
    assert len(recorded.impacts) >= 5
    assert check_quaternion_order(scene, trials, recorded.impacts) == []
    warned = check_conventions(recorded, scene, accept=(), name="right", notify=str)
    assert warned == ["up_axis, brick: check it"]
