"""Strikes of a run that can be replayed: recorded trials, measured impacts, or sampled ones."""

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

_SECONDS_BEFORE = 0.5  # of a recording that are shown before the contact
_SECONDS_AFTER = 2.0  # of a recording that are shown after the contact
_SAMPLE_SEED = 0  # of sampled strikes, so that they are always the same


@dataclass(frozen=True, eq=False)
class ReplayedStrike:
    """A strike to be replayed.

    Attributes:
        name: Name of the strike on the page.
        before: Both bodies before the impact (d,), as in `Impacts.before`; None: the recording has
            no impact.
        recorded: The recorded motion, if there is one.
        after: The measured twist of the struck body after the impact (k,), if there is one.
        note: Sentence on the strike for the visitor, or empty.
    """

    name: str
    before: np.ndarray | None
    recorded: BodyMotion | None = None
    after: np.ndarray | None = None
    note: str = ""


class StrikeSource(Protocol):
    """The strikes that the page can replay, numbered from 0."""

    @property
    def words(self) -> str:
        """One sentence that says where the strikes come from."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each strike on the page."""

    @property
    def first(self) -> int:
        """Number of the strike to show first."""

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return the strike with number i."""


@dataclass(frozen=True, eq=False)
class RecordedTrials:
    """Recorded trials.

    Attributes:
        scene: Scene of the trials.
        trials: The recordings.
        words: One sentence that says where the trials come from.
        fitted: Number of trials, from the first, that were used for the calibration; None: not
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
        """Number of the first held-out trial: held-out trials show how good a calibration is."""
        return min(self.fitted or 0, len(self.trials) - 1)

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return trial i; only its impact is segmented now, because all would take long."""
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
            note = f"This trial has {len(found)} impacts; only the first one is simulated."
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
        words: One sentence that says where the impacts come from.
        first: Number of the impact to show first.
    """

    impacts: Impacts
    words: str
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each impact: its number, from 1."""
        return tuple(f"impact {i + 1}" for i in range(len(self.impacts)))

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return impact i."""
        return ReplayedStrike(
            name=self.names[i], before=self.impacts.before[i], after=self.impacts.after[i]
        )


@dataclass(frozen=True, eq=False)
class SampledStrikes:
    """Strikes sampled from the scene's ranges, for runs whose data is not available.

    In a plane, a body that is struck by a moving striker lies at the origin.

    Attributes:
        scene: The scene.
        words: One sentence that says where the strikes come from.
        n: Number of strikes.
        first: Number of the strike to show first.
    """

    scene: Scene
    words: str
    n: int = 12
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each strike: its number, from 1."""
        return tuple(f"strike {i + 1}" for i in range(self.n))

    def __getitem__(self, i: int) -> ReplayedStrike:
        """Return strike i, which is the same in every call."""
        rng = np.random.default_rng(_SAMPLE_SEED)
        before = sample_strikes(self.scene, self.n, rng).before
        if self.scene.plane is not None and not self.scene.striker_body.fixed:
            origin = np.zeros(3)  # planar pose of the struck body
            before = move_pair_to(before, origin)
        return ReplayedStrike(self.names[i], before[i])


def adjustable_ranges(scene: Scene) -> dict[str, Range]:
    """Return the ranges, in SI units, of the numbers of a strike that can be chosen by hand.

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
        strike: Numbers of the strike by name, in SI units.
        start: Planar pose (3,) of the struck body; without effect where the striker is a wall.
    """
    columns = {name: np.array([value]) for name, value in strike.items()}
    before, contact = before_from_strikes(scene, columns)
    if not contact.touching[0]:
        raise SceneError("This strike misses the body.")
    if scene.striker_body.fixed:  # a wall stays where it is
        return before[0]
    return move_pair_to(before, start)[0]
