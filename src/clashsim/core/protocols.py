"""Protocols: the methods that collision models, simulators and strike models must have."""

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
            impacts: N impacts; `after` is not used.
            frame: The impacts in their contact frames, if already computed.

        Returns:
            Twist after impact and its standard deviation, (N, k) each, m/s and rad/s, in the axes
            of `Impacts.after`.
        """


@runtime_checkable
class ThetaModel(Protocol):
    """Predicts outcomes, for any theta, of impacts that are given in their contact frames."""

    @property
    def scene(self) -> Scene:
        """The scene whose pair was learned."""

    @property
    def needs_rest(self) -> bool:
        """Whether the model holds only for struck bodies at rest."""

    def members(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Predict with each member of the ensemble.

        Args:
            frame: N impacts in their contact frames.
            theta: (p,) or (N, p), natural units.

        Returns:
            Dimensionless changes of twist, (E, N, k), of the E members, as `ContactFrame.encode`.
        """

    def in_training_region(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Decide which impacts lie in the region for which the model holds.

        Args:
            frame: N impacts in their contact frames.
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
    """Predicts the pose at which a struck body comes to rest.

    Attributes:
        names: Names of the d numbers of a strike.
        low: (d,), lowest values of these numbers.
        high: (d,), highest values of these numbers.
        takes_noise: Whether the model predicts a standard deviation, so that noise can be given.

    A model with `takes_noise` may have a further attribute `uncertainty`, a `RestUncertainty`; a
    model without it has normal noise, and slides that are known exactly.
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
            strike: (N, d), numbers of the strikes, in the order of `names`.
            noise: (N, 3), deviation of the twists after impact from the predicted ones, in standard
                deviations; only for models with `takes_noise`.

        Returns:
            Poses at rest, (N, 3), x, y (m) and yaw (rad).
        """
