"""Read impacts from a file, or find them in its trials, and split them into fitted and held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.contact_frame import ContactFrame, contact_frame
from clashsim.core.contact_geometry import NearestPoints, closing_speed
from clashsim.core.errors import DataError, ParamError
from clashsim.core.impacts import (
    Impacts,
    MotionBefore,
    after_columns,
    listed_rows,
    striker_after_columns,
)
from clashsim.core.recorded_joints import with_motion_from_joints
from clashsim.core.scene import Scene
from clashsim.core.trials import Trials
from clashsim.data.checks.findings import CONVENTION_NAMES, raise_if_serious
from clashsim.data.checks.impact_conventions import check_impacts
from clashsim.data.impact_files import read_impacts
from clashsim.data.scene_impacts import read_scene_impacts
from clashsim.data.segmentation.result import MeasuredImpact, Segmentation
from clashsim.evaluate.conclusion import FIT_INSTEAD
from clashsim.pipeline.calibration_data import CalibrationData, SegmentedTrials
from clashsim.pipeline.pair_recordings import impacts_of_pair, rows_of_pair
from clashsim.pipeline.quaternion_order import check_quaternion_order
from clashsim.pipeline.recordings import (
    find_impacts,
    friction_of_ground,
    holds_trials,
    impacts_with_known,
    read_recording,
    segmentation_summary,
)

_NEARLY_TOUCHING = 3e-3  # m between bodies of which recordings say that they touch
_MAX_NAMED = 6  # impacts that a sentence names
_FEW_IMPACTS = 8  # of trials, below which another command is named


@dataclass(frozen=True, eq=False)
class RecordedImpacts:
    """The impacts of a recording and, if they were found in trials, how they were found.

    Attributes:
        impacts: The impacts.
        trials: The trials in which they were found; None for a file of impacts.
        found: Each impact as measured in the trials, in the order of `impacts`.
        notes: Entries of metrics.json about the recording, by key.
        rows: Number (N,) of each impact in the recording; None where none was left out.
    """

    impacts: Impacts
    trials: Trials | None = None
    found: tuple[MeasuredImpact, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    rows: np.ndarray | None = None

    def listed(self, mask: np.ndarray) -> str:
        """Name impacts (N,) by their numbers in the recording, as `listed_rows` does."""
        if self.rows is None:
            return listed_rows(mask)
        in_recording = np.zeros(self.rows.max(initial=0) + 1, bool)
        in_recording[self.rows[mask]] = True
        return listed_rows(in_recording)


def read_recorded_impacts(
    path: Path, scene: Scene, known: tuple[str, ...], notify: Callable[[str], object]
) -> RecordedImpacts:
    """Read the impacts of a file, or find them in its trials.

    Args:
        path: File with impacts or with trials.
        scene: Scene of the collision.
        known: Names of additional measured covariates: columns of the file, or numbers of the
            trials.
        notify: Called with a summary of the impacts found in trials, and of what was left out.

    Returns:
        The impacts; with their trials if they were found in trials.
    """
    if not holds_trials(path):
        return read_table(path, scene, known, notify)
    trials = read_recording(path)
    segmentation = find_impacts(trials, scene)
    impacts_with_known(segmentation, scene, known, trials)  # raises where there are none
    summary = segmentation_summary(segmentation, trials)
    notify("\n".join(summary))
    return single_contacts(segmentation, scene, known, trials, notify=notify, summary=summary)


def single_contacts(
    segmentation: Segmentation,
    scene: Scene,
    known: Sequence[str],
    trials: Trials,
    *,
    notify: Callable[[str], object],
    summary: Sequence[str],
) -> RecordedImpacts:
    """Those impacts found in trials that can be fitted: each is one contact.

    Several contacts in quick succession are measured as one change of velocity, which no impulse at
    one contact explains.

    Args:
        segmentation: What was found in the trials.
        scene: Scene of the collision.
        known: Names of additional measured covariates.
        trials: The recorded trials.
        notify: Called with a sentence on impacts that are left out.
        summary: Sentences on the segmentation, for metrics.json.

    Raises:
        DataError: No impact is left.
    """
    usable = segmentation.one_contact
    notes: dict[str, Any] = {"segmented": list(summary)}
    kept = segmentation.select(usable)
    if not usable.all():
        sentence = _left_out_contacts(segmentation, ~usable)
        if not usable.any():
            raise DataError(f"no impact is left to fit: {sentence}; {FIT_INSTEAD}")
        notify(sentence)
        if usable.sum() < _FEW_IMPACTS:
            notify(f"only {int(usable.sum())} impacts are left: {FIT_INSTEAD}")
        notes["left_out"] = [sentence]
        notes["num_left_out"] = int((~usable).sum())
    friction = friction_of_ground(kept, scene)
    if friction:
        notes["ground"] = friction
    if trials.notes:
        notes["import"] = list(trials.notes)
    impacts = impacts_with_known(kept, scene, known, trials).checked()
    return RecordedImpacts(impacts, trials, kept.found, notes)


def _left_out_contacts(segmentation: Segmentation, rows: np.ndarray) -> str:
    """A sentence that names impacts (N,) that are several contacts."""
    left_out = segmentation.select(rows).found
    named = [f"trial {impact.trial} at {impact.time:.3f} s" for impact in left_out[:_MAX_NAMED]]
    further = len(left_out) - _MAX_NAMED
    more = f" and {further} more" if further > 0 else ""
    return (
        f"left out: {len(left_out)} of {len(rows)} impacts, which are several contacts in quick "
        f"succession ({', '.join(named)}{more})"
    )


def read_table(
    path: Path, scene: Scene, known: Sequence[str], notify: Callable[[str], object]
) -> RecordedImpacts:
    """Read the impacts of a file; arguments as for `read_recorded_impacts`."""
    if not read_impacts(path, known=None, incomplete=True).planar:
        scene = scene.recorded_in_space()
    impacts = read_scene_impacts(path, scene, known=known, incomplete=True)
    rows = rows_of_pair(impacts, scene)
    of_pair = with_motion_from_joints(impacts_of_pair(impacts, scene), scene)
    return without_unusable(with_fixed_striker(of_pair, scene), notify, numbers=rows)


def check_conventions(
    recorded: RecordedImpacts,
    scene: Scene,
    *,
    accept: Sequence[str],
    name: str,
    notify: Callable[[str], object],
) -> list[str]:
    """Refuse impacts whose numbers probably mean something else.

    Logs are checked when they are imported, except for what only the scene shows: the order of the
    quaternions of a tumbling body.

    Args:
        recorded: The impacts.
        scene: Scene of the collision.
        accept: Names of findings that are accepted.
        name: Name of the table, for messages.
        notify: Called with a sentence on what may be wrong.

    Returns:
        What was warned about, here or at the import, for a conclusion that has to name causes.

    Raises:
        DataError: Mechanics contradicts the impacts, but not if they mean something else.
    """
    if recorded.trials is None:
        findings = check_impacts(scene, recorded.impacts)
        warned = []
    else:
        findings = check_quaternion_order(scene, recorded.trials, recorded.impacts)
        warned = [note for note in recorded.trials.notes if _names_convention(note)]
    raise_if_serious(
        findings,
        accept,
        data=f"the impacts in {name!r}",
        remedy="if they are right nevertheless, --accept",
    )
    for found in findings:
        if found.severity == "warn":
            notify(f"check the impacts in {name!r}: {found}")
            warned.append(f"{found.name}: {found.message}")
    return warned


def _names_convention(note: str) -> bool:
    """Whether a note of an import is on what numbers mean, and not on single frames."""
    return note.replace(":", ",").split(",")[0] in CONVENTION_NAMES


def split_impacts(
    recorded: RecordedImpacts,
    scene: Scene,
    *,
    hold_out: float,
    seed: int,
    name: str,
    notify: Callable[[str], object],
) -> CalibrationData:
    """Split impacts at random into fitted and held-out ones, and compute their contact frames.

    Impacts whose bodies do not meet are left out.

    Args:
        recorded: The impacts.
        scene: Scene of the collision.
        hold_out: Share of the impacts to hold out.
        seed: Seed of the random split.
        name: Name of the data, as the report shows it.
        notify: Called with a sentence on what was left out.

    Returns:
        Both parts in the order of the recording.
    """
    recorded, frame = usable_impacts(recorded, scene, notify)
    impacts = recorded.impacts
    order = np.random.default_rng(seed).permutation(len(impacts))
    num_fitted = len(impacts) - round(hold_out * len(impacts))
    if num_fitted < 1:
        raise ParamError(
            f"holding out a share of {hold_out} leaves none of the {len(impacts)} impacts to fit"
        )
    fitted_rows = np.sort(order[:num_fitted])
    held_out_rows = np.sort(order[num_fitted:])
    numbers = np.arange(len(impacts)) if recorded.rows is None else recorded.rows
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
        numbers=(numbers[fitted_rows], numbers[held_out_rows]),
        notes=recorded.notes,
    )


def with_fixed_striker(
    impacts: Impacts, scene: Scene, rows: np.ndarray | slice = slice(None)
) -> Impacts:
    """Fill what a recording lacks of a striker that stands still, which needs no numbers.

    Args:
        impacts: The impacts of a file.
        scene: Scene of their pair.
        rows: Those of the pair.

    Returns:
        The impacts; in those of a fixed striker, missing numbers are zero (no rotation), and it has
        no outcome.
    """
    if not scene.striker_body.fixed:
        return impacts
    _, at_rest = MotionBefore.at_origin(1, planar=impacts.planar)
    if not impacts.planar:
        at_rest.striker.quaternion[:, 0] = 1.0
    before = impacts.before.copy()
    recorded = MotionBefore.of(before).striker.rows
    recorded[rows] = np.where(np.isnan(recorded[rows]), at_rest.striker.rows, recorded[rows])
    if impacts.striker_after is None:
        return replace(impacts, before=before)
    striker_after = impacts.striker_after.copy()
    striker_after[rows] = np.nan
    return replace(impacts, before=before, striker_after=striker_after)


def without_unusable(
    impacts: Impacts, notify: Callable[[str], object], *, numbers: np.ndarray | None = None
) -> RecordedImpacts:
    """Leave out impacts that cannot be used.

    Args:
        impacts: The impacts of a file.
        notify: Called with a sentence for each reason why impacts were left out.
        numbers: Of the impacts (N,) in the recording; None for 0, 1, ...

    Returns:
        The impacts that can be used.
    """
    whole = RecordedImpacts(impacts, rows=numbers)
    unusable = impacts.unusable()
    sentences = [
        f"left out: {int(rows.sum())} of {len(impacts)} impacts, which {reason} "
        f"({whole.listed(rows)})"
        for reason, rows in unusable.items()
    ]
    kept = ~np.any([np.zeros(len(impacts), bool), *unusable.values()], axis=0)
    if not kept.any():
        impacts.checked()  # says why
    for sentence in sentences:
        notify(sentence)
    names = after_columns(impacts.planar)
    measured = impacts.measured
    if impacts.striker_measured.any():
        names = (*names, *striker_after_columns(impacts.planar))
        measured = np.hstack([measured, impacts.striker_measured])
    unmeasured = [name for name, values in zip(names, measured.T, strict=True) if not values.any()]
    if unmeasured:
        notify(f"not measured, and neither fitted nor judged: {', '.join(unmeasured)}")
    rows = np.flatnonzero(kept)
    notes: dict[str, Any] = {}
    if sentences:
        notes = {"left_out": sentences, "num_left_out": len(impacts) - len(rows)}
    in_recording = rows if numbers is None else numbers[rows]
    return RecordedImpacts(impacts[rows].checked(), notes=notes, rows=in_recording)


def usable_impacts(
    recorded: RecordedImpacts, scene: Scene, notify: Callable[[str], object]
) -> tuple[RecordedImpacts, ContactFrame]:
    """The impacts whose bodies meet, and their contact frames; the others are named.

    Args:
        recorded: The impacts.
        scene: Scene of the collision.
        notify: Called with a sentence on what was left out.
    """
    impacts = recorded.impacts
    frame = contact_frame(scene, impacts, strict=False)
    meets = frame.contact.touching & (closing_speed(frame.before, frame.contact) > 0)
    if meets.all():
        return recorded, frame
    touches = ~meets & _nearly_touches(scene, impacts)
    if not meets.any():
        raise DataError(_why_none_meets(len(impacts), int(touches.sum())))
    sentences = []
    for rows, reason in (
        (touches, "in which bodies that touch do not approach each other, as in lasting contact"),
        (~meets & ~touches, "in which the bodies do not meet"),
    ):
        if rows.any():
            sentences.append(
                f"left out: {int(rows.sum())} of {len(impacts)} impacts, {reason} "
                f"({recorded.listed(rows)})"
            )
    for sentence in sentences:
        notify(sentence)
    kept = np.flatnonzero(meets)
    found = tuple(recorded.found[row] for row in kept) if recorded.found else ()
    left_out = [*recorded.notes.get("left_out", []), *sentences]
    num_left_out = recorded.notes.get("num_left_out", 0) + len(impacts) - len(kept)
    notes = {**recorded.notes, "left_out": left_out, "num_left_out": num_left_out}
    numbers = None if recorded.rows is None else recorded.rows[kept]
    usable = replace(recorded, impacts=impacts[kept], found=found, notes=notes, rows=numbers)
    return usable, frame[kept]


def _nearly_touches(scene: Scene, impacts: Impacts) -> np.ndarray:
    """Whether bodies touch, or nearly, as they were recorded, (N,)."""
    distance, _, _ = NearestPoints.of(scene, len(impacts)).in_world(impacts.before)
    return distance < _NEARLY_TOUCHING


def _why_none_meets(num_impacts: int, num_touching: int) -> str:
    """A sentence for impacts none of which is one."""
    found = f"in none of the {num_impacts} impacts do the bodies "
    if num_touching > num_impacts / 2:
        return (
            f"{found}approach each other, though they touch in {num_touching}: give the twists "
            "just before the first touch; pushes and other lasting contacts are not supported"
        )
    return f"{found}meet: check poses, velocities, units and frames"
