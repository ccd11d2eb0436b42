"""From strikes to poses at rest as one smooth map: a learned collision and a learned slide kept as
a table, differentiable, on any device, a million at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clashsim.nets.spline_table import SplineTable
from clashsim.slides.law import SlideModel

_TRITON = find_spec("triton") is not None


@dataclass(frozen=True)
class Fidelity:
    """How far a table's poses at rest are from those of its model: median and 95th percentile of
    position (m) and yaw (rad); and the share of strikes that the model doubts itself.
    """

    position: float
    position_most: float
    yaw: float
    yaw_most: float
    untrusted_share: float


class StrikeTable(nn.Module):
    """Strikes of a body at rest, (N, d) by `names`, to its pose at rest.

    Seen from the struck body a strike is a few numbers. What comes out is a smooth function of
    them: the twist after the collision grows with the speed, and how far the body then slides and
    turns with its square. What is left of both is kept as a table, whatever
    model and slide cost. low, high (d,): the box of strikes.
    """

    takes_noise = True

    def __init__(
        self,
        names: Sequence[str],
        table: SplineTable,
        slide: SlideModel | None,
        fidelity: Fidelity | None = None,
    ) -> None:
        """table: 15 columns, all in the body's axes: twist over speed; pose at rest over speed
        squared; its change by one standard deviation of each of the twist's components, likewise,
        row by row.
        """
        super().__init__()
        self.names, self.table, self.slide, self.fidelity = tuple(names), table, slide, fidelity
        self.low, self.high = (
            table.low.numpy().copy(),
            (table.low + table.step * (torch.tensor(table.sizes) - 1)).numpy(),
        )
        self._speed = self.names.index("speed")
        self._packed: dict[
            tuple[str, Any], Any
        ] = {}  # tables in the order of the GPU's kernel, by what they hold and where

    @staticmethod
    def of(
        names: Sequence[str],
        grids: Sequence[np.ndarray],
        twist: np.ndarray,
        spread: np.ndarray,
        slide: SlideModel,
    ) -> StrikeTable:
        """From twists and their spread (n_1 ... n_d, 3) over a grid of strikes, in the axes of a
        body at the origin.
        """
        speed = np.meshgrid(*grids, indexing="ij")[list(names).index("speed")].reshape(-1, 1)
        table = SplineTable(
            [float(g[0]) for g in grids],
            [float(g[-1]) for g in grids],
            _columns(twist, spread, slide, speed).reshape(*(len(g) for g in grids), 15),
        )
        return StrikeTable(names, table, slide)

    @staticmethod
    def from_rest_poses(
        names: Sequence[str], grids: Sequence[np.ndarray], rest: np.ndarray
    ) -> StrikeTable:
        """From poses at rest (N, 3) alone, over a grid of strikes of a body at the origin."""
        speed = np.meshgrid(*grids, indexing="ij")[list(names).index("speed")].reshape(-1, 1)
        columns = np.hstack([np.zeros((len(rest), 3)), rest / speed**2, np.zeros((len(rest), 9))])
        table = SplineTable(
            [float(g[0]) for g in grids],
            [float(g[-1]) for g in grids],
            columns.reshape(*(len(g) for g in grids), 15),
        )
        out = StrikeTable(names, table, None)
        out.takes_noise = False
        return out

    def twist(self, strike: Tensor) -> Tensor:
        """Twist after the collision (N, 3) in the struck body's axes."""
        if self._on_card(strike):
            return self._read("twist", strike, power=1)
        return self.table(strike)[:, :3] * strike[:, self._speed, None]

    def forward(self, pose: Tensor, strike: Tensor, noise: Tensor | None = None) -> Tensor:
        """Pose at rest (N, 3) of bodies struck at pose (N, 3); noise (N, 3): by how many standard
        deviations each component of the twist is off.
        """
        if self._on_card(pose, strike, noise):
            return self._read(
                "rest" if noise is None else "noise", strike, power=2, pose=pose, noise=noise
            )
        x, y, turn = self._moved(strike, noise).unbind(1)
        c, s = torch.cos(pose[:, 2]), torch.sin(pose[:, 2])
        return pose + torch.stack([c * x - s * y, s * x + c * y, turn], 1)

    def std(self, pose: Tensor, strike: Tensor) -> Tensor:
        """Covariance (N, 3, 3) of the pose at rest, from that of the twist."""
        change = (self.table(strike) * strike[:, self._speed, None] ** 2)[:, 6:].reshape(-1, 3, 3)
        c, s, o, i = (
            torch.cos(pose[:, 2]),
            torch.sin(pose[:, 2]),
            torch.zeros_like(pose[:, 2]),
            torch.ones_like(pose[:, 2]),
        )
        change = torch.stack([c, -s, o, s, c, o, o, o, i], 1).reshape(-1, 3, 3) @ change
        return change @ change.transpose(1, 2)

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """`forward` for arrays."""
        rows = self.table.rows
        with torch.no_grad():
            return (
                self(
                    *(
                        None
                        if a is None
                        else torch.as_tensor(a, dtype=rows.dtype, device=rows.device)
                        for a in (pose, strike, noise)
                    )
                )
                .cpu()
                .numpy()
            )

    def _on_card(self, *tensors: Tensor | None) -> bool:
        """Whether the kernel of `clashsim.nets.fused` will do: single precision on a GPU, and
        nobody asks for gradients.
        """
        given = [t for t in tensors if t is not None]
        learning = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        return (
            all(t.is_cuda and t.dtype == torch.float32 for t in given)
            and not learning
            and len(self.names) <= 4
            and _TRITON
        )

    def _read(self, what: str, strike: Tensor, **options: Any) -> Tensor:
        from clashsim.nets import fused

        rows = self.table.rows
        key = (what, rows.device)
        if key not in self._packed:
            rest = rows[:, 3:6, None]
            groups = {
                "twist": rows[:, :3, None],
                "rest": rest,
                "noise": torch.cat([rest, rows[:, 6:].reshape(-1, 3, 3)], 2),
            }[what]
            self._packed[key] = fused.PackedTable(self.table, groups)
        return fused.read(self._packed[key], strike, speed=self._speed, **options)

    def _moved(self, strike: Tensor, noise: Tensor | None) -> Tensor:
        """Where bodies at the origin come to rest, (N, 3)."""
        both = self.table(strike)[:, 3:] * strike[:, self._speed, None] ** 2
        if noise is None:
            return both[:, :3]
        return both[:, :3] + torch.einsum("nij,nj->ni", both[:, 3:].reshape(-1, 3, 3), noise)


def _columns(
    twist: np.ndarray, spread: np.ndarray, slide: SlideModel, speed: np.ndarray
) -> np.ndarray:
    """The columns (N, 15) of a table."""
    v, sd = (torch.as_tensor(a.reshape(-1, 3)) for a in (twist, spread))
    origin = torch.zeros_like(v)
    with torch.no_grad():
        rest = slide.rest(origin, v)
        # Over the width of the spread, not at a point: that is what noise will move them by.
        change = [
            (slide.rest(origin, v + sd * e) - slide.rest(origin, v - sd * e)) / 2
            for e in torch.eye(3, dtype=v.dtype)
        ]
    return np.hstack(
        [
            v.numpy() / speed,
            torch.cat([rest, torch.stack(change, 2).flatten(1)], 1).numpy() / speed**2,
        ]
    )
