"""An exported scene does in plain MuJoCo what the calibration's own MuJoCo does."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import clashsim
from clashsim import cli
from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.evaluate.holdout import predict_with_each_model
from clashsim.evaluate.metrics import relative_error
from clashsim.fit.run_folder import RunRecord
from clashsim.sim.mujoco.impacts import HALF_STEP

MUG = """<mujoco model="drop">
  <option timestep="0.001" cone="elliptic"/>
  <default>
    <default class="visual"><geom contype="0" conaffinity="0" density="0"/></default>
    <default class="ceramic"><geom density="2300" friction="0.8 0.005 0.0001"/></default>
  </default>
  <worldbody>
    <geom type="plane" size="2 2 .1"/>
    <body name="mug" pos="0 0 0.3">
      <freejoint/>
      <geom class="visual" type="box" size=".01 .01 .01"/>
      <geom class="ceramic" type="cylinder" size="0.040 0.048" mass="0.26"/>
      <geom class="ceramic" type="capsule" fromto="-.038 0 .028 -.07 0 .024" size=".006"/>
      <geom class="ceramic" type="capsule" fromto="-.07 0 .024 -.07 0 -.024" size=".006"/>
      <geom class="ceramic" type="capsule" fromto="-.07 0 -.024 -.038 0 -.028" size=".006"/>
    </body>
  </worldbody>
</mujoco>
"""
NUM_IMPACTS = 12
MAX_STEPS = 3000
FRICTION, STIFFNESS, DAMPING = 0.32, 120_000.0, 150.0


def motion(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Position, quaternion, velocity and angular velocity (13,) of the mug, in world axes."""
    body = model.body("mug").id
    twist = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, twist, 0)
    return np.concatenate([data.xpos[body], data.xquat[body], twist[3:], twist[:3]])


def rolled_out(
    model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Motion of the mug just before it touches, (13,), and its twist once it has parted, (6,)."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    before = np.full(13, np.nan)
    touched = False
    for _ in range(MAX_STEPS):
        mujoco.mj_forward(model, data)
        if touched and not data.ncon:
            return before, motion(model, data)[7:]
        touched = touched or data.ncon > 0
        if not touched:
            before = motion(model, data)
        mujoco.mj_step(model, data)
    raise AssertionError("the mug did not part")


@pytest.fixture(scope="module")
def throws() -> list[tuple[np.ndarray, np.ndarray]]:
    """Coordinates and velocities of the mug above the plane."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(NUM_IMPACTS):
        rotation = rng.normal(size=4)
        qpos = np.r_[0, 0, rng.uniform(0.15, 0.25), rotation / np.linalg.norm(rotation)]
        linear = np.r_[rng.uniform(-0.8, 0.8, 2), rng.uniform(-1.5, -0.5)]
        found.append((qpos, np.r_[linear, rng.uniform(-4, 4, 3)]))
    return found


@pytest.fixture(scope="module")
def recorded(throws: list[tuple[np.ndarray, np.ndarray]]) -> Impacts:
    """The throws in plain MuJoCo with hidden values of the contact."""
    model = mujoco.MjModel.from_xml_string(MUG)
    model.geom_friction[:, 0] = FRICTION
    model.geom_solref[:] = -STIFFNESS, -DAMPING
    rows = [rolled_out(model, *throw) for throw in throws]
    plane = np.r_[np.zeros(3), 1.0, np.zeros(9)]  # the striker, at rest
    before = np.array([np.r_[row[0], plane] for row in rows])
    return Impacts(False, before, np.array([row[1] for row in rows]))


@pytest.fixture(scope="module")
def folder(recorded: Impacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run calibrated on the throws, and its export."""
    out = tmp_path_factory.mktemp("mug")
    (out / "mug.xml").write_text(MUG)
    scene = Scene.load(out / "mug.xml")
    clashsim.write_impacts(out / "impacts.csv", recorded)
    read = clashsim.read_impacts(out / "impacts.csv")
    calibration = clashsim.calibrate(clashsim.SolvedModel(scene), read)
    record = RunRecord({"impacts": str(out / "impacts.csv")})
    clashsim.save_run(out / "run", calibration, record=record)
    assert cli.main(["export", str(out / "run"), "-o", str(out / "export")]) == 0
    return out


@pytest.fixture(scope="module")
def exported(folder: Path) -> mujoco.MjModel:
    """The exported scene as MuJoCo loads it."""
    return mujoco.MjModel.from_xml_path(str(folder / "export" / "scene.xml"))


def test_from_the_same_touch_it_is_the_mujoco_of_the_report(
    folder: Path, exported: mujoco.MjModel, recorded: Impacts
) -> None:
    calibration = clashsim.load(folder / "run").calibration
    promised = predict_with_each_model(calibration, recorded).predicted["MuJoCo, identified"]
    scene = calibration.base.scene
    _, touching = bring_into_contact(scene, recorded.before)
    found = []
    for start in touching:
        # The angular velocity of a free joint is in the body's axes.
        rotation = Rotation.from_quat(start[3:7], scalar_first=True)
        qvel = np.r_[start[7:10], rotation.inv().apply(start[10:13])]
        qpos = start[:7].copy()
        mujoco.mj_integratePos(exported, qpos, qvel, HALF_STEP * exported.opt.timestep)
        found.append(rolled_out(exported, qpos, qvel)[1])
    delay = next(e.value for e in calibration.theta if e.name == "delay")
    when_measured = np.array(found) + delay * scene.free_fall
    np.testing.assert_allclose(when_measured, promised, rtol=1e-5, atol=1e-5)


def test_from_before_each_impact_it_is_close_to_the_truth(
    folder: Path,
    exported: mujoco.MjModel,
    recorded: Impacts,
    throws: list[tuple[np.ndarray, np.ndarray]],
) -> None:
    calibration = clashsim.load(folder / "run").calibration
    scene = calibration.base.scene
    promised = predict_with_each_model(calibration, recorded).predicted["MuJoCo, identified"]
    found = np.array([rolled_out(exported, *throw)[1] for throw in throws])
    gyration = inertia(scene, scene.struck_body).gyration
    # The calibration begins half a step after the touch, a simulation up to a step: hence the rest.
    assert np.median(relative_error(found, recorded.after, gyration)) < 0.03
    assert np.median(relative_error(found, promised, gyration)) < 0.04
    assert np.median(relative_error(promised, recorded.after, gyration)) < 0.03
    assert exported.npair == 4
    assert np.allclose(exported.pair_friction[:, :2], FRICTION, rtol=0.02)
    assert np.allclose(exported.pair_solref, [-STIFFNESS, -DAMPING], rtol=0.1)
