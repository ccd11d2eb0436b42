"""Sequential pushing on one torch device.

The same task as in numpy, no waiting for the device in a step, training that resumes, the command.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from clashsim import cli
from clashsim.bench import device_pushing
from clashsim.core.errors import ClashError
from clashsim.core.scene import Scene
from clashsim.rl.device_env import DevicePush, play_episodes
from clashsim.rl.device_ppo import PpoConfig, PpoLearner
from clashsim.rl.device_training import train
from clashsim.rl.follow import Simulated, follow, sample_start
from clashsim.rl.policy import Policy
from clashsim.rl.push import MAX_STRIKES, Push, StartDistribution, heading_offset_of
from clashsim.rl.routes import GOAL_RADIUS, ROUTES, SEGMENT_LENGTH

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SCENE = Scene.load("semi_cylinder")
TINY = PpoConfig(
    steps=4096,
    num_envs=64,
    horizon=4,
    epochs=2,
    batch=128,
    width=16,
    guided=512,
    checkpoint_interval=1024,
)


class Toy(nn.Module):
    """A strike model that is easy to learn and known exactly.

    The body slides along its heading by a multiple of the squared speed, and rotates with the point
    that is struck.
    """

    names = ("speed", "point", "deflection")
    takes_noise = True
    low = np.array([0.2, 0.26, -0.26])
    high = np.array([0.8, 2.88, 0.26])

    def __init__(self, strength: float = 0.3) -> None:
        super().__init__()
        self.register_buffer("strength", torch.tensor(strength, dtype=torch.float64))

    def forward(self, pose, strike, noise=None):
        off_centre = strike[:, 1] - np.pi / 2
        heading = pose[:, 2] + heading_offset_of(SCENE) + 0.5 * off_centre
        way = self.strength * strike[:, 0] ** 2
        if noise is not None:
            way = way * (1 + 0.02 * noise[:, 0])
        moved = [way * torch.cos(heading), way * torch.sin(heading), 0.4 * off_centre]
        return pose + torch.stack(moved, 1)

    def rest(self, pose, strike, noise=None):
        number = self.strength.dtype
        noise = None if noise is None else torch.as_tensor(noise, dtype=number)
        return self(
            torch.as_tensor(pose, dtype=number), torch.as_tensor(strike, dtype=number), noise
        ).numpy()


def near_a_threshold(pose: np.ndarray, tolerance: float) -> np.ndarray:
    """Whether poses (N, 3) are so near to the goal's or corridor's edge that rounding decides."""
    x, y = pose[:, 0], pose[:, 1]
    margins = [
        np.hypot(x - SEGMENT_LENGTH, y) - GOAL_RADIUS,
        np.abs(y) - GOAL_RADIUS,
        x + GOAL_RADIUS,
        x - SEGMENT_LENGTH - GOAL_RADIUS,
    ]
    return np.min(np.abs(margins), axis=0) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_it_is_the_task_of_numpy(dtype, tolerance):
    n = 500
    rng = np.random.default_rng(0)
    starts = StartDistribution(anywhere_share=0.5)
    on_device = DevicePush.of(SCENE, Toy().to(dtype), n, starts=starts, seed=1, dtype=dtype)
    in_numpy = Push.of(SCENE, Toy(), n)
    state = [getattr(on_device, name).double().numpy() for name in on_device.state_arrays.values()]
    in_numpy.pose, in_numpy.heading_change, in_numpy.strikes_made = state
    ended = np.zeros(n, bool)
    for _ in range(MAX_STRIKES):
        np.testing.assert_allclose(
            on_device.observe().numpy(), in_numpy.observe(), atol=max(tolerance, 1e-6)
        )
        action = rng.uniform(-1.5, 1.5, (n, 3))  # beyond the box, too
        computed = on_device.strike(torch.as_tensor(action, dtype=dtype))
        expected = in_numpy.strike(action, rng)
        np.testing.assert_allclose(on_device.pose.numpy(), in_numpy.pose, atol=tolerance)
        unclear = near_a_threshold(in_numpy.pose, 10 * tolerance)
        clear = ~unclear
        assert unclear.mean() < 0.01
        rewards = computed[0].numpy()
        np.testing.assert_allclose(rewards[clear], expected[0][clear], atol=10 * tolerance)
        for flags, expected_flags in zip(computed[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(flags.numpy()[clear], expected_flags[clear])
        ended |= expected[1]
    assert ended.all() and not in_numpy.starts.noise


def test_starts_are_drawn_from_their_distribution():
    n = 20_000
    starts = StartDistribution(
        position_radius=0.02, max_heading=0.5, max_heading_change=1.2, anywhere_share=0.4
    )
    task = DevicePush.of(SCENE, Toy().float(), n, starts=starts, seed=3)
    x = task.pose[:, 0]
    y = task.pose[:, 1]
    heading = task.pose[:, 2] + task.heading_offset
    assert (y.abs() <= 0.02 + 1e-6).all()
    assert (heading.abs() <= 0.5 + 1e-5).all()
    assert (task.heading_change.abs() <= 1.2).all()
    assert (task.strikes_made == 0).all()
    last = SEGMENT_LENGTH - GOAL_RADIUS
    assert ((x >= -0.02 - 1e-6) & (x <= last + 0.02 + 1e-6)).all()
    beyond_the_start = float((x > 0.02 + 1e-6).float().mean())
    assert beyond_the_start == pytest.approx(0.4 * (1 - 0.02 / last), abs=0.03)
    straight_on = float((task.heading_change == 0).float().mean())
    assert straight_on == pytest.approx(0.25, abs=0.02)
    assert float(heading.std()) == pytest.approx(0.5 / 3**0.5, abs=0.01)


def test_only_episodes_that_ended_restart():
    n = 20_000
    task = DevicePush.of(SCENE, Toy().float(), n, seed=3)
    before = task.pose.clone()
    task.strikes_made += 2
    task.restart(torch.arange(n) % 2 == 0)
    assert torch.equal(task.pose[1::2], before[1::2])
    assert not torch.isin(task.pose[::2, 2], before[::2, 2]).all()
    assert (task.strikes_made[::2] == 0).all() and (task.strikes_made[1::2] == 2).all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_seed_gives_the_same_numbers(device):
    def run_steps(seed):
        task = DevicePush.of(
            SCENE,
            Toy().float().to(device),
            256,
            starts=StartDistribution(noise=1.0),
            device=device,
            seed=seed,
        )
        rewards = [task.step(task.guide(tries=2))[0] for _ in range(8)]
        return torch.stack([*rewards, task.heading_change])

    assert torch.equal(run_steps(5), run_steps(5))
    assert not torch.equal(run_steps(5), run_steps(6))


def test_a_look_ahead_finds_what_numpy_finds_good():
    task = DevicePush.of(SCENE, Toy().float(), 2000, seed=0)

    def act_at_random(observation):
        return 2 * torch.rand(2000, 3, generator=task.rng) - 1

    reached_guided, _ = play_episodes(task, lambda observation: task.guide())
    reached_at_random, _ = play_episodes(task, act_at_random)
    assert reached_guided.float().mean() > 0.9
    assert reached_at_random.float().mean() < 0.4


class Waits(TorchDispatchMode):
    """Counts operations for which a host would have to wait for a device.

    These are numbers that are read, rows that are counted and tensors that are copied elsewhere.
    """

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        options = kwargs or {}
        reads = name in ("_local_scalar_dense", "nonzero", "masked_select", "equal")
        copies = name == "_to_copy" and options.get("device") is not None
        by_mask = False
        if name in ("index", "index_put_"):
            by_mask = any(i is not None and i.dtype == torch.bool for i in args[1])
        self.count += reads or copies or by_mask
        return func(*args, **options)


def test_a_step_never_waits_for_the_device():
    starts = StartDistribution(noise=1.0)
    learner = PpoLearner(DevicePush.of(SCENE, Toy().float(), 64, starts=starts), TINY)
    task = learner.task
    with Waits() as waits:
        task.step(task.guide(tries=2))
        learner._collect_round()
    assert waits.count == 0


def test_waiting_for_the_device_would_be_counted():
    pose = torch.zeros(64, 3)
    mask = torch.arange(64) % 2 == 0
    for operation in (
        lambda: pose[mask],
        lambda: float(pose.sum()),
        lambda: mask.nonzero(),
        lambda: bool(mask.any()),
    ):
        with Waits() as waits:
            operation()
        assert waits.count > 0


def test_a_trivial_route_is_learned_and_policies_are_the_usual_ones(tmp_path):
    config = replace(TINY, steps=40_000, num_envs=256, epochs=4, batch=256, width=32, guided=10_000)
    train(SCENE, Toy(), config=config, seed=0).save(tmp_path / "p.safetensors")
    policy = Policy.load(tmp_path / "p.safetensors")
    assert policy.notes["reached"] > 0.95 and policy.notes["scene"] == "semi_cylinder"
    rng = np.random.default_rng(0)
    toy = Toy()
    successes = []
    for _ in range(40):
        start = sample_start(ROUTES["1"], policy.heading_offset, rng)
        successes.append(follow(ROUTES["1"], policy, Simulated(toy, start)).success)
    assert np.mean(successes) > 0.9


def test_without_guidance_it_learns_too():
    config = replace(TINY, guided=0, initial_log_std=-0.5, learning_rate=3e-3, steps=40_960)
    task = DevicePush.of(SCENE, Toy().float(), config.num_envs, starts=config.starts)
    learner = PpoLearner(task, config)

    def mean_return():
        test = DevicePush.of(SCENE, Toy().float(), 1000, seed=9)
        return float(play_episodes(test, learner.act)[1].mean())

    before = mean_return()
    for _ in range(config.rounds):
        learner.train_round()
    assert mean_return() > before + 0.5


class Killed(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("device", DEVICES)
def test_a_killed_training_goes_on_to_the_same_policy(tmp_path, device):
    whole = train(SCENE, Toy(), config=TINY, seed=3, device=device, folder=tmp_path / "whole")

    @contextmanager
    def dies(title, total):
        calls = []

        def advance(n):
            calls.append(n)
            if len(calls) == 8:
                raise Killed

        yield advance

    with pytest.raises(Killed):
        train(
            SCENE,
            Toy(),
            config=TINY,
            seed=3,
            device=device,
            folder=tmp_path / "part",
            progress=dies,
        )
    path = tmp_path / "part" / "checkpoint.safetensors"
    assert path.is_file()
    again = train(SCENE, Toy(), config=TINY, seed=3, device=device, folder=tmp_path / "part")
    for (a, b), (c, d) in zip(whole.layers, again.layers, strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)
    assert again.notes == whole.notes
    for other in ({"seed": 4}, {"model": Toy(0.31)}, {"config": replace(TINY, learning_rate=1e-4)}):
        with pytest.raises(ClashError, match="another training"):
            train(
                SCENE,
                **({"model": Toy(), "config": TINY, "seed": 3} | other),
                device=device,
                folder=tmp_path / "part",
            )
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ClashError, match="damaged"):
        train(SCENE, Toy(), config=TINY, seed=3, device=device, folder=tmp_path / "part")


def test_the_command_trains_on_a_device(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "clashsim.fit.run_folder.load",
        lambda run: type("Run", (), {"scene": SCENE, "strike_table": lambda self: Toy()})(),
    )
    monkeypatch.setitem(
        sys.modules, "stable_baselines3", None
    )  # the training library is not asked for
    monkeypatch.setattr("clashsim.commands.train.warn_if_unreliable", lambda run: None)
    line = [
        "train",
        "run",
        "-o",
        str(tmp_path / "push"),
        "--device",
        "cpu",
        "--num-envs",
        "64",
        "--steps",
        "2048",
    ]
    assert cli.main(line) == 0
    out = capsys.readouterr().out
    assert "policy of 2048 strikes" in out and "% of episodes" in out
    policy = Policy.load(tmp_path / "push" / "policy.safetensors")
    assert (
        policy.notes["config"]["num_envs"] == 64
        and ((policy(np.zeros((1, 7))) >= Toy.low) & (policy(np.zeros((1, 7))) <= Toy.high)).all()
    )
    assert cli.main(line) == 2 and "already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--device", "abacus"], "no device 'abacus'"),
        (["--device", "meta"], "no device 'meta'"),
        (["--device", "cuda:77"], "no device 'cuda:77'"),
        (["--device", "cpu", "--num-envs", "0"], "at least 1"),
        (["--device", "cpu", "--steps", "5000"], "at least"),
        (["--device", "cpu", "--config", "paper"], "Stable-Baselines3"),
        (["--num-envs", "64"], "--device"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, capsys, args, sentence):
    assert cli.main(["train", "none", "-o", str(tmp_path / "push"), *args]) == 2
    out, err = capsys.readouterr()
    assert (
        sentence in err
        and err.count("\n") == 1
        and "Traceback" not in out + err
        and not (tmp_path / "push").exists()
    )


def test_rates_of_environments_and_of_a_training(monkeypatch):
    monkeypatch.setattr(device_pushing, "_SECONDS", 0.05)
    rows = device_pushing.measure_rates(Toy(), SCENE, "cpu", num_envs=(64, 1024), config=TINY)
    small, large, training = rows
    assert small["method"] == "64 environments on cpu"
    assert large["method"] == "1024 environments on cpu"
    assert training["what"] == "training"
    assert all(r["per_second"] > 0 for r in rows)
    assert training["strikes"] == TINY.steps
    assert (training["until"] is None) == (training["reached"] < device_pushing.SUCCESS)


def test_a_bare_machine_with_torch_is_enough():
    code = """
import sys
from types import SimpleNamespace

for name in (
    "mujoco", "gymnasium", "stable_baselines3", "safetensors", "scipy", "matplotlib", "rich"
):
    sys.modules[name] = None

import numpy as np
from clashsim.bench import device_pushing
from clashsim.nets.strike_table import StrikeTable

device_pushing._SECONDS = 0.05
names = ("speed", "point", "deflection")
grids = [np.linspace(0.2, 0.8, 5), np.linspace(0.26, 2.88, 5), np.linspace(-0.26, 0.26, 5)]
speed = np.meshgrid(*grids, indexing="ij")[0].reshape(-1, 1)
table = StrikeTable.from_rest_poses(names, grids, speed**2 * [[0.0, 0.3, 0.1]])
scene = SimpleNamespace(name="bare", strikes=SimpleNamespace(point=(0.26, 2.88)))
config = device_pushing.PpoConfig(steps=2048, num_envs=64)
print(len(device_pushing.measure_rates(table, scene, "cpu", (64,), config=config)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "2", done.stderr
