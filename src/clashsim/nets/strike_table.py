"""From strikes to poses at rest as one smooth function, kept as a table.

A learned collision and a learned slide are evaluated once over a grid of strikes. Reading the table
is differentiable, runs on any device, and serves a million strikes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clashsim.core.rest_uncertainty import NORMAL_NOISE, RestUncertainty
from clashsim.nets.spline_table import SplineTable
from clashsim.slides.law import SlideModel

_HAS_TRITON = find_spec("triton") is not None
_MAX_KERNEL_AXES = 4  # most numbers of a strike for which there is a GPU kernel
# Columns of the table; poses and twists are in the axes of the struck body.
_COLUMNS = 15
_TWIST = slice(0, 3)  # twist after the collision, divided by the speed
_REST = slice(3, 6)  # pose at rest, divided by the speed squared
# (3, 3) row by row: change of each component of the pose at rest by one standard deviation of each
# component of the twist, divided by the speed squared.
_REST_CHANGE = slice(6, 15)


@dataclass(frozen=True)
class TableFidelity:
    """How far a table's poses at rest are from those of its model.

    Attributes:
        position_median: Median error of the position, m.
        position_p95: 95th percentile of the same, m.
        yaw_median: Median error of the yaw, rad.
        yaw_p95: 95th percentile of the same, rad.
        untrusted_share: Share of the strikes at which the model itself should not be trusted.
    """

    position_median: float
    position_p95: float
    yaw_median: float
    yaw_p95: float
    untrusted_share: float


class StrikeTable(nn.Module):
    """A `StrikeModel` read from a table: strikes of a body at rest to its next pose at rest.

    Seen from the struck body a strike is a few numbers, and what comes out is a smooth function of
    them. The twist after the collision grows with the speed, how far the body then slides and
    rotates with its square. The table keeps both divided by these powers of the speed, so that few
    speeds are enough. Reading it takes the same time whatever the model and the slide cost.

    Attributes:
        names: Of the d numbers that describe a strike.
        low: (d,), least values of a strike.
        high: (d,), greatest values of a strike.
        slide: The slide model the table was made with, or None.
        fidelity: How well the table stands for its model, where that was measured.
        takes_noise: Whether the model's standard deviation is known, so that noise has an effect.
        uncertainty: Tails of the noise, and what slides leave open.
    """

    takes_noise = True
    uncertainty: RestUncertainty = NORMAL_NOISE

    def __init__(
        self,
        names: Sequence[str],
        table: SplineTable,
        slide: SlideModel | None,
        fidelity: TableFidelity | None = None,
    ) -> None:
        """Wrap a table whose 15 columns are those described at the top of this module."""
        super().__init__()
        self.names = tuple(names)
        self.table = table
        self.slide = slide
        self.fidelity = fidelity
        last_point = torch.tensor(table.sizes) - 1
        self.low = table.low.numpy().copy()
        self.high = (table.low + table.step * last_point).numpy()
        self._speed = self.names.index("speed")
        # Tables packed for the GPU kernel, by their kind ("twist", "rest" or "noise") and device.
        self._packed: dict[tuple[str, Any], Any] = {}

    @staticmethod
    def from_twists(
        names: Sequence[str],
        grids: Sequence[np.ndarray],
        twist: np.ndarray,
        *,
        std: np.ndarray,
        slide: SlideModel,
    ) -> StrikeTable:
        """Make a table from the twists after strikes of a body at the origin.

        Args:
            names: Of the d numbers that describe a strike.
            grids: Values of each of them, (n_1,) to (n_d,).
            twist: (n_1, ..., n_d, 3), after the collision, m/s and rad/s, body axes.
            std: (n_1, ..., n_d, 3), standard deviation of the same.
            slide: Brings the body to rest.
        """
        columns = _columns(
            twist.reshape(-1, 3), std.reshape(-1, 3), slide, speed=_grid_speeds(names, grids)
        )
        return StrikeTable(names, _spline_table(grids, columns), slide)

    @staticmethod
    def from_rest_poses(
        names: Sequence[str], grids: Sequence[np.ndarray], rest: np.ndarray
    ) -> StrikeTable:
        """Make a table without twists and noise.

        Args:
            names: Of the d numbers that describe a strike.
            grids: Values of each of them, (n_1,) to (n_d,).
            rest: (N, 3), poses at rest of a body struck at the origin, x, y (m) and yaw (rad), at
                all points of the grid, the last axis fastest.
        """
        columns = np.zeros((len(rest), _COLUMNS))
        columns[:, _REST] = rest / _grid_speeds(names, grids) ** 2
        table = StrikeTable(names, _spline_table(grids, columns), None)
        table.takes_noise = False
        return table

    def twist(self, strike: Tensor) -> Tensor:
        """Twists after the collision (N, 3), body axes, of strikes (N, d)."""
        if self._runs_in_kernel(strike):
            return self._read_in_kernel("twist", strike, power=1)
        return self.table(strike)[:, _TWIST] * strike[:, self._speed, None]

    def forward(self, pose: Tensor, strike: Tensor, noise: Tensor | None = None) -> Tensor:
        """Compute poses at rest.

        Args:
            pose: (N, 3), of the bodies when they are struck: x, y (m) and yaw (rad).
            strike: (N, d), by `names`.
            noise: (N, 3), by how many standard deviations each component of the twist after the
                collision differs from the predicted one.

        Returns:
            Poses at rest (N, 3), in the axes that `pose` is given in.
        """
        if self._runs_in_kernel(pose, strike, noise):
            kind = "rest" if noise is None else "noise"
            return self._read_in_kernel(kind, strike, power=2, pose=pose, noise=noise)
        x, y, rotation = self._displacement(strike, noise).unbind(1)
        cos = torch.cos(pose[:, 2])
        sin = torch.sin(pose[:, 2])
        return pose + torch.stack([cos * x - sin * y, sin * x + cos * y, rotation], 1)

    def rest_covariance(self, pose: Tensor, strike: Tensor) -> Tensor:
        """Covariance of poses at rest that follows from that of the twists after the collision.

        Args:
            pose: (N, 3), of the bodies when they are struck: x, y (m) and yaw (rad).
            strike: (N, d), by `names`.

        Returns:
            Covariances (N, 3, 3) of x, y and yaw.
        """
        speed = strike[:, self._speed, None]
        change = (self.table(strike) * speed**2)[:, _REST_CHANGE].reshape(-1, 3, 3)
        cos = torch.cos(pose[:, 2])
        sin = torch.sin(pose[:, 2])
        zero = torch.zeros_like(cos)
        one = torch.ones_like(cos)
        entries = [cos, -sin, zero, sin, cos, zero, zero, zero, one]
        body_to_world = torch.stack(entries, 1).reshape(-1, 3, 3)
        change = body_to_world @ change
        return change @ change.transpose(1, 2)

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """The same as `forward`, for arrays and without gradients."""
        wanted = _REST if noise is None else slice(_REST.start, _REST_CHANGE.stop)
        columns = self.table.read(strike, wanted) * np.asarray(strike)[:, self._speed, None] ** 2
        moved = columns[:, :3]
        if noise is not None:
            change = columns[:, 3:].reshape(-1, 3, 3)
            moved = moved + (change * np.asarray(noise)[:, None]).sum(2)
        cos = np.cos(pose[:, 2])
        sin = np.sin(pose[:, 2])
        out = np.array(pose, float)
        out[:, 0] += cos * moved[:, 0] - sin * moved[:, 1]
        out[:, 1] += sin * moved[:, 0] + cos * moved[:, 1]
        out[:, 2] += moved[:, 2]
        return out

    def _runs_in_kernel(self, *tensors: Tensor | None) -> bool:
        """Whether the kernel of `clashsim.nets.fused` can do the work.

        It needs single precision on a GPU, and has no gradients.
        """
        given = [t for t in tensors if t is not None]
        on_gpu = all(t.is_cuda and t.dtype == torch.float32 for t in given)
        with_gradients = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        few_axes = len(self.names) <= _MAX_KERNEL_AXES
        return on_gpu and not with_gradients and few_axes and _HAS_TRITON

    def _read_in_kernel(self, kind: str, strike: Tensor, **options: Any) -> Tensor:
        """Read columns of the table by the GPU kernel, which takes the `options`."""
        from clashsim.nets import fused

        rows = self.table.rows
        key = (kind, rows.device)
        if key not in self._packed:
            rest = rows[:, _REST, None]
            if kind == "twist":
                groups = rows[:, _TWIST, None]
            elif kind == "rest":
                groups = rest
            else:
                groups = torch.cat([rest, rows[:, _REST_CHANGE].reshape(-1, 3, 3)], 2)
            self._packed[key] = fused.PackedTable(self.table, groups)
        return fused.read(self._packed[key], strike, speed=self._speed, **options)

    def _displacement(self, strike: Tensor, noise: Tensor | None) -> Tensor:
        """Poses at rest (N, 3) relative to where the bodies were struck, in their axes then."""
        columns = self.table(strike)
        speed_squared = strike[:, self._speed, None] ** 2
        expected = columns[:, _REST] * speed_squared
        if noise is None:
            return expected
        change = (columns[:, _REST_CHANGE] * speed_squared).reshape(-1, 3, 3)
        return expected + torch.einsum("nij,nj->ni", change, noise)


def _grid_speeds(names: Sequence[str], grids: Sequence[np.ndarray]) -> np.ndarray:
    """Speeds (N, 1), m/s, of all strikes of a grid."""
    mesh = np.meshgrid(*grids, indexing="ij")
    return mesh[list(names).index("speed")].reshape(-1, 1)


def _spline_table(grids: Sequence[np.ndarray], columns: np.ndarray) -> SplineTable:
    """The spline table of columns (N, c) at all points of a grid."""
    low = [float(grid[0]) for grid in grids]
    high = [float(grid[-1]) for grid in grids]
    sizes = [len(grid) for grid in grids]
    return SplineTable(low, high, columns.reshape(*sizes, columns.shape[1]))


def _columns(
    twist: np.ndarray, std: np.ndarray, slide: SlideModel, *, speed: np.ndarray
) -> np.ndarray:
    """Compute the columns (N, 15) of a table.

    Args:
        twist: (N, 3), after the collision, m/s and rad/s, body axes.
        std: (N, 3), standard deviations of the twists.
        slide: Brings the body to rest.
        speed: (N, 1), m/s, of the strikes.
    """
    mean = torch.as_tensor(twist)
    deviation = torch.as_tensor(std)
    origin = torch.zeros_like(mean)
    with torch.no_grad():
        rest = slide.rest(origin, mean)
        changes = []
        for axis in torch.eye(3, dtype=mean.dtype):
            # Differences over one standard deviation to either side rather than a derivative: noise
            # is of that size, and the pose at rest is not linear in the twist.
            above = slide.rest(origin, mean + deviation * axis)
            below = slide.rest(origin, mean - deviation * axis)
            changes.append((above - below) / 2)
    rest_and_change = torch.cat([rest, torch.stack(changes, 2).flatten(1)], 1)
    return np.hstack([mean.numpy() / speed, rest_and_change.numpy() / speed**2])
