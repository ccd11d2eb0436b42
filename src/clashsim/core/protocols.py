"""What the rest of the house may expect of a collision model."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from clashsim.core.impacts import Impacts


class ImpactModel(Protocol):
    """Predicts the twist of the struck body after impact, and how far to trust that."""

    def predict(self, impacts: Impacts) -> np.ndarray:
        """Twist after impact (N, k); `impacts.after` is not looked at."""

    def spread(self, impacts: Impacts) -> np.ndarray:
        """One standard deviation of that prediction (N, k), same units."""
