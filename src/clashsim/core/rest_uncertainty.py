"""How poses at rest differ from predicted ones, besides the stated standard deviations."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RestUncertainty:
    """What a model of strikes states about its errors, for sampling outcomes.

    Attributes:
        degrees_of_freedom: Of the Student-t distribution of the twists after a strike; infinite
            for a normal one. About 68 % of the twists lie within one standard deviation either way.
        slide_std: Standard deviation of each component of a pose at rest given the twist, over
            the length of the motion (yaw in units of the radius of gyration).
        gyration: Radius of gyration of the struck body, m, by which a rotation (rad) becomes a
            length.
    """

    degrees_of_freedom: float = math.inf
    slide_std: float = 0.0
    gyration: float = 1.0


NORMAL_NOISE = RestUncertainty()
