"""From a table of impacts and a ground friction to a strike that ends at its target."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

import clashsim
from clashsim import cli
from clashsim.core.errors import ParamError
from clashsim.core.estimates import EstimateStatus
from clashsim.core.impacts import Impacts
from clashsim.data.impact_files import write_impacts
from clashsim.plan.execution import touches
from clashsim.plan.tasks import PlanStatus

GROUND_FRICTION = 0.3
_HOME = np.array([0.0, -0.3])  # m, of the finger
XML = """<mujoco><option timestep="0.0005" integrator="implicitfast" cone="elliptic"/><worldbody>
<geom name="floor" type="plane" size="2 2 .1"/>
<body name="block" pos="0 0 .03"><freejoint/>
<geom name="block" type="box" size=".06 .04 .03" mass=".35"/></body>
<body name="finger" pos="0 -.3 .03"><joint name="x" type="slide" axis="1 0 0"/>
<joint name="y" type="slide" axis="0 1 0"/>
<geom name="finger" type="cylinder" size=".012 .03" mass=".6"/></body></worldbody>
<actuator><velocity joint="x" kv="80"/><velocity joint="y" kv="80"/></actuator></mujoco>"""


def real_model() -> mujoco.MjModel:
    """The scene with the parameters that nobody knows."""
    model = mujoco.MjModel.from_xml_string(XML)
    model.opt.timestep = 2e-4
    model.geom_friction[:, 0] = [GROUND_FRICTION, 0.15, 0.15]
    model.geom_solref[1:] = [-1e5, -150]
    return model


def strike(model: mujoco.MjModel, tip: np.ndarray, velocity: np.ndarray, *, seconds: float):
    """Strike the block at the origin.

    Returns:
        Motion before (12,), twist after (3,), and pose at the end (3,), after the finger stopped.
    """
    data = mujoco.MjData(model)
    data.qpos[7:9] = tip - _HOME
    data.qvel[6:8] = data.ctrl[:] = velocity
    before = after = np.zeros(0)
    last = np.zeros(12)
    for _ in range(round(seconds / model.opt.timestep)):
        mujoco.mj_step1(model, data)
        touching = any(set(contact.geom) == {1, 2} for contact in data.contact)
        twist = data.qvel[[0, 1, 5]]
        if touching and not before.size:
            before = last
        if before.size and not touching and not after.size:
            after = twist.copy()
            data.ctrl[:] = 0
            data.qvel[6:8] = 0
        yaw = 2 * np.arctan2(data.qpos[6], data.qpos[3])
        pose = np.array([*data.qpos[:2], yaw])
        last = np.array([*pose, *twist, *(data.qpos[7:9] + _HOME), 0, *data.qvel[6:8], 0])
        mujoco.mj_step2(model, data)
    return before, after, pose


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("block")
    (folder / "scene.xml").write_text(XML)
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(9):
        offset, speed = rng.uniform(-0.02, 0.02), rng.uniform(0.25, 0.7)
        found = strike(real_model(), np.array([offset, -0.06]), np.array([0, speed]), seconds=0.12)
        rows.append(found[:2])
    before = np.array([row[0] for row in rows])
    after = np.array([row[1] for row in rows])
    noise = rng.normal(size=after.shape) * [2e-3, 2e-3, 2e-2]
    write_impacts(folder / "impacts.csv", Impacts(True, before, after + noise))
    return folder


def calibrated(files: Path, name: str, **options) -> clashsim.CalibrationResult:
    config = clashsim.CalibrationConfig(hold_out=0.3, **options)
    scene = str(files / "scene.xml")
    return clashsim.calibrate_run(scene, files / "impacts.csv", files / name, config=config)


@pytest.mark.slow
def test_a_planned_strike_ends_at_its_target(files):
    result = calibrated(files, "run", ground_friction=GROUND_FRICTION)
    assert "from the given ground friction of 0.3" in result.metrics["slide"]["words"]
    run = clashsim.load(files / "run")
    ground = next(e for e in run.calibration.theta if e.name == "ground_friction")
    assert ground.status is EstimateStatus.KNOWN
    assert ground.value == pytest.approx(GROUND_FRICTION)
    assert 'friction="0.3' in run.mjcf().xml  # of the pair that the block slides on
    assert run.scene.strikes.point[1] < 0  # as recorded: from below
    config = clashsim.PlanConfig(strikes=1)
    found = clashsim.plan_run(run, (0.005, 0.06, 0.0), config=config)
    assert found.plan.status is PlanStatus.FOUND, found.plan.reason
    touch_x, touch_y, _, velocity_x, velocity_y = touches(found.scene, found.plan)[0][:5]
    velocity = np.array([velocity_x, velocity_y])
    tip = np.array([touch_x, touch_y]) - 0.02 * velocity
    rest = strike(real_model(), tip, velocity, seconds=1.5)[2]
    assert np.linalg.norm(rest[:2] - [0.005, 0.06]) < 0.012


@pytest.mark.parametrize(
    ("friction", "xml", "words"),
    [
        (-0.1, XML, "above 0 and at most 2, got -0.1"),
        (3.0, XML, "above 0 and at most 2, got 3"),
        (0.3, XML.replace("plane", "box"), "'floor' is not a plane: make it one"),
        (0.3, XML.replace('pos="0 0 .03"><freejoint/>', 'pos="0 0 1"><freejoint/>'), "no level"),
    ],
)
def test_a_friction_that_is_of_no_use(files, tmp_path, friction, xml, words):
    (tmp_path / "scene.xml").write_text(xml)
    config = clashsim.CalibrationConfig(ground_friction=friction)
    scene = str(tmp_path / "scene.xml")
    with pytest.raises(ParamError, match=words):
        clashsim.calibrate_run(scene, files / "impacts.csv", tmp_path / "run", config=config)
    assert not (tmp_path / "run").exists()


def test_trials_have_their_own_friction(tmp_path, capsys):
    folder = Path(__file__).parents[1] / "examples"
    trials = tmp_path / "trials.safetensors"
    mapping = str(folder / "strikes.toml")
    assert (
        cli.main(["import", str(folder / "strikes"), "--mapping", mapping, "-o", str(trials)]) == 0
    )
    run = str(tmp_path / "run")
    command = ["calibrate", "semi_cylinder", str(trials), "-o", run, "--ground-friction", "0.3"]
    assert cli.main(command) == 2
    assert "identified from the slides of these trials" in capsys.readouterr().err
