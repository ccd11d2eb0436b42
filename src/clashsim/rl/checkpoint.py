"""Checkpoints of a training: one .safetensors file without pickle, from which a killed training
goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.parsing import parse_json
from clashsim.core.tensors import tensor_metadata

if TYPE_CHECKING:
    from clashsim.core.protocols import StrikeModel

_CHECKPOINT, _PROGRESS = "checkpoint.safetensors", "checkpoint.json"
# What a damaged checkpoint raises on its way into a training.
_DAMAGE = (
    SafetensorError,
    DataError,
    OSError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RuntimeError,
)
Tensors = dict[str, torch.Tensor]


def fingerprint(model: StrikeModel) -> str:
    """A hash of where a few strikes end: a training may only go on in the model that it was begun
    in.
    """
    low, high = model.low, model.high
    strikes = low + (high - low) * np.random.default_rng(0).uniform(size=(16, len(low)))
    return hashlib.sha256(
        np.round(model.rest(np.zeros((16, 3)), strikes), 9).tobytes()
    ).hexdigest()[:16]


def moments(name: str, optimiser: torch.optim.Optimizer) -> Tensors:
    """What an optimiser remembers, by names that begin with its own."""
    found = optimiser.state_dict()["state"].items()
    return {
        f"{name}.moments.{i}.{key}": torch.as_tensor(value).cpu().clone()
        for i, kept in found
        for key, value in kept.items()
    }


def remember(name: str, optimiser: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Give an optimiser its `moments` back."""
    state = optimiser.state_dict()
    found = [k.split(".")[2:] for k in tensors if k.startswith(f"{name}.moments.")]
    state["state"] = {
        int(i): {key: tensors[f"{name}.moments.{j}.{key}"] for j, key in found if j == i}
        for i in {i for i, _ in found}
    }
    optimiser.load_state_dict(state)


def write_checkpoint(
    folder: Path, tensors: Tensors, about: dict[str, Any], *, steps: int, of: int
) -> None:
    """Write a checkpoint after so many steps of all; it replaces the old one at once."""
    write_atomic(folder / _CHECKPOINT, save(tensors, {"about": json.dumps(about)}))
    write_atomic(folder / _PROGRESS, json.dumps({"steps": steps, "of": of}).encode())


def resume(
    folder: Path, job: dict[str, Any], restore: Callable[[dict[str, Any], Tensors], None]
) -> None:
    """Restore what was kept in a folder, if it was kept by the same job; about["job"] tells that."""
    path = folder / _CHECKPOINT
    if not path.is_file():
        return
    try:
        content = path.read_bytes()
        about = parse_json(tensor_metadata(content)["about"], "the description of the checkpoint")
        tensors = load(content)
        same_job = about["job"] == job
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    if not same_job:
        there = repr(str(folder))
        raise DataError(f"{there} holds another training: delete it, or choose another output")
    try:
        restore(about, tensors)
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DataError:
    why = type(error).__name__
    return DataError(f"the checkpoint {str(path)!r} is damaged ({why}): delete it to begin anew")
