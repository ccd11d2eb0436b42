"""Train a policy of sequential pushing with SAC of Stable-Baselines3.

Training that was killed continues from a checkpoint, and ends with the same policy.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clashsim.core.extras import needs
from clashsim.core.progress import Progress, quiet
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.rl import checkpoint
from clashsim.rl.env import StrikeVecEnv
from clashsim.rl.policy import Policy
from clashsim.rl.push import Push, StartDistribution, heading_offset_of
from clashsim.rl.sac_state import restore_sac, write_sac_checkpoint

with needs("Stable-Baselines3", "rl"):
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import configure

_MIN_STEPS_PER_GUIDED = 4  # at most one strike in this many is guided
_LOG_INTERVAL = 50  # episodes between rows of the log


@dataclass(frozen=True)
class SacConfig:
    """How a policy is trained with SAC.

    Attributes:
        steps: Number of strikes in all.
        num_envs: Environments that are struck at once.
        gradient_steps: Gradient steps each time that all environments were struck.
        batch: Strikes in a gradient step.
        width: Width of the two hidden layers.
        learning_rate: Learning rate of all networks.
        gamma: Discount factor.
        guided: Number of strikes at the beginning that a lookahead chooses; of random strikes two
            in three leave the corridor.
        warmup_strikes: Strikes before the first update, at random if none are guided.
        anywhere_share: Share of the starts that are anywhere in the corridor.
        noise: Outcomes vary by this many of the model's own standard deviations.
        checkpoint_interval: Strikes between checkpoints.
    """

    steps: int = 200_000
    num_envs: int = 64
    gradient_steps: int = 16
    batch: int = 256
    width: int = 128
    learning_rate: float = 1e-3
    gamma: float = 0.95
    guided: int = 20_000
    warmup_strikes: int = 100
    anywhere_share: float = 0.5
    noise: float = 0.3
    checkpoint_interval: int = 20_000


# As in the paper: Stable-Baselines3's default hyper-parameters, one environment, one update per
# strike.
PAPER = SacConfig(
    num_envs=1,
    gradient_steps=1,
    batch=256,
    width=256,
    learning_rate=3e-4,
    gamma=0.99,
    guided=0,
    warmup_strikes=100,
    anywhere_share=0.0,
    noise=0.0,
)


def train(
    scene: Scene,
    model: StrikeModel,
    *,
    config: SacConfig = SacConfig(),
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress = quiet,
) -> Policy:
    """Train a policy for one segment.

    Args:
        scene: The scene of the model.
        model: Predicts where a struck body comes to rest.
        config: How to train.
        seed: Seed of all random numbers.
        folder: Where checkpoints and a log for TensorBoard are kept; a later call continues from
            the checkpoint.
        progress: Shows how many strikes were made.
    """
    starts = StartDistribution(anywhere_share=config.anywhere_share, noise=config.noise)
    env = StrikeVecEnv(Push.of(scene, model, config.num_envs, starts), seed=seed)
    sac = make_sac(env, config, seed)
    job = {
        "config": asdict(config),
        "seed": seed,
        "scene": scene.name,
        "names": list(model.names),
        "model": checkpoint.fingerprint(model),
    }
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        sac.set_logger(configure(str(folder / "log"), ["tensorboard"]))

        def restore(about: dict[str, Any], tensors: checkpoint.Tensors) -> None:
            restore_sac(sac, env, about=about, tensors=tensors)

        checkpoint.resume(folder, job, restore)
    else:
        sac.set_logger(configure(None, []))  # no log
    with progress("training", config.steps) as advance:
        if sac.num_timesteps == 0:
            add_guided_strikes(sac, env, min(config.guided, config.steps // _MIN_STEPS_PER_GUIDED))
        advance(sac.num_timesteps)
        while sac.num_timesteps < config.steps:
            steps_before = sac.num_timesteps
            sac.learn(
                min(config.checkpoint_interval, config.steps - steps_before),
                reset_num_timesteps=False,
                log_interval=_LOG_INTERVAL,
            )
            advance(sac.num_timesteps - steps_before)
            if folder is not None:
                write_sac_checkpoint(sac, env, folder=folder, job=job)
    return Policy(
        layers=_layers(sac),
        names=model.names,
        low=model.low,
        high=model.high,
        heading_offset=heading_offset_of(scene),
        notes=job,
    )


def make_sac(env: StrikeVecEnv, config: SacConfig, seed: int) -> SAC:
    """Return an untrained SAC of Stable-Baselines3 for some environments."""
    return SAC(
        "MlpPolicy",
        env,
        learning_rate=config.learning_rate,
        buffer_size=config.steps,
        learning_starts=config.warmup_strikes,
        batch_size=config.batch,
        gamma=config.gamma,
        train_freq=1,
        gradient_steps=config.gradient_steps,
        policy_kwargs={"net_arch": [config.width, config.width]},
        seed=seed,
        device="cpu",
    )


def add_guided_strikes(sac: SAC, env: Any, strikes: int) -> None:
    """Fill the replay buffer with strikes of a lookahead; they are included in `num_timesteps`.

    Args:
        sac: SAC in training.
        env: The environments that it is trained in; their `guide` chooses the actions.
        strikes: How many to make, rounded down to whole batches of the environments.
    """
    observation = env.reset()
    for _ in range(strikes // env.num_envs):
        action = env.guide()
        env.step_async(action)
        next_observation, reward, done, infos = env.step_wait()
        # Where an episode ended, `next_observation` is already the start of the next one.
        last_observation = next_observation.copy()
        for i in map(int, np.flatnonzero(done)):
            last_observation[i] = infos[i]["terminal_observation"]
        assert sac.replay_buffer is not None
        sac.replay_buffer.add(observation, last_observation, action, reward, done, infos)
        observation = next_observation
        sac.num_timesteps += env.num_envs
    if strikes:
        sac._last_obs = observation
        sac._last_episode_starts = np.ones(env.num_envs, bool)


def _layers(sac: SAC) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return weights and biases of the actor's layers, as `Policy` takes them."""
    actor: Any = sac.policy.actor
    linear = [module for module in actor.latent_pi if isinstance(module, torch.nn.Linear)]
    layers = []
    for module in [*linear, actor.mu]:
        weight = module.weight.detach().numpy().copy()
        bias = module.bias.detach().numpy().copy()
        layers.append((weight, bias))
    return tuple(layers)
