"""Training a pushing policy through the simulator, against PPO and SAC.

How many strikes does a policy of sequential pushing (CLASH, Sec. IV-C) need until it reaches the
sub-goal in 99 % of episodes? All methods train in the same strike table, of the shipped scene
`semi_cylinder`, with outcomes that vary by the model's standard deviation. Every 512 strikes the
policy plays 4,096 test episodes, which are not counted.

| method | |
|---|---|
| `analytic` | gradients through strike table, poses and observations (`rl.analytic_policy`) |
| `ppo`, `sac` | clashsim's PPO and Stable-Baselines3's SAC, first with strikes of a lookahead |
| `ppo-scratch` | PPO without a lookahead |
| `ppo-scratch-16` | the same in 16 environments instead of 64, as many as `analytic` has |
| `ppo-smooth` | `ppo-scratch` with the smoothed rewards of `analytic` |

A lookahead reads the table for 48 random strikes before each strike: `evaluations` counts these
readings too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, measured, optional
from clashsim.bench.strike_models import StrikeModels
from clashsim.core.scene import Scene
from clashsim.nets.strike_table import StrikeTable
from clashsim.rl.analytic_policy import AnalyticConfig, AnalyticLearner, soft_outcome
from clashsim.rl.corridor_formulas import LOOKAHEAD_TRIES, StartDistribution, StrikeOutcome
from clashsim.rl.device_env import DevicePush, play_episodes
from clashsim.rl.device_ppo import PpoConfig, PpoLearner
from clashsim.sim.hybrid.strike_table import strike_table

OPTIONS = frozenset({"seeds", "methods"})
SUCCESS = 0.99  # share of test episodes that reach the sub-goal
_SCENE = "semi_cylinder"
_TIMESTEP = 4e-3  # s, of the hybrid simulator whose slides the table's slide model is fitted to
_SLIDE_SEED = 0
_TEST_INTERVAL = 512  # strikes between tests
_TEST_EPISODES = 4096
_TEST_SEED = 2
_NUM_SEEDS = 5
_QUICK_STRIKES = 1024
_ANALYTIC = AnalyticConfig()
# With a lookahead, 16 environments needed as many strikes as 64, in one training each.
_PPO = PpoConfig(steps=100_000, num_envs=64, batch=256)
_PPO_SCRATCH = PpoConfig(steps=50_000, num_envs=64, batch=256, guided=0)
_PPO_SCRATCH_16 = PpoConfig(steps=50_000, num_envs=16, batch=64, guided=0)
_SAC_STRIKES = 10_000
_SAC_GUIDED_SHARE = 0.25  # of the strikes, that a lookahead chooses at the beginning


class Learner(Protocol):
    """A policy in training."""

    @property
    def strikes(self) -> int:
        """Number of simulated strikes so far."""

    @property
    def evaluations(self) -> int:
        """Number of reads of the strike table so far, those of lookaheads included."""

    def train(self) -> None:
        """Train for one round."""

    def act(self, observation: Tensor) -> Tensor:
        """Return the policy's best actions (N, d) for observations (N, 7)."""


class SmoothRewardPush(DevicePush):
    """The pushing task with the smoothed rewards that an analytic policy is trained with."""

    def strike(self, action: Tensor) -> StrikeOutcome:
        """Strike all bodies by actions (N, d), as `DevicePush.strike`."""
        outcome = super().strike(action)
        soft = soft_outcome(self, _ANALYTIC.softness)
        return outcome._replace(reward=soft.reward)


class _DeviceLearner:
    """A learner of `clashsim.rl`, whose rounds are counted.

    Args:
        learner: An `AnalyticLearner` or a `PpoLearner`.
        guided_rounds: Number of rounds in which a lookahead chooses.
    """

    def __init__(self, learner: Any, guided_rounds: int = 0) -> None:
        self.strikes = 0
        self.evaluations = 0
        self._learner = learner
        self._guided_rounds = guided_rounds

    def train(self) -> None:
        """Train for one round."""
        strikes = self._learner.config.round_strikes
        is_guided = self._learner.rounds_done < self._guided_rounds
        self._learner.train_round()
        self.strikes += strikes
        self.evaluations += strikes * (1 + LOOKAHEAD_TRIES * is_guided)

    def act(self, observation: Tensor) -> Tensor:
        """Return the policy's best actions (N, d) for observations (N, 7)."""
        actions: Tensor = self._learner.act(observation)
        return actions


class _SacLearner:
    """SAC of Stable-Baselines3 with clashsim's config; a round is 512 strikes."""

    def __init__(self, problem: _Problem, *, steps: int, seed: int) -> None:
        from stable_baselines3.common.logger import configure

        from clashsim.rl.env import StrikeVecEnv
        from clashsim.rl.push import Push
        from clashsim.rl.sac_training import SacConfig, add_guided_strikes, make_sac

        config = SacConfig(steps=steps, noise=1.0)
        starts = StartDistribution(anywhere_share=config.anywhere_share, noise=config.noise)
        task = Push.of(problem.scene, problem.table, config.num_envs, starts)
        env = StrikeVecEnv(task, seed=seed)
        self._sac = make_sac(env, config, seed)
        self._sac.set_logger(configure(None, []))
        add_guided_strikes(self._sac, env, int(_SAC_GUIDED_SHARE * steps))
        self._lookahead_readings = LOOKAHEAD_TRIES * self._sac.num_timesteps

    @property
    def strikes(self) -> int:
        """Strikes so far."""
        return int(self._sac.num_timesteps)

    @property
    def evaluations(self) -> int:
        """Readings of the strike table so far."""
        return self.strikes + self._lookahead_readings

    def train(self) -> None:
        """Train for one round."""
        self._sac.learn(_TEST_INTERVAL, reset_num_timesteps=False)

    def act(self, observation: Tensor) -> Tensor:
        """Return the policy's best actions (N, d) for observations (N, 7)."""
        action, _ = self._sac.predict(observation.numpy(), deterministic=True)
        return torch.as_tensor(action)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The task: a scene and its strike table, in double and in single precision."""

    scene: Scene
    table: StrikeTable
    single: StrikeTable

    @staticmethod
    def make() -> _Problem:
        """Make the strike table of the shipped scene."""
        scene = Scene.load(_SCENE)
        hybrid = StrikeModels(scene, _SLIDE_SEED).with_slide_model()
        table = strike_table(hybrid)
        single = strike_table(hybrid).float()
        return _Problem(scene, table, single)

    def task(self, num_envs: int, starts: StartDistribution, seed: int) -> DevicePush:
        """Environments of the pushing task."""
        return DevicePush.of(self.scene, self.single, num_envs, starts=starts, seed=seed)

    def success(self, learner: Learner) -> float:
        """Share of test episodes in which a policy reaches the sub-goal."""
        task = self.task(_TEST_EPISODES, StartDistribution(noise=1.0), _TEST_SEED)
        reached, _ = play_episodes(task, learner.act)
        return float(reached.double().mean())


def _analytic(problem: _Problem, seed: int) -> Learner:
    task = problem.task(_ANALYTIC.num_envs, _ANALYTIC.starts, seed)
    return _DeviceLearner(AnalyticLearner(task, _ANALYTIC))


def _ppo(problem: _Problem, seed: int) -> Learner:
    task = problem.task(_PPO.num_envs, _PPO.starts, seed)
    return _DeviceLearner(PpoLearner(task, _PPO), _PPO.guided_rounds)


def _ppo_scratch(problem: _Problem, seed: int) -> Learner:
    task = problem.task(_PPO_SCRATCH.num_envs, _PPO_SCRATCH.starts, seed)
    return _DeviceLearner(PpoLearner(task, _PPO_SCRATCH))


def _ppo_scratch_16(problem: _Problem, seed: int) -> Learner:
    task = problem.task(_PPO_SCRATCH_16.num_envs, _PPO_SCRATCH_16.starts, seed)
    return _DeviceLearner(PpoLearner(task, _PPO_SCRATCH_16))


def _ppo_smooth(problem: _Problem, seed: int) -> Learner:
    task = problem.task(_PPO_SCRATCH.num_envs, _PPO_SCRATCH.starts, seed)
    return _DeviceLearner(PpoLearner(SmoothRewardPush(**vars(task)), _PPO_SCRATCH))


def _sac(problem: _Problem, seed: int) -> Learner:
    return _SacLearner(problem, steps=_SAC_STRIKES, seed=seed)


# Makes an untrained policy for a seed, and the number of strikes after which training is given up.
METHODS = {
    "analytic": (_analytic, _ANALYTIC.steps),
    "ppo": (_ppo, _PPO.steps),
    "ppo-scratch": (_ppo_scratch, _PPO_SCRATCH.steps),
    "ppo-scratch-16": (_ppo_scratch_16, _PPO_SCRATCH_16.steps),
    "ppo-smooth": (_ppo_smooth, _PPO_SCRATCH.steps),
    "sac": (_sac, _SAC_STRIKES),
}


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Train policies until they succeed.

    Args:
        options: Its `seeds` is the number of trainings per method.

    Returns:
        A row per method and seed, and one per method over all seeds. `strikes` is the number of
        strikes until success, None if there was none within `limit` strikes.
    """
    methods = choose(options.methods, list(METHODS), what="method")
    seeds = options.repetitions(_NUM_SEEDS)
    problem = _Problem.make()
    rows: list[Row] = []
    with options.progress("policies", len(methods) * seeds) as advance:
        for method in methods:
            for seed in range(seeds):
                with optional(rows, method=method, seed=seed):
                    rows.append(_train(problem, method, seed, quick=options.quick))
                options.save(rows + _over_seeds(measured(rows)))
                advance(1)
    return rows + _over_seeds(measured(rows))


def _train(problem: _Problem, method: str, seed: int, *, quick: bool) -> Row:
    """Train one policy until it succeeds; returns its row."""
    make, limit = METHODS[method]
    if quick:
        limit = _QUICK_STRIKES
    begin = time.process_time()
    learner = make(problem, seed)
    seconds = time.process_time() - begin
    reached = 0.0
    while learner.strikes < limit and reached < SUCCESS:
        begin = time.process_time()
        strikes_before = learner.strikes
        while learner.strikes < strikes_before + _TEST_INTERVAL:
            learner.train()
        seconds += time.process_time() - begin
        reached = problem.success(learner)
    succeeded = reached >= SUCCESS
    return {
        "method": method,
        "seed": seed,
        "strikes": learner.strikes if succeeded else None,
        "evaluations": learner.evaluations if succeeded else None,
        "limit": limit,
        "reached": reached,
        "seconds": round(seconds, 2),
    }


def _over_seeds(rows: list[Row]) -> list[Row]:
    """A row per method: medians over its seeds; a training without success counts as the longest.

    A median that falls on a training without success is None.
    """
    sums = []
    for method in dict.fromkeys(row["method"] for row in rows):
        group = [row for row in rows if row["method"] == method]
        total: Row = {"method": method, "seed": "all", "limit": group[0]["limit"]}
        for key in ("strikes", "evaluations"):
            values = [np.inf if row[key] is None else row[key] for row in group]
            median = float(np.median(values))
            total[key] = median if np.isfinite(median) else None
        total["succeeded"] = sum(row["strikes"] is not None for row in group)
        total["of"] = len(group)
        total["reached"] = float(np.mean([row["reached"] for row in group]))
        total["seconds"] = float(np.median([row["seconds"] for row in group]))
        sums.append(total)
    return sums
