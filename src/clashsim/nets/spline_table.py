"""Smooth functions of a few variables as tables that are read by cubic splines.

A table is exact at its points, differentiable, and runs on any device.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from clashsim.nets.compiled_spline import read_rows

_WINDOW = 4  # cubic B-splines that are not zero in a cell, along one axis


class SplineTable(nn.Module):
    """A tensor product of cubic splines on a regular grid over a box of d variables.

    Outside the box the value is that at its nearest point.

    Attributes:
        sizes: Number of points along each axis.
        low: (d,), least values.
        step: (d,), distance of neighbouring points.
        rows: (r, c), coefficients of the splines, for c functions.
        window: (4^d,), offsets in `rows`, from the first one, of the coefficients that are not
            multiplied by zero in a cell.
        stride: (d,), number of rows between neighbours along each axis.
        last: (d,), index of the last point along each axis.
    """

    low: Tensor
    step: Tensor
    rows: Tensor
    window: Tensor
    stride: Tensor
    last: Tensor

    def __init__(self, low: Sequence[float], high: Sequence[float], values: np.ndarray) -> None:
        """Fit splines through values on a grid.

        Args:
            low: Least value of each of the d variables.
            high: Greatest values.
            values: (n_1, ..., n_d, c), at the points of the grid, both ends included; at least
                five points along each axis.
        """
        super().__init__()
        self.sizes = tuple(values.shape[:-1])
        coefficients = np.asarray(values, float)
        for axis, n in enumerate(self.sizes):
            along_axis = np.tensordot(_coefficients_from_values(n), coefficients, (1, axis))
            coefficients = np.moveaxis(along_axis, 0, axis)
        # Rows of coefficients are ordered by the grid, the last axis fastest.
        padded_sizes = [n + 2 for n in self.sizes]  # n points have n + 2 cubic B-splines
        stride = np.cumprod([1, *padded_sizes[:0:-1]])[::-1].copy()
        self._offsets = [
            int(np.dot(taps, stride))
            for taps in itertools.product(range(_WINDOW), repeat=len(self.sizes))
        ]
        steps = [
            (last - first) / (n - 1) for first, last, n in zip(low, high, self.sizes, strict=True)
        ]
        last_index = [n - 1.0 for n in self.sizes]
        self.register_buffer("low", torch.tensor(low, dtype=torch.float64))
        self.register_buffer("step", torch.tensor(steps, dtype=torch.float64))
        self.register_buffer("rows", torch.as_tensor(coefficients.reshape(-1, values.shape[-1])))
        self.register_buffer("window", torch.tensor(self._offsets))
        self.register_buffer("stride", torch.tensor(stride))
        self.register_buffer("last", torch.tensor(last_index, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Values (N, c) at x (N, d)."""
        first, axis_weights = self._cell(x)
        weight = axis_weights[0]
        for more in axis_weights[1:]:
            weight = (weight[:, :, None] * more[:, None, :]).flatten(1)
        return nn.functional.embedding_bag(
            first[:, None] + self.window, self.rows, per_sample_weights=weight, mode="sum"
        )

    def weighted_rows(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows (N,) and weights (N,) of which `forward` is the weighted sum, one after the other.

        This is the form that a compiler can make one kernel of.
        """
        first, axis_weights = self._cell(x)
        taps_in_window = itertools.product(range(_WINDOW), repeat=len(self.sizes))
        for taps, offset in zip(taps_in_window, self._offsets, strict=True):
            weight = torch.ones((), dtype=x.dtype, device=x.device)
            for along_axis, tap in zip(axis_weights, taps, strict=True):
                weight = weight * along_axis[:, tap]
            yield first + offset, weight

    def read(self, x: np.ndarray, columns: slice | None = None) -> np.ndarray:
        """The same as `forward`, for arrays and without gradients.

        Args:
            x: (N, d).
            columns: Those of the c functions that are read; None: all.
        """
        columns = columns or slice(0, self.rows.shape[1])
        if self.rows.device.type == "cpu" and self.rows.dtype == torch.float64:
            grid = (self.low, self.step, self.last, self.stride, self.window)
            return read_rows(
                self.rows.numpy(),
                tuple(tensor.numpy() for tensor in grid),
                np.ascontiguousarray(x, float),
                columns.start,
                columns.stop - columns.start,
            )
        with torch.no_grad():
            points = torch.as_tensor(x, dtype=self.rows.dtype, device=self.rows.device)
            return self(points)[:, columns].cpu().numpy()

    def _cell(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The first row (N,) with a weight at x (N, d), and the weights (N, 4) along each axis."""
        index = torch.clamp((x - self.low) / self.step, torch.zeros_like(self.last), self.last)
        cell = torch.minimum(index.detach().floor(), self.last - 1)
        first = (cell.long() * self.stride).sum(1)
        return first, list(_spline_weights(index - cell).unbind(1))


def _spline_weights(z: Tensor) -> Tensor:
    """The cubic B-splines (..., 4) that are not zero in a cell, at z (...) in [0, 1] of it."""
    rest = 1 - z
    square = z * z
    first = rest * rest * rest
    last = square * z
    second = 3 * last - 6 * square + 4
    return torch.stack([first, second, 6 - first - second - last, last], -1) / 6


def _coefficients_from_values(n: int) -> np.ndarray:
    """(n + 2, n): from values at n even points to coefficients of the cubic B-splines through them.

    At both ends the third derivative is continuous over the second point (not-a-knot), so that
    cubic polynomials are reproduced exactly.
    """
    system = np.zeros((n + 2, n + 2))
    at_point = (1 / 6, 4 / 6, 1 / 6)  # values at a point of the B-splines around it
    for i in range(n):
        system[i + 1, i : i + 3] = at_point
    not_a_knot = (1, -4, 6, -4, 1)  # jump of the third derivative
    system[0, :5] = not_a_knot
    system[-1, -5:] = not_a_knot
    return np.linalg.inv(system)[:, 1:-1]
