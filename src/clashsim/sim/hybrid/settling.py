"""Simulations that run until a body lies still, and noise of the collisions on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import mujoco
import numpy as np

from clashsim.core.mobility import Mobility, bounding_radius
from clashsim.sim.hybrid.compiled_steps import rest_since
from clashsim.sim.hybrid.simulation_rows import SimulationRows

# m/s: a body all of whose points are slower lies still, if it goes on like that for `_STILL_FOR`.
_STILL_SPEED = 0.03
_STILL_FOR = 0.04  # s, in which a body at the top of its flight would reach 0.4 m/s


class Settled(NamedTuple):
    """States of n simulations at their ends.

    Attributes:
        states: (n, s): qpos, qvel and act.
        pose: (n, 7), of the struck body: position (m) and quaternion wxyz, world axes.
        time: (n,), s, when each ended.
        at_rest: (n,), whether the struck body lay still then.
    """

    states: np.ndarray
    pose: np.ndarray
    time: np.ndarray
    at_rest: np.ndarray


class RestDetector:
    """Notices when a body lies still, in each of n simulations.

    Args:
        model: The compiled model.
        body: How the body moves; it has a free joint.
        sims: The simulations.
        earliest: (n,), s, before which no body counts as lying still: it is yet to be struck.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        body: Mobility,
        sims: SimulationRows,
        *,
        earliest: np.ndarray | None = None,
    ) -> None:
        self._sims = sims
        self._earliest = np.zeros(len(sims.qpos)) if earliest is None else earliest
        self._entries = body.qvel
        self._radius = bounding_radius(model, body.body)
        self._still_since = np.full(len(sims.qpos), np.nan)  # s
        self.at_rest = np.zeros(len(sims.qpos), bool)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Whether the body lies still in these simulations, (len(rows),)."""
        still = rest_since(
            self._sims.qvel,
            self._sims.time,
            rows,
            (self._entries, self._radius),
            _STILL_SPEED,
            self._earliest,
            self._still_since,
        )
        found = still >= _STILL_FOR
        self.at_rest[rows] = found
        return found


@dataclass
class OutcomeNoise:
    """Standard normal numbers for the outcomes of learned collisions, in the order they happen.

    What a simulation gets does not depend on the others of its batch.

    Attributes:
        normal: (n, c, k), for the first c collisions of each of n simulations; later ones begin
            again with the first numbers.
    """

    normal: np.ndarray

    def __post_init__(self) -> None:
        self._count = np.zeros(len(self.normal), int)

    def of_next(self, rows: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Noise of the next collision of each of the simulations `rows`.

        Args:
            rows: (m,), indices of simulations, each at most once.
            std: (m, k), standard deviations of their twists after the collision.

        Returns:
            (m, k), in the units of `std`.
        """
        number = self._count[rows] % self.normal.shape[1]
        self._count[rows] += 1
        usable = np.where(np.isfinite(std), std, 0.0)
        return usable * self.normal[rows, number]
