"""Angles that mean the same after a full rotation: the one place where they are wrapped."""

from __future__ import annotations

import math
from typing import Any


def wrap_angle(angle: Any) -> Any:
    """Wrap an angle to [-pi, pi).

    Args:
        angle: rad; a number, a numpy array or a torch tensor of any shape. Gradients pass unchanged.

    Returns:
        The same kind and shape, rad.
    """
    return (angle + math.pi) % (2 * math.pi) - math.pi
