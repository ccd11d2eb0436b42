"""Train a policy of sequential pushing with thousands of copies on one torch device, in checkpoints
from which a killed training goes on to the same policy.
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
from clashsim.rl.device_env import DevicePush, play_episodes
from clashsim.rl.device_ppo import PpoConfig, PpoLearner
from clashsim.rl.policy import Policy
from clashsim.rl.push import StartDistribution, heading_offset_of

_EPISODES = 4096  # by which a policy is judged in the model


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
    """A policy for one segment, trained in a map of strikes, of which a copy is moved to the
    device; with `folder`, checkpoints are kept there.

    Its notes tell the share of episodes that reach the sub-goal and their mean return, both with
    outcomes that scatter as the model is unsure.
    """
    job = {
        "recipe": asdict(config),
        "seed": seed,
        "scene": scene.name,
        "names": list(model.names),
        "model": checkpoint.fingerprint(model),
        "device": device,
    }
    there = copy.deepcopy(model).to(device=device, dtype=torch.float32)
    learner = PpoLearner(
        DevicePush.of(
            scene, there, config.num_envs, starts=config.starts, device=device, seed=seed
        ),
        config,
    )
    a_round = config.num_envs * config.horizon
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.resume(folder, job, lambda about, tensors: _restore(learner, about, tensors))
    with progress("training", config.rounds * a_round) as advance:
        advance(learner.rounds_done * a_round)
        while learner.rounds_done < config.rounds:
            learner.train_round()
            advance(a_round)
            if folder is not None and (
                learner.rounds_done % max(1, config.checkpoint_interval // a_round) == 0
                or learner.rounds_done == config.rounds
            ):
                _keep(learner, folder, job)
    reached, total = play_episodes(
        DevicePush.of(
            scene,
            there,
            _EPISODES,
            starts=StartDistribution(noise=1.0),
            device=device,
            seed=seed + 1,
        ),
        learner.act,
    )
    notes = job | {
        "strikes": config.rounds * a_round,
        "reached": float(reached.double().mean()),
        "return": float(total.mean()),
    }
    linear = [m for m in learner.actor if isinstance(m, nn.Linear)]
    layers = tuple(
        (m.weight.detach().cpu().numpy().copy(), m.bias.detach().cpu().numpy().copy())
        for m in linear
    )
    return Policy(layers, model.names, model.low, model.high, heading_offset_of(scene), notes)


def _keep(learner: PpoLearner, folder: Path, job: dict[str, Any]) -> None:
    """Write weights, moments, where the bodies lie and the state of the random numbers."""
    task = learner.task
    tensors = {
        f"weights.{k}": v.detach().cpu().contiguous() for k, v in learner.state_dict().items()
    } | checkpoint.moments("both", learner.optimiser)
    tensors |= {name: getattr(task, name).cpu().contiguous() for name in task.kept} | {
        "rng": task.rng.get_state()
    }
    steps = learner.rounds_done * learner.config.num_envs * learner.config.horizon
    checkpoint.write_checkpoint(
        folder,
        tensors,
        {"job": job, "done": learner.rounds_done},
        steps=steps,
        of=learner.config.steps,
    )


def _restore(learner: PpoLearner, about: dict[str, Any], tensors: checkpoint.Tensors) -> None:
    task = learner.task
    learner.load_state_dict({k: tensors[f"weights.{k}"] for k in learner.state_dict()})
    checkpoint.remember("both", learner.optimiser, tensors)
    for name in task.kept:
        getattr(task, name).copy_(tensors[name])
    task.rng.set_state(tensors["rng"])
    learner.rounds_done = int(about["done"])
