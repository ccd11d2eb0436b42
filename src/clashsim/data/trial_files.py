"""Trials in one safetensors file: no pickle, written whole or not at all, the same trials giving
the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from clashsim.core.errors import DataError, quoted
from clashsim.core.files import write_atomic
from clashsim.core.parsing import parse_json
from clashsim.core.tensors import read_tensors
from clashsim.core.trials import SOURCES, Trial, Trials

LIMIT = 4 << 30  # bytes of a file: it is read into memory
_FORMAT = 1


def write_trials(path: Path | str, trials: Trials) -> None:
    """Write trials to a .safetensors file."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise DataError(
            f"trials can be written to files ending in .safetensors, not to {path.name!r}"
        )
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder, not a file to write trials to")
    try:
        write_atomic(path, to_bytes(trials))
    except OSError as error:
        raise DataError(f"trials cannot be written to {str(path)!r}: {error.strerror}") from None


def to_bytes(trials: Trials) -> bytes:
    """Trials as safetensors; arrays are numbered, and one JSON text says which is which."""
    tensors: dict[str, np.ndarray] = {}

    def keep(array: np.ndarray) -> str:
        tensors[key := f"{len(tensors):08d}"] = np.ascontiguousarray(array, dtype=float)
        return key

    about = [
        {
            "name": trial.name,
            "source": trial.source,
            "t": keep(trial.t),
            "known": [[k, float(v)] for k, v in trial.known.items()],
            "poses": [[k, keep(v)] for k, v in trial.poses.items()],
            "signals": [[k, keep(v)] for k, v in trial.signals.items()],
        }
        for trial in trials
    ]
    # One key only: safetensors writes several in an order that changes from run to run.
    whole = {"format": _FORMAT, "kind": "trials", "trials": about} | (
        {"notes": list(trials.notes)} if trials.notes else {}
    )
    return save(tensors, {"clashsim": json.dumps(whole, sort_keys=True)})


def read_trials(path: Path | str) -> Trials:
    """Trials from a file that `write_trials` wrote."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"trials {str(path)!r} is a folder, not a file")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} with trials")
    try:
        size = path.stat().st_size
        if size > LIMIT:
            raise DataError(
                f"trials file {path.name!r} has {size / 1e9:.1f} GB, more than the {LIMIT / 1e9:.1f} GB allowed"
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"trials file {path.name!r} cannot be read: {error.strerror}") from None
    try:
        return from_bytes(content)
    except DataError as error:
        raise DataError(f"in {path.name!r}: {error}") from None


def from_bytes(content: bytes) -> Trials:
    """Trials from safetensors."""
    tensors, metadata = read_tensors(content)
    about = parse_json(metadata.get("clashsim", "null"), "the description in the safetensors file")
    if not isinstance(about, dict) or about.get("kind") != "trials":
        raise DataError("the safetensors file does not hold clashsim's trials")
    if about.get("format") != _FORMAT:
        found = quoted(about.get("format"))
        raise DataError(f"the trials have format {found}, this version reads format {_FORMAT}")
    if any(array.dtype != np.float64 for array in tensors.values()):
        raise DataError("the safetensors file holds other types than 64-bit floating-point numbers")
    try:
        return Trials(
            tuple(_trial(entry, tensors) for entry in about["trials"]),
            tuple(str(note) for note in about.get("notes", ())),
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise DataError(
            "the safetensors file lacks parts of clashsim's trials (name, source, t, poses, signals, known)"
        ) from None


def _trial(entry: dict, tensors: dict[str, np.ndarray]) -> Trial:
    if not isinstance(entry["name"], str) or entry["source"] not in SOURCES:
        raise DataError("a trial's name or source is damaged")
    poses, signals = ({str(k): tensors[v] for k, v in entry[kind]} for kind in ("poses", "signals"))
    if any(
        values.ndim == 0 for values in (*poses.values(), *signals.values(), tensors[entry["t"]])
    ):
        raise DataError("an array of the trials has no rows")
    return Trial(
        entry["name"],
        tensors[entry["t"]],
        poses,
        entry["source"],
        signals,
        {str(k): float(v) for k, v in entry["known"]},
    )
