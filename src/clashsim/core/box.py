"""Boxes, and the steps in which MuJoCo moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Of MuJoCo in a frame; identified values hold for this step, Euler's method and the elliptic cone
SUBSTEPS = 8


@dataclass(frozen=True)
class Box:
    """A box: half sizes (m), mass (kg), principal inertia (kg m^2) about the centre of mass, which
    lies at `centre` (m) in the box's axes.
    """

    half: tuple[float, float, float]
    mass: float
    inertia: tuple[float, float, float]
    centre: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @staticmethod
    def even(half: Sequence[float], mass: float) -> Box:
        """A box of even density."""
        a, b, c = (float(h) for h in half)
        return Box(
            (a, b, c),
            mass,
            (mass * (b * b + c * c) / 3, mass * (a * a + c * c) / 3, mass * (a * a + b * b) / 3),
        )

    @property
    def corners(self) -> np.ndarray:
        """Corners (8, 3) in the box's axes."""
        return np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)]) * np.array(
            self.half
        )
