"""Whole recordings of several pairs: whose bodies touch decides which pair an impact is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from clashsim.core.contact_geometry import bring_into_contact, closing_speed
from clashsim.core.recorded_joints import with_postures
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.data.segmentation.result import Segmentation
from clashsim.pipeline.recorded_impacts import RecordedImpacts, single_contacts
from clashsim.pipeline.recordings import find_impacts, impacts_with_known

_MAX_DISTANCE = 0.03  # m: recorded positions may be off by this much
_SAME_TIME = 0.02  # s: changes of velocity this close are one impact, measured for two pairs


@dataclass(frozen=True, eq=False)
class _PairImpacts:
    """The changes of velocity of a pair's struck body.

    Attributes:
        scene: Scene of the pair.
        found: The changes, as impacts of this pair.
        distance: (N,), m, by which the bodies were moved to touch; infinite where they do not meet.
    """

    scene: Scene
    found: Segmentation
    distance: np.ndarray

    @staticmethod
    def of(scene: Scene, trials: Trials) -> _PairImpacts:
        """Find the changes of velocity of the struck body in trials."""
        found = find_impacts(trials, scene)
        if not found.found:
            return _PairImpacts(scene, found, np.zeros(0))
        scene = with_postures(scene, impacts_with_known(found, scene, (), trials))
        contact, moved = bring_into_contact(scene, found.impacts.before)
        meets = contact.touching & (closing_speed(moved, contact) > 0)
        return _PairImpacts(scene, found, np.where(meets, np.abs(contact.shift), np.inf))

    @property
    def bodies(self) -> set[int]:
        """The two bodies; 0 stands for everything fixed."""
        return {self.scene.struck_body.body, self.scene.striker_body.body}

    def rivals(self, others: Sequence[_PairImpacts], row: int) -> list[float]:
        """Distances at which other pairs of the struck body meet at the time of an impact."""
        distances = []
        for other in others:
            if other is self or self.scene.struck_body.body not in other.bodies:
                continue
            is_same = other.found.trial == self.found.found[row].trial
            is_same &= np.abs(other.found.time - self.found.time[row]) < _SAME_TIME
            distances += other.distance[is_same].tolist()
        return distances

    def kept(self, rows: np.ndarray) -> Segmentation:
        """Those of the changes that are impacts of this pair."""
        return replace(self.found.select(rows), notes=())


def impacts_of_trials(
    trials: Trials,
    scenes: Mapping[str, Scene],
    known: tuple[str, ...],
    notify: Callable[[str], object],
) -> dict[str, RecordedImpacts]:
    """Find the impacts of several pairs in trials.

    A change of velocity is an impact of the pair whose bodies are nearest to touching.

    Args:
        trials: The recorded trials.
        scenes: The scene of each pair, by the pair's name.
        known: Names of additional measured covariates: numbers of the trials.
        notify: Called with how many impacts were found.

    Returns:
        The impacts by the name of the pair; pairs without any are left out.
    """
    candidates = {name: _PairImpacts.of(scene, trials) for name, scene in scenes.items()}
    impacts = {}
    for name, pair in candidates.items():
        rows = []
        for row, distance in enumerate(pair.distance):
            nearest = min(pair.rivals(list(candidates.values()), row), default=np.inf)
            if distance <= _MAX_DISTANCE and distance < nearest:
                rows.append(row)
        summary = f"{len(rows)} impacts in {len(trials)} trials"
        notify(f"{name}: {summary}")
        if not rows:
            continue
        kept = pair.kept(np.array(rows))
        if not kept.one_contact.any():
            notify(f"{name}: left out, since each is several contacts in quick succession")
            continue
        impacts[name] = single_contacts(
            kept,
            pair.scene,
            known,
            trials,
            notify=partial(_notify_of, name, notify),
            summary=[summary],
        )
    return impacts


def _notify_of(name: str, notify: Callable[[str], object], sentence: str) -> None:
    """Say a sentence on one pair."""
    notify(f"{name}: {sentence}")
