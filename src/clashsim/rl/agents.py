"""Agents that are trained again and again as their simulator improves: SAC and PPO of
Stable-Baselines3, kept as plain weights between trainings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from clashsim.core.errors import DataError
from clashsim.core.extras import needs
from clashsim.core.files import write_atomic
from clashsim.rl.env import StrikeVecEnv
from clashsim.rl.informative import InformativeVecEnv
from clashsim.rl.sac_training import guided

with needs("Stable-Baselines3", "rl"):
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.utils import set_random_seed

Algorithm = Literal["sac", "ppo"]
Weights = Mapping[str, torch.Tensor]
_WIDTH = 64
_GAMMA = 0.95


@dataclass(frozen=True)
class AgentTrainingConfig:
    """Strikes of the first training, guided ones among them, and of each later one from the last
    weights.
    """

    first: int = 30_000
    guided: int = 6_000
    later: int = 10_000


@dataclass(frozen=True, eq=False)
class Agent:
    """A trained agent: from observations to actions."""

    algorithm: Algorithm
    weights: Weights
    _model: Any

    def act(self, observation: np.ndarray, *, seed: int | None = None) -> np.ndarray:
        """Actions (N, d) in [-1, 1]: its best, or with a seed drawn as in training."""
        if seed is not None:
            set_random_seed(seed)
        action, _ = self._model.predict(observation, deterministic=seed is None)
        return np.clip(np.asarray(action, float), -1, 1)

    def save(self, path: Path) -> None:
        """Write one .safetensors file."""
        write_atomic(path, save({k: v.contiguous() for k, v in self.weights.items()}))


def train_on_env(
    env: StrikeVecEnv | InformativeVecEnv,
    algorithm: Algorithm,
    *,
    strikes: int,
    guided_strikes: int = 0,
    seed: int = 0,
    last: Weights | None = None,
) -> Agent:
    """Train for so many strikes, from the weights of the last training where there was one; guides:
    strikes by a look ahead to begin with (SAC only).
    """
    model = _model(env, algorithm, strikes, seed)
    if last is not None:
        _restore(model, last)
    model.set_logger(configure(None, []))
    if algorithm == "sac" and guided_strikes:
        guided(model, env, min(guided_strikes, strikes // 2))
    model.learn(strikes - model.num_timesteps, reset_num_timesteps=model.num_timesteps == 0)
    return Agent(algorithm, _weights(model), model)


def load_agent(env: StrikeVecEnv, algorithm: Algorithm, path: Path) -> Agent:
    """An agent as `save` wrote it."""
    model = _model(env, algorithm, 1000, 0)
    try:
        weights = load_file(path)
        _restore(model, weights)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"{str(path)!r} is no {algorithm} agent of this task ({type(error).__name__})"
        ) from None
    return Agent(algorithm, weights, model)


def _model(env: Any, algorithm: Algorithm, strikes: int, seed: int) -> Any:
    kwargs: dict[str, Any] = {"net_arch": [_WIDTH, _WIDTH]}
    if algorithm == "sac":
        return SAC(
            "MlpPolicy",
            env,
            learning_rate=1e-3,
            buffer_size=max(strikes, 1000),
            learning_starts=100,
            batch_size=256,
            gamma=_GAMMA,
            train_freq=1,
            gradient_steps=8,
            policy_kwargs=kwargs,
            seed=seed,
            device="cpu",
        )
    return PPO(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        n_steps=16,
        batch_size=min(256, 16 * env.num_envs),
        n_epochs=5,
        gamma=_GAMMA,
        policy_kwargs=kwargs | {"log_std_init": -0.7},
        seed=seed,
        device="cpu",
    )


def _weights(model: Any) -> dict[str, torch.Tensor]:
    kept = {k: v.detach().clone() for k, v in model.policy.state_dict().items()}
    if isinstance(model, SAC):
        assert model.log_ent_coef is not None
        kept["log_entropy"] = model.log_ent_coef.detach().clone()
    return kept


def _restore(model: Any, weights: Weights) -> None:
    model.policy.load_state_dict({k: v for k, v in weights.items() if k != "log_entropy"})
    if isinstance(model, SAC):
        assert model.log_ent_coef is not None
        with torch.no_grad():
            model.log_ent_coef.copy_(weights["log_entropy"])
