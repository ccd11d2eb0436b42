"""Sequential pushing on one torch device: the same task as in numpy, no look at the host, training
that resumes, the command.
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
    """Slides along its heading by half the speed squared, and turns with the point that is struck:
    easy to learn, and known exactly.
    """

    names, takes_noise = ("speed", "point", "deflection"), True
    low, high = np.array([0.2, 0.26, -0.26]), np.array([0.8, 2.88, 0.26])

    def __init__(self, strength: float = 0.3) -> None:
        super().__init__()
        self.register_buffer("strength", torch.tensor(strength, dtype=torch.float64))

    def forward(self, pose, strike, noise=None):
        turn = strike[:, 1] - np.pi / 2
        heading = pose[:, 2] + heading_offset_of(SCENE) + 0.5 * turn
        far = self.strength * strike[:, 0] ** 2 * (1 if noise is None else 1 + 0.02 * noise[:, 0])
        return pose + torch.stack(
            [far * torch.cos(heading), far * torch.sin(heading), 0.4 * turn], 1
        )

    def rest(self, pose, strike, noise=None):
        return self(
            *(
                None if a is None else torch.as_tensor(a, dtype=self.strength.dtype)
                for a in (pose, strike, noise)
            )
        ).numpy()


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_it_is_the_task_of_numpy(dtype, near):
    n, rng = 500, np.random.default_rng(0)
    there, here = (
        DevicePush.of(
            SCENE,
            Toy().to(dtype),
            n,
            starts=StartDistribution(anywhere_share=0.5),
            seed=1,
            dtype=dtype,
        ),
        Push.of(SCENE, Toy(), n),
    )
    here.pose, here.turn, here.made = (getattr(there, name).double().numpy() for name in there.kept)
    ends = np.zeros(n, bool)
    for _ in range(MAX_STRIKES):
        np.testing.assert_allclose(there.observe().numpy(), here.observe(), atol=max(near, 1e-6))
        action = rng.uniform(-1.5, 1.5, (n, 3))  # beyond the box, too
        told, expected = (
            there.strike(torch.as_tensor(action, dtype=dtype)),
            here.strike(action, rng),
        )
        np.testing.assert_allclose(there.pose.numpy(), here.pose, atol=near)
        gap = np.hypot(here.pose[:, 0] - SEGMENT_LENGTH, here.pose[:, 1])
        edge = (
            np.min(
                np.abs(
                    [
                        gap - GOAL_RADIUS,
                        np.abs(here.pose[:, 1]) - GOAL_RADIUS,
                        here.pose[:, 0] + GOAL_RADIUS,
                        here.pose[:, 0] - SEGMENT_LENGTH - GOAL_RADIUS,
                    ]
                ),
                axis=0,
            )
            < 10 * near
        )
        assert edge.mean() < 0.01  # there rounding decides
        np.testing.assert_allclose(told[0].numpy()[~edge], expected[0][~edge], atol=10 * near)
        for a, b in zip(told[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(a.numpy()[~edge], b[~edge])
        ends |= expected[1]
    assert ends.all() and not here.starts.noise


def test_starts_are_drawn_as_the_spread_says():
    spread = StartDistribution(position_radius=0.02, heading=0.5, turn=1.2, anywhere_share=0.4)
    task = DevicePush.of(SCENE, Toy().float(), 20_000, starts=spread, seed=3)
    x, y, heading = task.pose[:, 0], task.pose[:, 1], task.pose[:, 2] + task.heading_offset
    assert (
        (y.abs() <= 0.02 + 1e-6).all()
        and (heading.abs() <= 0.5 + 1e-5).all()
        and (task.turn.abs() <= 1.2).all()
        and (task.made == 0).all()
    )
    assert ((x >= -0.02 - 1e-6) & (x <= SEGMENT_LENGTH - GOAL_RADIUS + 0.02 + 1e-6)).all()
    assert float((x > 0.02 + 1e-6).float().mean()) == pytest.approx(
        0.4 * (1 - 0.02 / (SEGMENT_LENGTH - GOAL_RADIUS)), abs=0.03
    )
    assert float((task.turn == 0).float().mean()) == pytest.approx(0.25, abs=0.02) and float(
        heading.std()
    ) == pytest.approx(0.5 / 3**0.5, abs=0.01)
    before = task.pose.clone()
    task.made += 2
    task.restart(torch.arange(20_000) % 2 == 0)
    assert (
        torch.equal(task.pose[1::2], before[1::2])
        and not torch.isin(task.pose[::2, 2], before[::2, 2]).all()
    )
    assert (task.made[::2] == 0).all() and (task.made[1::2] == 2).all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_seed_gives_the_same_numbers(device):
    def ran(seed):
        task = DevicePush.of(
            SCENE,
            Toy().float().to(device),
            256,
            starts=StartDistribution(noise=1.0),
            device=device,
            seed=seed,
        )
        rewards = [task.step(task.guide(tries=2))[0] for _ in range(8)]
        return torch.stack([*rewards, task.turn])

    assert torch.equal(ran(5), ran(5)) and not torch.equal(ran(5), ran(6))


def test_a_look_ahead_finds_what_numpy_finds_good():
    task = DevicePush.of(SCENE, Toy().float(), 2000, seed=0)
    guided = play_episodes(task, lambda seen: task.guide())[0].float().mean()
    assert (
        guided
        > 0.9
        > 0.4
        > play_episodes(task, lambda seen: 2 * torch.rand(2000, 3, generator=task.rng) - 1)[0]
        .float()
        .mean()
    )


class Waits(TorchDispatchMode):
    """Counts what a host would have to wait for a device for: numbers read, rows counted, tensors
    copied elsewhere.
    """

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, options = func.overloadpacket.__name__, kwargs or {}
        by_mask = name in ("index", "index_put_") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        moved = name == "_to_copy" and options.get("device") is not None
        self.count += (
            by_mask or moved or name in ("_local_scalar_dense", "nonzero", "masked_select", "equal")
        )
        return func(*args, **options)


def test_a_step_never_waits_for_the_device():
    learner = PpoLearner(
        DevicePush.of(SCENE, Toy().float(), 64, starts=StartDistribution(noise=1.0)), TINY
    )
    task, ended = learner.task, torch.arange(64) % 2 == 0
    with Waits() as waits:
        task.step(task.guide(tries=2))
        learner._collect_round()
    assert waits.count == 0
    for ask in (
        lambda: task.pose[ended],
        lambda: float(task.pose.sum()),
        lambda: ended.nonzero(),
        lambda: bool(ended.any()),
    ):
        with Waits() as waits:
            ask()
        assert waits.count > 0  # the test can fail


def test_a_trivial_route_is_learned_and_policies_are_the_usual_ones(tmp_path):
    train(
        SCENE,
        Toy(),
        config=replace(
            TINY, steps=40_000, num_envs=256, epochs=4, batch=256, width=32, guided=10_000
        ),
        seed=0,
    ).save(tmp_path / "p.safetensors")
    policy, rng, toy = Policy.load(tmp_path / "p.safetensors"), np.random.default_rng(0), Toy()
    assert policy.notes["reached"] > 0.95 and policy.notes["scene"] == "semi_cylinder"
    done = [
        follow(
            ROUTES["1"],
            policy,
            Simulated(toy, sample_start(ROUTES["1"], policy.heading_offset, rng)),
        )
        for _ in range(40)
    ]
    assert np.mean([d.success for d in done]) > 0.9


def test_without_guidance_it_learns_too():
    config = replace(TINY, guided=0, starts=-0.5, learning_rate=3e-3, steps=40_960)
    learner = PpoLearner(
        DevicePush.of(SCENE, Toy().float(), config.num_envs, starts=config.starts), config
    )
    judge = [
        float(
            play_episodes(DevicePush.of(SCENE, Toy().float(), 1000, seed=9), learner.act)[1].mean()
        )
    ]
    for _ in range(config.rounds):
        learner.train_round()
    judge.append(
        float(
            play_episodes(DevicePush.of(SCENE, Toy().float(), 1000, seed=9), learner.act)[1].mean()
        )
    )
    assert judge[1] > judge[0] + 0.5


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
    for other in ({"seed": 4}, {"model": Toy(0.31)}, {"recipe": replace(TINY, learning_rate=1e-4)}):
        with pytest.raises(ClashError, match="another training"):
            train(
                SCENE,
                **({"model": Toy(), "recipe": TINY, "seed": 3} | other),
                device=device,
                folder=tmp_path / "part",
            )
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ClashError, match="damaged"):
        train(SCENE, Toy(), config=TINY, seed=3, device=device, folder=tmp_path / "part")


def test_the_command_trains_on_a_device(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "clashsim.fit.run_folder.load",
        lambda run: type("Run", (), {"scene": SCENE, "strikes": lambda self: Toy()})(),
    )
    monkeypatch.setitem(
        sys.modules, "stable_baselines3", None
    )  # the training library is not asked for
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
        policy.notes["recipe"]["copies"] == 64
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
        (["--device", "cpu", "--recipe", "paper"], "Stable-Baselines3"),
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


def test_rates_of_copies_and_of_a_training(monkeypatch):
    monkeypatch.setattr(device_pushing, "_SECONDS", 0.05)
    rows = device_pushing.measure_rates(Toy(), SCENE, "cpu", num_envs=(64, 1024), config=TINY)
    assert [r["method"] for r in rows[:2]] == ["64 copies on cpu", "1024 copies on cpu"] and rows[
        2
    ]["what"] == "training"
    assert all(r["per_second"] > 0 for r in rows)
    assert rows[2]["strikes"] == TINY.steps and (rows[2]["until"] is None) == (
        rows[2]["reached"] < device_pushing.SUCCESS
    )


def test_a_bare_machine_with_torch_is_enough():
    code = """
import sys
from types import SimpleNamespace
for name in ("mujoco", "gymnasium", "stable_baselines3", "safetensors", "scipy", "matplotlib", "rich"):
    sys.modules[name] = None
from clashsim.bench import device_pushing
from clashsim.nets.strike_table import StrikeTable
import numpy as np
grids = [np.linspace(*ends, 5) for ends in ((0.2, 0.8), (0.26, 2.88), (-0.26, 0.26))]
speed = np.meshgrid(*grids, indexing="ij")[0].reshape(-1, 1)
device_pushing._SECONDS = 0.05
table = StrikeTable.from_rest_poses(("speed", "point", "deflection"), grids, speed**2 * [[0.0, 0.3, 0.1]])
scene = SimpleNamespace(name="bare", strikes=SimpleNamespace(point=(0.26, 2.88)))
print(len(device_pushing.measure_rates(table, scene, "cpu", (64,), config=device_pushing.PpoConfig(steps=2048, num_envs=64))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "2", done.stderr
