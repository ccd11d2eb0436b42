"""What happens in a timestep of many hybrid simulations, as arrays with a row for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.sim.hybrid.compiled_pair import ContactStates
from clashsim.sim.hybrid.timing import StepStart

# Why MuJoCo resolves a collision.
TOO_SLOW = "too slow to be an impact"
HIT_AGAIN = "hit again at once"
OVERLAPPING = "overlapping from the start"
REASONS = (TOO_SLOW, HIT_AGAIN, OVERLAPPING)
BY_MODEL = -1
NO_COLLISION = -2


@dataclass(frozen=True, eq=False)
class Collisions:
    """m pairs of as many simulations at the instants they touch.

    Attributes:
        row: (m,), indices of the simulations.
        pair: (m,), indices of the learned pairs.
        contact: The pairs at these instants.
    """

    row: np.ndarray
    pair: np.ndarray
    contact: ContactStates

    def __getitem__(self, which: np.ndarray) -> Collisions:
        return Collisions(self.row[which], self.pair[which], self.contact[which])

    @staticmethod
    def joined(parts: Sequence[Collisions]) -> Collisions:
        """Those of several pairs, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return Collisions(
            np.concatenate([part.row for part in parts]),
            np.concatenate([part.pair for part in parts]),
            ContactStates.joined([part.contact for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class TakenStep:
    """A step that m simulations took whole, before it is known what happened in it.

    Attributes:
        row: (m,), indices of the simulations.
        start: Their states at its beginning.
        phase: (m, pairs), of the pairs at its beginning.
        since: (m, pairs), s, since the last collisions at its beginning, 0 for none.
        touched: (m, pairs), which pairs touch at its end.
    """

    row: np.ndarray
    start: StepStart
    phase: np.ndarray
    since: np.ndarray
    touched: np.ndarray

    def __getitem__(self, which: np.ndarray | slice) -> TakenStep:
        return TakenStep(
            self.row[which],
            self.start[which],
            self.phase[which],
            self.since[which],
            self.touched[which],
        )

    @staticmethod
    def joined(parts: Sequence[TakenStep]) -> TakenStep:
        """Those of several steps, in the order of the simulations."""
        if len(parts) == 1:
            return parts[0]
        together = TakenStep(
            np.concatenate([part.row for part in parts]),
            StepStart.joined([part.start for part in parts]),
            np.concatenate([part.phase for part in parts]),
            np.concatenate([part.since for part in parts]),
            np.concatenate([part.touched for part in parts]),
        )
        return together[np.argsort(together.row)]


@dataclass(frozen=True, eq=False)
class Touches:
    """Where in a step m simulations first collide.

    Attributes:
        fraction: (m,), of the step; 1 where no pair collides.
        pair: (m,), index of the pair.
        reason: (m,), index in `REASONS` of why MuJoCo should resolve the collision, `BY_MODEL`
            where a learned model may, `NO_COLLISION` where there is none.
        for_models: The collisions for the models; their rows are those of the simulations.
    """

    fraction: np.ndarray
    pair: np.ndarray
    reason: np.ndarray
    for_models: list[Collisions]
