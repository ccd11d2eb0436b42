"""What a tip path has to keep to: limits of the arm, and how the tip moves around the contact."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from clashsim.core.errors import DataError


@dataclass(frozen=True)
class Limits:
    """What the arm allows at its tip.

    Attributes:
        speed: Largest norm of the velocity, m/s.
        acceleration: Largest norm of the acceleration, m/s2.
        jerk: Largest norm of the jerk, m/s3.
    """

    speed: float = 1.0
    acceleration: float = 10.0
    jerk: float = 500.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (np.isfinite(value) and value > 0):
                raise DataError(f"the limit of {name} must be finite and above 0, got {value}")


@dataclass(frozen=True)
class PathConfig:
    """How the tip moves around the contact, and how the path is sampled.

    Attributes:
        through: Distance (m) after the contact over which the velocity of the strike is kept.
        settle: Shortest time (s) at that velocity before the contact; up to one sample is added,
            so that the contact falls on a sample.
        retreat: Distance (m) that the tip goes back from its furthest point; None: it stops there.
        rate: Samples per second.
        frame: Name of the frame that positions are given in.
    """

    through: float = 0.02
    settle: float = 0.02
    retreat: float | None = 0.1
    rate: float = 1000.0
    frame: str = "world"

    def __post_init__(self) -> None:
        for name, value in (("through", self.through), ("settle", self.settle)):
            if not (np.isfinite(value) and value >= 0):
                raise DataError(f"{name} must be finite and at least 0, got {value}")
        for name, optional in (("retreat", self.retreat), ("rate", self.rate)):
            if optional is not None and not (np.isfinite(optional) and optional > 0):
                raise DataError(f"{name} must be finite and above 0, got {optional}")
