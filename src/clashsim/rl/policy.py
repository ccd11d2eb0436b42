"""A trained policy: from observations to strikes, as plain weights that need no training library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.parsing import parse_json, read_bounded
from clashsim.core.tensors import read_tensors
from clashsim.rl.push import OBSERVATION_SIZE

_KIND = "clashsim-policy"
_BYTES = 1 << 28  # of a file; policies have a few hundred thousand
_LARGEST = 1e6  # weights beyond this are no result of training, and sums of them overflow


@dataclass(frozen=True, eq=False)
class Policy:
    """A perceptron with rectifiers and a tanh at its end; its output -1..1 spans strikes low..high
    (d,) by `names`. ahead: as `Push.heading_offset`.
    """

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]  # weights (out, in) and biases (out,)
    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    heading_offset: float
    notes: Mapping[str, Any]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Strikes (N, d) for observations (N, o)."""
        h = np.asarray(observation, np.float32)
        for i, (w, b) in enumerate(self.layers):
            h = h @ w.T + b
            if i + 1 < len(self.layers):
                h = np.maximum(h, 0)
        return self.low + (self.high - self.low) * (np.tanh(h).astype(float) + 1) / 2

    def save(self, path: Path) -> None:
        """Write one .safetensors file."""
        arrays = {
            f"{kind}{i}": np.ascontiguousarray(a)
            for i, layer in enumerate(self.layers)
            for kind, a in zip("wb", layer, strict=True)
        }
        about = {
            "kind": _KIND,
            "names": list(self.names),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "ahead": self.heading_offset,
            "notes": dict(self.notes),
        }
        write_atomic(path, save(arrays, {"about": json.dumps(about)}))

    @staticmethod
    def load(path: Path) -> Policy:
        """Read what `save` wrote."""
        content = read_bounded(path, f"policy {str(path)!r}", limit=_BYTES)
        try:
            arrays, metadata = read_tensors(content)
            about = parse_json(metadata["about"], "its description")
            return _policy(arrays, about)
        except (DataError, KeyError, ValueError, TypeError, OverflowError):
            raise DataError(f"{str(path)!r} is no policy as clashsim train writes it") from None


def _policy(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Policy:
    """A policy from the parts of its file; what does not belong together is a ValueError."""
    if about["kind"] != _KIND:
        raise ValueError("another kind of file")
    names, notes = about["names"], about["notes"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("names that are no names")
    if len(set(names)) != len(names):
        raise ValueError("a name twice")
    if not isinstance(notes, dict):
        raise ValueError("notes that are none")
    layers = tuple((arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(len(arrays) // 2))
    low, high = np.array(about["low"], float), np.array(about["high"], float)
    ahead = float(about["ahead"])
    if not layers or low.shape != (len(names),) or high.shape != (len(names),):
        raise ValueError("no layers, or not one range for each name")
    sizes = [OBSERVATION_SIZE]
    for weights, biases in layers:
        if weights.ndim != 2 or weights.shape[1] != sizes[-1] or biases.shape != weights.shape[:1]:
            raise ValueError("layers that do not fit on each other")
        sizes.append(weights.shape[0])
    if sizes[-1] != len(names):
        raise ValueError("another number of outputs than names")
    for numbers in (low, high, np.array(ahead), *(array for layer in layers for array in layer)):
        if numbers.dtype.kind != "f" or not (np.abs(numbers) < _LARGEST).all():  # which NaN is not
            raise ValueError("numbers that are no weights")
    return Policy(layers, tuple(names), low, high, ahead, notes)
