"""Throws and strikes in space: targets, launches, the search, and `clashsim plan`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError, SceneError
from clashsim.core.scene import Scene
from clashsim.plan.launch import (
    FlyingStrike,
    Throw,
    check_can_be_launched,
    ground_distance,
    ground_level,
    lowered_onto_ground,
)
from clashsim.plan.rest_planner import RestPlannerConfig, plan_rest
from clashsim.plan.rest_target import RestTarget, axis_up
from clashsim.plan.tasks import PlanStatus

BOX = (
    '<mujoco><option timestep="0.001" cone="elliptic"/><worldbody>'
    '<geom name="floor" type="plane" size="2 2 .1"/>'
    '<body name="box" pos="0 0 .2"><freejoint/>'
    '<geom name="box" type="box" size=".05 .03 .02" density="600"/></body>{}</worldbody></mujoco>'
)
BALL = '<body name="ball" pos="1 0 .2"><freejoint/><geom name="ball" size=".02" mass=".2"/></body>'


def poses(*rotations: Rotation, x: float = 0.0) -> np.ndarray:
    """Poses (N, 7) at x, 0, 0."""
    quaternions = [rotation.as_quat(scalar_first=True) for rotation in rotations]
    return np.array([[x, 0.0, 0.0, *quaternion] for quaternion in quaternions])


def test_a_target_knows_distance_side_and_yaw():
    quarter = Rotation.from_euler("z", 90, degrees=True)
    over = Rotation.from_euler("x", 180, degrees=True)
    several = poses(Rotation.identity(), quarter, over, x=0.3)
    distance, angle = RestTarget((0.0, 0.4)).errors(several)
    np.testing.assert_allclose(distance, 0.5)
    np.testing.assert_allclose(angle, 0.0)
    _, angle = RestTarget((0.0, 0.0), yaw=np.pi / 2).errors(several)
    np.testing.assert_allclose(angle, [np.pi / 2, 0.0, np.pi], atol=1e-6)
    _, angle = RestTarget((0.0, 0.0), up="-z").errors(several)
    np.testing.assert_allclose(angle, [np.pi, np.pi, 0.0], atol=1e-6)
    for name in ("x", "-y"):
        target = RestTarget((0.0, 0.0), up=name, yaw=0.4)
        upright = Rotation.from_euler("z", 0.4) * Rotation.from_matrix(target._at_zero_yaw())
        assert axis_up(poses(upright))[0] == name
        np.testing.assert_allclose(target.errors(poses(upright))[1], 0.0, atol=1e-6)
    at_rest = np.array([True, False, True])
    reached = RestTarget((0.3, 0.0), up="z").is_reached(several, at_rest)
    assert reached.tolist() == [True, False, False]
    loss = RestTarget((0.3, 0.0), up="z").loss(several, at_rest)
    assert loss[0] == 0.0 and loss[1] > loss[2] > 1.0


def test_mistakes_in_targets_are_one_sentence():
    with pytest.raises(DataError, match="two finite numbers"):
        RestTarget((np.nan, 0.0))
    with pytest.raises(DataError, match="no axis 'up'"):
        RestTarget((0.0, 0.0), up="up")
    with pytest.raises(DataError, match="tolerances"):
        RestTarget((0.0, 0.0), tolerance=(0.0, 1.0))


def test_a_throw_goes_towards_the_target():
    scene = Scene(BOX.format(""), "box", "floor")
    names = ("speed", "direction", "lift", "spin_x", "spin_y", "spin_z", "turn", "x", "y", "z")
    values = dict.fromkeys(names, np.zeros(1)) | {"z": np.array([0.2])}
    values |= {"speed": np.array([2.0]), "lift": np.array([0.5]), "spin_y": np.array([3.0])}
    throw = Throw(scene, {name: (0.0, 0.0) for name in names}, bearing=np.pi / 2)
    (state,) = throw.states(values, np.zeros((1, 6)))
    np.testing.assert_allclose(state[7:10], [0.0, 2.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(state[10:], [-3.0, 0.0, 0.0], atol=1e-12)
    assert ground_distance(scene, state[:7]) == pytest.approx(0.18)
    assert lowered_onto_ground(scene, state[:7])[2] == pytest.approx(0.02, abs=1e-5)
    assert ground_level(scene, state[:7]) == pytest.approx(0.0, abs=1e-9)


def test_a_striker_is_about_to_hit_the_body_where_it_lies():
    scene = Scene(BOX.format(BALL), "box", "ball")
    assert scene.plane is None
    check_can_be_launched(scene)
    start = np.array([0.1, 0.0, 0.02, 1.0, 0, 0, 0])
    values = {name: np.zeros(2) for name in ("direction", "elevation", "offset")}
    values |= {"speed": np.array([0.5, 1.0]), "height": np.full(2, 0.03)}
    strike = FlyingStrike(scene, {}, bearing=0.0, start=start, level=0.0)
    states = strike.states(values, np.zeros((2, 6)))
    np.testing.assert_allclose(states[:, :7], np.tile(start, (2, 1)))
    # The face of the box is at x = 0.05, and the ball's radius is 0.02.
    np.testing.assert_allclose(states[:, 7], 0.03 - np.array([0.001, 0.002]), atol=2e-5)
    np.testing.assert_allclose(states[:, 8:10], [[0.0, 0.03]] * 2, atol=1e-9)
    np.testing.assert_allclose(states[:, 14 + 6], [0.5, 1.0])


def test_scenes_without_a_task_say_what_is_supported():
    carried = BALL.replace("<freejoint/>", '<joint axis="0 1 0" pos="0 0 1"/>')
    with pytest.raises(SceneError, match="fly freely"):
        check_can_be_launched(Scene(BOX.format(carried), "box", "ball"))
    in_air = BOX.format(BALL).replace('<geom name="floor" type="plane" size="2 2 .1"/>', "")
    with pytest.raises(SceneError, match="add a floor"):
        lowered_onto_ground(Scene(in_air, "box", "ball"), np.array([0, 0, 1.0, 1, 0, 0, 0]))


class SlidingSimulator:
    """A body that stops v^2 after its start, and sometimes far away."""

    def rests(self, start, noise):
        velocity = start[:, 7:9]
        rest = np.zeros((len(start), 7))
        rest[:, :2] = np.linalg.norm(velocity, axis=1)[:, None] * velocity
        rest[:, 3] = 1.0
        rest[:, 0] += np.where(noise[:, 0, 0] > 1.5, 1.0, 0.0)
        return rest, np.ones(len(start), bool)


def test_the_search_finds_a_throw_and_its_probability():
    scene = Scene(BOX.format(""), "box", "floor")
    fixed = ("lift", "spin_x", "spin_y", "spin_z", "turn", "x", "y", "z")
    ranges = dict.fromkeys(fixed, (0.0, 0.0)) | {"speed": (0.0, 2.0), "direction": (-0.6, 0.6)}
    throw = Throw(scene, ranges, bearing=0.3)
    target = RestTarget((0.6, 0.4))
    plans = [plan_rest(throw, target, SlidingSimulator()) for _ in range(2)]
    plan = plans[0]
    assert plan.status is PlanStatus.FOUND
    assert plan.numbers == plans[1].numbers  # of the same seed
    assert plan.numbers["speed"] == pytest.approx(np.hypot(0.6, 0.4) ** 0.5, abs=0.02)
    assert plan.probability == pytest.approx(0.93, abs=0.06)  # normal numbers below 1.5
    assert plan.up == ("z", 1.0)
    unreliable = plan.by_unreliable_model("Not reliable.")
    assert unreliable.status is PlanStatus.UNRELIABLE and "Not reliable." in unreliable.reason
    far = plan_rest(throw, RestTarget((9.0, 0.0)), SlidingSimulator())
    assert far.status is PlanStatus.NOT_FOUND and "probability of 0 %" in far.reason
    with pytest.raises(DataError, match="simulations or more"):
        RestPlannerConfig().with_rollouts(10)
