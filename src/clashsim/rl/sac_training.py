"""Train a policy of sequential pushing with SAC, in checkpoints from which a killed training goes
on to the same policy.
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

with needs("Stable-Baselines3", "rl"):
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import configure


@dataclass(frozen=True)
class SacConfig:
    """How a policy is trained: `num_envs` copies are struck at once, then `gradient_steps` gradient steps are
    made on batches of `batch`.
    """

    steps: int = 200_000
    num_envs: int = 64
    gradient_steps: int = 16
    batch: int = 256
    width: int = 128
    learning_rate: float = 1e-3
    gamma: float = 0.95
    # Strikes by a look one strike ahead, to begin with: at random, two in three leave the corridor
    guided: int = 20_000
    warmup_strikes: int = 100  # strikes before the first update, at random if not guided
    anywhere_share: float = 0.5  # share of starts anywhere in the corridor
    noise: float = 0.3  # standard deviations of the model's own by which outcomes scatter
    checkpoint_interval: int = 20_000  # strikes between checkpoints


# The library's default hyper-parameters, one copy, one update a strike, as in the paper.
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
    """A policy for one segment; with `folder`, checkpoints and a log for TensorBoard are kept
    there, and a later call goes on from them.
    """
    env = StrikeVecEnv(
        Push.of(
            scene,
            model,
            config.num_envs,
            StartDistribution(anywhere_share=config.anywhere_share, noise=config.noise),
        ),
        seed=seed,
    )
    sac = _sac(env, config, seed)
    job = {
        "recipe": asdict(config),
        "seed": seed,
        "scene": scene.name,
        "names": list(model.names),
        "model": checkpoint.fingerprint(model),
    }
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        sac.set_logger(configure(str(folder / "log"), ["tensorboard"]))
        checkpoint.resume(folder, job, lambda about, tensors: _restore(sac, env, about, tensors))
    else:
        sac.set_logger(configure(None, []))
    with progress("training", config.steps) as advance:
        if sac.num_timesteps == 0:
            guided(sac, env, min(config.guided, config.steps // 4))
        advance(sac.num_timesteps)
        while sac.num_timesteps < config.steps:
            before = sac.num_timesteps
            sac.learn(
                min(config.checkpoint_interval, config.steps - before),
                reset_num_timesteps=False,
                log_interval=50,
            )
            advance(sac.num_timesteps - before)
            if folder is not None:
                _keep(sac, env, folder, job)
    return Policy(_layers(sac), model.names, model.low, model.high, heading_offset_of(scene), job)


def _sac(env: StrikeVecEnv, config: SacConfig, seed: int) -> SAC:
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


def guided(sac: SAC, env: Any, strikes: int) -> None:
    """Fill the buffer with guided strikes, which count as steps."""
    seen = env.reset()
    for _ in range(strikes // env.num_envs):
        action = env.guide()
        env.step_async(action)
        after, reward, done, infos = env.step_wait()
        last = after.copy()
        for i in map(int, np.flatnonzero(done)):
            last[i] = infos[i]["terminal_observation"]
        assert sac.replay_buffer is not None
        sac.replay_buffer.add(seen, last, action, reward, done, infos)
        seen = after
        sac.num_timesteps += env.num_envs
    if strikes:
        sac._last_obs, sac._last_episode_starts = seen, np.ones(env.num_envs, bool)


def _layers(sac: SAC) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    actor: Any = sac.policy.actor
    linear = [m for m in actor.latent_pi if isinstance(m, torch.nn.Linear)] + [actor.mu]
    return tuple((m.weight.detach().numpy().copy(), m.bias.detach().numpy().copy()) for m in linear)


def _modules(sac: SAC) -> dict[str, Any]:
    """All that is optimised, by name."""
    policy: Any = sac.policy
    return {"actor": policy.actor, "critic": policy.critic, "target": policy.critic_target}


def _optimisers(sac: SAC) -> dict[str, torch.optim.Optimizer]:
    policy: Any = sac.policy
    assert sac.ent_coef_optimizer is not None
    return {
        "actor": policy.actor.optimizer,
        "critic": policy.critic.optimizer,
        "entropy": sac.ent_coef_optimizer,
    }


def _keep(sac: SAC, env: StrikeVecEnv, folder: Path, job: dict[str, Any]) -> None:
    """Write weights, moments of the optimisers, the buffer and all random states: no pickle, and
    the new checkpoint replaces the old one at once.
    """
    buffer: Any = sac.replay_buffer
    filled = buffer.buffer_size if buffer.full else buffer.pos
    tensors = {
        f"{name}.{key}": value.contiguous()
        for name, module in _modules(sac).items()
        for key, value in module.state_dict().items()
    }
    for name, optimiser in _optimisers(sac).items():
        tensors |= checkpoint.moments(name, optimiser)
    assert sac.log_ent_coef is not None
    state: Any = np.random.get_state()  # the library draws batches from numpy's global generator
    tensors |= {
        "log_entropy": sac.log_ent_coef.detach().clone(),
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(state[1].astype(np.int64)),
    }
    arrays = {
        k: getattr(buffer, k)[:filled]
        for k in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
    }
    tensors |= {f"buffer.{k}": torch.from_numpy(np.ascontiguousarray(v)) for k, v in arrays.items()}
    about = {
        "job": job,
        "env": env.state(),
        "steps": sac.num_timesteps,
        "updates": sac._n_updates,
        "pos": buffer.pos,
        "full": buffer.full,
        "numpy": [int(state[2]), int(state[3]), float(state[4])],
        "space": _plain(env.action_space.np_random.bit_generator.state),
    }
    checkpoint.write_checkpoint(
        folder, tensors, about, steps=sac.num_timesteps, of=job["recipe"]["steps"]
    )


def _restore(
    sac: SAC, env: StrikeVecEnv, about: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    for name, module in _modules(sac).items():
        module.load_state_dict({k: tensors[f"{name}.{k}"] for k in module.state_dict()})
    for name, optimiser in _optimisers(sac).items():
        checkpoint.remember(name, optimiser, tensors)
    assert sac.log_ent_coef is not None
    with torch.no_grad():
        sac.log_ent_coef.copy_(tensors["log_entropy"])
    buffer: Any = sac.replay_buffer
    for k in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        stored = tensors[f"buffer.{k}"].numpy()
        getattr(buffer, k)[: len(stored)] = stored
    buffer.pos, buffer.full = about["pos"], about["full"]
    sac.num_timesteps, sac._n_updates = about["steps"], about["updates"]
    sac._last_obs = env.restore(about["env"])
    sac._last_episode_starts = np.ones(env.num_envs, bool)
    env.action_space.np_random.bit_generator.state = about["space"]
    torch.set_rng_state(tensors["torch"])
    position, gauss, cached = about["numpy"]
    np.random.set_state(
        ("MT19937", tensors["numpy"].numpy().astype(np.uint32), position, gauss, cached)
    )


def _plain(state: Any) -> Any:
    """A generator's state with arrays as lists."""
    if isinstance(state, dict):
        return {k: _plain(v) for k, v in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
