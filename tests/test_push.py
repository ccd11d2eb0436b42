"""Sequential pushing: the task, its environments, training that resumes, policies, routes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="training needs Stable-Baselines3, the extra rl")

from gymnasium.utils.env_checker import check_env as gymnasium_check
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env

from clashsim import cli
from clashsim.core.errors import ClashError
from clashsim.core.scene import Scene
from clashsim.rl.env import PushEnv, StrikeVecEnv
from clashsim.rl.follow import Simulated, follow, sample_start
from clashsim.rl.policy import Policy
from clashsim.rl.push import (
    LEFT_CORRIDOR_REWARD,
    MAX_STRIKES,
    Push,
    StartDistribution,
    heading_offset_of,
    observed,
    rewards,
)
from clashsim.rl.routes import ROUTES, SEGMENT_LENGTH, Route, route
from clashsim.rl.sac_training import SacConfig, train

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
    """Slides along its heading by half the speed squared, and turns with the point that is struck:
    easy to learn, and known exactly.
    """

    names, takes_noise = ("speed", "point", "deflection"), True
    low, high = np.array([0.2, 0.26, -0.26]), np.array([0.8, 2.88, 0.26])

    def rest(self, pose, strike, noise=None):
        turn = strike[:, 1] - np.pi / 2
        heading = pose[:, 2] + heading_offset_of(SCENE) + 0.5 * turn
        far = 0.3 * strike[:, 0] ** 2 * (1 if noise is None else 1 + 0.02 * noise[:, 0])
        return pose + np.stack([far * np.cos(heading), far * np.sin(heading), 0.4 * turn], 1)


def test_environments_are_as_gymnasium_asks():
    check_env(PushEnv(SCENE, Toy()))
    gymnasium_check(PushEnv(SCENE, Toy(), render_mode="rgb_array"), skip_render_check=True)


def test_it_can_be_seen():
    env = PushEnv(SCENE, Toy(), render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.ndim == 3 and picture.shape[2] == 3 and picture.std() > 5


def test_rewards_are_those_of_the_table():
    gap, off, made = (
        np.array([0.3, 0.02, 0.5, 0.0]),
        np.array([0.0, np.pi / 2, 0.0, 0.0]),
        np.array([1, 3, 2, 5]),
    )
    there, gone = np.array([False, True, False, True]), np.array([False, False, True, False])
    by_hand = [
        np.exp(-0.09),
        np.exp(-0.0004) + 0.5 + 2,
        np.exp(-0.25) + LEFT_CORRIDOR_REWARD,
        1 + 1 + 0,
    ]
    np.testing.assert_allclose(rewards(gap, off, made, there, gone), by_hand)


def test_episodes_end_where_they_should():
    push = Push.of(SCENE, Toy(), 4, StartDistribution())
    push.pose = np.array(
        [[SEGMENT_LENGTH - 0.05, 0, 0], [0.1, 0.03, 1.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]]
    ) - [0, 0, heading_offset_of(SCENE)]
    push.made = np.array([0, 0, 0, MAX_STRIKES - 1])
    reward, ended, there = push.strike(np.tile([-0.5, 0.0, 0.0], (4, 1)), np.random.default_rng(0))
    assert there.tolist() == [True, False, False, False]
    assert ended.tolist() == [
        True,
        True,
        False,
        True,
    ]  # there, out of the corridor, on the way, and the last strike allowed
    assert reward[1] < LEFT_CORRIDOR_REWARD + 1 and reward[0] > MAX_STRIKES and 0.8 < reward[2] < 1


def test_many_copies_are_as_one():
    many = StrikeVecEnv(Push.of(SCENE, Toy(), 3), seed=0)
    seen = many.reset()
    ones = []
    for i in range(3):
        one = PushEnv(SCENE, Toy())
        one.reset(seed=0)
        one._push.pose, one._push.turn, one._push.made = (
            getattr(many._task, k)[i : i + 1].copy() for k in ("pose", "turn", "made")
        )
        np.testing.assert_allclose(one._push.observe()[0], seen[i], atol=1e-6)
        ones.append(one)
    action = np.random.default_rng(1).uniform(-1, 1, (3, 3)).astype(np.float32)
    many.step_async(action)
    after, reward, done, infos = many.step_wait()
    for i, one in enumerate(ones):
        o, r, ended, out, _ = one.step(action[i])
        assert ended == done[i] and not out and r == pytest.approx(float(reward[i]), rel=1e-6)
        np.testing.assert_allclose(
            o, infos[i]["terminal_observation"] if ended else after[i], atol=1e-6
        )


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.floats(-0.2, 0.4), st.floats(-0.04, 0.04), st.floats(-3.1, 3.1))
def test_observations_do_not_depend_on_where_the_route_lies(turned, x, y, heading):
    way = Route("a", ((0.1, -0.2), (0.1 + 0.3 * np.cos(turned), -0.2 + 0.3 * np.sin(turned))))
    from clashsim.rl.follow import _from_segment

    pose = np.array([x, y, heading])
    c, s = np.cos(turned), np.sin(turned)
    world = np.array([0.1 + c * x - s * y, -0.2 + s * x + c * y, heading + turned])
    np.testing.assert_allclose(
        _from_segment(world, np.array(way.points[0]), way.headings[0])[:2], pose[:2], atol=1e-9
    )
    seen = observed(
        _from_segment(world, np.array(way.points[0]), way.headings[0])[None],
        1.0,
        np.zeros(1),
        way.lengths,
        np.zeros(1),
    )
    np.testing.assert_allclose(
        seen,
        observed(pose[None], 1.0, np.zeros(1), np.array([SEGMENT_LENGTH]), np.zeros(1)),
        atol=1e-5,
    )


@pytest.mark.slow
def test_a_trivial_route_is_learned():
    policy = train(
        SCENE,
        Toy(),
        config=replace(TINY, steps=12_000, guided=4_000, gradient_steps=8, batch=128, width=64),
        seed=0,
    )
    rng = np.random.default_rng(0)
    done = [
        follow(
            ROUTES["1"],
            policy,
            Simulated(Toy(), sample_start(ROUTES["1"], policy.heading_offset, rng)),
        )
        for _ in range(40)
    ]
    assert np.mean([d.success for d in done]) > 0.8


class Killed(Exception):
    """Stands for a kill."""


def test_a_killed_training_goes_on_to_the_same_policy(tmp_path):
    whole = train(SCENE, Toy(), config=TINY, seed=3, folder=tmp_path / "whole")

    from contextlib import contextmanager

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
    for (a, b), (c, d) in zip(whole.layers, again.layers, strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)
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
    again, seen = Policy.load(tmp_path / "p.safetensors"), rng.normal(size=(20, 7))
    np.testing.assert_array_equal(again(seen), policy(seen))
    assert ((policy(seen) >= Toy.low) & (policy(seen) <= Toy.high)).all()
    whole = (tmp_path / "p.safetensors").read_bytes()
    for kind in (
        {"notes": None},
        {"names": ("a", "a", "b")},
        {"high": Toy.high[:2]},
        {"layers": layers[1:]},
    ):
        with pytest.raises((ClashError, TypeError)):
            replace(policy, **kind).save(tmp_path / "bad.safetensors")
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
    way = route(str(path))
    assert len(way) == 2 and way.turn(0) == pytest.approx(np.pi / 2) and way.turn(1) == 0
    assert (
        way.inside(np.array([0.1, 0.03]))
        and not way.inside(np.array([0.1, 0.05]))
        and way.inside(np.array([0.2, 0.28]))
    )
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
            route(str(path))
    with pytest.raises(ClashError, match="no route"):
        route("7")
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
    begin, end = (
        train(SCENE, Toy(), config=replace(TINY, steps=n, guided=10_000), seed=0).layers[0][0]
        for n in (64, 1200)
    )
    assert not np.array_equal(begin, end)
    train(SCENE, Toy(), config=TINY, seed=0, folder=tmp_path)
    other = Toy()
    other.high = Toy.high * 0.9
    with pytest.raises(ClashError, match="another training"):
        train(SCENE, other, config=TINY, seed=0, folder=tmp_path)


def test_long_segments_are_cut(tmp_path):
    (tmp_path / "way.csv").write_text("\ufeffx, y\n0,0\n0.8,0\n", encoding="utf-8")
    assert len(route(str(tmp_path / "way.csv"))) == 2
