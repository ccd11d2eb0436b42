"""From strikes to poses at rest as one smooth map: a collision kept as a table and a learned slide, differentiable, on any device, a million at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from clashsim.nets.slide import SlideModel
from clashsim.nets.table import Table


@dataclass(frozen=True)
class Fidelity:
    """How well a table reproduces its model, over the approach speed: median and 95th percentile; and the share of strikes the model doubts."""

    median: float
    most: float
    doubted: float


class StrikeMap(nn.Module):
    """Strikes of a body at rest, (N, d) by `names`, to its pose at rest.

    Seen from the struck body a strike is a few numbers, and what comes out is three times a smooth function of them; that function is
    kept as a table, whatever the model costs. low, high (d,): the box of strikes.
    """

    def __init__(self, names: Sequence[str], low: Sequence[float], high: Sequence[float], table: Table, slide: SlideModel, fidelity: Fidelity) -> None:
        super().__init__()
        self.names, self.table, self.slide, self.fidelity = tuple(names), table, slide, fidelity
        self.low, self.high = np.array(low, float), np.array(high, float)
        self._speed = self.names.index("speed")

    def twist(self, strike: Tensor, noise: Tensor | None = None) -> Tensor:
        """Twist after the collision (N, 3) in the struck body's axes; noise (N, 3): by how many standard deviations it is off what is expected."""
        both = self.table(strike) * strike[:, self._speed, None]
        return both[:, :3] if noise is None else both[:, :3] + both[:, 3:].clamp_min(0.0) * noise

    def forward(self, pose: Tensor, strike: Tensor, noise: Tensor | None = None) -> Tensor:
        """Pose at rest (N, 3) of bodies struck at pose (N, 3)."""
        x, y, w = self.twist(strike, noise).unbind(1)
        c, s = torch.cos(pose[:, 2]), torch.sin(pose[:, 2])
        return self.slide.rest(pose, torch.stack([c * x - s * y, s * x + c * y, w], 1))

    def rest(self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """`forward` for arrays."""
        with torch.no_grad():
            return self(*(None if a is None else torch.as_tensor(a, dtype=self.table.rows.dtype, device=self.table.rows.device) for a in (pose, strike, noise))).cpu().numpy()
