"""GPU kernels: a strike table and a collision network, each evaluated in one launch.

Code compiled by torch reads a table's 64 rows anew for each of three outputs, and writes every
hidden layer of a network to memory. Here a row is read once for all its outputs, and hidden layers
stay in registers. The kernels need Triton, which comes with torch's CUDA builds. They have no
gradients: where gradients are needed, callers use torch.

Triton kernels take pointers and sizes one by one, hence the long signatures. They cannot read
Python's global numbers, hence the numbers in them: 32 is _INPUTS, 192 is WIDTH, and 64 a block of a
hidden layer or _OUTPUTS.
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

# Rows in a block, and warps that work on it: the fastest of 32 to 256 rows on an H200.
_ROWS = 64
_WARPS = 4
_WARPS_WITH_NOISE = 8
# Units of a hidden layer: three blocks of 64, a size that tensor cores can multiply. Narrower
# layers are filled up with zeros, and so are inputs and outputs.
WIDTH = 192
_INPUTS = 32
_OUTPUTS = 64  # with 16 outputs Triton 3.6 reads beyond its shared memory
_OUTPUTS_OF_TABLE = 3
_COLUMNS = 4  # of a packed row without noise
_COLUMNS_WITH_NOISE = 16


class PackedTable:
    """Columns of a `SplineTable` in the order in which the kernel reads them.

    Attributes:
        columns: Of a row: 4 (three outputs, and one that is zero), or 16 with those for noise.
        rows: (r, columns), spline coefficients.
        axes: (d, 4), for each axis its least value, points per unit, last index, and the number of
            rows between neighbours along it.
    """

    def __init__(self, table: SplineTable, groups: Tensor) -> None:
        """Pack a table.

        Args:
            table: Defines the points of the grid.
            groups: (r, 3, 1) or (r, 3, 4), for each of three outputs its coefficients and, if any,
                those of the three components of the noise.
        """
        count, _, per_output = groups.shape
        self.columns = _COLUMNS if per_output == 1 else _COLUMNS_WITH_NOISE
        self.rows = torch.zeros(count, self.columns, device=groups.device)
        self.rows[:, : _OUTPUTS_OF_TABLE * per_output] = groups.float().flatten(1)
        axes = [
            table.low.float(),
            1 / table.step.float(),
            table.last.float(),
            table.stride.float(),
        ]
        self.axes = torch.stack(axes, 1).contiguous().to(groups.device)


def read(
    packed: PackedTable,
    strike: Tensor,
    *,
    speed: int,
    power: int,
    pose: Tensor | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """Read three outputs of a table at strikes.

    Args:
        packed: The table.
        strike: (N, d), float32 on the GPU.
        speed: Index of the column of `strike` that is the speed (m/s).
        power: 1 or 2, power of the speed that outputs are multiplied by.
        pose: (N, 3), x, y (m) and yaw (rad) of bodies; if given, the table's outputs are
            displacements in the bodies' axes, and poses after them are returned.
        noise: (N, 3), by how many standard deviations each component of the twist differs from the
            predicted one; only for a table packed with noise.

    Returns:
        Outputs (N, 3), float32.
    """
    strike = strike.contiguous()
    count, axes = strike.shape
    out = torch.empty(count, _OUTPUTS_OF_TABLE, device=strike.device)
    grid = (triton.cdiv(count, _ROWS),)
    _read[grid](
        strike,
        strike if pose is None else pose.contiguous(),  # any pointer: it is not read
        strike if noise is None else noise.contiguous(),  # likewise
        out,
        packed.rows,
        packed.axes,
        count,
        AXES=axes,
        SPEED=speed,
        POWER=power,
        POSE=pose is not None,
        COLUMNS=packed.columns,
        BLOCK=_ROWS,
        num_warps=_WARPS if packed.columns == _COLUMNS else _WARPS_WITH_NOISE,
    )
    return out


@triton.jit
def _spline(z, TAP: tl.constexpr):
    """One of the four cubic B-splines in a cell, as in `clashsim.nets.spline_table`."""
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
    """Of one axis: its share of the first row that matters, and the position (0 to 1) in the cell.

    The first row is the sum of these shares over all axes.
    """
    low = tl.load(axes + 4 * AXIS)
    points_per_unit = tl.load(axes + 4 * AXIS + 1)
    last = tl.load(axes + 4 * AXIS + 2)
    stride = tl.load(axes + 4 * AXIS + 3)
    value = tl.load(strike + row * AXES + AXIS, mask=inside, other=0.0)
    index = (value - low) * points_per_unit
    index = tl.minimum(tl.maximum(index, 0.0), last)
    cell = tl.minimum(tl.floor(index), last - 1)
    return cell.to(tl.int32) * stride.to(tl.int32), index - cell


@triton.jit
def _read(
    strike,
    pose,
    noise,
    out,
    table,
    axes,
    count,
    AXES: tl.constexpr,
    SPEED: tl.constexpr,
    POWER: tl.constexpr,
    POSE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Read a table at a block of strikes; the arguments are those of `read`."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < count
    # z is the position in the cell along the last axis, whose four rows are neighbours and are read
    # at once; z0, z1 and z2 are those along the axes before it. What a table with fewer axes lacks
    # is not used below.
    first, z = _cell(strike, axes, row, inside, AXES - 1, AXES)
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
    tap = tl.arange(0, 4)
    column = tl.arange(0, COLUMNS)
    along_last = tl.where(
        tap[None, :] == 0,
        _spline(z, 0)[:, None],
        tl.where(
            tap[None, :] == 1,
            _spline(z, 1)[:, None],
            tl.where(tap[None, :] == 2, _spline(z, 2)[:, None], _spline(z, 3)[:, None]),
        ),
    )
    # axes + 3, + 7 and + 11 point at the strides of the first three axes.
    total = tl.zeros([BLOCK, 4, COLUMNS], tl.float32)
    for i in tl.static_range(4 if AXES > 1 else 1):
        for j in tl.static_range(4 if AXES > 2 else 1):
            for k in tl.static_range(4 if AXES > 3 else 1):
                weight = along_last
                offset = first
                if AXES > 1:
                    weight = weight * _spline(z0, i)[:, None]
                    offset = offset + i * tl.load(axes + 3).to(tl.int32)
                if AXES > 2:
                    weight = weight * _spline(z1, j)[:, None]
                    offset = offset + j * tl.load(axes + 7).to(tl.int32)
                if AXES > 3:
                    weight = weight * _spline(z2, k)[:, None]
                    offset = offset + k * tl.load(axes + 11).to(tl.int32)
                value = tl.load(
                    table
                    + (offset[:, None, None] + tap[None, :, None]) * COLUMNS
                    + column[None, None, :]
                )
                total += weight[:, :, None] * value
    found = tl.sum(total, 1)
    if COLUMNS == 16:
        # Four columns for each output: its own, and one for each component of the noise.
        part = column % 4
        noise_x = tl.load(noise + 3 * row, mask=inside, other=0.0)[:, None]
        noise_y = tl.load(noise + 3 * row + 1, mask=inside, other=0.0)[:, None]
        noise_yaw = tl.load(noise + 3 * row + 2, mask=inside, other=0.0)[:, None]
        found = found * tl.where(
            part[None, :] == 0,
            1.0,
            tl.where(part[None, :] == 1, noise_x, tl.where(part[None, :] == 2, noise_y, noise_yaw)),
        )
        group = column // 4
    else:
        group = column
    speed = tl.load(strike + row * AXES + SPEED, mask=inside, other=0.0)
    factor = speed
    if POWER == 2:
        factor = speed * speed
    x = factor * tl.sum(tl.where(group[None, :] == 0, found, 0.0), 1)
    y = factor * tl.sum(tl.where(group[None, :] == 1, found, 0.0), 1)
    yaw = factor * tl.sum(tl.where(group[None, :] == 2, found, 0.0), 1)
    if POSE:
        body_yaw = tl.load(pose + 3 * row + 2, mask=inside, other=0.0)
        cos = tl.cos(body_yaw)
        sin = tl.sin(body_yaw)
        moved_x = cos * x - sin * y + tl.load(pose + 3 * row, mask=inside, other=0.0)
        moved_y = sin * x + cos * y + tl.load(pose + 3 * row + 1, mask=inside, other=0.0)
        x = moved_x
        y = moved_y
        yaw = yaw + body_yaw
    tl.store(out + 3 * row, x, mask=inside)
    tl.store(out + 3 * row + 1, y, mask=inside)
    tl.store(out + 3 * row + 2, yaw, mask=inside)


class PackedNet:
    """Weights of an `ImpactNet` in half precision, filled up to the kernel's sizes."""

    def __init__(self, net: ImpactNet) -> None:
        if not fits(net):
            raise ValueError(
                f"the kernel takes up to {_INPUTS} inputs and {WIDTH} units with silu, "
                f"got {net.shape}"
            )
        self.members = net.shape["members"]
        self.layers = net.shape["layers"]
        self.inputs = net.shape["inputs"]
        self.outputs = net.shape["outputs"]
        self._device = net.mean.device
        weights = list(net.weights)
        biases = list(net.biases)
        self.first = self._filled(weights[:1], _INPUTS, WIDTH).half()
        self.hidden = self._filled(weights[1:-1], WIDTH, WIDTH).half()
        self.last = self._filled(weights[-1:], WIDTH, _OUTPUTS).half()
        self.hidden_bias = self._filled(biases[:-1], 1, WIDTH)
        self.last_bias = self._filled(biases[-1:], 1, _OUTPUTS)
        pad = torch.nn.functional.pad
        self.mean = pad(net.mean.detach().float(), (0, _INPUTS - self.inputs))
        self.scale = pad(net.scale.detach().float(), (0, _INPUTS - self.inputs))
        self.size = pad(net.size.detach().float(), (0, _OUTPUTS - self.outputs))

    def __call__(self, x: Tensor, *, members: int | None = None) -> Tensor:
        """Evaluate the network.

        Args:
            x: (N, inputs), on the GPU.
            members: Number of members to evaluate, from the first on; by default all.

        Returns:
            Outputs (members, N, outputs) in float32; matrix products multiply in half precision and
            sum in single.
        """
        n = len(x)
        count = members or self.members
        out = torch.empty(count, n, self.outputs, device=x.device)
        grid = (triton.cdiv(n, _ROWS), count)
        _perceptrons[grid](
            x.contiguous(),
            out,
            self.first,
            self.hidden,
            self.last,
            self.hidden_bias,
            self.last_bias,
            self.mean,
            self.scale,
            self.size,
            n,
            self.inputs,
            self.outputs,
            HIDDEN=self.layers - 2,  # layers between the first and the last
            BLOCK=_ROWS,
            num_warps=_WARPS,
            num_stages=1,
        )
        return out

    def _filled(self, tensors: list[Tensor], rows: int, columns: int) -> Tensor:
        """(members, len(tensors), rows, columns): tensors filled up with zeros."""
        out = torch.zeros(self.members, len(tensors), rows, columns, device=self._device)
        for i, tensor in enumerate(tensors):
            out[:, i, : tensor.shape[1], : tensor.shape[2]] = tensor.detach()
        return out


def fits(net: ImpactNet) -> bool:
    """Whether the kernel can evaluate a network: its activation and sizes."""
    shape = net.shape
    return (
        shape["activation"] == "silu"
        and "heads" not in shape
        and shape["inputs"] <= _INPUTS
        and shape["outputs"] <= _OUTPUTS
        and shape["width"] <= WIDTH
        and shape["layers"] >= 2
    )


@triton.jit
def _silu(x):
    """The activation, in half precision."""
    return (x / (1 + tl.exp(-x))).to(tl.float16)


@triton.jit
def _block(h0, h1, h2, weight, bias, J: tl.constexpr):
    """Block J of 64 units of a hidden layer, from the three blocks of the layer before."""
    k = tl.arange(0, 64)
    address = weight + k[:, None] * 192 + J * 64 + k[None, :]
    total = tl.dot(h0, tl.load(address))
    total = tl.dot(h1, tl.load(address + 64 * 192), total)
    total = tl.dot(h2, tl.load(address + 128 * 192), total)
    return _silu(total + tl.load(bias + J * 64 + k)[None, :])


@triton.jit
def _perceptrons(
    x,
    out,
    first,
    hidden,
    last,
    hidden_bias,
    last_bias,
    mean,
    scale,
    size,
    n,
    inputs,
    outputs,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One member of the ensemble at a block of rows; the arguments are those of `PackedNet`."""
    member = tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i = tl.arange(0, 32)
    k = tl.arange(0, 64)
    scaled = tl.load(
        x + row[:, None] * inputs + i[None, :],
        mask=(row < n)[:, None] & (i < inputs)[None, :],
        other=0.0,
    )
    scaled = ((scaled - tl.load(mean + i)[None, :]) * tl.load(scale + i)[None, :]).to(tl.float16)
    first += member * 32 * 192
    hidden += member * HIDDEN * 192 * 192
    hidden_bias += member * (HIDDEN + 1) * 192
    address = first + i[:, None] * 192 + k[None, :]
    h0 = _silu(tl.dot(scaled, tl.load(address)) + tl.load(hidden_bias + k)[None, :])
    h1 = _silu(tl.dot(scaled, tl.load(address + 64)) + tl.load(hidden_bias + 64 + k)[None, :])
    h2 = _silu(tl.dot(scaled, tl.load(address + 128)) + tl.load(hidden_bias + 128 + k)[None, :])
    for layer in tl.static_range(HIDDEN):
        weight = hidden + layer * 192 * 192
        bias = hidden_bias + (layer + 1) * 192
        next0 = _block(h0, h1, h2, weight, bias, 0)
        next1 = _block(h0, h1, h2, weight, bias, 1)
        next2 = _block(h0, h1, h2, weight, bias, 2)
        h0, h1, h2 = next0, next1, next2
    address = last + member * 192 * 64 + k[:, None] * 64 + k[None, :]
    y = tl.dot(h0, tl.load(address))
    y = tl.dot(h1, tl.load(address + 64 * 64), y)
    y = tl.dot(h2, tl.load(address + 128 * 64), y)
    y = (y + tl.load(last_bias + member * 64 + k)[None, :]) * tl.load(size + k)[None, :]
    tl.store(
        out + (member * n + row)[:, None] * outputs + k[None, :],
        y,
        mask=(row < n)[:, None] & (k < outputs)[None, :],
    )
