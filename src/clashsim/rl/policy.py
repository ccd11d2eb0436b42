"""A trained policy: from observations to strikes, as plain weights that need no training library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.core.parsing import parse_json, read_bounded
from clashsim.core.tensors import read_tensors
from clashsim.rl.push import OBSERVED

_KIND = "clashsim-policy"
_BYTES = 1 << 28  # of a file; policies have a few hundred thousand


@dataclass(frozen=True, eq=False)
class Policy:
    """A perceptron with rectifiers and a tanh at its end; its output -1..1 spans strikes low..high (d,) by `names`. ahead: as `Push.ahead`."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]  # weights (out, in) and biases (out,)
    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    ahead: float
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
        arrays = {f"{kind}{i}": np.ascontiguousarray(a) for i, layer in enumerate(self.layers) for kind, a in zip("wb", layer, strict=True)}
        about = {"kind": _KIND, "names": list(self.names), "low": self.low.tolist(), "high": self.high.tolist(), "ahead": self.ahead, "notes": dict(self.notes)}
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
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError("names that are no names, or one of them twice")
    if not isinstance(notes, dict):
        raise ValueError("notes that are none")
    layers = tuple((arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(len(arrays) // 2))
    low, high = np.array(about["low"], float), np.array(about["high"], float)
    ahead = float(about["ahead"])
    fits = all(w.ndim == 2 and b.shape == w.shape[:1] for w, b in layers) and all(a[0].shape[0] == b[0].shape[1] for a, b in pairwise(layers))
    sized = low.shape == high.shape == (len(names),) and bool(layers) and layers[-1][0].shape[0] == len(low) and layers[0][0].shape[1] == OBSERVED
    numbers = all(x.dtype.kind == "f" and np.isfinite(x).all() for x in (low, high, np.array(ahead), *(x for layer in layers for x in layer)))
    if not (fits and sized and numbers):
        raise ValueError("parts that do not belong together")
    return Policy(layers, tuple(names), low, high, ahead, notes)
