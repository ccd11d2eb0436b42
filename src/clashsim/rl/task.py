"""The interface of a task that is solved by strikes, in many environments at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.protocols import StrikeModel
from clashsim.rl.corridor_formulas import StrikeOutcome


class StrikeTask(Protocol):
    """N environments of a task.

    An action (N, d) is a strike, each of its numbers from -1 (lowest) to 1 (highest).

    Attributes:
        model: Predicts where a struck body comes to rest.
        pose: Poses (N, 3) of the bodies in the frame of the task: x, y (m), yaw (rad).
        strikes_made: Strikes of the episode so far, (N,).
    """

    model: StrikeModel
    pose: np.ndarray
    strikes_made: np.ndarray

    @property
    def observation_size(self) -> int:
        """How many numbers an observation has."""

    @property
    def state_arrays(self) -> Mapping[str, str]:
        """Names of the attributes that are the task's state, by their keys in a checkpoint."""

    def restart(self, rows: np.ndarray, rng: np.random.Generator) -> None:
        """Start new episodes in some environments, by their indices (m,)."""

    def observe(self) -> np.ndarray:
        """Return the observations (N, observation_size)."""

    def guide(self, rng: np.random.Generator) -> np.ndarray:
        """Return actions (N, d) that look good one strike ahead."""

    def strike(self, action: np.ndarray, rng: np.random.Generator) -> StrikeOutcome:
        """Strike all bodies by actions (N, d); they move as the model predicts, with noise."""

    def arrive(self, pose: np.ndarray) -> StrikeOutcome:
        """Return the outcome of a strike made elsewhere, which left bodies at poses (N, 3)."""


def motion_in_body_frame(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return how bodies moved, in the axes that they had before, so that the start has no effect.

    Args:
        before: Poses (N, 3): x, y (m), yaw (rad).
        after: Poses (N, 3) in the same frame.

    Returns:
        Motions (N, 3): forward, left (m), rotation wrapped to -pi..pi (rad).
    """
    cos, sin = np.cos(before[:, 2]), np.sin(before[:, 2])
    x, y = (after - before)[:, 0], (after - before)[:, 1]
    rotation = wrap_angle(after[:, 2] - before[:, 2])
    return np.stack([cos * x + sin * y, cos * y - sin * x, rotation], 1)
