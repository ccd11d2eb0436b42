"""The state of SAC in training as tensors and JSON: networks, optimisers, buffer, random states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from clashsim.core.extras import needs
from clashsim.rl import checkpoint
from clashsim.rl.env import StrikeVecEnv

with needs("Stable-Baselines3", "rl"):
    from stable_baselines3 import SAC

_BUFFER_ARRAYS = (
    "observations",
    "next_observations",
    "actions",
    "rewards",
    "dones",
    "timeouts",
)


def write_sac_checkpoint(sac: SAC, env: StrikeVecEnv, *, folder: Path, job: dict[str, Any]) -> None:
    """Write all that later steps of training depend on, in the place of the previous checkpoint.

    Args:
        sac: SAC in training.
        env: The environments that it is trained in.
        folder: Where the checkpoint is kept.
        job: Identifies the training, so that no other one continues from the checkpoint.
    """
    buffer: Any = sac.replay_buffer
    rows_filled = buffer.buffer_size if buffer.full else buffer.pos
    tensors: checkpoint.Tensors = {}
    for name, module in _networks(sac).items():
        for key, value in module.state_dict().items():
            tensors[f"{name}.{key}"] = value.contiguous()
    for name, optimiser in _optimisers(sac).items():
        tensors |= checkpoint.optimiser_moments(name, optimiser)
    assert sac.log_ent_coef is not None
    # Stable-Baselines3 samples batches with numpy's global generator.
    random_state: Any = np.random.get_state()
    _, numbers, position, has_gauss, cached_gauss = random_state
    tensors |= {
        "log_entropy": sac.log_ent_coef.detach().clone(),
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(numbers.astype(np.int64)),
    }
    for name in _BUFFER_ARRAYS:
        filled = getattr(buffer, name)[:rows_filled]
        tensors[f"buffer.{name}"] = torch.from_numpy(np.ascontiguousarray(filled))
    about = {
        "job": job,
        "env": env.state(),
        "steps": sac.num_timesteps,
        "updates": sac._n_updates,
        "pos": buffer.pos,
        "full": buffer.full,
        "numpy": [int(position), int(has_gauss), float(cached_gauss)],
        "space": _with_lists(env.action_space.np_random.bit_generator.state),
    }
    checkpoint.write_checkpoint(
        folder, tensors, about, steps=sac.num_timesteps, of=job["config"]["steps"]
    )


def restore_sac(
    sac: SAC, env: StrikeVecEnv, *, about: dict[str, Any], tensors: checkpoint.Tensors
) -> None:
    """Give SAC the state that it had when a checkpoint was written.

    Args:
        sac: SAC, newly made.
        env: The environments that it is trained in.
        about: The part of the checkpoint that was saved as JSON.
        tensors: The tensors of the checkpoint.
    """
    for name, module in _networks(sac).items():
        module.load_state_dict({key: tensors[f"{name}.{key}"] for key in module.state_dict()})
    for name, optimiser in _optimisers(sac).items():
        checkpoint.restore_optimiser(name, optimiser, tensors)
    assert sac.log_ent_coef is not None
    with torch.no_grad():
        sac.log_ent_coef.copy_(tensors["log_entropy"])
    buffer: Any = sac.replay_buffer
    for name in _BUFFER_ARRAYS:
        stored = tensors[f"buffer.{name}"].numpy()
        getattr(buffer, name)[: len(stored)] = stored
    buffer.pos = about["pos"]
    buffer.full = about["full"]
    sac.num_timesteps = about["steps"]
    sac._n_updates = about["updates"]
    sac._last_obs = env.restore(about["env"])
    sac._last_episode_starts = np.ones(env.num_envs, bool)
    env.action_space.np_random.bit_generator.state = about["space"]
    torch.set_rng_state(tensors["torch"])
    position, has_gauss, cached_gauss = about["numpy"]
    numbers = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", numbers, position, has_gauss, cached_gauss))


def _networks(sac: SAC) -> dict[str, Any]:
    """Return the networks by their names in a checkpoint."""
    policy: Any = sac.policy
    return {"actor": policy.actor, "critic": policy.critic, "target": policy.critic_target}


def _optimisers(sac: SAC) -> dict[str, torch.optim.Optimizer]:
    """Return the optimisers by their names in a checkpoint."""
    policy: Any = sac.policy
    assert sac.ent_coef_optimizer is not None
    return {
        "actor": policy.actor.optimizer,
        "critic": policy.critic.optimizer,
        "entropy": sac.ent_coef_optimizer,
    }


def _with_lists(state: Any) -> Any:
    """Return the state of a random generator with arrays as lists, for JSON."""
    if isinstance(state, dict):
        return {key: _with_lists(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
