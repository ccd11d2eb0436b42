"""Rigid boxes, and the number of time steps in which MuJoCo simulates them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Time steps of MuJoCo per recorded frame. Identified contact parameters are valid only for this
# step, Euler's method and the elliptic friction cone.
SUBSTEPS = 8


@dataclass(frozen=True)
class Box:
    """A rigid box.

    Attributes:
        half: m, half of the sizes along x, y, z.
        mass: kg.
        inertia: kg m^2, moments about axes x, y, z through the mass centre.
        centre: m, mass centre in the box's axes.
    """

    half: tuple[float, float, float]
    mass: float
    inertia: tuple[float, float, float]
    centre: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @staticmethod
    def even(half: Sequence[float], mass: float) -> Box:
        """Make a box of even density from its half sizes (m) and mass (kg)."""
        x, y, z = (float(size) for size in half)
        inertia = (
            mass * (y * y + z * z) / 3,
            mass * (x * x + z * z) / 3,
            mass * (x * x + y * y) / 3,
        )
        return Box((x, y, z), mass, inertia)

    @property
    def corners(self) -> np.ndarray:
        """Corners (8, 3), m, in the box's axes."""
        signs = np.array(list(itertools.product((-1, 1), repeat=3)))
        return signs * np.array(self.half)
