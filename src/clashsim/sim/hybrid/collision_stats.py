"""What happened to collisions in a hybrid simulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tally:
    """Counts of collisions: those whose outcome was learned, those left to MuJoCo by reason, and
    twists that a guard had to move.
    """

    learned: int = 0
    projected: int = 0
    handed: dict[str, int] = field(default_factory=dict)

    @property
    def hits(self) -> int:
        """All collisions."""
        return self.learned + sum(self.handed.values())

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.learned + other.learned,
            self.projected + other.projected,
            dict(Counter(self.handed) + Counter(other.handed)),
        )

    def __str__(self) -> str:
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(self.handed.items()))
        return (
            f"{self.hits} hits, {self.learned} learned ({self.projected} moved by a guard), {self.hits - self.learned} left to MuJoCo"
            + (f": {why}" if why else "")
        )
