"""Scenes and recordings as users bring them: what is accepted, chosen and left out."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import clashsim
from clashsim.bench import scenes
from clashsim.bench.options import BenchOptions
from clashsim.bench.pair_scenes import pair_scenes
from clashsim.bench.user_scenes import hidden_model, record, user_scenes
from clashsim.core.contact_frame import contact_frame
from clashsim.core.contact_geometry import bring_into_contact, closing_speed
from clashsim.core.errors import DataError, SceneError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.mechanism import Mechanism
from clashsim.core.scene import Scene
from clashsim.data.impact_files import write_impacts
from clashsim.fit.sample import sample
from clashsim.sim.mujoco.impacts import simulate_impacts

SCENES = {scene.name: scene for scene in user_scenes()}
PAIRS = dict(pair_scenes())


def loaded(name: str, tmp_path, **names: str) -> Scene:
    scene = SCENES[name]
    path = tmp_path / f"scene{scene.suffix}"
    path.write_text(scene.xml)
    return Scene.load(path, **names)


@pytest.mark.parametrize(
    ("name", "struck", "striker", "ground"),
    [
        ("box tossed on a floor", "object/0", "floor", None),
        ("puck against a wall", "puck/0", "wall", None),
        ("tee struck by a pusher", "tee/0", "pusher/0", None),
        ("block on a table", "block/0", "pusher/0", "floor"),
        ("arm strikes a block", "block/0", "link5/0", "table"),
        ("URDF sled against a wall", "sled/0", "wall/0", None),
    ],
)
def test_the_pair_is_chosen_where_only_one_can_be_meant(tmp_path, name, struck, striker, ground):
    scene = loaded(name, tmp_path)
    assert (scene.struck, scene.striker, scene.ground) == (struck, striker, ground)


def test_bodies_can_be_named_instead_of_geoms(tmp_path):
    scene = loaded("puck against puck", tmp_path, struck="target", striker="cue")
    assert (scene.struck, scene.striker) == ("target/0", "cue/0")
    with pytest.raises(SceneError, match=r"2 objects that nothing drives \(target, cue\)"):
        loaded("puck against puck", tmp_path)


def test_a_mocap_body_strikes_with_its_velocity():
    xml = """<mujoco><worldbody><body name="ball" pos="0 0 1"><freejoint/><geom size=".05"/></body>
    <body name="bat" mocap="true"><geom name="bat" type="box" size=".1 .1 .02"/></body>
    </worldbody></mujoco>"""
    scene = Scene(xml, "ball/0", "bat")
    assert scene.striker_body.free
    before, motion = MotionBefore.at_origin(1, planar=False)
    motion.struck.rows[:] = [[0, 0, 0.07, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    motion.striker.rows[:] = [[0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]]
    outcome = simulate_impacts(scene, before, np.zeros((1, 0)))
    assert 1.0 <= outcome.after[0, 2] < 2.1  # m/s, of a ball hit by a bat of 1 m/s


def test_what_was_recorded_of_a_striker_in_a_hand_has_no_influence(tmp_path):
    """No impact changes its motion, so that its outcomes show the hand and the noise alone."""
    user_scene = SCENES["paddle in a hand strikes a block"]
    scene = loaded(user_scene.name, tmp_path).recorded_in_space()
    assert not scene.striker_yields and not scene.striker_body.fixed
    rng = np.random.default_rng(0)
    impacts = scenes.recorded_impacts(user_scene, hidden_model(user_scene, rng), 8, rng)
    shaken = replace(impacts, striker_after=rng.normal(size=impacts.after.shape))
    calibrations = [clashsim.calibrate(clashsim.SolvedModel(scene), i) for i in (impacts, shaken)]
    predicted = [calibration.predict(impacts) for calibration in calibrations]
    np.testing.assert_allclose(predicted[0], predicted[1], rtol=1e-9)


def test_a_mechanism_has_the_pose_and_twist_that_are_asked_for():
    scene = PAIRS["box on slides, seven-joint arm"]
    mechanism = scene.striker_body.mechanism
    assert isinstance(mechanism, Mechanism) and len(mechanism.joints) == 7
    rng = np.random.default_rng(0)
    turn = Rotation.from_rotvec(rng.normal(0, 0.1, (5, 3))).as_matrix()
    position = scene.striker_body.position + rng.normal(0, 0.03, (5, 3))
    rotation = turn @ scene.striker_body.rotation
    coordinates = mechanism.coordinates(position, rotation)
    twist = rng.normal(size=(5, 6))
    rates = mechanism.rates(twist[:, :3], twist[:, 3:], coordinates)
    for row in range(5):
        qvel = np.zeros(scene.base.nv)
        qvel[mechanism.qvel] = rates[row]
        data = mechanism.at(mechanism.full(coordinates[row]))
        np.testing.assert_allclose(data.xpos[mechanism.body], position[row], atol=1e-8)
        reached = data.xmat[mechanism.body].reshape(3, 3)
        np.testing.assert_allclose(reached, rotation[row], atol=1e-7)
        np.testing.assert_allclose(mechanism.jacobian(data) @ qvel, twist[row], atol=1e-6)
    with pytest.raises(DataError, match="cannot be brought"):
        mechanism.coordinates(position + 5.0, rotation)


def test_a_hinged_body_stays_where_it_is_and_the_striker_is_moved_to_it(tmp_path):
    user_scene = SCENES["ball at a door"]
    scene = loaded(user_scene.name, tmp_path, **user_scene.arguments)
    assert scene.plane is not None
    rng = np.random.default_rng(2)
    before, after = record(user_scene, hidden_model(user_scene, rng), 4, rng)
    impacts = scenes._noisy(user_scene, before, after, rng)
    contact, moved = bring_into_contact(scene, impacts.before)
    assert contact.touching.all()
    np.testing.assert_array_equal(moved[:, :3], impacts.before[:, :3])
    assert np.abs(moved[:, 6:8] - impacts.before[:, 6:8]).max() < 5e-3


def test_an_impact_belongs_to_the_geom_that_is_touched():
    scene = PAIRS["ball on L of two boxes"]
    impacts = sample(scene, 60, 1)
    frame = contact_frame(scene, impacts)
    struck = MotionBefore.of(frame.before).struck
    rotation = Rotation.from_quat(struck.quaternion, scalar_first=True)
    local = rotation.apply(frame.contact.point - struck.position, inverse=True)
    on_second = local[:, 2] > 0.021  # above the first box there is only the second
    assert 5 < on_second.sum() < 55
    assert (local[on_second, 0] > 0.029).all()


def test_a_corner_that_comes_down_while_the_centre_rises_is_an_impact():
    scene = PAIRS["box-3 on floor"]
    before, motion = MotionBefore.at_origin(1, planar=False)
    tilt = Rotation.from_euler("y", 0.5).as_quat(scalar_first=True)
    lowest = 0.06 * np.sin(0.5) + 0.02 * np.cos(0.5)
    motion.struck.rows[:] = [[0, 0, lowest - 1e-3, *tilt, 0, 0, 0.1, 0, 8.0, 0]]
    motion.striker.quaternion[:] = [1, 0, 0, 0]
    contact, moved = bring_into_contact(scene, before)
    assert contact.touching[0]
    np.testing.assert_allclose(contact.normal[0], [0, 0, 1], atol=1e-6)
    assert abs(moved[0, 2] - lowest) < 1e-4
    motion.struck.angular_velocity[:] = 0.0  # then nothing comes down
    contact, moved = bring_into_contact(scene, before)
    assert closing_speed(moved, contact)[0] <= 0


def test_rows_that_cannot_be_used_are_left_out_and_named(tmp_path):
    user_scene = SCENES["box tossed on a floor"]
    rng = np.random.default_rng(3)
    before, after = record(user_scene, hidden_model(user_scene, rng), 10, rng)
    impacts = scenes._noisy(user_scene, before, after, rng)
    impacts.before[2, 9] = 3.0  # rises
    impacts.before[2, 10:13] = 0.0
    impacts.after[5] = impacts.before[5, 7:13]  # hits nothing
    (tmp_path / "scene.xml").write_text(user_scene.xml)
    write_impacts(tmp_path / "impacts.csv", impacts)
    said: list[str] = []
    result = clashsim.calibrate_run(
        str(tmp_path / "scene.xml"),
        tmp_path / "impacts.csv",
        tmp_path / "run",
        config=clashsim.CalibrationConfig(hold_out=0.3),
        notify=said.append,
    )
    assert result.metrics["impacts"] + result.metrics["held_out"] == 8
    assert [sentence for sentence in said if "left out" in sentence] == result.metrics["left_out"]
    said = result.metrics["left_out"]
    assert "nothing was hit (5)" in said[0] and "do not approach each other" in said[1]
    assert "(2)" in said[1]


def test_none_that_can_be_used_is_an_error(tmp_path):
    user_scene = SCENES["box tossed on a floor"]
    rng = np.random.default_rng(3)
    before, after = record(user_scene, hidden_model(user_scene, rng), 3, rng)
    impacts = scenes._noisy(user_scene, before, after, rng)
    impacts.before[:, 9] = 3.0
    impacts.before[:, 10:13] = 0.0
    (tmp_path / "scene.xml").write_text(user_scene.xml)
    write_impacts(tmp_path / "impacts.csv", impacts)
    with pytest.raises(DataError, match="in none of the 3 impacts do the bodies approach"):
        clashsim.calibrate_run(
            str(tmp_path / "scene.xml"), tmp_path / "impacts.csv", tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_too_many_parts_are_refused():
    geoms = "".join(f'<geom size=".01" pos="{0.03 * i} 0 0"/>' for i in range(140))
    xml = f"""<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
    <body name="many" pos="0 0 1"><freejoint/>{geoms}</body></worldbody></mujoco>"""
    with pytest.raises(SceneError, match="140 pairs of geoms"):
        _ = Scene(xml, "many/0", "floor").spec


def test_parameters_reach_all_parts_of_a_body():
    scene = PAIRS["L of two boxes on floor"]
    theta = np.array([0.7, 3e5, 200.0])
    model = scene.model(theta)
    assert model.npair == 2
    np.testing.assert_allclose(model.pair_friction[:, 0], 0.7)
    np.testing.assert_allclose(model.pair_solref, [[-3e5, -200.0]] * 2)


@pytest.mark.slow
def test_a_scene_of_a_user_is_calibrated_better_than_by_default_values():
    rows = scenes.run(BenchOptions(quick=True, sets=["ellipsoid tossed"]))
    found = {row["method"]: row["accuracy_0.1"] for row in rows}
    assert found["clashsim"] >= found["mujoco-identified"] - 0.15
    assert found["clashsim"] > found["mujoco-default"]


def test_recordings_have_the_momentum_of_both_bodies():
    """What the recordings are made with is plain MuJoCo: two free bodies keep their momentum."""
    user_scene = SCENES["ball thrown at a block"]
    rng = np.random.default_rng(1)
    model = hidden_model(user_scene, rng)
    data = mujoco.MjData(model)
    user_scene.launch(model, data, rng)
    start = data.qvel[:3] * model.body_mass[1] + data.qvel[6:9] * model.body_mass[2]
    falling = model.body_mass[1:].sum() * model.opt.gravity
    for _ in range(500):
        mujoco.mj_step(model, data)
    end = data.qvel[:3] * model.body_mass[1] + data.qvel[6:9] * model.body_mass[2]
    np.testing.assert_allclose(end - start, falling * data.time, atol=1e-6)


def test_an_impacts_file_in_space_needs_no_ground(tmp_path):
    """The chosen ground makes a scene planar; recordings in space are of the same bodies."""
    scene = loaded("block on a table", tmp_path)
    assert scene.ground == "floor" and scene.plane is not None
    free = replace(scene, ground=None)
    assert free.plane is None
    impacts = Impacts(False, np.zeros((1, 26)), np.zeros((1, 6)))
    with pytest.raises(DataError, match="spatial but scene 'scene' is planar"):
        contact_frame(scene, impacts)
