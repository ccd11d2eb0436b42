"""The network of a collision model: an ensemble of multilayer perceptrons with its own scaling of
inputs and outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class ImpactNet(nn.Module):
    """E perceptrons of equal shape as one batched product: (N, inputs) -> (E, N, outputs).

    Inputs are shifted and scaled by what `fit_scale` saw; inputs that never changed there are
    ignored, so that a feature which says nothing in training cannot say anything later.
    """

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
        super().__init__()
        self.shape: dict[str, Any] = {
            "inputs": inputs,
            "outputs": outputs,
            "width": width,
            "layers": layers,
            "members": members,
            "activation": activation,
        }
        choices: dict[str, Callable[[Tensor], Tensor]] = {
            "silu": nn.functional.silu,
            "relu": nn.functional.relu,
            "tanh": torch.tanh,
        }
        self.activation = choices[activation]
        generator = torch.Generator().manual_seed(seed)
        sizes = [inputs, *[width] * (layers - 1), outputs]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in itertools.pairwise(sizes):
            bound = 1 / math.sqrt(a)  # torch.nn.Linear's own initialisation
            self.weights.append(
                nn.Parameter((torch.rand(members, a, b, generator=generator) * 2 - 1) * bound)
            )
            self.biases.append(
                nn.Parameter((torch.rand(members, 1, b, generator=generator) * 2 - 1) * bound)
            )
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.register_buffer("size", torch.ones(outputs))

    def fit_scale(self, x: Tensor, y: Tensor) -> None:
        """Take shift and scale of the inputs (N, inputs) and the size of the outputs (N, outputs)
        from data.
        """
        spread = x.std(0)
        self.mean.copy_(x.mean(0))
        self.scale.copy_(
            torch.where(spread > 1e-4, 1 / spread.clamp_min(1e-12), torch.zeros_like(spread))
        )
        self.size.copy_(y.std(0).clamp_min(1e-6))

    def forward(self, x: Tensor) -> Tensor:
        h = ((x - self.mean) * self.scale).expand(self.weights[0].shape[0], *x.shape)
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(b, h, w)
            if i + 1 < len(self.weights):
                h = self.activation(h)
        return h * self.size
