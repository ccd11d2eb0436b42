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
from clashsim.rl.device_env import CardPush, played
from clashsim.rl.device_ppo import CardRecipe, Learner
from clashsim.rl.policy import Policy
from clashsim.rl.push import Spread, heading_of

_EPISODES = 4096  # by which a policy is judged in the model


def train(
    scene: Scene,
    model: Any,
    *,
    recipe: CardRecipe = CardRecipe(),
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
        "recipe": asdict(recipe),
        "seed": seed,
        "scene": scene.name,
        "names": list(model.names),
        "model": checkpoint.fingerprint(model),
        "device": device,
    }
    there = copy.deepcopy(model).to(device=device, dtype=torch.float32)
    learner = Learner(
        CardPush.of(scene, there, recipe.copies, spread=recipe.starts, device=device, seed=seed),
        recipe,
    )
    a_round = recipe.copies * recipe.horizon
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.resume(folder, job, lambda about, tensors: _restore(learner, about, tensors))
    with progress("training", recipe.rounds * a_round) as advance:
        advance(learner.done * a_round)
        while learner.done < recipe.rounds:
            learner.round()
            advance(a_round)
            if folder is not None and (
                learner.done % max(1, recipe.every // a_round) == 0 or learner.done == recipe.rounds
            ):
                _keep(learner, folder, job)
    reached, total = played(
        CardPush.of(
            scene, there, _EPISODES, spread=Spread(noise=1.0), device=device, seed=seed + 1
        ),
        learner.act,
    )
    notes = job | {
        "strikes": recipe.rounds * a_round,
        "reached": float(reached.double().mean()),
        "return": float(total.mean()),
    }
    linear = [m for m in learner.actor if isinstance(m, nn.Linear)]
    layers = tuple(
        (m.weight.detach().cpu().numpy().copy(), m.bias.detach().cpu().numpy().copy())
        for m in linear
    )
    return Policy(layers, model.names, model.low, model.high, heading_of(scene), notes)


def _keep(learner: Learner, folder: Path, job: dict[str, Any]) -> None:
    """Write weights, moments, where the bodies lie and the state of the random numbers."""
    task = learner.task
    tensors = {
        f"weights.{k}": v.detach().cpu().contiguous() for k, v in learner.state_dict().items()
    } | checkpoint.moments("both", learner.optimiser)
    tensors |= {name: getattr(task, name).cpu().contiguous() for name in task.kept} | {
        "rng": task.rng.get_state()
    }
    steps = learner.done * learner.recipe.copies * learner.recipe.horizon
    checkpoint.keep(
        folder, tensors, {"job": job, "done": learner.done}, steps=steps, of=learner.recipe.steps
    )


def _restore(learner: Learner, about: dict[str, Any], tensors: checkpoint.Tensors) -> None:
    task = learner.task
    learner.load_state_dict({k: tensors[f"weights.{k}"] for k in learner.state_dict()})
    checkpoint.remember("both", learner.optimiser, tensors)
    for name in task.kept:
        getattr(task, name).copy_(tensors[name])
    task.rng.set_state(tensors["rng"])
    learner.done = int(about["done"])
