"""Recordings of joint angles: poses by forward kinematics, and arms in the recorded posture."""

from __future__ import annotations

import json
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from clashsim.core.errors import DataError
from clashsim.core.recorded_joints import (
    match_joints,
    with_motion_from_joints,
    with_postures,
)
from clashsim.core.scene import Scene, scene_params
from clashsim.core.trials import Trial, Trials
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.data.logs import read_logs
from clashsim.data.readers.bag_records import Message
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from clashsim.data.readers.ros_messages import joints_in
from clashsim.pipeline.recorded_impacts import read_table
from clashsim.pipeline.recordings import find_impacts, impacts_with_known
from clashsim.sim.mujoco.impacts import simulate_impacts

JOINTS = ("shoulder", "elbow", "wrist")
ELBOW_LEFT = np.array([0.9, -1.5, 0.6])
ELBOW_RIGHT = np.array([-0.6, 1.5, -0.9])  # the tool's pose is the same
ARM = """<mujoco><option timestep=".0005" gravity="0 0 0"/><worldbody>
<body name="base" pos="-.47 -.066 0"><body name="upper"><joint name="shoulder" axis="0 0 1"/>
<geom type="capsule" size=".02" fromto="0 0 0 .28 0 0" mass="1.5" contype="0" conaffinity="0"/>
<body name="lower" pos=".3 0 0"><joint name="elbow" axis="0 0 1" range="-150 150" limited="true"/>
<geom type="capsule" size=".02" fromto="0 0 0 .28 0 0" mass=".8" contype="0" conaffinity="0"/>
<body name="tool" pos=".3 0 0"><joint name="wrist" axis="0 0 1"/>
<geom name="tip" type="sphere" size=".02" pos=".05 0 0" mass=".1"/></body></body></body></body>
<body name="block" pos=".15 0 0"><joint name="bx" type="slide" axis="1 0 0"/>
<joint name="by" type="slide" axis="0 1 0"/><joint name="bw" axis="0 0 1"/>
<geom name="box" type="box" size=".04 .06 .03" mass=".4"/></body></worldbody>
<keyframe><key qpos="{} {} {} 0 0 0"/></keyframe></mujoco>"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    path = tmp_path_factory.mktemp("arm") / "arm.xml"
    path.write_text(ARM.format(*ELBOW_LEFT))
    return Scene.load(path, struck="block", striker="tool")


def recorded_trial(scene: Scene, number: int) -> Trial:
    """The elbow to the right, the tool moves at the block; poses of both and joints are logged."""
    rng = np.random.default_rng(number)
    model = scene.model()
    data = mujoco.MjData(model)
    data.qpos[:3] = ELBOW_RIGHT
    data.qpos[3:] = [0.0, rng.uniform(-0.03, 0.03), rng.uniform(-0.2, 0.2)]
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    jacobian = np.zeros((6, model.nv))
    mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], model.body("tool").id)
    wanted = [rng.uniform(0.4, 0.7), rng.uniform(-0.1, 0.1), 0.0]
    data.qvel[:3] = np.linalg.solve(jacobian[[0, 1, 5], :3], wanted)
    poses: dict[str, list[np.ndarray]] = {"block": [], "tool": []}
    angles = []
    for step in range(240 * 5):
        if step % 5 == 0:
            mujoco.mj_kinematics(model, data)
            for name, rows in poses.items():
                body = data.body(name)
                rows.append(np.concatenate([body.xpos, body.xquat]))
            poses["block"][-1][:2] += rng.normal(0, 2e-5, 2)
            angles.append(data.qpos[:3].copy())
        mujoco.mj_step(model, data)
    t = np.arange(240) * 0.0025
    signals = dict(zip(JOINTS, np.array(angles).T, strict=True))
    return Trial(f"trial {number}", t, {k: np.array(v) for k, v in poses.items()}, signals=signals)


@pytest.fixture(scope="module")
def trials(scene) -> Trials:
    return Trials(tuple(recorded_trial(scene, number) for number in range(3)))


def only_joints(trials: Trials) -> Trials:
    """The trials without the tool's pose."""
    items = [replace(t, poses={"block": t.poses["block"]}) for t in trials]
    return Trials(tuple(items))


def test_joints_give_the_same_impacts_as_the_tools_pose(scene, trials):
    with_pose = find_impacts(Trials(tuple(replace(t, signals={}) for t in trials)), scene)
    with_joints = find_impacts(only_joints(trials), scene)
    assert len(with_pose.found) == 3
    np.testing.assert_allclose(with_joints.impacts.before, with_pose.impacts.before, atol=1e-9)
    np.testing.assert_allclose(with_joints.impacts.after, with_pose.impacts.after, atol=1e-9)


def test_a_log_with_joints_in_degrees_is_read(scene, trials, tmp_path):
    for number, trial in enumerate(trials):
        header = ["t", "block_x", "block_y", "block_yaw", *(f"q_{name}_deg" for name in JOINTS)]
        pose = trial.poses["block"]
        yaw = np.degrees(2 * np.arctan2(pose[:, 6], pose[:, 3]))
        angles = [np.degrees(trial.signals[name]) for name in JOINTS]
        table = np.column_stack([trial.t, pose[:, 0], pose[:, 1], yaw, *angles])
        np.savetxt(
            tmp_path / f"log{number}.csv", table, "%.12g", ",", header=",".join(header), comments=""
        )
    imported = read_logs([tmp_path], guess=True)
    assert imported.mapping.logs[0].joints == {f"q_{name}": f"q_{name}_deg" for name in JOINTS}
    found = find_impacts(imported.trials, scene)
    expected = find_impacts(trials, scene)
    # The logs' 12 digits may decide whether a frame at the end of a fit counts: not to 1e-6.
    np.testing.assert_allclose(found.impacts.before, expected.impacts.before, atol=1e-4)
    impacts = impacts_with_known(found, scene, (), imported.trials)
    assert set(impacts.joints) == set(JOINTS)
    assert np.abs(impacts.joints["elbow"] - 1.5).max() < 0.5


def test_robot_and_camera_have_logs_of_their_own(scene, trials, tmp_path):
    trial = trials[0]
    np.savez(
        tmp_path / "robot_1.npz", time=trial.t, q=np.column_stack(list(trial.signals.values()))
    )
    pose = trial.poses["block"]
    np.savez(tmp_path / "camera_1.npz", time=trial.t + 1e-4, x=pose[:, :3], o=pose[:, 3:])
    camera = BodyMapping("block", ("x",), quaternion=("o",))
    joints = {name: f"q[{i}]" for i, name in enumerate(JOINTS)}
    mapping = LogMapping(
        (
            LoggerMapping((camera,), files="camera_{trial}.npz", time="time"),
            LoggerMapping(files="robot_{trial}.npz", time="time", joints=joints),
        )
    )
    imported = read_logs([tmp_path], mapping=mapping)
    found = find_impacts(imported.trials, scene).impacts
    expected = find_impacts(trials[:1], scene).impacts
    np.testing.assert_allclose(found.before, expected.before, atol=1e-2)


def test_the_arm_has_the_recorded_posture(scene, trials):
    found = find_impacts(only_joints(trials), scene)
    impacts = impacts_with_known(found, scene, (), trials)
    right = replace(scene, xml=ARM.format(*ELBOW_RIGHT))
    theta = np.zeros((len(impacts), 0))
    outcomes = {}
    for name, of in {
        "recorded": with_postures(scene, impacts),
        "right": right,
        "left": scene,
    }.items():
        plain = of.with_params(())
        outcomes[name] = simulate_impacts(plain, impacts.before, theta).after
    np.testing.assert_allclose(outcomes["recorded"], outcomes["right"], rtol=1e-4, atol=1e-5)
    assert np.abs(outcomes["recorded"] - outcomes["left"]).max() > 0.01


def test_a_table_of_impacts_may_have_joints(scene, trials, tmp_path):
    found = find_impacts(trials, scene)
    expected = impacts_with_known(found, scene, (), trials)
    model = scene.base
    data = mujoco.MjData(model)
    angles = np.column_stack([expected.joints[name] for name in JOINTS])
    rates = np.empty_like(angles)
    for row in range(len(angles)):
        data.qpos[:3] = angles[row]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        jacobian = np.zeros((6, model.nv))
        mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], model.body("tool").id)
        rates[row] = np.linalg.solve(jacobian[[0, 1, 5], :3], expected.striker_twist[row])
    columns = {
        **dict(zip(("x", "y", "yaw"), expected.pose.T, strict=True)),
        **dict(zip(("vx_after", "vy_after", "w_after"), expected.after.T, strict=True)),
        **dict(zip(JOINTS, angles.T, strict=True)),
        **{f"{name}_velocity": rates[:, i] for i, name in enumerate(JOINTS)},
        "vx": np.zeros(3),
    }
    path = tmp_path / "impacts.csv"
    table = np.column_stack(list(columns.values()))
    np.savetxt(path, table, "%.15g", ",", header=",".join(columns), comments="")
    impacts = read_table(path, scene, (), print).impacts
    np.testing.assert_allclose(impacts.striker_pose, expected.striker_pose, atol=1e-2)
    np.testing.assert_allclose(impacts.striker_twist, expected.striker_twist, atol=1e-9)
    assert impacts.known == {}
    np.testing.assert_allclose(impacts.joints["wrist"], angles[:, 2])
    for ending in (".csv", ".safetensors"):
        again = tmp_path / f"again{ending}"
        write_impacts(again, impacts)
        read = with_motion_from_joints(read_impacts(again, known=JOINTS), scene)
        np.testing.assert_array_equal(read.joints["elbow"], impacts.joints["elbow"])


def test_wrong_joints_are_refused_in_a_sentence(scene, trials):
    def renamed(names: dict[str, str]) -> Trials:
        items = []
        for trial in only_joints(trials):
            signals = {names.get(key, key): values for key, values in trial.signals.items()}
            items.append(replace(trial, signals=signals))
        return Trials(tuple(items))

    with pytest.raises(DataError, match="joint 'wrist', which moves it, was not recorded"):
        find_impacts(renamed({"wrist": "tool_angle"}), scene)
    with pytest.raises(DataError, match=r"nor angles of the joints .*'elbow'.*recorded: 'a', 'b'"):
        find_impacts(renamed({"shoulder": "a", "elbow": "b", "wrist": "c"}), scene)
    items = []
    for trial in only_joints(trials):
        degrees = {name: np.degrees(values) for name, values in trial.signals.items()}
        items.append(replace(trial, signals=degrees))
    with pytest.raises(DataError, match=r"'elbow' .* out of its range .* is it in degrees"):
        find_impacts(Trials(tuple(items)), scene)


@pytest.mark.parametrize(
    ("joints", "recorded", "expected"),
    [
        (["joint1", "joint2"], ["q1", "q2", "t"], ["q1", "q2"]),
        (["joint1", "joint2"], ["panda_joint1", "panda_joint2", "grip"], None),
        (["fr3_joint1", "fr3_joint2"], ["joint_1", "joint_2"], None),
        (["shoulder_pan_joint"], ["shoulderPan", "shoulder_lift"], ["shoulderPan"]),
        (["elbow"], ["elbow_left", "elbow_right"], []),
    ],
)
def test_names_of_joints_are_matched(joints, recorded, expected):
    expected = recorded[:2] if expected is None else expected
    assert list(match_joints(joints, recorded).values()) == expected


def test_messages_of_joint_states_are_read():
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    types = store.types
    stamp = types["builtin_interfaces/msg/Time"](sec=3, nanosec=500_000_000)
    header = types["std_msgs/msg/Header"](stamp=stamp, frame_id="base")
    kind = "sensor_msgs/msg/JointState"
    message = types[kind](
        header=header,
        name=["elbow", "shoulder_lift"],
        position=np.array([0.5, -1.25]),
        velocity=np.zeros(2),
        effort=np.zeros(0),
    )
    raw = bytes(store.serialize_cdr(message, kind))
    found = joints_in(Message("/joint_states", kind, "cdr", 7.0, raw))
    assert found.stamp == 3.5
    assert found.positions == {"elbow": 0.5, "shoulder_lift": -1.25}
    text = {"header": {"stamp": {"sec": 3, "nanosec": 0}}, "name": ["a"], "position": [0.25]}
    in_json = Message("/joint_states", kind, "json", 7.0, json.dumps(text).encode())
    assert joints_in(in_json).positions == {"a": 0.25}
    with pytest.raises(DataError, match="cut off or damaged"):
        joints_in(Message("/joint_states", kind, "cdr", 7.0, raw[:40]))


DOOR = """<mujoco><worldbody>
<body name="door" pos="0.3 0.15 0.16"><joint name="hinge" axis="0 0 1"/>
<geom name="panel" type="box" size="0.008 0.14 0.15" pos="0 -0.14 0" mass="0.65"/></body>
<body name="ball"><freejoint/><geom name="ball" type="sphere" size="0.03" mass="0.1"/></body>
</worldbody></mujoco>"""


def test_a_hinged_struck_body_is_recorded_by_its_encoder(tmp_path):
    scene = Scene(DOOR, "panel", "ball", name="door")
    table = tmp_path / "encoder.csv"
    table.write_text(
        "hinge,hinge_velocity,hinge_velocity_after,striker_x,striker_y,striker_z,striker_vx\n"
        "0.1,0.2,5.5,0.2,0,0.1,1.5\n"
        "-0.1,0.0,,0.2,0.02,0.1,1.2\n"
        "0.0,0.0,4.0,0.2,0.05,0.1,1.1\n"
    )
    notes = []
    impacts = read_table(table, scene, (), notes.append).impacts
    assert not impacts.planar
    assert len(impacts) == 2  # the second has no outcome
    assert np.allclose(impacts.motion.struck.position, [0.3, 0.15, 0.16])
    assert impacts.motion.struck.quaternion[0] == pytest.approx([np.cos(0.05), 0, 0, np.sin(0.05)])
    assert impacts.twist[0] == pytest.approx([0, 0, 0, 0, 0, 0.2])
    assert impacts.after[:, 5] == pytest.approx([5.5, 4.0])
    assert np.isnan(impacts.after[:, :5]).all()  # the hinge does not let them be
    assert not impacts.known and list(impacts.joints) == ["hinge"]
    table.write_text("hinge_velocity_after,striker_x,striker_z,striker_vx\n5,0.2,0.1,1\n")
    with pytest.raises(DataError, match="give 'hinge' as well"):
        read_table(table, scene, (), notes.append)


def test_columns_of_joints_alone_are_impacts_in_space(tmp_path):
    tool = """<body name="rail" pos="0 0 .1"><joint name="slide" type="slide" axis="1 0 1"/>
<geom name="tool" type="sphere" size="0.03" mass="1"/></body>"""
    ball = DOOR[DOOR.index('<body name="ball">') : DOOR.index("</worldbody>")]
    scene = Scene(DOOR.replace(ball, tool), "panel", "tool", name="lever")
    table = tmp_path / "encoders.csv"
    table.write_text("hinge,hinge_velocity_after,slide,slide_velocity\n0,5,0.2,1.5\n")
    impacts = read_table(table, scene, (), print).impacts
    along = np.array([1, 0, 1]) / np.sqrt(2)
    assert impacts.striker_pose[0, :3] == pytest.approx([0, 0, 0.1] + 0.2 * along)
    assert impacts.striker_twist[0, :3] == pytest.approx(1.5 * along)
    assert impacts.after[0, 5] == pytest.approx(5)


FLAP = """<mujoco><worldbody>
<body name="flap" pos=".15 0 .3"><joint name="hinge" axis="0 1 0"/>
<geom name="panel" type="box" size=".004 .04 .07" pos="0 0 -.07" mass=".12"/></body>
<body name="finger" pos="0 0 .2"><joint name="rail" type="slide" axis="1 0 0"/>
<geom name="tip" type="sphere" size=".012" pos=".04 0 0" mass=".35"/></body>
</worldbody></mujoco>"""


def test_a_hit_of_a_hinged_body_is_found_by_its_encoder():
    scene = Scene(FLAP, "panel", "tip", name="flap")
    t = np.arange(0, 0.8, 0.001)
    since = t - 0.4004
    encoder = 2e-4 * np.round((0.01 + np.where(since < 0, 0.3, -6.0) * since + 8 * since**2) / 2e-4)
    rail = 0.094 + np.where(since < 0, 0.5, 0.3) * since
    trial = Trial("hit", t, {}, signals={"hinge": encoder, "rail": rail})
    found = find_impacts(Trials((trial,)), scene)
    (impact,) = found.found
    assert impact.time == pytest.approx(0.4004, abs=2e-3)
    assert impact.one_contact
    assert impact.before[5] == pytest.approx(0.3, abs=0.05)
    assert impact.after[2] == pytest.approx(-6.0, abs=0.15)
    assert np.isnan(impact.after[:2]).all()  # the origin is on the axis
    assert impact.before[9] == pytest.approx(0.5, abs=0.01)
    names = {param.name for param in scene_params(scene)}
    assert not names & {"x_offset", "y_offset", "yaw_offset"}  # the hinge says where the body is
