"""What the rest of the house may expect of a collision model and of a simulator."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from clashsim.core.frame import Frame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene


class ImpactModel(Protocol):
    """Predicts the twist of the struck body after impact, and how far to trust that."""

    def predict(self, impacts: Impacts) -> np.ndarray:
        """Twist after impact (N, k); `impacts.after` is not looked at."""

    def spread(self, impacts: Impacts) -> np.ndarray:
        """One standard deviation of that prediction (N, k), same units."""


@runtime_checkable
class ThetaModel(Protocol):
    """Predicts outcomes for any theta from impacts that are already seen from their contacts."""

    @property
    def scene(self) -> Scene:
        """The scene whose pair was learned."""

    @property
    def low(self) -> np.ndarray:
        """Least contact features, then unit theta, that training saw."""

    @property
    def high(self) -> np.ndarray:
        """Greatest ones."""

    def members(self, seen: Frame, theta: np.ndarray) -> np.ndarray:
        """Dimensionless change of twist of each member (E, N, k) for theta (p,) or (N, p)."""

    def inside(self, seen: Frame, theta: np.ndarray) -> np.ndarray:
        """Whether each impact lies in the region that training covered, (N,)."""


class Simulator(Protocol):
    """Many simulations of one scene at once."""

    def rollout(self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu); theta (p,) or (N, p).

        A state is MuJoCo's qpos, qvel and act, one after the other.
        """
