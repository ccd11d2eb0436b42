"""What of a run can be replayed: recorded trials, impacts that were measured, or strikes drawn from
the scene's ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from clashsim.core.errors import SceneError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import Range
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
from clashsim.core.trials import Trial, Trials
from clashsim.data.segmentation.segment import segment
from clashsim.fit.sample import sample_strikes
from clashsim.view.motion import BodyMotion, of_trial

_BEFORE, _AFTER = 0.5, 2.0  # s around a touch that are replayed of a recording


@dataclass(frozen=True, eq=False)
class ReplayedStrike:
    """One to be replayed: before (d,) as in `Impacts`, None where no impact was found; the recorded
    motion and the twist measured after (k,), where there are.
    """

    name: str
    before: np.ndarray | None
    recorded: BodyMotion | None = None
    after: np.ndarray | None = None
    says: str = ""


class StrikeSource(Protocol):
    """Strikes by number."""

    @property
    def words(self) -> str:
        """One sentence on what they are."""

    @property
    def names(self) -> tuple[str, ...]:
        """What each is called."""

    @property
    def first(self) -> int:
        """Which to show first."""

    def __getitem__(self, i: int) -> ReplayedStrike:
        """One of them."""


@dataclass(frozen=True, eq=False)
class RecordedTrials:
    """Trials; of the first `fitted` it is known that they were calibrated with, and that the others
    were not, unless that is None.
    """

    scene: Scene
    trials: Trials
    words: str
    fitted: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the trials."""
        return tuple(f"{i + 1}: {t.name}{self._use(i)}" for i, t in enumerate(self.trials))

    @property
    def first(self) -> int:
        """The first that was held out, where that is known: those are what a calibration is judged
        by.
        """
        return min(self.fitted or 0, len(self.trials) - 1)

    def __getitem__(self, i: int) -> ReplayedStrike:
        """A trial, in which the impact is looked for now: all of them at once would take long."""
        trial: Trial = self.trials[i]
        found = segment([trial], scene=self.scene)
        if not found.found:
            return ReplayedStrike(
                self.names[i],
                None,
                of_trial(self.scene, trial),
                says="No impact was found in this trial, so there is nothing to simulate.",
            )
        first = found.found[0]
        near = (trial.t > first.time - _BEFORE) & (trial.t < first.time + _AFTER)
        more = (
            f" It is the first of {len(found.found)} impacts of the trial; simulations know that one only."
            if len(found.found) > 1
            else ""
        )
        return ReplayedStrike(
            self.names[i],
            first.before,
            of_trial(self.scene, trial, touch=first.time).only(near),
            first.after,
            more.strip(),
        )

    def _use(self, i: int) -> str:
        return (
            ""
            if self.fitted is None
            else " (calibrated with)"
            if i < self.fitted
            else " (held out)"
        )


@dataclass(frozen=True, eq=False)
class MeasuredImpacts:
    """Impacts without the motion around them."""

    impacts: Impacts
    words: str
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """By number."""
        return tuple(f"impact {i + 1}" for i in range(len(self.impacts)))

    def __getitem__(self, i: int) -> ReplayedStrike:
        """One impact."""
        return ReplayedStrike(self.names[i], self.impacts.before[i], None, self.impacts.after[i])


@dataclass(frozen=True, eq=False)
class SampledStrikes:
    """Strikes drawn from the scene's ranges, for runs whose data is not at hand; a free body on the
    ground is struck at the origin.
    """

    scene: Scene
    words: str
    n: int = 12
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """By number."""
        return tuple(f"strike {i + 1}" for i in range(self.n))

    def __getitem__(self, i: int) -> ReplayedStrike:
        """The same for the same number."""
        before = sample_strikes(self.scene, self.n, np.random.default_rng(0)).before
        if self.scene.plane is not None and not self.scene.striker_body.fixed:
            before = move_pair_to(before, np.zeros(3))
        return ReplayedStrike(self.names[i], before[i])


def ranges(scene: Scene) -> dict[str, Range]:
    """What of a strike can be chosen by hand, and within which range; also where the striker is a
    wall and the body moves.
    """
    if scene.plane is None:
        raise SceneError(
            "Strikes by hand are for scenes in which bodies move in a plane; here they move in space."
        )
    replaced = ("point", "turn") if scene.strikes.offset is not None else ("offset", "yaw")
    slid = ("deflection",) if scene.strikes.slip is not None else ()
    found = {
        f.name: getattr(scene.strikes, f.name)
        for f in fields(scene.strikes)
        if f.name not in (*replaced, *slid)
    }
    return {name: r for name, r in found.items() if r is not None and r[1] > r[0]}


def aimed(scene: Scene, aims: dict[str, float], start: np.ndarray) -> np.ndarray:
    """`before` (12,) of a strike by its numbers, of a body that lies at start (3,) where the
    striker comes to it.
    """
    before, contact = before_from_strikes(
        scene, {name: np.array([value]) for name, value in aims.items()}
    )
    if not contact.touching[0]:
        raise SceneError("This strike does not meet the body.")
    if scene.striker_body.fixed:  # a wall stays where it is
        return before[0]
    return move_pair_to(before, start)[0]
