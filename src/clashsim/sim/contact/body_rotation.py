"""Vectors and points that rotate with a body of an impact that is being solved."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.columns import ORIGIN, ROTATION, START, Vector
from clashsim.sim.contact.compiled import compiled


@compiled
def times(matrix: np.ndarray, b: int, first: int, vector: Vector) -> Vector:
    """Product of the 3 x 3 matrix in row b of an array, from column `first` on, with a vector."""
    x, y, z = vector
    return (
        matrix[b, first] * x + matrix[b, first + 1] * y + matrix[b, first + 2] * z,
        matrix[b, first + 3] * x + matrix[b, first + 4] * y + matrix[b, first + 5] * z,
        matrix[b, first + 6] * x + matrix[b, first + 7] * y + matrix[b, first + 8] * z,
    )


@compiled
def times_transposed(matrix: np.ndarray, b: int, first: int, vector: Vector) -> Vector:
    """Product of such a matrix, transposed, with a vector."""
    x, y, z = vector
    return (
        matrix[b, first] * x + matrix[b, first + 3] * y + matrix[b, first + 6] * z,
        matrix[b, first + 1] * x + matrix[b, first + 4] * y + matrix[b, first + 7] * z,
        matrix[b, first + 2] * x + matrix[b, first + 5] * y + matrix[b, first + 8] * z,
    )


@compiled
def carried(b: int, bodies: np.ndarray, x: float, y: float, z: float) -> Vector:
    """Where body b has carried a point since the start."""
    arm = (x - bodies[b, START], y - bodies[b, START + 1], z - bodies[b, START + 2])
    x, y, z = times(bodies, b, ROTATION, arm)
    return bodies[b, ORIGIN] + x, bodies[b, ORIGIN + 1] + y, bodies[b, ORIGIN + 2] + z
