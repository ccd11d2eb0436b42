"""The distribution of strikes: ranges from which impact point, velocity and direction are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from clashsim.core.errors import DataError

Range = tuple[float, float]  # low, high


@dataclass(frozen=True)
class StrikeDistribution:
    """Uniform ranges of a strike; the defaults are Table I of the CLASH paper.

    For free bodies in space, `point` and `turn` are not used: the struck body is rotated at random,
    and `deflection` gives the half angle of a cone about the normal.

    Attributes:
        speed: m/s, approach speed.
        point: rad, bearing of the striker from the struck body's origin, in the struck body's axes.
        deflection: rad, angle between approach velocity and contact normal.
        turn: rad, bearing of the struck body from the striker, relative to the striker's heading.
        spin: rad/s, angular velocity of the struck body before contact.
        slip: m/s, tangential speed of a struck body that moves against a fixed striker; used
            instead of `deflection` where given.
        offset: m, how far the struck body's origin lies to the left of the striker's heading;
            together with `yaw` it replaces `point` and `turn` where given.
        yaw: rad, yaw of the struck body relative to the striker's.
    """

    speed: Range = (0.2, 0.8)
    point: Range = (math.pi / 12, 11 * math.pi / 12)
    deflection: Range = (-math.pi / 12, math.pi / 12)
    turn: Range = (0.0, 0.0)
    spin: Range = (0.0, 0.0)
    slip: Range | None = None
    offset: Range | None = None
    yaw: Range | None = None

    def __post_init__(self) -> None:
        for entry in fields(self):
            limits = getattr(self, entry.name)
            if limits is None:
                continue
            is_pair = len(limits) == 2 and all(map(math.isfinite, limits))
            if not is_pair or limits[0] > limits[1]:
                raise DataError(
                    f"the range of {entry.name} must be two finite numbers, low first, got {limits}"
                )
            object.__setattr__(self, entry.name, (float(limits[0]), float(limits[1])))
        if self.speed[0] <= 0:
            raise DataError(f"the range of speed must be above zero, got {self.speed}")
        if (self.offset is None) != (self.yaw is None):
            raise DataError("offset and yaw are given together or not at all")
