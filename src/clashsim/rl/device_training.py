"""Train a policy of sequential pushing with thousands of environments on one torch device.

Training that was killed continues from a checkpoint, and ends with the same policy.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.rl import checkpoint
from clashsim.rl.corridor_formulas import StartDistribution
from clashsim.rl.device_env import DevicePush, play_episodes
from clashsim.rl.device_ppo import PpoConfig, PpoLearner
from clashsim.rl.policy import Policy
from clashsim.rl.push import heading_offset_of

_TEST_EPISODES = 4096  # episodes in the model by which a trained policy is judged
_OPTIMISER_NAME = "both"  # in a checkpoint: one optimiser for actor and critic


def train(
    scene: Scene,
    model: Any,
    *,
    config: PpoConfig = PpoConfig(),
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    progress: Progress = quiet,
) -> Policy:
    """Train a policy for one segment in a strike table.

    Args:
        scene: The scene of the model.
        model: A strike table; a copy of it is moved to the device.
        config: How to train.
        seed: Seed of all random numbers.
        device: A device of torch.
        folder: Where checkpoints are kept; a later call continues from them.
        progress: Shows how many strikes were made.

    Returns:
        The policy. Its notes hold the share of episodes that reach the sub-goal and their mean
        return, both with outcomes that vary by the model's standard deviation.
    """
    job = {
        "config": asdict(config),
        "seed": seed,
        "scene": scene.name,
        "names": list(model.names),
        "model": checkpoint.fingerprint(model),
        "device": device,
    }
    device_model = copy.deepcopy(model).to(device=device, dtype=torch.float32)
    task = DevicePush.of(
        scene, device_model, config.num_envs, starts=config.starts, device=device, seed=seed
    )
    learner = PpoLearner(task, config)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.resume(folder, job, lambda about, tensors: _restore(learner, about, tensors))
    strikes = config.rounds * config.round_strikes
    rounds_per_checkpoint = max(1, config.checkpoint_interval // config.round_strikes)
    with progress("training", strikes) as advance:
        advance(learner.rounds_done * config.round_strikes)
        while learner.rounds_done < config.rounds:
            learner.train_round()
            advance(config.round_strikes)
            is_last = learner.rounds_done == config.rounds
            is_due = learner.rounds_done % rounds_per_checkpoint == 0
            if folder is not None and (is_due or is_last):
                _write_checkpoint(learner, folder, job)
    test_task = DevicePush.of(
        scene,
        device_model,
        _TEST_EPISODES,
        starts=StartDistribution(noise=1.0),
        device=device,
        seed=seed + 1,
    )
    reached, returns = play_episodes(test_task, learner.act)
    results = {
        "strikes": strikes,
        "reached": float(reached.double().mean()),
        "return": float(returns.mean()),
    }
    return Policy(
        layers=_layers(learner),
        names=model.names,
        low=model.low,
        high=model.high,
        heading_offset=heading_offset_of(scene),
        notes=job | results,
    )


def _layers(learner: PpoLearner) -> tuple[tuple[Any, Any], ...]:
    """Return weights (out, in) and biases (out,) of the actor's layers, as `Policy` takes them."""
    layers = []
    for module in learner.actor:
        if isinstance(module, nn.Linear):
            weight = module.weight.detach().cpu().numpy().copy()
            bias = module.bias.detach().cpu().numpy().copy()
            layers.append((weight, bias))
    return tuple(layers)


def _write_checkpoint(learner: PpoLearner, folder: Path, job: dict[str, Any]) -> None:
    """Write weights, optimiser state, environments and random state."""
    task = learner.task
    tensors = {
        _weight_key(name): value.detach().cpu().contiguous()
        for name, value in learner.state_dict().items()
    }
    tensors |= checkpoint.optimiser_moments(_OPTIMISER_NAME, learner.optimiser)
    for key, attribute in task.state_arrays.items():
        tensors[key] = getattr(task, attribute).cpu().contiguous()
    tensors["rng"] = task.rng.get_state()
    checkpoint.write_checkpoint(
        folder,
        tensors,
        {"job": job, "done": learner.rounds_done},
        steps=learner.rounds_done * learner.config.round_strikes,
        of=learner.config.steps,
    )


def _restore(learner: PpoLearner, about: dict[str, Any], tensors: checkpoint.Tensors) -> None:
    """Give a learner the state that it had when a checkpoint was written."""
    task = learner.task
    learner.load_state_dict({name: tensors[_weight_key(name)] for name in learner.state_dict()})
    checkpoint.restore_optimiser(_OPTIMISER_NAME, learner.optimiser, tensors)
    for key, attribute in task.state_arrays.items():
        getattr(task, attribute).copy_(tensors[key])
    task.rng.set_state(tensors["rng"])
    learner.rounds_done = int(about["done"])


def _weight_key(name: str) -> str:
    """Return the key of a weight in a checkpoint."""
    return f"weights.{name}"
