"""A trained policy: from observations to strikes, as plain weights that need no training library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.rl.push import OBSERVED

_KIND = "clashsim-policy"


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
        try:
            content = path.read_bytes()
            size = int.from_bytes(content[:8], "little")
            about = json.loads(json.loads(content[8 : 8 + min(size, 1 << 20)])["__metadata__"]["about"])
            arrays = load(content)
            if about["kind"] != _KIND:
                raise KeyError("kind")
            layers = tuple((arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(len(arrays) // 2))
            low, high = np.array(about["low"], float), np.array(about["high"], float)
            fits = all(w.ndim == 2 and b.shape == w.shape[:1] for w, b in layers) and all(a[0].shape[0] == b[0].shape[1] for a, b in pairwise(layers))
            names = about["names"]
            told = isinstance(about["notes"], dict) and all(isinstance(n, str) for n in names) and len(set(names)) == len(names)
            sized = low.shape == high.shape == (len(names),) and bool(layers) and layers[-1][0].shape[0] == len(low) and layers[0][0].shape[1] == OBSERVED
            if not (told and sized and fits and all(np.isfinite(x).all() and x.dtype.kind == "f" for x in (low, high, *(x for p in layers for x in p)))):
                raise ValueError("its parts do not belong together")
            return Policy(layers, tuple(about["names"]), low, high, float(about["ahead"]), about["notes"])
        except OSError as error:
            raise DataError(f"the policy {str(path)!r} cannot be read: {error.strerror}") from None
        except (KeyError, ValueError, TypeError, SafetensorError):
            raise DataError(f"{str(path)!r} is no policy as clashsim train writes it") from None
