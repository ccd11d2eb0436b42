"""`calibrate_pairs`: from a scene and recorded impacts of several pairs to one run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError, ParamError, did_you_mean
from clashsim.core.impacts import BODY_COLUMNS, Impacts
from clashsim.core.progress import Progress, quiet
from clashsim.core.recorded_joints import joint_columns, with_motion_from_joints
from clashsim.core.scene import Scene, author_model
from clashsim.data.folders import check_output_folder
from clashsim.data.impact_files import read_impacts
from clashsim.evaluate.pair_conclusions import overall_conclusion, pair_conclusion
from clashsim.fit.calibrated_pairs import CalibratedPairs
from clashsim.fit.pairs_folder import FittedRun, save_pairs
from clashsim.fit.run_folder import load, pair_folder
from clashsim.fit.transfer import with_prior_from
from clashsim.pipeline.arguments import load_scene
from clashsim.pipeline.calibration import (
    CalibrationConfig,
    CalibrationResult,
    check_config,
    fit_recorded,
    refuse_names,
    result_of,
    saved_options,
)
from clashsim.pipeline.pair_recordings import (
    NamedPair,
    assign_to_pairs,
    named_pairs,
    pairs_of_trials,
)
from clashsim.pipeline.pair_trials import impacts_of_trials
from clashsim.pipeline.recorded_impacts import RecordedImpacts, with_fixed_striker, without_unusable
from clashsim.pipeline.recordings import holds_trials, read_recording
from clashsim.pipeline.scene_of_recording import scene_of_recording
from clashsim.report.pairs import PairSection, pairs_report

_FEWEST_IMPACTS = 3  # of a pair that is calibrated


@dataclass(frozen=True, eq=False)
class PairsResult:
    """Several calibrated pairs and the content of their run folder.

    Attributes:
        run: The calibrated pairs.
        folder: The run folder that was written.
        pairs: The result of each pair, by its name, in the order of `run`.
        notes: Sentences on all pairs, such as on impacts that were left out.
        conclusion: What the calibration is good for.
    """

    run: CalibratedPairs
    folder: Path
    pairs: Mapping[str, CalibrationResult]
    notes: Sequence[str]
    conclusion: str


@dataclass(frozen=True, eq=False)
class _RecordedPair:
    """A pair, its scene and its recorded impacts."""

    name: str
    scene: Scene
    recorded: RecordedImpacts


def calibrate_pairs(
    scene: str,
    recording: Path | str,
    out: Path | str,
    *,
    config: CalibrationConfig = CalibrationConfig(),
    notify: Callable[[str], object] = lambda sentence: None,
    progress: Progress = quiet,
) -> PairsResult:
    """Calibrate several pairs of a scene on recorded impacts, and write one run folder.

    Args:
        scene: Name of a built-in scene, or path of an MJCF file.
        recording: File with impacts whose columns "struck" and "striker" name bodies or geoms; or
            with trials, for which `config.pairs` names the pairs.
        out: Run folder to write; `pairs/NAME` in it is the run folder of a pair.
        config: How to calibrate; `struck` and `striker` follow from the recording.
        notify: Called with sentences for the user, such as on impacts that are left out.
        progress: Shows how far sampling and distilling are.

    Returns:
        The run and the result of each pair, that with the most impacts first.
    """
    recording = Path(recording)
    out = Path(out)
    check_config(config)
    refuse_names(config, recording)
    if config.write_mjcf is not None:
        raise ParamError(
            "--write-mjcf is for one pair: write the scene of each with clashsim export "
            f"{out / pair_folder('NAME')}"
        )
    notes: list[str] = []

    def note(sentence: str) -> None:
        notes.append(sentence)
        notify(sentence)

    recorded = _recorded_pairs(scene, recording, config, note)
    check_output_folder(out, overwrite=config.overwrite)
    fitted: dict[str, FittedRun] = {}
    for number, pair in enumerate(recorded, start=1):
        compiled = pair.scene
        notify(
            f"calibrating pair {number} of {len(recorded)}, {pair.name}: "
            f"{len(pair.recorded.impacts)} impacts"
        )
        options = saved_options(
            scene,
            recording,
            out / pair_folder(pair.name),
            config=replace(config, struck=compiled.struck, striker=compiled.striker),
        )
        if config.same_material and fitted:
            first = next(iter(fitted))
            compiled = with_prior_from(compiled, fitted[first].run.calibration)
            options["prior_pair"] = first
        try:
            of_pair = fit_recorded(
                compiled,
                pair.recorded,
                recording.name,
                options=options,
                config=config,
                notify=partial(_notify_of, pair.name, notify),
                progress=progress,
            )
        except DataError as error:  # of this pair alone
            note(f"left out: pair {pair.name}, since {error}")
            continue
        metrics = of_pair.record.metrics
        if _has_enough(pair.name, metrics["impacts"] + metrics["held_out"], note):
            fitted[pair.name] = of_pair
    if not fitted:
        raise DataError("; ".join(notes))
    page = _report(scene, recording, fitted, notes)
    save_pairs(
        out,
        fitted,
        notes=notes,
        pages={"report.html": page.encode()},
        overwrite=config.overwrite,
    )
    return PairsResult(
        run=CalibratedPairs({name: of_pair.run for name, of_pair in fitted.items()}),
        folder=out,
        pairs={
            name: result_of(of_pair, out / pair_folder(name)) for name, of_pair in fitted.items()
        },
        notes=notes,
        conclusion=overall_conclusion(_metrics(fitted)),
    )


def _notify_of(name: str, notify: Callable[[str], object], sentence: str) -> None:
    """Say a sentence on one pair."""
    notify(f"{name}: {sentence}")


def _recorded_pairs(
    source: str, recording: Path, config: CalibrationConfig, note: Callable[[str], object]
) -> list[_RecordedPair]:
    """The pairs of a recording that have enough impacts, that with the most first."""
    if holds_trials(recording):
        return _pairs_of_trials(source, recording, config, note)
    impacts = read_impacts(recording, known=None, incomplete=True)
    if impacts.bodies is None:
        raise DataError(
            f"{recording.name!r} does not name the bodies of its impacts: add columns "
            f"{' and '.join(map(repr, BODY_COLUMNS))}, or calibrate one pair"
        )
    named, left_out = assign_to_pairs(impacts.bodies, author_model(source), Path(source).stem)
    for sentence in left_out:
        note(sentence)
    scenes = [_scene_of(source, pair, config, planar=impacts.planar) for pair in named]
    _check_columns(impacts, scenes, config.known)
    joints = {name for scene in scenes for name in joint_columns(scene)}
    for pair, scene in zip(named, scenes, strict=True):
        impacts = with_fixed_striker(impacts, scene, pair.rows)
        impacts = _with_joints(impacts, scene, pair.rows, joints)
    usable = without_unusable(impacts, note)
    pairs = []
    for pair, scene in zip(named, scenes, strict=True):
        recorded = _of_pair(usable, pair, scene, config.known)
        of_recording = scene_of_recording(
            scene, source, recorded.impacts, ground_is_named=config.ground is not None
        )
        pairs.append(_RecordedPair(pair.name, _with_prior(of_recording, config), recorded))
    return _with_enough(pairs, recording, note)


def _pairs_of_trials(
    source: str, recording: Path, config: CalibrationConfig, note: Callable[[str], object]
) -> list[_RecordedPair]:
    """The pairs of trials that have enough impacts, that with the most first."""
    names = named_pairs(recording, config.pairs)
    if not names:
        raise ParamError(
            f"{recording.name!r} has trials: name the pairs whose impacts to look for, as in "
            "--pairs block:ball block:wall"
        )
    trials = read_recording(recording)
    named = pairs_of_trials(names, author_model(source), Path(source).stem)
    scenes = {}
    for pair in named:
        scene = _scene_of(source, pair, config, planar=True)
        scenes[pair.name] = _with_prior(scene, config)
    found = impacts_of_trials(trials, scenes, config.known, note)
    pairs = [_RecordedPair(name, scenes[name], recorded) for name, recorded in found.items()]
    return _with_enough(pairs, recording, note)


def _with_enough(
    pairs: Sequence[_RecordedPair], recording: Path, note: Callable[[str], object]
) -> list[_RecordedPair]:
    """Those pairs that have enough impacts, that with the most first."""
    found = []
    for pair in pairs:
        if _has_enough(pair.name, len(pair.recorded.impacts), note):
            found.append(pair)
    if not found:
        raise DataError(f"no pair of {recording.name!r} has {_FEWEST_IMPACTS} usable impacts")
    return sorted(found, key=lambda pair: -len(pair.recorded.impacts))


def _has_enough(name: str, num_impacts: int, note: Callable[[str], object]) -> bool:
    """Whether a pair has enough impacts that can be used; a sentence says where not."""
    if num_impacts >= _FEWEST_IMPACTS:
        return True
    note(
        f"left out: pair {name}, which has {num_impacts} usable impacts, and at least "
        f"{_FEWEST_IMPACTS} are needed"
    )
    return False


def _scene_of(source: str, pair: NamedPair, config: CalibrationConfig, *, planar: bool) -> Scene:
    """The scene of a pair, in a plane or in space."""
    scene = load_scene(source, struck=pair.struck, striker=pair.striker, ground=config.ground)
    return scene if planar else scene.recorded_in_space()


def _with_prior(scene: Scene, config: CalibrationConfig) -> Scene:
    """The scene of a pair, with the prior of another run if one is given."""
    if config.from_run is None:
        return scene
    return with_prior_from(scene, load(config.from_run).calibration)


def _check_columns(impacts: Impacts, scenes: Sequence[Scene], known: Sequence[str]) -> None:
    """Raise a DataError for a column that no pair has a use for."""
    allowed = {*known, *(param.name for scene in scenes for param in scene.params)}
    allowed.update(name for scene in scenes for name in joint_columns(scene))
    for name in impacts.known:
        if name not in allowed:
            raise DataError(
                f"impacts have an unknown column {name!r}; {did_you_mean(name, allowed)}"
            )


def _of_pair(
    usable: RecordedImpacts, pair: NamedPair, scene: Scene, known: Sequence[str]
) -> RecordedImpacts:
    """The impacts of one pair, with those measured numbers that its calibration may use."""
    assert usable.rows is not None
    kept = np.flatnonzero(np.isin(usable.rows, pair.rows))
    impacts = usable.impacts[kept]
    names = {*known, *(param.name for param in scene.params), *joint_columns(scene)}
    measured = {name: values for name, values in impacts.known.items() if name in names}
    impacts = with_motion_from_joints(replace(impacts, known=measured, bodies=None), scene)
    num_left_out = len(pair.rows) - len(kept)
    notes = {"num_left_out": num_left_out} if num_left_out else {}
    return RecordedImpacts(impacts, notes=notes, rows=usable.rows[kept])


def _with_joints(impacts: Impacts, scene: Scene, rows: np.ndarray, joints: set[str]) -> Impacts:
    """Fill in the motion of the bodies of one pair, in its rows, from recorded joints.

    Cells of joints that carry neither body may be empty, so that these rows do not lack a number.
    """
    known = {name: values.copy() for name, values in impacts.known.items()}
    for name in joints.difference(joint_columns(scene)) & known.keys():
        known[name][rows] = np.nan_to_num(known[name][rows])
    filled = with_motion_from_joints(impacts[rows], scene)
    before = impacts.before.copy()
    before[rows] = filled.before
    after = impacts.after.copy()
    after[rows] = filled.after
    return replace(impacts, before=before, after=after, known=known)


def _models(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Figures of each model of a pair, for both bodies, by a name for the report."""
    of_striker = metrics.get("striker_models", {})
    found = dict(metrics.get("models", {}))
    found |= {f"{name}: striker": figures for name, figures in of_striker.items()}
    return found


def _metrics(fitted: Mapping[str, FittedRun]) -> dict[str, Mapping]:
    """Content of metrics.json of each pair's run."""
    return {name: of_pair.record.metrics for name, of_pair in fitted.items()}


def _report(
    scene: str, recording: Path, fitted: Mapping[str, FittedRun], notes: Sequence[str]
) -> str:
    """The report of all pairs as one HTML page."""
    sections = []
    for name, of_pair in fitted.items():
        metrics = of_pair.record.metrics
        calibration = of_pair.run.calibration
        lines = [f"{metrics['impacts']} impacts fitted, {metrics['held_out']} held out."]
        prior = of_pair.record.config.get("prior_pair")
        if prior is not None:
            lines.append(f"What was identified for {prior} was the prior: the same material.")
        lines += metrics.get("left_out", [])
        sections.append(
            PairSection(
                name=name,
                conclusion=pair_conclusion(metrics),
                lines=lines,
                judged=metrics.get("judged"),
                models=_models(metrics),
                params=calibration.base.scene.params,
                estimates=calibration.theta,
                page=f"{pair_folder(name)}/report.html",
            )
        )
    return pairs_report(
        f"Calibration of {Path(scene).stem}: {len(fitted)} pairs",
        overall_conclusion(_metrics(fitted)),
        pairs=sections,
        notes=[f"Data: impacts recorded in {recording.name}.", *notes],
    )
