"""Scenes of whole motions: kinematics, parameters, and joint coordinates of recorded poses."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from clashsim.core.errors import DataError, ParamError, SceneError
from clashsim.core.kinematics import Kinematics
from clashsim.core.motion_params import candidate_params, choose_params
from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import observe_trials
from clashsim.core.trials import Trial, Trials
from clashsim.data.mjcf import write_back
from clashsim.fit.joint_states import joint_states
from motion_scenes import (
    BOX,
    ELBOW,
    PENDULUM,
    PENDULUM_GUESS,
    recorded,
    swings,
    tosses,
)

TREE = """<mujoco><worldbody><body name="a" pos="0 0 1"><freejoint/><geom size=".1"/>
<body name="b" pos=".1 .2 0" quat="1 .2 .1 0"><joint axis="0 1 1" pos=".1 0 .05"/>
<joint type="slide" axis="1 0 0" ref=".1"/><geom size=".1"/>
<body name="c" pos="0 .1 0"><joint type="ball" pos="0 .1 0"/><geom size=".1"/></body>
</body></body></worldbody></mujoco>"""


def load(folder: Path, xml: str, name: str = "scene.xml") -> MotionScene:
    (folder / name).write_text(xml)
    return MotionScene.load(folder / name)


def test_kinematics_agree_with_mujoco():
    model = mujoco.MjModel.from_xml_string(TREE)
    data = mujoco.MjData(model)
    kinematics = Kinematics(model)
    rng = np.random.default_rng(0)
    first = kinematics.integrate(np.tile(model.qpos0, (4, 1)), rng.normal(size=(4, model.nv)))
    second = kinematics.integrate(first, 0.3 * rng.normal(size=(4, model.nv)))
    poses = kinematics.poses(first, [1, 2, 3])
    for i in range(4):
        data.qpos[:] = first[i]
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(poses[i, :, :3], data.xpos[1:], atol=1e-9)
        agreement = np.abs((poses[i, :, 3:] * data.xquat[1:]).sum(axis=1))
        np.testing.assert_allclose(agreement, 1, atol=1e-9)
        step = np.zeros(model.nv)
        mujoco.mj_differentiatePos(model, step, 1.0, first[i], second[i])
        found = kinematics.difference(first[i : i + 1], second[i : i + 1])[0]
        np.testing.assert_allclose(found, step, atol=1e-9)


def test_default_parameters_are_those_that_motion_shows(tmp_path):
    scene = load(tmp_path, BOX.format(contact=""))
    names = [param.name for param in choose_params(scene, (), {"contact"})]
    assert {"friction", "stiffness", "damping", "box_inertia_x", "box_centre_z"} <= set(names)
    assert not {"gravity", "box_mass", "d0"} & set(names)
    without_contact = [param.name for param in choose_params(scene, (), ())]
    assert "friction" not in without_contact


def test_parameters_are_chosen_by_name_group_and_pattern(tmp_path):
    scene = load(tmp_path, PENDULUM.format(**PENDULUM_GUESS))
    names = [param.name for param in choose_params(scene, ("*_damping", "gravity"), ())]
    assert names == ["shoulder_damping", "elbow_damping", "gravity"]
    joints = [param.name for param in choose_params(scene, ("joints",), ())]
    assert len(joints) == 6
    with pytest.raises(ParamError, match=r"did you mean.*elbow_damping"):
        choose_params(scene, ("elbow_dampng",), ())


def test_parameters_are_written_to_the_authors_text(tmp_path):
    scene = load(tmp_path, BOX.format(contact=""))
    scene = scene.with_params(choose_params(scene, (), {"contact"}))
    edited = write_back(scene.xml, scene, scene.nominal)
    again = mujoco.MjModel.from_xml_string(edited.xml)
    assert again.npair == 1
    np.testing.assert_allclose(-again.pair_solref[0], scene.nominal[-2:], rtol=1e-6)


def test_contacts_of_a_compound_are_written_too(tmp_path):
    scene = load(tmp_path, ELBOW.format(damping=1e-3))
    assert list(scene.contacts) == ["contact"]
    assert len(scene.contacts["contact"]) == 2
    scene = scene.with_params(choose_params(scene, ("contact",), {"contact"}))
    again = mujoco.MjModel.from_xml_string(write_back(scene.xml, scene, scene.nominal).xml)
    assert again.npair == 2


def test_objects_without_names_get_names(tmp_path):
    scene = load(tmp_path, TREE)
    assert all(scene.author.geom(i).name for i in range(scene.author.ngeom))
    assert {c.param.name for c in candidate_params(scene, ())}


def test_inverse_kinematics_from_the_last_body_alone(tmp_path):
    xml = PENDULUM.format(**PENDULUM_GUESS)
    scene = load(tmp_path, xml)
    trials = recorded(
        xml, swings(2), seconds=1, bodies=["lower"], joints={"elbow": "q_elbow"}, noise=0
    )
    poses_only = Trials(tuple(Trial(t.name, t.t, t.poses) for t in trials))
    for state, trial in zip(joint_states(observe_trials(scene, poses_only)), trials, strict=True):
        np.testing.assert_allclose(state.qpos[:, 1], trial.signals["q_elbow"], atol=1e-5)


def test_frames_without_a_body_are_interpolated(tmp_path):
    xml = BOX.format(contact="")
    scene = load(tmp_path, xml)
    (trial,) = recorded(xml, tosses(1), seconds=0.2, bodies=["box"], noise=0)
    poses = trial.poses["box"].copy()
    poses[5] = np.nan
    motion = observe_trials(scene, Trials((Trial("a", trial.t, {"box": poses}),)))
    (state,) = joint_states(motion)
    np.testing.assert_allclose(state.qpos[5, :3], trial.poses["box"][5, :3], atol=1e-3)


def trial_of(**poses: np.ndarray) -> Trials:
    n = len(next(iter(poses.values())))
    return Trials((Trial("a", np.arange(n) / 100, poses),))


def still(n: int = 10) -> np.ndarray:
    return np.tile([0, 0, 0.5, 0.8, 0.6, 0, 0], (n, 1))


def test_bad_recordings_are_refused_in_a_sentence(tmp_path):
    scene = load(tmp_path, BOX.format(contact=""))
    with pytest.raises(DataError, match=r"has no body 'bx'.*did you mean box"):
        observe_trials(scene, trial_of(bx=still()))
    with pytest.raises(DataError, match="6 are needed"):
        observe_trials(scene, trial_of(box=still(4)))
    with pytest.raises(DataError, match="length 1"):
        observe_trials(scene, trial_of(box=2 * still()))
    with pytest.raises(DataError, match="no body 'other'"):
        observe_trials(scene, trial_of(box=still()), ["other"])
    elbow = load(tmp_path, ELBOW.format(damping=1e-3))
    with pytest.raises(DataError, match=r"joint 'hinge'.*was not observed"):
        joint_states(observe_trials(elbow, trial_of(base=still())))
    with pytest.raises(DataError, match="cannot take the recorded poses"):
        poses = still()
        far = still() + np.array([3.0, 0, 0, 0, 0, 0, 0])
        joint_states(observe_trials(elbow, trial_of(base=poses, arm=far)))


def test_a_scene_in_which_nothing_moves_is_refused(tmp_path):
    with pytest.raises(SceneError, match="nothing moves"):
        load(tmp_path, "<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
