"""The pushing task on a torch device: environment steps per second, and a whole training.

Needs torch and numpy alone, so that it runs on a bare GPU machine.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from clashsim.bench.rows import Row, optional
from clashsim.bench.timing import seconds_per_call, wait_for
from clashsim.nets.strike_table import StrikeTable
from clashsim.rl.device_env import DevicePush, play_episodes
from clashsim.rl.device_ppo import PpoConfig, PpoLearner
from clashsim.rl.push import StartDistribution

if TYPE_CHECKING:
    from clashsim.core.scene import Scene

SUCCESS = 0.999  # share of test episodes that reach the sub-goal, at which a policy is trained
_SECONDS = 1.0  # for which environment steps are measured
_TEST_EPISODES = 4096
_TEST_SEED = 2
_WARM_UP_ROUNDS = 2  # one guided, one not: kernels are compiled and memory is taken at first use


def measure_rates(
    strike_table: StrikeTable,
    scene: Scene,
    device: str,
    num_envs: Sequence[int] = (4096, 65536, 1 << 20),
    *,
    config: PpoConfig = PpoConfig(),
) -> list[dict[str, Any]]:
    """Measure environment steps per second, then a training.

    Args:
        strike_table: The model that simulates strikes.
        scene: Only its name and the side that may be struck are used.
        device: Torch device, as in "cuda".
        num_envs: Numbers of environments for which random steps are measured, one after the other.
        config: Configuration of the training, which has its own number of environments.

    Returns:
        Rows of what, method and per_second. The row of the training also has `seconds`, `strikes`,
        `reached` (share of test episodes in which the trained policy reaches the sub-goal), and
        `until` and `until_strikes`: seconds and strikes of training after which this share was
        first at least `SUCCESS`, None if never.
    """
    model = copy.deepcopy(strike_table).to(device).float()
    rows: list[Row] = []
    for n in num_envs:
        head = {"what": "environment steps", "method": f"{n} environments on {device}"}
        with optional(rows, **head):
            task = DevicePush.of(scene, model, n, starts=config.starts, device=device)
            rows.append(head | {"per_second": n * _steps_per_second(task)})
    method = f"PPO, {config.num_envs} environments on {device}"
    with optional(rows, what="training", method=method):
        training = _Training(model, scene, device, config)
        rows.append({"what": "training", "method": method} | training.measure())
    return rows


@torch.no_grad()
def _steps_per_second(task: DevicePush) -> float:
    """Steps per second, each of which moves all environments.

    The time to draw random actions on the device is included.
    """
    shape = (len(task.pose), len(task.low))
    device = task.pose.device

    def take_step() -> None:
        task.step(2 * torch.rand(shape, generator=task.rng, device=device) - 1)

    return 1 / seconds_per_call(take_step, device, at_least=_SECONDS)


@dataclass(frozen=True, eq=False)
class _Training:
    """A training that is timed; the tests of the policy are not part of the time."""

    model: StrikeTable
    scene: Scene
    device: str
    config: PpoConfig

    def measure(self) -> Row:
        """Train; returns the figures of the training's row."""
        self._warm_up()
        learner = self._learner(self.config, seed=0)
        strikes_per_round = self.config.num_envs * self.config.horizon
        seconds = 0.0
        reached = 0.0
        seconds_until = None
        strikes_until = None
        while learner.rounds_done < self.config.rounds:
            wait_for(self.device)
            begin = time.perf_counter()
            learner.train_round()
            wait_for(self.device)
            seconds += time.perf_counter() - begin
            last = learner.rounds_done == self.config.rounds
            if seconds_until is None or last:
                reached = self._test(learner)
            if seconds_until is None and reached >= SUCCESS:
                seconds_until = seconds
                strikes_until = learner.rounds_done * strikes_per_round
        strikes = self.config.rounds * strikes_per_round
        return {
            "per_second": strikes / seconds,
            "seconds": seconds,
            "strikes": strikes,
            "reached": reached,
            "until": seconds_until,
            "until_strikes": strikes_until,
        }

    def _warm_up(self) -> None:
        """Train another policy for a few rounds, before the clock runs."""
        four_rounds = 4 * self.config.num_envs * self.config.horizon
        learner = self._learner(replace(self.config, steps=four_rounds), seed=1)
        for _ in range(_WARM_UP_ROUNDS):
            learner.train_round()

    def _test(self, learner: PpoLearner) -> float:
        """Share of test episodes in which the policy reaches the sub-goal."""
        task = DevicePush.of(
            self.scene,
            self.model,
            _TEST_EPISODES,
            starts=StartDistribution(noise=1.0),
            device=self.device,
            seed=_TEST_SEED,
        )
        reached, _ = play_episodes(task, learner.act)
        return float(reached.double().mean())

    def _learner(self, config: PpoConfig, *, seed: int) -> PpoLearner:
        task = DevicePush.of(
            self.scene,
            self.model,
            config.num_envs,
            starts=config.starts,
            device=self.device,
            seed=seed,
        )
        return PpoLearner(task, config)
