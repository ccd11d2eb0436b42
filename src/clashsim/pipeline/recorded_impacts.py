"""Impacts from a file to the start of a calibration: read, or found in trials, and divided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import ParamError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.data.impact_files import read_impacts
from clashsim.data.segmentation.result import MeasuredImpact
from clashsim.pipeline.calibration_data import CalibrationData, SegmentedTrials
from clashsim.pipeline.recordings import (
    find_impacts,
    friction_of_ground,
    holds_trials,
    impacts_with_known,
    read_recording,
    segmentation_summary,
)


@dataclass(frozen=True, eq=False)
class RecordedImpacts:
    """The impacts of a recording and, if they were found in trials, how they were found.

    Attributes:
        impacts: The impacts.
        trials: The trials in which they were found; None for a file of impacts.
        found: What was measured of each impact in the trials.
        notes: Entries of metrics.json about the recording, by their keys.
    """

    impacts: Impacts
    trials: Trials | None = None
    found: tuple[MeasuredImpact, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def read_recorded_impacts(
    path: Path, scene: Scene, known: tuple[str, ...], notify: Callable[[str], object]
) -> RecordedImpacts:
    """Read the impacts of a file, or find them in its trials.

    Args:
        path: File with impacts or with trials.
        scene: Scene of the collision.
        known: Further columns, or numbers of the trials, that were measured with each impact.
        notify: Called with what was found in trials, and what was left out.
    """
    if not holds_trials(path):
        columns = [*(param.name for param in scene.params), *known]
        return RecordedImpacts(read_impacts(path, known=columns).checked())
    trials = read_recording(path)
    segmentation = find_impacts(trials, scene)
    impacts = impacts_with_known(segmentation, scene, known, trials).checked()
    friction = friction_of_ground(segmentation, scene)
    summary = segmentation_summary(segmentation, trials)
    notify("\n".join(summary))
    notes: dict[str, Any] = {"segmented": summary}
    if friction:
        notes["ground"] = friction
    if trials.notes:
        notes["import"] = list(trials.notes)
    return RecordedImpacts(impacts, trials, segmentation.found, notes)


def split_impacts(
    recorded: RecordedImpacts, scene: Scene, *, hold_out: float, seed: int, name: str
) -> CalibrationData:
    """Divide impacts at random into those that are fitted and those held out.

    This computes the contact frames, which refuses bodies that never meet before minutes are spent
    on sampling.

    Args:
        recorded: The impacts.
        scene: Scene of the collision.
        hold_out: Share of the impacts to hold out.
        seed: Of the division.
        name: Name of the data, as the report shows it.
    """
    impacts = recorded.impacts
    order = np.random.default_rng(seed).permutation(len(impacts))
    num_fitted = len(impacts) - round(hold_out * len(impacts))
    if num_fitted < 1:
        raise ParamError(
            f"holding out a share of {hold_out} leaves none of the {len(impacts)} impacts to fit"
        )
    fitted_rows = np.sort(order[:num_fitted])
    held_out_rows = np.sort(order[num_fitted:])
    frame = contact_frame(scene, impacts)
    segmented = None
    if recorded.trials is not None:
        segmented = SegmentedTrials(
            recorded.trials,
            fitted=[recorded.found[row] for row in fitted_rows],
            held_out=[recorded.found[row] for row in held_out_rows],
        )
    return CalibrationData(
        name=name,
        source=impacts.source,
        fitted=impacts[fitted_rows],
        held_out=impacts[held_out_rows],
        fitted_frame=frame[fitted_rows],
        held_out_frame=frame[held_out_rows],
        segmented=segmented,
        notes=recorded.notes,
    )
