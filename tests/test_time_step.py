"""A time step that is too long for the contact is said, with the one to use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.data.impact_files import write_impacts
from clashsim.evaluate.conclusion import conclusion
from clashsim.evaluate.time_step import advise_time_step
from clashsim.fit.solved_model import SolvedModel
from clashsim.pipeline.calibration import calibrate_run

BRICK = """
<mujoco>
  <option timestep="{step}"/>
  <worldbody>
    <geom name="slab" type="box" size="0.8 0.8 0.05" pos="0 0 -0.05"/>
    <body name="brick" pos="0 0 0.3">
      <freejoint/>
      <geom name="brick" type="box" size="0.05 0.04 0.025" mass="0.31"/>
    </body>
  </worldbody>
</mujoco>
"""
URDF = """
<robot name="bouncer">
  <link name="slab"><collision><geometry><box size="1.6 1.6 0.1"/></geometry></collision></link>
  <joint name="float" type="floating"><parent link="slab"/><child link="brick"/></joint>
  <link name="brick">
    <inertial><mass value="0.31"/>
      <inertia ixx="2e-4" ixy="0" ixz="0" iyy="3e-4" iyz="0" izz="4e-4"/></inertial>
    <collision><geometry><box size="0.1 0.08 0.05"/></geometry></collision>
  </link>
</robot>
"""
SPEED = np.array([1.9, 2.3, 2.5])  # m/s


def brick(folder: Path, step: float) -> Scene:
    path = folder / f"brick_{step:g}.xml"
    path.write_text(BRICK.format(step=step))
    return Scene.load(path).recorded_in_space()


def stiffness_at(scene: Scene, end: str) -> list[Estimate]:
    """Estimates of which the stiffness is at an end of its range."""
    found = []
    for param in scene.params:
        value, status = param.nominal, EstimateStatus.FITTED
        if param.name == "stiffness":
            value, status = getattr(param, end), EstimateStatus.AT_BOUND
        found.append(Estimate(param.name, value, value, value, status))
    return found


def test_a_step_is_too_long_if_bodies_have_to_sink_into_each_other(tmp_path):
    advice = advise_time_step(brick(tmp_path, 0.002), SPEED)
    assert advice is not None
    assert advice.advised == 5e-4
    assert "sink 9.2 mm into each other at 2.3 m/s" in advice.sentence
    assert 'write <option timestep="0.0005"/> into the scene (0.5 ms)' in advice.sentence
    assert advise_time_step(brick(tmp_path, 0.0005), SPEED) is None
    assert advise_time_step(brick(tmp_path, 0.002), SPEED / 10) is None


def test_a_step_is_too_long_if_the_stiffness_is_at_its_limit(tmp_path):
    scene = brick(tmp_path, 0.002)
    slow = SPEED / 10
    advice = advise_time_step(scene, slow, stiffness_at(scene, "high"))
    assert advice is not None
    assert advice.advised == 5e-4
    assert "stiffness is at the 6.25e+04 1/s^2 that it can resolve" in advice.sentence
    assert advise_time_step(scene, slow, stiffness_at(scene, "low")) is None


def test_ranges_of_a_settings_file_are_not_limited_by_the_step():
    assert advise_time_step(Scene.load("cube"), 100 * SPEED) is None


def test_urdf_has_the_option_in_an_element_of_its_own(tmp_path):
    path = tmp_path / "bouncer.urdf"
    path.write_text(URDF)
    advice = advise_time_step(Scene.load(path, struck="brick").recorded_in_space(), SPEED)
    assert advice is not None
    assert '<mujoco><option timestep="0.0005"/></mujoco>' in advice.sentence


def test_a_calibration_says_at_once_and_concludes_that_the_step_is_too_long(tmp_path):
    scene = brick(tmp_path, 0.00025)
    rng = np.random.default_rng(0)
    before, motion = MotionBefore.at_origin(8, planar=False)
    motion.struck.pose[:, 2] = 0.2
    rotations = Rotation.random(8, rng=rng)
    motion.struck.quaternion[:] = rotations.as_quat(scalar_first=True)
    motion.struck.twist[:] = [0.3, 0.1, -2.3, 1.0, 2.0, 3.0]
    motion.striker.quaternion[:, 0] = 1.0
    stiff = scene.with_nominal({"stiffness": 2e6, "damping": 300.0})
    unknown = Impacts(False, before, np.zeros((8, 6)))
    after = SolvedModel(stiff).predict(unknown, stiff.nominal)
    write_impacts(tmp_path / "impacts.csv", Impacts(False, before, after))
    brick(tmp_path, 0.002)
    said: list[str] = []
    result = calibrate_run(
        str(tmp_path / "brick_0.002.xml"),
        tmp_path / "impacts.csv",
        tmp_path / "run",
        notify=said.append,
    )
    assert any("time step of 2 ms is too long" in sentence for sentence in said)
    assert "time_step" in result.metrics
    page = (tmp_path / "run" / "report.html").read_text()
    assert "time step of 2 ms is too long for these impacts" in page
    sentence = conclusion(result.metrics)
    assert sentence is not None
    if not sentence.startswith("Good"):
        assert "the likely cause is the scene's time step of 2 ms" in sentence
        assert "wrong mass" not in sentence


@pytest.mark.parametrize("accuracy", [0.2, 0.9])
def test_only_a_bad_conclusion_names_the_step(accuracy):
    models = {name: {"accuracy_0.1": accuracy} for name in ("clashsim", "MuJoCo, identified")}
    metrics = {"impacts": 10, "models": models, "time_step": {"cause": "the step"}}
    sentence = conclusion(metrics)
    assert sentence is not None
    assert ("the step" in sentence) == (accuracy < 0.5)


def test_the_same_step_is_advised_before_and_after_the_fit(tmp_path: Path) -> None:
    scene = brick(tmp_path, 0.002)
    before = advise_time_step(scene, SPEED / 2)
    after = advise_time_step(scene, SPEED / 2, stiffness_at(scene, "high"))
    assert before is not None and after is not None and before.advised == after.advised
