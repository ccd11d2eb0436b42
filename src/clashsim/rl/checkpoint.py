"""Checkpoints: one .safetensors file, from which training continues after it was killed."""

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

_CHECKPOINT_FILE = "checkpoint.safetensors"
_PROGRESS_FILE = "checkpoint.json"
_FINGERPRINT_STRIKES = 16
_FINGERPRINT_DECIMALS = 9  # of m and rad: smaller differences are rounding errors
# What reading or restoring a damaged checkpoint raises.
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
    """Return a hash of the poses at which a few strikes leave a body.

    By it, `resume` refuses to continue training in another model than that of the checkpoint.
    """
    n = _FINGERPRINT_STRIKES
    shares = np.random.default_rng(0).uniform(size=(n, len(model.low)))
    strikes = model.low + (model.high - model.low) * shares
    start_poses = np.zeros((n, 3))
    rests = np.round(model.rest(start_poses, strikes), _FINGERPRINT_DECIMALS)
    return hashlib.sha256(rests.tobytes()).hexdigest()[:16]


def optimiser_moments(name: str, optimiser: torch.optim.Optimizer) -> Tensors:
    """Return the moments and step counts of an optimiser, by keys that begin with `name`."""
    tensors = {}
    for index, moments in optimiser.state_dict()["state"].items():
        for key, value in moments.items():
            tensors[f"{name}.moments.{index}.{key}"] = torch.as_tensor(value).cpu().clone()
    return tensors


def restore_optimiser(name: str, optimiser: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Give an optimiser back the moments that `optimiser_moments` returned."""
    prefix = f"{name}.moments."
    moments: dict[int, Tensors] = {}
    for full_key, value in tensors.items():
        if full_key.startswith(prefix):
            _, _, index, key = full_key.split(".")  # as `optimiser_moments` makes it
            moments.setdefault(int(index), {})[key] = value
    state = optimiser.state_dict()
    state["state"] = moments
    optimiser.load_state_dict(state)


def write_checkpoint(
    folder: Path, tensors: Tensors, about: dict[str, Any], *, steps: int, of: int
) -> None:
    """Write a checkpoint; it replaces the previous one in a single step, so one is always whole.

    Args:
        folder: Where it is written.
        tensors: Weights and other state.
        about: The part of the state that is saved as JSON; about["job"] identifies the training.
        steps: Strikes made so far.
        of: Strikes of the whole training.
    """
    write_atomic(folder / _CHECKPOINT_FILE, save(tensors, {"about": json.dumps(about)}))
    write_atomic(folder / _PROGRESS_FILE, json.dumps({"steps": steps, "of": of}).encode())


def resume(
    folder: Path, job: dict[str, Any], restore: Callable[[dict[str, Any], Tensors], None]
) -> None:
    """Restore the checkpoint of a folder, if there is one.

    Args:
        folder: Where `write_checkpoint` wrote it.
        job: Identifies the training that continues; a checkpoint of another one is refused.
        restore: Called with the `about` and the `tensors` that were given to `write_checkpoint`.
    """
    path = folder / _CHECKPOINT_FILE
    if not path.is_file():
        return
    try:
        content = path.read_bytes()
        about = parse_json(tensor_metadata(content)["about"], "the description of the checkpoint")
        tensors = load(content)
        is_same_job = about["job"] == job
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    if not is_same_job:
        raise DataError(
            f"{str(folder)!r} holds another training: delete it, or choose another output"
        )
    try:
        restore(about, tensors)
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DataError:
    """Return the error of a checkpoint that cannot be used."""
    kind = type(error).__name__
    return DataError(f"the checkpoint {str(path)!r} is damaged ({kind}): delete it to start again")
