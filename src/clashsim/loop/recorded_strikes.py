"""Strikes that were made in a world, a real bench or what stands in for it, and how far a simulator
is from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel
from clashsim.core.trials import Trial, Trials, yaw
from clashsim.rl.task import motion_in_body_frame

_STILL = 10  # frames at rest whose median is a pose


@dataclass(frozen=True, eq=False)
class RecordedStrikes:
    """Strikes (n, d) that were made, poses (n, 3) of the body before and after each, and their
    recordings.
    """

    strikes: np.ndarray
    before: np.ndarray
    after: np.ndarray
    trials: Trials

    @staticmethod
    def of(strikes: np.ndarray, trials: Trials, body: str) -> RecordedStrikes:
        """From recordings in the order of the strikes."""
        ends = np.array([_ends(trial, body) for trial in trials])
        return RecordedStrikes(strikes, ends[:, 0], ends[:, 1], trials)

    def __add__(self, other: RecordedStrikes) -> RecordedStrikes:
        strikes, before, after = (
            np.vstack([getattr(self, k), getattr(other, k)]) for k in ("strikes", "before", "after")
        )
        return RecordedStrikes(strikes, before, after, Trials((*self.trials, *other.trials)))

    def prediction_errors(self, model: StrikeModel) -> tuple[np.ndarray, np.ndarray]:
        """How far (n,) in m and rad bodies came to rest from where a model says."""
        off = motion_in_body_frame(model.rest(self.before, self.strikes), self.after)
        return np.hypot(off[:, 0], off[:, 1]), np.abs(off[:, 2])


class StrikeRig(Protocol):
    """A real bench, or what stands in for it."""

    def begin(self, pose: np.ndarray, seed: Sequence[int]) -> None:
        """Put the body down at a pose (3,)."""

    def look(self) -> np.ndarray:
        """Measured pose (3,)."""

    def strike(self, strike: Mapping[str, float], name: str) -> Trial:
        """Strike it, wait until it rests, and return the recording."""


def _ends(trial: Trial, body: str) -> tuple[np.ndarray, np.ndarray]:
    """Poses (3,) of a body before and after a recorded strike."""
    _, seen = trial.seen(body)
    if len(seen) < 2 * _STILL:
        raise DataError(
            f"trial {trial.name!r} shows the body {body!r} in {len(seen)} frames only: record it from before the strike until it rests"
        )
    turn = yaw(seen[:, 3:])
    first, last = (
        np.array([*np.median(seen[part, :2], 0), np.median(turn[part])])
        for part in (slice(0, _STILL), slice(-_STILL, None))
    )
    return first, last
