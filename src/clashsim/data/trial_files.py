"""Trials in one safetensors file: no pickle, written whole or not at all.

The same trials give the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from clashsim.core.errors import DataError, quoted
from clashsim.core.files import write_atomic
from clashsim.core.parsing import parse_json
from clashsim.core.tensors import read_tensors
from clashsim.core.trials import SOURCES, Trial, Trials

LIMIT = 4 << 30  # most bytes of a file, which is read into memory
_SUFFIX = ".safetensors"
_FORMAT = 1
# The only key of the metadata: safetensors writes several keys in an order that changes from run to
# run.
_METADATA = "clashsim"


def write_trials(path: Path | str, trials: Trials) -> None:
    """Write trials to a .safetensors file."""
    path = Path(path)
    if path.suffix != _SUFFIX:
        raise DataError(f"trials can be written to files ending in {_SUFFIX}, not to {path.name!r}")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder, not a file to write trials to")
    try:
        write_atomic(path, to_bytes(trials))
    except OSError as error:
        raise DataError(f"trials cannot be written to {str(path)!r}: {error.strerror}") from None


def to_bytes(trials: Trials) -> bytes:
    """Trials as the content of a safetensors file.

    Arrays have numbers as names, since names of bodies may be any text. A JSON description in the
    metadata says which array is which.
    """
    tensors: dict[str, np.ndarray] = {}

    def add_tensor(array: np.ndarray) -> str:
        key = f"{len(tensors):08d}"
        tensors[key] = np.ascontiguousarray(array, dtype=float)
        return key

    entries = []
    for trial in trials:
        entry = {
            "name": trial.name,
            "source": trial.source,
            "t": add_tensor(trial.t),
            "known": [[name, float(value)] for name, value in trial.known.items()],
            "poses": [[body, add_tensor(pose)] for body, pose in trial.poses.items()],
            "signals": [[name, add_tensor(values)] for name, values in trial.signals.items()],
        }
        entries.append(entry)
    description: dict[str, Any] = {"format": _FORMAT, "kind": "trials", "trials": entries}
    if trials.notes:
        description["notes"] = list(trials.notes)
    return save(tensors, {_METADATA: json.dumps(description, sort_keys=True)})


def read_trials(path: Path | str) -> Trials:
    """Read trials from a file that `write_trials` wrote."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"trials {str(path)!r} is a folder, not a file")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} with trials")
    try:
        size = path.stat().st_size
        if size > LIMIT:
            found = f"{size / 1e9:.1f} GB"
            allowed = f"{LIMIT / 1e9:.1f} GB"
            raise DataError(
                f"trials file {path.name!r} has {found}, more than the {allowed} allowed"
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"trials file {path.name!r} cannot be read: {error.strerror}") from None
    try:
        return from_bytes(content)
    except DataError as error:
        raise DataError(f"in {path.name!r}: {error}") from None


def from_bytes(content: bytes) -> Trials:
    """Trials from the content of a safetensors file."""
    tensors, metadata = read_tensors(content)
    json_text = metadata.get(_METADATA, "null")
    description = parse_json(json_text, "the description in the safetensors file")
    if not isinstance(description, dict) or description.get("kind") != "trials":
        raise DataError("the safetensors file does not hold clashsim's trials")
    if description.get("format") != _FORMAT:
        found = quoted(description.get("format"))
        raise DataError(f"the trials have format {found}, this version reads format {_FORMAT}")
    if any(array.dtype != np.float64 for array in tensors.values()):
        raise DataError("the safetensors file holds other types than 64-bit floating-point numbers")
    try:
        trials = tuple(_read_trial(entry, tensors) for entry in description["trials"])
        notes = tuple(str(note) for note in description.get("notes", ()))
        return Trials(trials, notes)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise DataError(
            "the safetensors file lacks parts of clashsim's trials"
            " (name, source, t, poses, signals, known)"
        ) from None


def _read_trial(entry: dict, tensors: dict[str, np.ndarray]) -> Trial:
    """One trial from its entry in the description."""
    if not isinstance(entry["name"], str) or entry["source"] not in SOURCES:
        raise DataError("a trial's name or source is damaged")
    t = tensors[entry["t"]]
    poses = {str(body): tensors[key] for body, key in entry["poses"]}
    signals = {str(name): tensors[key] for name, key in entry["signals"]}
    known = {str(name): float(value) for name, value in entry["known"]}
    if any(values.ndim == 0 for values in (t, *poses.values(), *signals.values())):
        raise DataError("an array of the trials has no rows")
    return Trial(entry["name"], t, poses, entry["source"], signals, known)
