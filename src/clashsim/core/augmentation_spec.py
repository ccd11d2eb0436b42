"""Neural scalars: small networks, each of which changes a single number of a simulation.

After Heiden et al. 2020, Fig. 2. An augmentation spec is a tuple of neural scalars. The weights of
all their networks are concatenated in one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from clashsim.core.errors import ParamError, did_you_mean
from clashsim.core.friction_formula import FormulaScalar

CombinationMode = Literal["add", "scale", "positive", "replace"]
# Share of a network's `scale` that a positive scalar has at least before the network changes it: at
# zero no finite output would change it.
_LEAST_POSITIVE = 1e-3


@dataclass(frozen=True)
class NeuralScalar:
    """A network with one hidden layer of tanh units, whose inputs are quantities of a simulation.

    Its output y changes a scalar of the simulation, the target. In mode "replace", an untrained
    network (y = 0) leaves a parameter at the author's value, and makes a force, an acceleration or
    a change of state zero.

    Attributes:
        target: The scalar: a parameter ("joint/elbow/damping", "pair/strike/friction[0:2]",
            "body/arm/mass"), "force/JOINT", "acceleration/JOINT" or "state/JOINT".
        reads: Inputs: "qpos/JOINT", "qvel/JOINT", "sin/JOINT", "cos/JOINT", "logspeed/JOINT"
            (logarithm of the speed, in which the damping of dry friction is a straight line),
            "ctrl/ACTUATOR", "speed/BODY", or of a contact pair "gap/PAIR" (m, negative inside),
            "slip_speed/PAIR" (m/s) and "normal_force/PAIR" (N, as without networks).
        mode: How the output y enters the scalar: "add" gives value + y, "scale" gives
            value * exp(y), which keeps its sign, and "replace" gives y alone. "positive" gives
            scale * softplus(z + y / scale) with the z that leaves the value as it is where y = 0:
            never negative, and about value + y above `scale`. In the damping of a joint it makes
            a network that can only take energy from the joint.
        units: Number of hidden units.
        scale: Factor of the network's output: y = scale * network.
        input_scales: Divisors of the inputs, one for each; empty for 1.
    """

    target: str
    reads: tuple[str, ...]
    mode: CombinationMode = "add"
    units: int = 8
    scale: float = 1.0
    input_scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        subject = f"the neural scalar of {self.target!r}"
        if not self.reads:
            raise ParamError(f"{subject} reads nothing; a constant is a parameter")
        modes = get_args(CombinationMode)
        if self.mode not in modes:
            raise ParamError(
                f"{subject} cannot enter by {self.mode!r}; {did_you_mean(str(self.mode), modes)}"
            )
        if self.units < 1 or not (np.isfinite(self.scale) and self.scale > 0):
            raise ParamError(
                f"{subject} needs units >= 1 and scale > 0, got {self.units} and {self.scale}"
            )
        if not self.input_scales:
            return
        are_positive = np.isfinite(self.input_scales).all() and min(self.input_scales) > 0
        if len(self.input_scales) != len(self.reads) or not are_positive:
            raise ParamError(
                f"{subject} needs {len(self.reads)} input scales > 0, one for each quantity that "
                f"it reads, got {self.input_scales}"
            )

    @property
    def count(self) -> int:
        """Number of weights: of inputs, bias and output for each unit, and one output bias."""
        return self.units * (len(self.reads) + 2) + 1

    def initial(self, rng: np.random.Generator) -> np.ndarray:
        """Draw weights (count,) with a last layer of zeros, so that the network outputs zero."""
        inputs = len(self.reads)
        input_weights = rng.normal(size=self.units * inputs) / np.sqrt(inputs)
        biases = rng.uniform(-1, 1, self.units)
        output_layer = np.zeros(self.units + 1)
        return np.concatenate([input_weights, biases, output_layer])

    def silenced(self, weights: np.ndarray) -> np.ndarray:
        """The weights (count,) with a last layer of zeros, so that the network outputs zero."""
        output_layer = self.units + 1
        return np.concatenate([weights[:-output_layer], np.zeros(output_layer)])

    def output(self, weights: Any, values: Any, xp: Any = np) -> Any:
        """Evaluate the network.

        Args:
            weights: (count,).
            values: (..., r), the r quantities in `reads`.
            xp: numpy or jax.numpy.

        Returns:
            The output, (...,).
        """
        units = self.units
        inputs = len(self.reads)
        input_weights = weights[: units * inputs].reshape(units, inputs)
        biases = weights[units * inputs : units * (inputs + 1)]
        output_weights = weights[units * (inputs + 1) : units * (inputs + 2)]
        if self.input_scales:
            values = values / xp.asarray(self.input_scales)
        hidden = xp.tanh(values @ input_weights.T + biases)
        return self.scale * (hidden @ output_weights + weights[-1])

    def combine(self, value: Any, output: Any, xp: Any = np) -> Any:
        """Combine a scalar with the network's output, as set by `mode`.

        Args:
            value: The scalar without the network, (...).
            output: The network's output, (...).
            xp: numpy or jax.numpy.

        Returns:
            The scalar with the network, (...).
        """
        if self.mode == "add":
            return value + output
        if self.mode == "scale":
            return value * xp.exp(output)
        if self.mode == "positive":
            before = xp.maximum(value / self.scale, _LEAST_POSITIVE)
            # The inverse of softplus, and softplus itself, in forms that do not overflow.
            inverse = before + xp.log(-xp.expm1(-before))
            return self.scale * xp.logaddexp(0.0, inverse + output / self.scale)
        return output


AugmentingScalar = NeuralScalar | FormulaScalar
AugmentationSpec = tuple[AugmentingScalar, ...]


def initial_weights(augmentation: AugmentationSpec, *, seed: int = 0) -> np.ndarray:
    """Draw the weights of all networks before training.

    Args:
        augmentation: The spec.
        seed: Seed of the random numbers.

    Returns:
        Weights (w,), in the order of the spec.
    """
    rng = np.random.default_rng(seed)
    networks = [scalar.initial(rng) for scalar in augmentation]
    return np.concatenate([np.zeros(0), *networks])


def weight_slices(augmentation: AugmentationSpec) -> tuple[slice, ...]:
    """Find which part of the weights (w,) of all networks belongs to each network."""
    counts = [scalar.count for scalar in augmentation]
    bounds = np.cumsum([0, *counts])
    return tuple(slice(int(start), int(end)) for start, end in pairwise(bounds))


def silence_networks(
    augmentation: AugmentationSpec, weights: np.ndarray, which: Sequence[int]
) -> np.ndarray:
    """Change the weights of some networks so that these networks output zero.

    Args:
        augmentation: The spec.
        weights: (w,), of all networks.
        which: Indices of the networks to silence.

    Returns:
        The changed weights, (w,).
    """
    silenced = np.array(weights, float)
    slices = weight_slices(augmentation)
    for i in which:
        silenced[slices[i]] = augmentation[i].silenced(silenced[slices[i]])
    return silenced
