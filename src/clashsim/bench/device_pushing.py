"""The pushing task on a torch device: strikes a second of many copies, and a whole training. Needs
torch and numpy alone, so that it runs on a bare GPU machine.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from clashsim.bench.rows import Row, optional
from clashsim.nets.strike_table import StrikeTable
from clashsim.rl.device_env import DevicePush, play_episodes
from clashsim.rl.device_ppo import PpoConfig, PpoLearner
from clashsim.rl.push import StartDistribution

if TYPE_CHECKING:
    from clashsim.core.scene import Scene

SUCCESS = 0.999  # share of episodes that reach the sub-goal at which a training counts as done
_SECONDS = 1.0
_EPISODES = 4096  # by which a policy is judged


def measure_rates(
    strike_table: StrikeTable,
    scene: Scene,
    device: str,
    num_envs: Sequence[int] = (4096, 65536, 1 << 20),
    *,
    config: PpoConfig = PpoConfig(),
) -> list[dict[str, Any]]:
    """Rows of what, method, per_second: random strikes of so many copies, then a training, whose
    row has `seconds`, `strikes` and `reached` as well.

    Of the scene its name and which side may be struck matter only. The training is as long as the
    recipe says; `until`, `until_strikes`: seconds and strikes after which `SUCCESS` was met first,
    None if it never was.
    """
    model = copy.deepcopy(strike_table).to(device).float()
    rows: list[Row] = []
    for n in num_envs:
        head = {"what": "environment steps", "method": f"{n} copies on {device}"}
        with optional(rows, **head):
            task = DevicePush.of(scene, model, n, starts=config.starts, device=device)
            rows.append(head | {"per_second": n * _steps_a_second(task)})
    with optional(rows, what="training", method=f"PPO, {config.num_envs} copies on {device}"):
        rows.append(_trained(model, scene, device, config))
    return rows


@torch.no_grad()
def _steps_a_second(task: DevicePush) -> float:
    """Of all copies, by random actions that are made on the device and counted in the time."""
    shape, device = (len(task.pose), len(task.low)), task.pose.device

    def some() -> None:
        for _ in range(4):
            task.step(2 * torch.rand(shape, generator=task.rng, device=device) - 1)
        _wait(device)

    for _ in range(3):
        some()
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < _SECONDS:
        some()
        calls += 4
    return calls / (time.perf_counter() - begin)


def _trained(model: StrikeTable, scene: Scene, device: str, config: PpoConfig) -> dict[str, Any]:
    """A training by the clock, which stands still while its policy is judged."""
    warm = _learner(
        model, scene, device, replace(config, steps=4 * config.num_envs * config.horizon), 1
    )
    for _ in range(
        2
    ):  # a guided round and another: kernels are compiled and memory is taken at first use
        warm.train_round()
    a_round = config.num_envs * config.horizon
    learner, took, until, reached = _learner(model, scene, device, config, 0), 0.0, None, 0.0
    while learner.rounds_done < config.rounds:
        _wait(torch.device(device))
        begin = time.perf_counter()
        learner.train_round()
        _wait(torch.device(device))
        took += time.perf_counter() - begin
        if until is None or learner.rounds_done == config.rounds:
            task = DevicePush.of(
                scene, model, _EPISODES, starts=StartDistribution(noise=1.0), device=device, seed=2
            )
            reached = float(play_episodes(task, learner.act)[0].double().mean())
            until = (
                (took, learner.rounds_done * a_round)
                if until is None and reached >= SUCCESS
                else until
            )
    strikes = config.rounds * a_round
    return {
        "what": "training",
        "method": f"PPO, {config.num_envs} copies on {device}",
        "per_second": strikes / took,
        "seconds": took,
        "strikes": strikes,
        "reached": reached,
        "until": until and until[0],
        "until_strikes": until and until[1],
    }


def _learner(
    model: StrikeTable, scene: Scene, device: str, config: PpoConfig, seed: int
) -> PpoLearner:
    return PpoLearner(
        DevicePush.of(
            scene, model, config.num_envs, starts=config.starts, device=device, seed=seed
        ),
        config,
    )


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
