"""The space of strikes: the ranges from which impact point, velocity and direction are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from clashsim.core.errors import DataError

Range = tuple[float, float]


@dataclass(frozen=True)
class StrikeDistribution:
    """Uniform ranges of a strike; the defaults are Table I of the CLASH paper.

    speed (m/s): approach speed. point (rad): bearing of the striker seen from the struck body's
    origin, in its frame.
    deflection (rad): angle between approach velocity and contact normal. turn (rad): bearing of the
    struck body seen from the
    striker, off its heading. spin (rad/s): of the struck body before contact. slip (m/s):
    tangential speed of a struck body that moves against a fixed striker, used instead of
    `deflection` where given. offset (m) and yaw (rad), where given, replace `point`
    and `turn`: the struck body's origin to the left of the striker's heading, and its yaw against
    the striker's. For free bodies in space `point` and
    `turn` do not apply: the struck body is turned at random, `deflection` is the half angle of a
    cone.
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
        for f in fields(self):
            value = getattr(self, f.name)
            if value is None:
                continue
            if len(value) != 2 or not all(map(math.isfinite, value)) or value[0] > value[1]:
                raise DataError(
                    f"the range of {f.name} must be two finite numbers, low first, got {value}"
                )
            object.__setattr__(self, f.name, (float(value[0]), float(value[1])))
        if self.speed[0] <= 0:
            raise DataError(f"the range of speed must be above zero, got {self.speed}")
        if (self.offset is None) != (self.yaw is None):
            raise DataError("offset and yaw are given together or not at all")
