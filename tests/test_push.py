"""Sequential pushing: the task, its environments, training that resumes, policies, routes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="training needs Stable-Baselines3, the extra rl")

import gymnasium
from gymnasium.utils.env_checker import check_env as gymnasium_check
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecCheckNan, VecMonitor

from clashsim import cli
from clashsim.core.errors import ClashError
from clashsim.core.scene import Scene
from clashsim.rl.corridor_formulas import (
    LEFT_CORRIDOR_REWARD,
    MAX_STRIKES,
    StartDistribution,
    observations,
    rewards,
)
from clashsim.rl.env import PushEnv, StrikeVecEnv
from clashsim.rl.follow import Simulated, _in_segment_frame, follow, sample_start
from clashsim.rl.policy import Policy
from clashsim.rl.push import Push, heading_offset_of
from clashsim.rl.routes import ROUTES, SEGMENT_LENGTH, Route, load_route
from clashsim.rl.sac_training import SacConfig, train
from tiny_run import write_run

SCENE = Scene.load("semi_cylinder")
TINY = SacConfig(
    steps=1600,
    num_envs=16,
    gradient_steps=2,
    batch=32,
    width=32,
    guided=400,
    checkpoint_interval=400,
)


class Toy:
    """A model that is easy to learn and known exactly.

    A body slides along its heading by a distance that grows with the speed squared, and rotates
    with the point that is struck.
    """

    names = ("speed", "point", "deflection")
    takes_noise = True
    low = np.array([0.2, 0.26, -0.26])
    high = np.array([0.8, 2.88, 0.26])

    def rest(self, pose, strike, noise=None):
        off_centre = strike[:, 1] - np.pi / 2
        heading = pose[:, 2] + heading_offset_of(SCENE) + 0.5 * off_centre
        factor = 1 if noise is None else 1 + 0.02 * noise[:, 0]
        distance = 0.3 * strike[:, 0] ** 2 * factor
        return pose + np.stack(
            [distance * np.cos(heading), distance * np.sin(heading), 0.4 * off_centre], 1
        )


def test_environments_are_as_gymnasium_asks():
    check_env(PushEnv(SCENE, Toy()))
    gymnasium_check(PushEnv(SCENE, Toy(), render_mode="rgb_array"), skip_render_check=True)


@pytest.mark.parametrize("physics", ["map", "hybrid", "mujoco"])
def test_the_registered_environment_of_a_run_is_as_both_libraries_ask(tmp_path, physics):
    run = write_run(tmp_path / "run")
    env = gymnasium.make("clashsim.push_env:clashsim/Push-v0", run=str(run), physics=physics)
    check_env(env.unwrapped)
    gymnasium_check(env.unwrapped, skip_render_check=True)


def test_vectors_of_environments_are_as_both_libraries_ask():
    """Gymnasium's own vector environment, and ours under Stable-Baselines3's wrappers."""
    envs = gymnasium.make_vec(
        "clashsim.push_env:clashsim/Push-v0", num_envs=2, physics="mujoco", max_episode_steps=2
    )
    observation, _ = envs.reset(seed=1)
    for _ in range(4):
        observation, reward, ended, cut, _ = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(observation)
        assert reward.shape == ended.shape == cut.shape == (2,)
    batch = VecMonitor(VecCheckNan(StrikeVecEnv(Push.of(SCENE, Toy(), 3), seed=0)))
    observed = batch.reset()
    for _ in range(30):
        actions = np.array([batch.action_space.sample() for _ in range(3)])
        observed, reward, ended, infos = batch.step(actions)
        assert all(batch.observation_space.contains(row) for row in observed)
        assert reward.shape == ended.shape == (3,) and ended.dtype == bool
        assert all(
            ("terminal_observation" in info) == end for info, end in zip(infos, ended, strict=True)
        )
    PPO("MlpPolicy", batch, n_steps=8, batch_size=8, n_epochs=1).learn(24)


def test_it_can_be_seen():
    env = PushEnv(SCENE, Toy(), render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.ndim == 3 and picture.shape[2] == 3 and picture.std() > 5


def test_rewards_are_those_of_the_table():
    given = rewards(
        distance=np.array([0.3, 0.02, 0.5, 0.0]),
        angle=np.array([0.0, np.pi / 2, 0.0, 0.0]),
        strikes_made=np.array([1, 3, 2, 5]),
        reached=np.array([False, True, False, True]),
        left_corridor=np.array([False, False, True, False]),
    )
    by_hand = [
        np.exp(-0.09),
        np.exp(-0.0004) + 0.5 + 2,
        np.exp(-0.25) + LEFT_CORRIDOR_REWARD,
        1 + 1 + 0,
    ]
    np.testing.assert_allclose(given, by_hand)


def test_episodes_end_where_they_should():
    push = Push.of(SCENE, Toy(), 4, StartDistribution())
    headed = np.array(
        [[SEGMENT_LENGTH - 0.05, 0, 0], [0.1, 0.03, 1.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]]
    )
    push.pose = headed - [0, 0, heading_offset_of(SCENE)]
    push.strikes_made = np.array([0, 0, 0, MAX_STRIKES - 1])
    action = np.tile([-0.5, 0.0, 0.0], (4, 1))
    reward, ended, reached = push.strike(action, np.random.default_rng(0))
    assert reached.tolist() == [True, False, False, False]
    # At the goal, out of the corridor, on the way, and after the last strike allowed.
    assert ended.tolist() == [True, True, False, True]
    assert reward[0] > MAX_STRIKES
    assert reward[1] < LEFT_CORRIDOR_REWARD + 1
    assert 0.8 < reward[2] < 1


def test_a_batch_of_environments_is_as_each_alone():
    batch = StrikeVecEnv(Push.of(SCENE, Toy(), 3), seed=0)
    observation = batch.reset()
    envs = []
    for i in range(3):
        env = PushEnv(SCENE, Toy())
        env.reset(seed=0)
        for name in ("pose", "heading_change", "strikes_made"):
            setattr(env._push, name, getattr(batch._task, name)[i : i + 1].copy())
        np.testing.assert_allclose(env._push.observe()[0], observation[i], atol=1e-6)
        envs.append(env)
    action = np.random.default_rng(1).uniform(-1, 1, (3, 3)).astype(np.float32)
    batch.step_async(action)
    next_observation, rewards_of_batch, done, infos = batch.step_wait()
    for i, env in enumerate(envs):
        alone, reward, ended, truncated, _ = env.step(action[i])
        assert ended == done[i] and not truncated
        assert reward == pytest.approx(float(rewards_of_batch[i]), rel=1e-6)
        expected = infos[i]["terminal_observation"] if ended else next_observation[i]
        np.testing.assert_allclose(alone, expected, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.floats(-0.2, 0.4), st.floats(-0.04, 0.04), st.floats(-3.1, 3.1))
def test_observations_do_not_depend_on_where_the_route_lies(direction, x, y, heading):
    cos, sin = np.cos(direction), np.sin(direction)
    route = Route("a", ((0.1, -0.2), (0.1 + 0.3 * cos, -0.2 + 0.3 * sin)))
    pose = np.array([x, y, heading])
    in_world = np.array([0.1 + cos * x - sin * y, -0.2 + sin * x + cos * y, heading + direction])
    in_segment = _in_segment_frame(in_world, np.array(route.points[0]), route.headings[0])
    np.testing.assert_allclose(in_segment[:2], pose[:2], atol=1e-9)

    def observe(pose, length):
        return observations(
            pose[None], 1.0, np.zeros(1), length=length, strikes_made=np.zeros(1)
        ).astype(np.float32)

    seen_on_route = observe(in_segment, route.lengths)
    seen_at_origin = observe(pose, np.array([SEGMENT_LENGTH]))
    np.testing.assert_allclose(seen_on_route, seen_at_origin, atol=1e-5)


@pytest.mark.slow
def test_a_trivial_route_is_learned():
    policy = train(
        SCENE,
        Toy(),
        config=replace(TINY, steps=12_000, guided=4_000, gradient_steps=8, batch=128, width=64),
        seed=0,
    )
    rng = np.random.default_rng(0)
    route = ROUTES["1"]
    successes = []
    for _ in range(40):
        start = sample_start(route, policy.heading_offset, rng)
        successes.append(follow(route, policy, Simulated(Toy(), start)).success)
    assert np.mean(successes) > 0.8


class Killed(Exception):
    """Raised where a process would be killed."""


def test_a_killed_training_goes_on_to_the_same_policy(tmp_path):
    whole = train(SCENE, Toy(), config=TINY, seed=3, folder=tmp_path / "whole")

    @contextmanager
    def dies(title, total):
        calls = []

        def advance(n):
            calls.append(n)
            if len(calls) == 3:
                raise Killed

        yield advance

    with pytest.raises(Killed):
        train(SCENE, Toy(), config=TINY, seed=3, folder=tmp_path / "part", progress=dies)
    again = train(SCENE, Toy(), config=TINY, seed=3, folder=tmp_path / "part")
    for layer, same_layer in zip(whole.layers, again.layers, strict=True):
        for array, same_array in zip(layer, same_layer, strict=True):
            np.testing.assert_array_equal(array, same_array)
    with pytest.raises(ClashError, match="another training"):
        train(SCENE, Toy(), config=TINY, seed=4, folder=tmp_path / "part")
    (tmp_path / "part" / "checkpoint.safetensors").write_bytes(b"\x10" * 40)
    with pytest.raises(ClashError, match="damaged"):
        train(SCENE, Toy(), config=TINY, seed=3, folder=tmp_path / "part")


def test_policies_travel(tmp_path):
    rng = np.random.default_rng(0)
    layers = (
        (rng.normal(size=(8, 7)).astype(np.float32), np.zeros(8, np.float32)),
        (rng.normal(size=(3, 8)).astype(np.float32), np.zeros(3, np.float32)),
    )
    policy = Policy(layers, Toy.names, Toy.low, Toy.high, 1.5, {"scene": "semi_cylinder"})
    policy.save(tmp_path / "p.safetensors")
    again = Policy.load(tmp_path / "p.safetensors")
    observation = rng.normal(size=(20, 7))
    strikes = policy(observation)
    np.testing.assert_array_equal(again(observation), strikes)
    assert ((strikes >= Toy.low) & (strikes <= Toy.high)).all()
    whole = (tmp_path / "p.safetensors").read_bytes()
    for change in (
        {"notes": None},
        {"names": ("a", "a", "b")},
        {"high": Toy.high[:2]},
        {"layers": layers[1:]},
    ):
        with pytest.raises((ClashError, TypeError)):
            replace(policy, **change).save(tmp_path / "bad.safetensors")
            Policy.load(tmp_path / "bad.safetensors")
    for i, bad in enumerate(
        (
            b"",
            whole[:30],
            whole[:-4],
            b"\xff" * 100,
            whole.replace(b"clashsim-policy", b"another-policy!"),
        )
    ):
        (tmp_path / f"{i}.safetensors").write_bytes(bad)
        with pytest.raises(ClashError):
            Policy.load(tmp_path / f"{i}.safetensors")
    with pytest.raises(ClashError, match="there is no policy"):
        Policy.load(tmp_path / "none.safetensors")


def test_routes_come_from_files_too(tmp_path, capsys):
    path = tmp_path / "way.csv"
    path.write_text("x,y\n0,0\n0.2,0\n0.2,0.25\n")
    route = load_route(str(path))
    assert len(route) == 2
    assert route.heading_change(0) == pytest.approx(np.pi / 2) and route.heading_change(1) == 0
    assert route.inside(np.array([0.1, 0.03]))
    assert not route.inside(np.array([0.1, 0.05]))
    assert route.inside(np.array([0.2, 0.28]))
    for text in (
        "x,y\n0,0\n",
        "a,b\n0,0\n1,1\n",
        "x,y\n0,zero\n1,1\n",
        "x,y\n0,0\n300,0\n",
        "x,y\nnan,0\n0,0\n",
        "",
    ):
        path.write_text(text)
        with pytest.raises(ClashError):
            load_route(str(path))
    with pytest.raises(ClashError, match="no route"):
        load_route("7")
    assert cli.main(["evaluate", str(tmp_path / "none.safetensors")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_gymnasium_knows_it():
    code = """
import gymnasium, numpy as np
env = gymnasium.make("clashsim.push_env:clashsim/Push-v0")
env.reset(seed=0)
assert 0.8 < env.step(np.array([-1.0, 0.0, 0.0], np.float32))[1] < 7
try:
    gymnasium.make("clashsim/Push-v0", physics="maps")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "no physics 'maps'" in done.stdout, done.stderr


def test_unseeded_environments_differ():
    assert not np.array_equal(PushEnv(SCENE, Toy()).reset()[0], PushEnv(SCENE, Toy()).reset()[0])


def test_few_steps_still_train_and_another_model_is_another_training(tmp_path):
    first_weights = []
    for steps in (64, 1200):
        config = replace(TINY, steps=steps, guided=10_000)
        policy = train(SCENE, Toy(), config=config, seed=0)
        first_weights.append(policy.layers[0][0])
    assert not np.array_equal(*first_weights)
    train(SCENE, Toy(), config=TINY, seed=0, folder=tmp_path)
    other = Toy()
    other.high = Toy.high * 0.9
    with pytest.raises(ClashError, match="another training"):
        train(SCENE, other, config=TINY, seed=0, folder=tmp_path)


def test_long_segments_are_cut(tmp_path):
    (tmp_path / "way.csv").write_text("\ufeffx, y\n0,0\n0.8,0\n", encoding="utf-8")
    assert len(load_route(str(tmp_path / "way.csv"))) == 2
