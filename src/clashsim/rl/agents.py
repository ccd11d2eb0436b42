"""Agents that are trained further as their simulator improves: SAC and PPO of Stable-Baselines3.

Between two training runs an agent is kept as plain weights.
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
from clashsim.rl.sac_training import add_guided_strikes

with needs("Stable-Baselines3", "rl"):
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.utils import set_random_seed

Algorithm = Literal["sac", "ppo"]
Weights = Mapping[str, torch.Tensor]
_HIDDEN_WIDTH = 64
_GAMMA = 0.95  # discount factor
_LEARNING_RATE = 1e-3
_BATCH_SIZE = 256  # strikes in a gradient step
_MIN_BUFFER = 1000  # strikes
_PPO_HORIZON = 16  # strikes of each environment between updates
_PPO_INITIAL_LOG_STD = -0.7  # of the actions, which are in [-1, 1]
_SAC_WARMUP = 100  # strikes before the first update
_ENTROPY_KEY = "log_entropy"  # key of SAC's entropy coefficient among the weights


@dataclass(frozen=True)
class AgentTrainingConfig:
    """How long an agent is trained.

    Attributes:
        first: Strikes of the first training run.
        guided: How many of these strikes a lookahead chooses.
        later: Strikes of each later training run, which continues from the last weights.
    """

    first: int = 30_000
    guided: int = 6_000
    later: int = 10_000


@dataclass(frozen=True, eq=False)
class Agent:
    """A trained agent, which maps observations to actions.

    Attributes:
        algorithm: Algorithm with which it was trained.
        weights: Parameters of its networks by name.
        _model: The Stable-Baselines3 model that has these weights.
    """

    algorithm: Algorithm
    weights: Weights
    _model: Any

    def act(self, observation: np.ndarray, *, seed: int | None = None) -> np.ndarray:
        """Return actions (N, d) in [-1, 1].

        Args:
            observation: Observations (N, o), as the task of the environments returns them.
            seed: None for the best actions; a number to sample them as in training.
        """
        if seed is not None:
            set_random_seed(seed)
        action, _ = self._model.predict(observation, deterministic=seed is None)
        return np.clip(np.asarray(action, float), -1, 1)

    def save(self, path: Path) -> None:
        """Write the weights as one .safetensors file."""
        tensors = {name: weight.contiguous() for name, weight in self.weights.items()}
        write_atomic(path, save(tensors))


def train_on_env(
    env: StrikeVecEnv | InformativeVecEnv,
    algorithm: Algorithm,
    *,
    strikes: int,
    guided_strikes: int = 0,
    seed: int = 0,
    last: Weights | None = None,
) -> Agent:
    """Train an agent.

    Args:
        env: The environments.
        algorithm: "sac" or "ppo".
        strikes: Number of strikes to train for.
        guided_strikes: How many of these a lookahead chooses, at the beginning (SAC only).
        seed: Seed of all random numbers.
        last: Weights to continue from; None: new ones.
    """
    model = _make_model(env, algorithm, strikes=strikes, seed=seed)
    if last is not None:
        _restore(model, last)
    model.set_logger(configure(None, []))
    if algorithm == "sac" and guided_strikes:
        add_guided_strikes(model, env, min(guided_strikes, strikes // 2))
    is_first = model.num_timesteps == 0
    model.learn(strikes - model.num_timesteps, reset_num_timesteps=is_first)
    return Agent(algorithm, _weights(model), model)


def load_agent(env: StrikeVecEnv, algorithm: Algorithm, path: Path) -> Agent:
    """Return an agent as `Agent.save` wrote it.

    Args:
        env: Environments of the task that it was trained on.
        algorithm: Algorithm with which it was trained.
        path: The file.
    """
    model = _make_model(env, algorithm, strikes=_MIN_BUFFER, seed=0)
    try:
        weights = load_file(path)
        _restore(model, weights)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"{str(path)!r} is no {algorithm} agent of this task ({type(error).__name__})"
        ) from None
    return Agent(algorithm, weights, model)


def _make_model(env: Any, algorithm: Algorithm, *, strikes: int, seed: int) -> Any:
    """Return an untrained model of Stable-Baselines3."""
    network: dict[str, Any] = {"net_arch": [_HIDDEN_WIDTH, _HIDDEN_WIDTH]}
    if algorithm == "sac":
        return SAC(
            "MlpPolicy",
            env,
            learning_rate=_LEARNING_RATE,
            buffer_size=max(strikes, _MIN_BUFFER),
            learning_starts=_SAC_WARMUP,
            batch_size=_BATCH_SIZE,
            gamma=_GAMMA,
            train_freq=1,
            gradient_steps=8,
            policy_kwargs=network,
            seed=seed,
            device="cpu",
        )
    return PPO(
        "MlpPolicy",
        env,
        learning_rate=_LEARNING_RATE,
        n_steps=_PPO_HORIZON,
        batch_size=min(_BATCH_SIZE, _PPO_HORIZON * env.num_envs),
        n_epochs=5,
        gamma=_GAMMA,
        policy_kwargs=network | {"log_std_init": _PPO_INITIAL_LOG_STD},
        seed=seed,
        device="cpu",
    )


def _weights(model: Any) -> dict[str, torch.Tensor]:
    """Return the parameters of a model's networks, and the entropy coefficient of SAC, by name."""
    weights = {name: value.detach().clone() for name, value in model.policy.state_dict().items()}
    if isinstance(model, SAC):
        assert model.log_ent_coef is not None
        weights[_ENTROPY_KEY] = model.log_ent_coef.detach().clone()
    return weights


def _restore(model: Any, weights: Weights) -> None:
    """Give a model the weights that `_weights` returned."""
    networks = {name: value for name, value in weights.items() if name != _ENTROPY_KEY}
    model.policy.load_state_dict(networks)
    if isinstance(model, SAC):
        assert model.log_ent_coef is not None
        with torch.no_grad():
            model.log_ent_coef.copy_(weights[_ENTROPY_KEY])
