"""The network of a collision model: an ensemble of perceptrons with its own scaling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": nn.functional.silu,
    "relu": nn.functional.relu,
    "tanh": torch.tanh,
}
_CONSTANT_STD = 1e-4  # an input with a smaller standard deviation in training counts as constant
_MIN_STD = 1e-12  # keeps a division by the standard deviation of a constant input defined
_MIN_SIZE = 1e-6  # least `size`, for outputs that hardly vary


class ImpactNet(nn.Module):
    """E perceptrons of equal shape as one batched product: (N, inputs) -> (E, N, outputs).

    Inputs are shifted and scaled by mean and standard deviation of the data given to `fit_scale`.
    Inputs that are constant in that data are ignored, so that a feature without information in
    training has no influence later.

    Attributes:
        shape: The arguments it was made with, as a model file keeps them.
        mean: (inputs,), subtracted from the inputs.
        scale: (inputs,), multiplied with the inputs.
        size: (outputs,), multiplied with the outputs.
    """

    # The names of these buffers, of `weights` and of `biases` are those of tensors in model files.
    mean: Tensor
    scale: Tensor
    size: Tensor

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        layers: int = 3,
        members: int = 1,
        activation: str = "silu",
        seed: int = 0,
    ) -> None:
        """Make an ensemble with random weights.

        Args:
            inputs: Number of inputs.
            outputs: Number of outputs.
            width: Units of a hidden layer.
            layers: Number of weight matrices of a perceptron.
            members: Number of perceptrons in the ensemble, E.
            activation: One of silu, relu and tanh.
            seed: Of the random weights.
        """
        super().__init__()
        self.shape: dict[str, Any] = {
            "inputs": inputs,
            "outputs": outputs,
            "width": width,
            "layers": layers,
            "members": members,
            "activation": activation,
        }
        self.activation = _ACTIVATIONS[activation]
        generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        sizes = [inputs, *[width] * (layers - 1), outputs]
        for fan_in, fan_out in itertools.pairwise(sizes):
            bound = 1 / math.sqrt(fan_in)  # torch.nn.Linear's own initialisation

            def uniform(*shape: int, bound: float = bound) -> nn.Parameter:
                return nn.Parameter((torch.rand(*shape, generator=generator) * 2 - 1) * bound)

            self.weights.append(uniform(members, fan_in, fan_out))
            self.biases.append(uniform(members, 1, fan_out))
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.register_buffer("size", torch.ones(outputs))

    def fit_scale(self, x: Tensor, y: Tensor) -> None:
        """Take the scaling from data: inputs x (N, inputs) and outputs y (N, outputs)."""
        std = x.std(0)
        varies = std > _CONSTANT_STD
        self.mean.copy_(x.mean(0))
        self.scale.copy_(torch.where(varies, 1 / std.clamp_min(_MIN_STD), torch.zeros_like(std)))
        self.size.copy_(y.std(0).clamp_min(_MIN_SIZE))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (E, N, outputs) of all members at x (N, inputs)."""
        members = self.weights[0].shape[0]
        hidden = ((x - self.mean) * self.scale).expand(members, *x.shape)
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, hidden, weight)
            if i < last:
                hidden = self.activation(hidden)
        return hidden * self.size


class SharedNet(ImpactNet):
    """One perceptron with several heads: (N, inputs) -> (heads, N, outputs).

    Each head stands for a member of an ensemble; `clashsim.fit.compress` trains them.

    Attributes:
        heads: Their number.
    """

    def __init__(self, inputs: int, outputs: int, *, heads: int, **shape: Any) -> None:
        """Make a network with random weights.

        Args:
            inputs: Number of inputs.
            outputs: Number of outputs of a head.
            heads: Number of heads.
            shape: Other arguments of `ImpactNet`.
        """
        super().__init__(inputs, heads * outputs, **shape)
        self.shape |= {"outputs": outputs, "heads": heads}
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (heads, N, outputs) of all heads at x (N, inputs)."""
        together = super().forward(x)[0]
        return together.reshape(len(x), self.heads, -1).transpose(0, 1)


def net_of_shape(shape: dict[str, Any]) -> ImpactNet:
    """A network by the `shape` that a model file keeps."""
    return SharedNet(**shape) if "heads" in shape else ImpactNet(**shape)
