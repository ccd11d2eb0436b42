"""Protocols: what other packages may expect of a collision model and of a simulator."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene


class ImpactModel(Protocol):
    """Predicts the twist of the struck body after impact, and its standard deviation."""

    def predict_with_std(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict twists after impact.

        Args:
            impacts: N impacts, of which `after` is not read.
            frame: The impacts seen from their contacts, where that is known already.

        Returns:
            Twist after impact and one standard deviation of it, (N, k) each, m/s and rad/s.
        """


@runtime_checkable
class ThetaModel(Protocol):
    """Predicts outcomes for any theta from impacts that are already seen from their contacts."""

    @property
    def scene(self) -> Scene:
        """The scene whose pair was learned."""

    @property
    def low(self) -> np.ndarray:
        """Lowest contact features, then unit theta, in the training data."""

    @property
    def high(self) -> np.ndarray:
        """Highest contact features, then unit theta, in the training data."""

    def members(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Predict with each member of the ensemble.

        Args:
            frame: N impacts seen from their contacts.
            theta: (p,) or (N, p), natural units.

        Returns:
            Dimensionless changes of twist, (E, N, k).
        """

    def in_training_region(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Decide which impacts lie in the region that training covered.

        Args:
            frame: N impacts seen from their contacts.
            theta: (p,) or (N, p), natural units.

        Returns:
            (N,), true inside.
        """


class Simulator(Protocol):
    """Runs many simulations of one scene at once."""

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """Simulate from given states; a state is MuJoCo's qpos, qvel and act in a row.

        Args:
            start: (N, s), states at the start.
            control: (N, T, nu), controls of T steps.
            theta: (p,) or (N, p), natural units.

        Returns:
            States (N, T + 1, s), the start included.
        """


class StrikeModel(Protocol):
    """Predicts where a body that is struck comes to rest.

    Attributes:
        names: Names of the d numbers of a strike.
        low: (d,), lowest strike.
        high: (d,), highest strike.
        takes_noise: Whether the model knows its standard deviation, and so takes noise.
    """

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    takes_noise: bool

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Predict poses at rest.

        Args:
            pose: (N, 3), x, y (m) and yaw (rad) of bodies at rest before the strike.
            strike: (N, d).
            noise: (N, 3), by how many standard deviations the twists after the collision differ
                from what is expected, for models that know theirs.

        Returns:
            Poses at rest, (N, 3).
        """
