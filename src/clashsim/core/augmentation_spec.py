"""Neural scalars: small networks that take part in single numbers of a simulation (Heiden et al.
2020, Fig. 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from clashsim.core.errors import ParamError, did_you_mean

Enters = Literal["add", "scale", "replace"]


@dataclass(frozen=True)
class NeuralScalar:
    """One network of `units` tanh units that reads named quantities and acts on `target`.

    target: a parameter ("joint/elbow/damping", "pair/strike/friction[0:2]"), "force/JOINT",
    "acceleration/JOINT" or "state/JOINT".
    reads: "qpos/JOINT", "qvel/JOINT", "sin/JOINT", "cos/JOINT", "ctrl/ACTUATOR", "speed/BODY", each
    divided by its entry of `input_scales` (by 1 where empty). With output y = scale * network: "add" gives
    value + y, "scale" value * exp(y), so that no sign turns, and "replace" y alone. A parameter
    that is replaced begins at the author's value; a force, an acceleration or a change of state at
    zero.
    """

    target: str
    reads: tuple[str, ...]
    mode: Enters = "add"
    units: int = 8
    scale: float = 1.0
    input_scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.reads:
            raise ParamError(
                f"the neural scalar of {self.target!r} reads nothing; a constant is a parameter"
            )
        if self.mode not in get_args(Enters):
            raise ParamError(
                f"the neural scalar of {self.target!r} cannot enter by {self.mode!r}; {did_you_mean(str(self.mode), get_args(Enters))}"
            )
        if self.units < 1 or not (np.isfinite(self.scale) and self.scale > 0):
            raise ParamError(
                f"the neural scalar of {self.target!r} needs units >= 1 and scale > 0, got {self.units} and {self.scale}"
            )
        if self.input_scales and (
            len(self.input_scales) != len(self.reads)
            or not (np.isfinite(self.input_scales).all() and min(self.input_scales) > 0)
        ):
            raise ParamError(
                f"the neural scalar of {self.target!r} needs {len(self.reads)} sizes > 0, one for each quantity it reads, got {self.input_scales}"
            )

    @property
    def count(self) -> int:
        """How many weights it has."""
        return self.units * (len(self.reads) + 2) + 1

    def initial(self, rng: np.random.Generator) -> np.ndarray:
        """Weights (count,) with a last layer of zeros: an untrained network says nothing."""
        inner = rng.normal(size=self.units * len(self.reads)) / np.sqrt(len(self.reads))
        return np.concatenate([inner, rng.uniform(-1, 1, self.units), np.zeros(self.units + 1)])

    def output(self, weights: Any, values: Any, xp: Any = np) -> Any:
        """What the network says (...) at values (..., r) of what it reads, with weights (count,);
        `xp` is numpy or jax.numpy.
        """
        u, r = self.units, len(self.reads)
        first, shift, last = (
            weights[: u * r].reshape(u, r),
            weights[u * r : u * (r + 1)],
            weights[u * (r + 1) : u * (r + 2)],
        )
        values = values / xp.asarray(self.input_scales) if self.input_scales else values
        return self.scale * (xp.tanh(values @ first.T + shift) @ last + weights[-1])

    def combine(self, value: Any, output: Any, xp: Any = np) -> Any:
        """The scalar with the network's part in it."""
        if self.mode == "add":
            return value + output
        return value * xp.exp(output) if self.mode == "scale" else output


AugmentationSpec = tuple[NeuralScalar, ...]


def initial_weights(augmentation: AugmentationSpec, *, seed: int = 0) -> np.ndarray:
    """Weights (w,) of all networks before training, in the blueprint's order."""
    rng = np.random.default_rng(seed)
    return np.concatenate([np.zeros(0), *(scalar.initial(rng) for scalar in augmentation)])


def weight_slices(augmentation: AugmentationSpec) -> tuple[slice, ...]:
    """Where each network's weights lie in (w,)."""
    ends = np.cumsum([0, *(scalar.count for scalar in augmentation)])
    return tuple(slice(int(a), int(b)) for a, b in pairwise(ends))


def silence_networks(
    augmentation: AugmentationSpec, weights: np.ndarray, which: Sequence[int]
) -> np.ndarray:
    """Weights (w,) with the last layers of the networks `which` at zero, to see what is lost
    without them.
    """
    out = np.array(weights, float)
    for i in which:
        out[weight_slices(augmentation)[i]][-augmentation[i].units - 1 :] = 0
    return out
