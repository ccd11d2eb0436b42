"""Kernels for a GPU: a map of strikes and a collision network, each read in one launch without
leaving the chip in between.

What torch compiles reads a table's 64 rows for each of three numbers anew and writes every hidden
layer to memory; here a row is read once for all its numbers, and hidden layers stay in registers.
Needs Triton, which comes with torch's CUDA builds. No gradients: where they are asked for, torch
computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from clashsim.nets.impact import ImpactNet
    from clashsim.nets.spline_table import SplineTable

# Strikes or impacts in a block: the quickest of 32 to 256 on an H200, with 4 warps and, for noise,
# 8
_ROWS = 64
# Of the hidden layers: three blocks of 64, which is what tensor cores take; narrower ones are
# filled up with zeros
WIDTH = 192
_INPUTS, _OUTPUTS = 32, 64  # likewise; with 16 outputs Triton 3.6 reads beyond its shared memory


class PackedTable:
    """Columns of a `SplineTable` in the order in which the kernel reads them: four to a row, or sixteen
    with what noise adds.
    """

    def __init__(self, table: SplineTable, groups: Tensor) -> None:
        """groups (rows, 3, 1) or (rows, 3, 4): for each of three outputs its coefficients and, if
        any, those of the three components of the noise.
        """
        rows, _, each = groups.shape
        self.columns = 4 if each == 1 else 16
        self.rows = torch.zeros(rows, self.columns, device=groups.device)
        self.rows[:, : 3 * each] = groups.float().flatten(1)
        self.axes = (
            torch.stack(
                [
                    table.low.float(),
                    1 / table.step.float(),
                    table.last.float(),
                    table.stride.float(),
                ],
                1,
            )
            .contiguous()
            .to(groups.device)
        )


def read(
    packed: PackedTable,
    strike: Tensor,
    *,
    speed: int,
    power: int,
    pose: Tensor | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """Three columns (N, 3) of a table at strikes (N, d), times the speed (its index) to a power;
    moved from pose (N, 3), in whose axes they are.
    """
    strike, n, d = strike.contiguous(), *strike.shape
    out = torch.empty(n, 3, device=strike.device)
    _read[(triton.cdiv(n, _ROWS),)](
        strike,
        strike if pose is None else pose.contiguous(),
        strike if noise is None else noise.contiguous(),
        out,
        packed.rows,
        packed.axes,
        n,
        AXES=d,
        SPEED=speed,
        POWER=power,
        POSE=pose is not None,
        COLUMNS=packed.columns,
        BLOCK=_ROWS,
        num_warps=4 if packed.columns == 4 else 8,
    )
    return out


@triton.jit
def _spline(z, TAP: tl.constexpr):
    """One of the four cubic B-splines about a cell, as in `clashsim.nets.spline_table`."""
    if TAP == 0:
        w = (1 - z) * (1 - z) * (1 - z)
    elif TAP == 1:
        w = z * z * (3 * z - 6) + 4
    elif TAP == 2:
        w = (1 - z) * (1 - z) * (3 * (1 - z) - 6) + 4
    else:
        w = z * z * z
    return w * (1.0 / 6.0)


@triton.jit
def _cell(strike, axes, row, inside, AXIS: tl.constexpr, AXES: tl.constexpr):
    """The row of the table at which the window of an axis begins, and the place (0 to 1) in its
    cell.
    """
    low, per, last, stride = (
        tl.load(axes + 4 * AXIS),
        tl.load(axes + 4 * AXIS + 1),
        tl.load(axes + 4 * AXIS + 2),
        tl.load(axes + 4 * AXIS + 3),
    )
    at = (tl.load(strike + row * AXES + AXIS, mask=inside, other=0.0) - low) * per
    at = tl.minimum(tl.maximum(at, 0.0), last)
    cell = tl.minimum(tl.floor(at), last - 1)
    return cell.to(tl.int32) * stride.to(tl.int32), at - cell


@triton.jit
def _read(
    strike,
    pose,
    noise,
    out,
    table,
    axes,
    n,
    AXES: tl.constexpr,
    SPEED: tl.constexpr,
    POWER: tl.constexpr,
    POSE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < n
    first, z = _cell(strike, axes, row, inside, AXES - 1, AXES)
    # Axes that a table does not have are read as if at the first of four equal points: weight 1 on
    # the first tap.
    z0, z1, z2 = z, z, z
    if AXES > 1:
        start, z0 = _cell(strike, axes, row, inside, 0, AXES)
        first += start
    if AXES > 2:
        start, z1 = _cell(strike, axes, row, inside, 1, AXES)
        first += start
    if AXES > 3:
        start, z2 = _cell(strike, axes, row, inside, 2, AXES)
        first += start
    tap, column = tl.arange(0, 4), tl.arange(0, COLUMNS)
    along = tl.where(
        tap[None, :] == 0,
        _spline(z, 0)[:, None],
        tl.where(
            tap[None, :] == 1,
            _spline(z, 1)[:, None],
            tl.where(tap[None, :] == 2, _spline(z, 2)[:, None], _spline(z, 3)[:, None]),
        ),
    )
    total = tl.zeros([BLOCK, 4, COLUMNS], tl.float32)
    for i in tl.static_range(4 if AXES > 1 else 1):
        for j in tl.static_range(4 if AXES > 2 else 1):
            for k in tl.static_range(4 if AXES > 3 else 1):
                weight, offset = along, first
                if AXES > 1:
                    weight, offset = (
                        weight * _spline(z0, i)[:, None],
                        offset + i * tl.load(axes + 3).to(tl.int32),
                    )
                if AXES > 2:
                    weight, offset = (
                        weight * _spline(z1, j)[:, None],
                        offset + j * tl.load(axes + 7).to(tl.int32),
                    )
                if AXES > 3:
                    weight, offset = (
                        weight * _spline(z2, k)[:, None],
                        offset + k * tl.load(axes + 11).to(tl.int32),
                    )
                # Four neighbouring rows along the last axis lie side by side.
                value = tl.load(
                    table
                    + (offset[:, None, None] + tap[None, :, None]) * COLUMNS
                    + column[None, None, :]
                )
                total += weight[:, :, None] * value
    found = tl.sum(total, 1)
    if COLUMNS == 16:
        part = column % 4
        a = tl.load(noise + 3 * row, mask=inside, other=0.0)[:, None]
        b = tl.load(noise + 3 * row + 1, mask=inside, other=0.0)[:, None]
        c = tl.load(noise + 3 * row + 2, mask=inside, other=0.0)[:, None]
        found = found * tl.where(
            part[None, :] == 0,
            1.0,
            tl.where(part[None, :] == 1, a, tl.where(part[None, :] == 2, b, c)),
        )
        group = column // 4
    else:
        group = column
    fast = tl.load(strike + row * AXES + SPEED, mask=inside, other=0.0)
    size = fast
    if POWER == 2:
        size = fast * fast
    x = size * tl.sum(tl.where(group[None, :] == 0, found, 0.0), 1)
    y = size * tl.sum(tl.where(group[None, :] == 1, found, 0.0), 1)
    w = size * tl.sum(tl.where(group[None, :] == 2, found, 0.0), 1)
    if POSE:
        turn = tl.load(pose + 3 * row + 2, mask=inside, other=0.0)
        cos, sin = tl.cos(turn), tl.sin(turn)
        ahead = cos * x - sin * y + tl.load(pose + 3 * row, mask=inside, other=0.0)
        y = sin * x + cos * y + tl.load(pose + 3 * row + 1, mask=inside, other=0.0)
        x, w = ahead, w + turn
    tl.store(out + 3 * row, x, mask=inside)
    tl.store(out + 3 * row + 1, y, mask=inside)
    tl.store(out + 3 * row + 2, w, mask=inside)


class PackedNet:
    """Weights of an `ImpactNet` in half precision, filled up to the kernel's sizes."""

    def __init__(self, net: ImpactNet) -> None:
        shape = net.shape
        if not fits(net):
            raise ValueError(
                f"the kernel takes up to {_INPUTS} inputs and {WIDTH} units with silu, got {shape}"
            )
        members, device = shape["members"], net.mean.device
        self.members, self.layers, self.inputs, self.outputs = (
            members,
            shape["layers"],
            shape["inputs"],
            shape["outputs"],
        )

        def filled(tensors: list[Tensor], rows: int, columns: int) -> Tensor:
            out = torch.zeros(members, len(tensors), rows, columns, device=device)
            for i, t in enumerate(tensors):
                out[:, i, : t.shape[1], : t.shape[2]] = t.detach()
            return out

        weights, biases = list(net.weights), list(net.biases)
        self.first, self.last = (
            filled(weights[:1], _INPUTS, WIDTH).half(),
            filled(weights[-1:], WIDTH, _OUTPUTS).half(),
        )
        self.hidden = filled(weights[1:-1], WIDTH, WIDTH).half()
        self.bias, self.end = filled(biases[:-1], 1, WIDTH), filled(biases[-1:], 1, _OUTPUTS)
        pad = torch.nn.functional.pad
        self.mean, self.scale = (
            pad(a.detach().float(), (0, _INPUTS - self.inputs)) for a in (net.mean, net.scale)
        )
        self.size = pad(net.size.detach().float(), (0, _OUTPUTS - self.outputs))

    def __call__(self, x: Tensor, *, members: int | None = None) -> Tensor:
        """Outputs (E, N, k) at x (N, inputs) in float32; products in half precision, sums in
        single. members: only the first so many.
        """
        n, count = len(x), members or self.members
        out = torch.empty(count, n, self.outputs, device=x.device)
        _perceptrons[(triton.cdiv(n, _ROWS), count)](
            x.contiguous(),
            out,
            self.first,
            self.hidden,
            self.last,
            self.bias,
            self.end,
            self.mean,
            self.scale,
            self.size,
            n,
            self.inputs,
            self.outputs,
            MIDDLE=self.layers - 2,
            BLOCK=_ROWS,
            num_warps=4,
            num_stages=1,
        )
        return out


def fits(net: ImpactNet) -> bool:
    """Whether the kernel can compute a network."""
    s = net.shape
    return (
        s["activation"] == "silu"
        and s["inputs"] <= _INPUTS
        and s["outputs"] <= _OUTPUTS
        and s["width"] <= WIDTH
        and s["layers"] >= 2
    )


@triton.jit
def _silu(x):
    return (x / (1 + tl.exp(-x))).to(tl.float16)


@triton.jit
def _block(h0, h1, h2, weight, bias, J: tl.constexpr):
    """64 units of a layer of 192."""
    k = tl.arange(0, 64)
    place = weight + k[:, None] * 192 + J * 64 + k[None, :]
    a = tl.dot(h0, tl.load(place))
    a = tl.dot(h1, tl.load(place + 64 * 192), a)
    a = tl.dot(h2, tl.load(place + 128 * 192), a)
    return _silu(a + tl.load(bias + J * 64 + k)[None, :])


@triton.jit
def _perceptrons(
    x,
    out,
    first,
    hidden,
    last,
    bias,
    end,
    mean,
    scale,
    size,
    n,
    inputs,
    outputs,
    MIDDLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    member = tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i, k = tl.arange(0, 32), tl.arange(0, 64)
    seen = tl.load(
        x + row[:, None] * inputs + i[None, :],
        mask=(row < n)[:, None] & (i < inputs)[None, :],
        other=0.0,
    )
    seen = ((seen - tl.load(mean + i)[None, :]) * tl.load(scale + i)[None, :]).to(tl.float16)
    first += member * 32 * 192
    hidden += member * MIDDLE * 192 * 192
    bias += member * (MIDDLE + 1) * 192
    place = first + i[:, None] * 192 + k[None, :]
    h0 = _silu(tl.dot(seen, tl.load(place)) + tl.load(bias + k)[None, :])
    h1 = _silu(tl.dot(seen, tl.load(place + 64)) + tl.load(bias + 64 + k)[None, :])
    h2 = _silu(tl.dot(seen, tl.load(place + 128)) + tl.load(bias + 128 + k)[None, :])
    for layer in tl.static_range(MIDDLE):
        weight, own = hidden + layer * 192 * 192, bias + (layer + 1) * 192
        a, b, c = (
            _block(h0, h1, h2, weight, own, 0),
            _block(h0, h1, h2, weight, own, 1),
            _block(h0, h1, h2, weight, own, 2),
        )
        h0, h1, h2 = a, b, c
    place = last + member * 192 * 64 + k[:, None] * 64 + k[None, :]
    y = tl.dot(h0, tl.load(place))
    y = tl.dot(h1, tl.load(place + 64 * 64), y)
    y = tl.dot(h2, tl.load(place + 128 * 64), y)
    y = (y + tl.load(end + member * 64 + k)[None, :]) * tl.load(size + k)[None, :]
    tl.store(
        out + (member * n + row)[:, None] * outputs + k[None, :],
        y,
        mask=(row < n)[:, None] & (k < outputs)[None, :],
    )
