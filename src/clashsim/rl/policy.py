"""A trained policy: plain weights that map observations to strikes without a training library."""

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
from clashsim.rl.corridor_formulas import OBSERVATION_SIZE

_KIND = "clashsim-policy"
_MAX_BYTES = 1 << 28  # of a file; real policies have a few hundred thousand bytes
_MAX_NUMBER = 1e6  # larger weights do not result from training, and sums of them may overflow

Layer = tuple[np.ndarray, np.ndarray]  # weights (out, in) and biases (out,)


@dataclass(frozen=True, eq=False)
class Policy:
    """A perceptron with rectifiers and a final tanh, whose output -1..1 is scaled to low..high.

    Attributes:
        layers: Weights (out, in) and biases (out,) of each layer.
        names: Names of the d numbers of a strike.
        low: Lowest strike (d,).
        high: Highest strike (d,).
        heading_offset: Angle from the body's yaw to its heading (rad), as `Push.heading_offset`.
        notes: How and for which scene it was trained; saved as JSON.
    """

    layers: tuple[Layer, ...]
    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    heading_offset: float
    notes: Mapping[str, Any]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Return strikes (N, d) for observations (N, 7)."""
        hidden = np.asarray(observation, np.float32)
        for i, (weights, biases) in enumerate(self.layers):
            hidden = hidden @ weights.T + biases
            is_last = i + 1 == len(self.layers)
            if not is_last:
                hidden = np.maximum(hidden, 0)
        action = np.tanh(hidden).astype(float)
        return self.low + (self.high - self.low) * (action + 1) / 2

    def save(self, path: Path) -> None:
        """Write one .safetensors file."""
        arrays = {}
        for i, (weights, biases) in enumerate(self.layers):
            arrays[f"w{i}"] = np.ascontiguousarray(weights)
            arrays[f"b{i}"] = np.ascontiguousarray(biases)
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
        """Return the policy that `save` wrote to a file."""
        content = read_bounded(path, f"policy {str(path)!r}", limit=_MAX_BYTES)
        try:
            arrays, metadata = read_tensors(content)
            about = parse_json(metadata["about"], "its description")
            return _policy_from(arrays, about)
        except (DataError, KeyError, ValueError, TypeError, OverflowError):
            raise DataError(f"{str(path)!r} is no policy as clashsim train writes it") from None


def _policy_from(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Policy:
    """Return a policy from the parts of its file; inconsistent parts raise ValueError."""
    if about["kind"] != _KIND:
        raise ValueError("another kind of file")
    names = about["names"]
    notes = about["notes"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names must be a list of strings")
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    if not isinstance(notes, dict):
        raise ValueError("the notes must be an object")
    layers = tuple((arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(len(arrays) // 2))
    low = np.array(about["low"], float)
    high = np.array(about["high"], float)
    heading_offset = float(about["ahead"])
    if not layers or low.shape != (len(names),) or high.shape != (len(names),):
        raise ValueError("no layers, or not one range for each name")
    _check_sizes(layers, outputs=len(names))
    numbers = [low, high, np.array(heading_offset)]
    for weights, biases in layers:
        numbers += [weights, biases]
    for array in numbers:
        is_bounded = (np.abs(array) < _MAX_NUMBER).all()  # false for NaN
        if array.dtype.kind != "f" or not is_bounded:
            raise ValueError("numbers that are not finite floats of a plausible size")
    return Policy(layers, tuple(names), low, high, heading_offset, notes)


def _check_sizes(layers: tuple[Layer, ...], *, outputs: int) -> None:
    """Refuse layers whose sizes do not lead from an observation to this number of outputs."""
    size = OBSERVATION_SIZE
    for weights, biases in layers:
        if weights.ndim != 2 or weights.shape[1] != size or biases.shape != weights.shape[:1]:
            raise ValueError("the sizes of the layers do not match")
        size = weights.shape[0]
    if size != outputs:
        raise ValueError("the number of outputs differs from the number of names")
