"""What the rest of the house may expect of a collision model and of a simulator."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene


class ImpactModel(Protocol):
    """Predicts the twist of the struck body after impact, and how far to trust that."""

    def predict_with_std(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Twist after impact and one standard deviation of it, (N, k) each; `impacts.after` is not
        looked at.

        seen: the impacts as seen from their contacts, where that is known already.
        """


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

    def members(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Dimensionless change of twist of each member (E, N, k) for theta (p,) or (N, p)."""

    def in_training_region(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Whether each impact lies in the region that training covered, (N,)."""


class Simulator(Protocol):
    """Many simulations of one scene at once."""

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu);
        theta (p,) or (N, p).

        A state is MuJoCo's qpos, qvel and act, one after the other.
        """


class StrikeModel(Protocol):
    """Says where a body that is struck comes to rest. A strike is a row of numbers by `names`,
    within the box low..high (d,).

    unsure: whether the model knows what it is unsure of, and so takes noise.
    """

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    takes_noise: bool

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Pose at rest (N, 3) of bodies at rest at pose (N, 3) that are struck by strikes (N, d).

        noise (N, 3): by how many standard deviations the twists after the collision are off what is
        expected, for models that know theirs.
        """
