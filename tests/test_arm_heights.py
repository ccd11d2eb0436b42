"""Arms whose tools were recorded in a plane: at which height and tilt they strike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from clashsim.bench.user_scenes import user_scenes
from clashsim.core.contact_geometry import PairPoser
from clashsim.core.scene import Scene
from clashsim.sim.contact.pair_motion import MovingPair

NAME = "arm strikes a block, seen from above"
JOINTS = [f"a{i}" for i in range(6)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A six-joint arm and a block on a table, recorded in the plane of the table."""
    path = Path(tmp_path_factory.mktemp("arm")) / "scene.xml"
    path.write_text(next(s for s in user_scenes() if s.name == NAME).xml)
    loaded = Scene.load(path).with_params(())
    assert loaded.plane is not None and loaded.striker_body.mechanism is not None
    return loaded


def postures(scene: Scene, n: int = 6) -> np.ndarray:
    """Coordinates (n, 6) of the arm about its keyframe."""
    own = scene.base.key_qpos[0][scene.striker_body.qpos]
    return own + np.random.default_rng(0).uniform(-0.1, 0.1, (n, 6))


def poses_of(scene: Scene, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position (n, 3) and quaternion (n, 4) of the tool at coordinates (n, 6) of the joints."""
    data = mujoco.MjData(scene.base)
    found = []
    for row in coordinates:
        data.qpos[scene.striker_body.qpos] = row
        mujoco.mj_kinematics(scene.base, data)
        body = scene.striker_body.body
        found.append(np.concatenate([data.xpos[body], data.xquat[body]]))
    poses = np.array(found)
    return poses[:, :3], poses[:, 3:]


def test_each_impact_has_height_and_tilt_of_its_own_posture(scene: Scene) -> None:
    recorded = postures(scene)
    known = replace(scene, postures=dict(zip(JOINTS, recorded.T, strict=True)))
    position, quaternion = poses_of(known, recorded)
    assert np.ptp(position[:, 2]) > 0.02
    poser = PairPoser(known)
    in_plane = poser.scene_pose(position, quaternion, known.striker_body)
    in_space, rotation = poser.world_pose(in_plane, known.striker_body, None)
    np.testing.assert_allclose(in_space, position, atol=1e-9)
    found = known.striker_body.coordinates(in_space, rotation)
    np.testing.assert_allclose(found, recorded, atol=1e-6)


def test_a_tool_comes_as_near_to_its_height_as_the_arm_lets_it(scene: Scene) -> None:
    poser = PairPoser(scene)
    before = poser.striker_at_reference(3)
    before[:, 6] += [0.0, 0.05, 0.08]  # m
    pair = MovingPair(scene, before)
    position = pair.bodies[1].position
    np.testing.assert_allclose(position[:, 0], before[:, 6], atol=2e-3)
    qpos = np.tile(scene.base.qpos0, (3, 1))
    poser.write(before, qpos)
    reached, _ = poses_of(scene, qpos[:, scene.striker_body.qpos])
    np.testing.assert_allclose(reached, position, atol=1e-9)


def test_strikes_are_made_from_a_recorded_posture(scene: Scene) -> None:
    far = postures(scene) + np.array([0.5, 0, 0, 0, 0, 0])
    known = replace(scene, postures=dict(zip(JOINTS, far.T, strict=True)))
    position, quaternion = poses_of(known, far)
    poser = PairPoser(known)
    recorded = poser.scene_pose(position, quaternion, known.striker_body)
    pose = poser.striker_at_reference(2)[:, 6:9]
    away = np.abs(recorded - pose[0]).max(1)
    assert away.min() < 1e-9 and (pose[0] == pose[1]).all()
