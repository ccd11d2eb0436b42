"""Counts of what happened to the collisions of a hybrid simulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CollisionStats:
    """How many collisions were resolved by a learned model, and how many by MuJoCo.

    Attributes:
        learned: Collisions whose outcome came from a learned model.
        corrected: Learned outcomes that broke a law of mechanics and were corrected
            (`clashsim.sim.hybrid.guards`).
        left_to_mujoco: Collisions that MuJoCo resolved, counted by reason.
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
        text = (
            f"{self.hits} hits, {self.learned} learned ({self.corrected} corrected by a guard), "
            f"{self.hits - self.learned} left to MuJoCo"
        )
        if self.left_to_mujoco:
            reasons = sorted(self.left_to_mujoco.items())
            text += ": " + ", ".join(f"{count} {reason}" for reason, count in reasons)
        return text
