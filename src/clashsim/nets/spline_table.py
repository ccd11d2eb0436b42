"""Smooth functions of a few variables as tables that are read by cubic splines: exact at their
points, differentiable, on any device.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn


class SplineTable(nn.Module):
    """A tensor product of cubic splines on a regular grid over the box low..high (d,); outside, the
    value at the nearest point of the box.
    """

    low: Tensor
    step: Tensor
    rows: Tensor
    corner: Tensor
    stride: Tensor
    last: Tensor

    def __init__(self, low: Sequence[float], high: Sequence[float], values: np.ndarray) -> None:
        """values (n_1, ..., n_d, c): at the grid's points, at least five along each axis, ends
        included.
        """
        super().__init__()
        sizes = values.shape[:-1]
        coefficients = np.asarray(values, float)
        for axis, n in enumerate(sizes):
            coefficients = np.moveaxis(np.tensordot(_spline(n), coefficients, (1, axis)), 0, axis)
        stride = np.cumprod([1, *[n + 2 for n in sizes[:0:-1]]])[
            ::-1
        ].copy()  # of each axis, in rows of coefficients
        self.corners = [
            int(np.dot(c, stride)) for c in itertools.product(range(4), repeat=len(sizes))
        ]
        self.sizes = tuple(sizes)
        self.register_buffer("low", torch.tensor(low, dtype=torch.float64))
        self.register_buffer(
            "step",
            torch.tensor(
                [(b - a) / (n - 1) for a, b, n in zip(low, high, sizes, strict=True)],
                dtype=torch.float64,
            ),
        )
        self.register_buffer("rows", torch.as_tensor(coefficients.reshape(-1, values.shape[-1])))
        self.register_buffer("corner", torch.tensor(self.corners))
        self.register_buffer("stride", torch.tensor(stride.copy()))
        self.register_buffer("last", torch.tensor([n - 1.0 for n in sizes], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Values (N, c) at x (N, d)."""
        first, weights = self._window(x)
        weight = weights[0]
        for more in weights[1:]:
            weight = (weight[:, :, None] * more[:, None, :]).flatten(1)
        return nn.functional.embedding_bag(
            first[:, None] + self.corner, self.rows, per_sample_weights=weight, mode="sum"
        )

    def taps(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows (N,) and their weights (N,) of which `forward` is the weighted sum, one after the
        other: what a compiler can make one kernel of.
        """
        first, weights = self._window(x)
        for places, offset in zip(
            itertools.product(range(4), repeat=len(self.sizes)), self.corners, strict=True
        ):
            yield (
                first + offset,
                math.prod(
                    (w[:, i] for w, i in zip(weights, places, strict=True)),
                    start=torch.ones((), dtype=x.dtype, device=x.device),
                ),
            )

    def _window(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The first row (N,) of the 4^d that matter at x, and the weights (N, 4) along each axis."""
        at = torch.clamp((x - self.low) / self.step, torch.zeros_like(self.last), self.last)
        cell = torch.minimum(at.detach().floor(), self.last - 1)
        return (cell.long() * self.stride).sum(1), list(_weights(at - cell).unbind(1))

    def read(self, x: np.ndarray) -> np.ndarray:
        """`forward` for arrays."""
        with torch.no_grad():
            return (
                self(torch.as_tensor(x, dtype=self.rows.dtype, device=self.rows.device))
                .cpu()
                .numpy()
            )


def _weights(z: Tensor) -> Tensor:
    """Cubic B-splines (..., 4) about a cell, at z (...) in [0, 1] of it."""
    y, square = 1 - z, z * z
    first, last = y * y * y, square * z
    second = 3 * last - 6 * square + 4
    return torch.stack([first, second, 6 - first - second - last, last], -1) / 6


def _spline(n: int) -> np.ndarray:
    """(n + 2, n): from values at n even points to coefficients of the cubic B-splines through them.

    At both ends the third derivative is continuous over the second point (not-a-knot), so that
    cubics are met exactly.
    """
    system = np.zeros((n + 2, n + 2))
    for i in range(n):
        system[i + 1, i : i + 3] = (1 / 6, 4 / 6, 1 / 6)
    system[0, :5] = system[-1, -5:] = (1, -4, 6, -4, 1)
    return np.linalg.inv(system)[:, 1:-1]
