"""What of a run can be replayed: recorded trials, measured impacts, or sampled strikes."""

from __future__ import annotations

from collections.abc import Mapping
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
from clashsim.view.motion import BodyMotion, motion_of_trial

_SECONDS_BEFORE = 0.5  # of a recording, before the contact
_SECONDS_AFTER = 2.0  # of a recording, after the contact


@dataclass(frozen=True, eq=False)
class ReplayedStrike:
    """A strike to be replayed.

    Attributes:
        name: What it is called on the page.
        before: Both bodies before the impact (d,), as in `Impacts.before`; None: none was found.
        recorded: The recorded motion, if there is one.
        after: The measured twist of the struck body after the impact (k,), if there is one.
        note: What a visitor should know about it.
    """

    name: str
    before: np.ndarray | None
    recorded: BodyMotion | None = None
    after: np.ndarray | None = None
    note: str = ""


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
        """Number of the one to show first."""

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return one of them."""


@dataclass(frozen=True, eq=False)
class RecordedTrials:
    """Recorded trials.

    Attributes:
        scene: Of the trials.
        trials: The recordings.
        words: One sentence on what they are.
        fitted: The first so many were used for the calibration and the others were not; None: not
            known.
    """

    scene: Scene
    trials: Trials
    words: str
    fitted: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Number, name and use of each trial."""
        return tuple(f"{i + 1}: {trial.name}{self._use(i)}" for i, trial in enumerate(self.trials))

    @property
    def first(self) -> int:
        """The first trial that was held out: a calibration is judged by those."""
        return min(self.fitted or 0, len(self.trials) - 1)

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return a trial, in which the impact is found now: all at once would take long."""
        trial: Trial = self.trials[i]
        found = segment([trial], scene=self.scene).found
        if not found:
            return ReplayedStrike(
                name=self.names[i],
                before=None,
                recorded=motion_of_trial(self.scene, trial),
                note="No impact was found in this trial, so there is nothing to simulate.",
            )
        impact = found[0]
        is_shown = (trial.t > impact.time - _SECONDS_BEFORE) & (
            trial.t < impact.time + _SECONDS_AFTER
        )
        motion = motion_of_trial(self.scene, trial, touch_time=impact.time)
        note = ""
        if len(found) > 1:
            note = (
                f"It is the first of {len(found)} impacts of the trial; "
                "simulations know that one only."
            )
        return ReplayedStrike(
            name=self.names[i],
            before=impact.before,
            recorded=motion.only(is_shown),
            after=impact.after,
            note=note,
        )

    def _use(self, i: int) -> str:
        """Return what a trial was used for, as part of its name."""
        if self.fitted is None:
            return ""
        return " (calibrated with)" if i < self.fitted else " (held out)"


@dataclass(frozen=True, eq=False)
class MeasuredImpacts:
    """Impacts without the motion around them.

    Attributes:
        impacts: The impacts.
        words: One sentence on what they are.
        first: Number of the one to show first.
    """

    impacts: Impacts
    words: str
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Impacts by number."""
        return tuple(f"impact {i + 1}" for i in range(len(self.impacts)))

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return one impact."""
        return ReplayedStrike(
            name=self.names[i], before=self.impacts.before[i], after=self.impacts.after[i]
        )


@dataclass(frozen=True, eq=False)
class SampledStrikes:
    """Strikes sampled from the scene's ranges, for runs whose data is not available.

    A free body on the ground is struck at the origin.

    Attributes:
        scene: The scene.
        words: One sentence on what they are.
        n: Number of strikes.
        first: Number of the one to show first.
    """

    scene: Scene
    words: str
    n: int = 12
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Strikes by number."""
        return tuple(f"strike {i + 1}" for i in range(self.n))

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return the same strike for the same number."""
        before = sample_strikes(self.scene, self.n, np.random.default_rng(0)).before
        if self.scene.plane is not None and not self.scene.striker_body.fixed:
            before = move_pair_to(before, np.zeros(3))
        return ReplayedStrike(self.names[i], before[i])


def adjustable_ranges(scene: Scene) -> dict[str, Range]:
    """Return the numbers of a strike that can be chosen by hand, and their ranges.

    Unlike `strike_ranges`, this includes scenes in which the striker is a wall and the body moves.
    """
    if scene.plane is None:
        raise SceneError(
            "Strikes by hand are for scenes in which bodies move in a plane; "
            "here they move in space."
        )
    unused = ["point", "turn"] if scene.strikes.offset is not None else ["offset", "yaw"]
    if scene.strikes.slip is not None:
        unused.append("deflection")
    ranges = {}
    for field in fields(scene.strikes):
        limits = getattr(scene.strikes, field.name)
        if field.name not in unused and limits is not None and limits[1] > limits[0]:
            ranges[field.name] = limits
    return ranges


def before_of_strike(scene: Scene, strike: Mapping[str, float], start: np.ndarray) -> np.ndarray:
    """Return both bodies before a strike, (12,) as in `Impacts.before`.

    Args:
        scene: The scene.
        strike: The strike by the names of its numbers.
        start: Planar pose (3,) of the struck body, where the striker comes to it.
    """
    columns = {name: np.array([value]) for name, value in strike.items()}
    before, contact = before_from_strikes(scene, columns)
    if not contact.touching[0]:
        raise SceneError("This strike does not meet the body.")
    if scene.striker_body.fixed:  # a wall stays where it is
        return before[0]
    return move_pair_to(before, start)[0]
