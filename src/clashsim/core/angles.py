"""Angles and rotations in a plane: wrapping to [-pi, pi), and rotating vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def wrap_angle(angle: Any) -> Any:
    """Wrap an angle to [-pi, pi).

    Args:
        angle: rad; a number, a numpy array or a torch tensor of any shape; gradients pass
            unchanged.

    Returns:
        The same kind and shape, rad.
    """
    return (angle + math.pi) % (2 * math.pi) - math.pi


def rotate_planar(vectors: np.ndarray, angle: np.ndarray | float) -> np.ndarray:
    """Rotate vectors of a plane counter-clockwise.

    Args:
        vectors: (..., 2).
        angle: (...,) or a number, rad.

    Returns:
        The rotated vectors, (..., 2).
    """
    cosine = np.cos(angle)
    sine = np.sin(angle)
    x = vectors[..., 0]
    y = vectors[..., 1]
    return np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1)


def rotate_quarter_turn(vectors: np.ndarray) -> np.ndarray:
    """Rotate vectors (..., 2) of a plane counter-clockwise by a right angle.

    Applied to a position relative to a body's origin, this is the velocity there at an angular
    velocity of 1 rad/s.
    """
    return np.stack([-vectors[..., 1], vectors[..., 0]], axis=-1)
