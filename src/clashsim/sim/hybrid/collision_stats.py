"""What happened to collisions in a hybrid simulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CollisionStats:
    """Counts of collisions: those whose outcome was learned, those left to MuJoCo by reason, and
    twists that a guard had to move.
    """

    learned: int = 0
    corrected: int = 0
    left_to_mujoco: dict[str, int] = field(default_factory=dict)

    @property
    def hits(self) -> int:
        """All collisions."""
        return self.learned + sum(self.left_to_mujoco.values())

    def __add__(self, other: CollisionStats) -> CollisionStats:
        return CollisionStats(
            self.learned + other.learned,
            self.corrected + other.corrected,
            dict(Counter(self.left_to_mujoco) + Counter(other.left_to_mujoco)),
        )

    def __str__(self) -> str:
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(self.left_to_mujoco.items()))
        return (
            f"{self.hits} hits, {self.learned} learned ({self.corrected} moved by a guard), {self.hits - self.learned} left to MuJoCo"
            + (f": {why}" if why else "")
        )
