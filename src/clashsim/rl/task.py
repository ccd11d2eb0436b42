"""What a task made of strikes offers to those who train and to those who execute: many copies of it
at once.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.protocols import StrikeModel


class StrikeTask(Protocol):
    """N copies of a task. pose (N, 3): of their bodies, as the task sees them; made (N,): strikes
    so far.

    An action (N, d) is a strike, each of its numbers from -1 (least) to 1 (greatest).
    """

    model: StrikeModel
    pose: np.ndarray
    made: np.ndarray

    @property
    def observed(self) -> int:
        """Numbers in an observation."""

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the arrays that are the task's state."""

    def restart(self, rows: np.ndarray, rng: np.random.Generator) -> None:
        """Begin anew in some rows (m,)."""

    def observe(self) -> np.ndarray:
        """Observations (N, observed)."""

    def guide(self, rng: np.random.Generator) -> np.ndarray:
        """Actions (N, d) that look good one strike ahead."""

    def strike(
        self, action: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Strike by the model: rewards (N,), whether an episode ended (N,), and whether at its goal
        (N,).
        """

    def arrive(self, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for bodies that were struck elsewhere and came to rest at pose (N, 3)."""


def motion_in_body_frame(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How bodies moved (N, 3) from pose to pose (N, 3), in their own axes before: what a strike
    does wherever a body lies.
    """
    c, s = np.cos(before[:, 2]), np.sin(before[:, 2])
    x, y = (after - before)[:, 0], (after - before)[:, 1]
    turn = wrap_angle(after[:, 2] - before[:, 2])
    return np.stack([c * x + s * y, c * y - s * x, turn], 1)
