"""`calibrate_run`: from a scene and recorded impacts to a run folder.

A run is a calibrated collision model, a slide model if slides were recorded, a test on impacts that
were not fitted, and a report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import ParamError, SceneError
from clashsim.core.impacts import BODY_COLUMNS
from clashsim.core.progress import Progress, quiet
from clashsim.core.recorded_joints import with_postures
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import StrikeDistribution
from clashsim.data.checks.findings import check_finding_names
from clashsim.data.folders import check_output_folder
from clashsim.data.mjcf import EditedMjcf
from clashsim.data.mjcf_scene import save_mjcf
from clashsim.evaluate.data_efficiency import measure_data_efficiency
from clashsim.evaluate.holdout import HeldOutPredictions, predict_held_out
from clashsim.evaluate.outliers import find_outliers, outlier_notes
from clashsim.evaluate.recorded_forces import ForceComparison, compare_forces
from clashsim.evaluate.time_step import advise_time_step
from clashsim.fit.base import BaseModel, distilled_model
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.calibrated_run import CalibratedRun, theta_in_ranges, with_ground_friction
from clashsim.fit.pairs_folder import FittedRun
from clashsim.fit.restitution import restitution_at_speeds
from clashsim.fit.run_folder import RunRecord, load, save_run
from clashsim.fit.settings import outside_strike_ranges
from clashsim.fit.settings import ranges as recorded_ranges
from clashsim.fit.slides_from_trials import fit_slides_of_impacts, slides_of_given_friction
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.threads import one_thread
from clashsim.fit.transfer import with_prior_from
from clashsim.pipeline.arguments import (
    check_not_negative,
    check_samples,
    has_settings,
    load_scene,
    model_cache,
)
from clashsim.pipeline.calibration_data import CalibrationData
from clashsim.pipeline.durations import Stopwatch, say_nothing
from clashsim.pipeline.pair_recordings import named_pairs
from clashsim.pipeline.recorded_impacts import (
    RecordedImpacts,
    check_conventions,
    read_recorded_impacts,
    split_impacts,
)
from clashsim.pipeline.run_report import RunFindings, report_page
from clashsim.pipeline.scene_of_recording import scene_of_recording
from clashsim.slides.identify import SlideFit

# Quantiles of the approach speed at which the restitution is evaluated.
_SPEED_QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class CalibrationConfig:
    """How a run is calibrated.

    Attributes:
        from_run: Run folder of an object of the same material, whose posterior is the prior of this
            calibration; None for the scene's own prior.
        refine: Whether the pair's collisions are sampled and distilled into a network, which is
            then calibrated; otherwise they are solved as they are needed.
        samples: Simulated strikes to distil from, at least 100.
        base: Folder where distilled models are kept; None is clashsim's folder in the user's cache.
        seed: Seed of sampling, distillation, fitting and the choice of held-out impacts.
        hold_out: Share of the impacts kept back to test the result, at least 0 and below 1; 0 uses
            5-fold cross-validation.
        known: Additional measured covariates that may explain differences between impacts: names of
            columns of the impacts file, or of numbers in the trials.
        ground_friction: Coefficient of friction between struck body and ground, where slides were
            not recorded but are to be predicted; None takes it from slides.
        accept: Names of findings about a table of impacts that are accepted, such as "angle_unit".
        overwrite: Whether an existing run is replaced.
        write_mjcf: File to write the scene to with the identified values; None writes none.
        struck: Name of the struck geom, for an MJCF file without settings.
        striker: Name of the striking geom, for such a file.
        ground: Name of the geom on which the struck body slides, for such a file.
        pairs: Pairs of bodies whose impacts are looked for in trials, as in "block:wall".
        same_material: Of a recording of several pairs: whether what was identified for the pair
            with the most impacts is the prior of the others.
        threads: Number of threads for sampling; 0 uses all cores.
    """

    from_run: Path | None = None
    refine: bool = False
    samples: int = 100_000
    base: Path | None = None
    seed: int = 0
    hold_out: float = 0.0
    known: tuple[str, ...] = ()
    ground_friction: float | None = None
    accept: tuple[str, ...] = ()
    overwrite: bool = False
    write_mjcf: Path | None = None
    struck: str | None = None
    striker: str | None = None
    ground: str | None = None
    pairs: tuple[str, ...] = ()
    same_material: bool = False
    threads: int = 0


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """A calibrated run and the content of its folder.

    Attributes:
        run: Calibrated collision model, and slide model if slides were recorded.
        folder: The run folder that was written.
        metrics: Content of its metrics.json.
        slide: Content of its slide.json; None without a slide model.
        mjcf: The scene with identified values; None if `write_mjcf` was not given.
    """

    run: CalibratedRun
    folder: Path
    metrics: Mapping[str, Any]
    slide: Mapping[str, Any] | None
    mjcf: EditedMjcf | None = None


def calibrate_run(
    scene: str,
    recording: Path | str,
    out: Path | str,
    *,
    config: CalibrationConfig = CalibrationConfig(),
    notify: Callable[[str], object] = say_nothing,
    progress: Progress = quiet,
) -> CalibrationResult:
    """Calibrate a scene's collision model on recorded impacts, and write a run folder.

    Args:
        scene: Name of a built-in scene, or path of an MJCF file.
        recording: File with impacts (.csv, .npz, .json, .safetensors) or with trials of
            `clashsim import` or `clashsim record`.
        out: Run folder to write.
        config: How to calibrate.
        notify: Called with sentences for the user, such as warnings, before sampling starts.
        progress: Shows how far sampling and distilling are.

    Returns:
        The run, its metrics and its slide model.
    """
    recording = Path(recording)
    out = Path(out)
    check_config(config)
    config = _with_recorded_pair(config, recording)
    compiled = load_scene(scene, struck=config.struck, striker=config.striker, ground=config.ground)
    recorded = read_recorded_impacts(recording, compiled, config.known, notify)
    compiled = scene_of_recording(
        compiled, scene, recorded.impacts, ground_is_named=config.ground is not None
    )
    if config.from_run is not None:
        compiled = with_prior_from(compiled, load(config.from_run).calibration)
    check_output_folder(out, overwrite=config.overwrite)
    fitted = fit_recorded(
        compiled,
        recorded,
        recording.name,
        options=saved_options(scene, recording, out, config=config),
        config=config,
        notify=notify,
        progress=progress,
    )
    result = _save(fitted, out, overwrite=config.overwrite)
    if config.write_mjcf is None:
        return result
    return replace(result, mjcf=_write_mjcf(result, config.write_mjcf, config.overwrite))


def check_config(config: CalibrationConfig) -> None:
    """Raise a ParamError for options that no calibration can have."""
    check_not_negative(seed=config.seed)
    check_samples(config.samples)
    check_finding_names(config.accept)
    if not 0 <= config.hold_out < 1:
        raise ParamError(
            f"the share to hold out must be at least 0 and below 1, got {config.hold_out}"
        )


def fit_recorded(
    compiled: Scene,
    recorded: RecordedImpacts,
    name: str,
    *,
    options: Mapping[str, Any],
    config: CalibrationConfig,
    notify: Callable[[str], object],
    progress: Progress,
) -> FittedRun:
    """Calibrate one pair on recorded impacts, and test the result.

    Args:
        compiled: Scene of the pair.
        recorded: The impacts.
        name: Name of the data, as the report shows it.
        options: Content of config.json: how the run was made.
        config: How to calibrate.
        notify: Called with sentences for the user.
        progress: Shows how far sampling and distilling are.

    Returns:
        The run and what its folder holds.
    """
    if config.ground_friction is not None:
        _check_ground_friction(compiled, recorded, config.ground_friction)
    compiled = with_postures(compiled, recorded.impacts)
    warned = check_conventions(recorded, compiled, accept=config.accept, name=name, notify=notify)
    if warned:
        recorded = replace(recorded, notes={**recorded.notes, "warned": warned})
    data = split_impacts(
        recorded,
        compiled,
        hold_out=config.hold_out,
        seed=config.seed,
        name=name,
        notify=notify,
    )
    too_long = advise_time_step(compiled, data.fitted_frame.speed)
    if too_long is not None:
        notify(too_long.sentence)
    compiled = with_recorded_strikes(compiled, str(options["scene"]), data)
    base: BaseModel = SolvedModel(compiled)
    stopwatch = Stopwatch(notify)
    if config.refine:
        warning = outside_strike_ranges(compiled, recorded.impacts)
        if warning:
            notify(warning)
        with stopwatch.measure("base model"):
            base = distilled_model(
                compiled,
                n=config.samples,
                seed=config.seed,
                cache=config.base or model_cache(),
                threads=config.threads,
                progress=progress,
            )
    # The matrices of a fit are small: with more threads torch waits longer than it computes.
    with one_thread():
        return fit_and_judge(base, data, options=options, stopwatch=stopwatch)


def with_recorded_strikes(scene: Scene, source: str, data: CalibrationData) -> Scene:
    """The scene with the ranges of the recorded strikes, where nobody has given others.

    Plans and the trust map are of strikes like the recorded ones then.

    Args:
        scene: The scene.
        source: What it was loaded from.
        data: The impacts.
    """
    if scene.plane is None or scene.ground is None or has_settings(source):
        return scene
    return replace(scene, strikes=StrikeDistribution(**recorded_ranges(scene, data.fitted)))


def fit_and_save(
    base: BaseModel,
    data: CalibrationData,
    out: Path,
    *,
    options: Mapping[str, Any],
    overwrite: bool,
    baselines: Mapping[str, np.ndarray] | None = None,
    stopwatch: Stopwatch | None = None,
) -> CalibrationResult:
    """Calibrate a base model on data, test it, and save model and test results with a report.

    Args:
        base: Base model of the scene.
        data: Impacts to fit and to test on.
        out: Run folder to write.
        options: Content of config.json: how the run was made. Its "seed" seeds fitting and testing.
        overwrite: Whether an existing run is replaced.
        baselines: Predictions of other methods, by name: twists (N, k) after the held-out impacts.
        stopwatch: Durations of earlier steps; those of this function are added. It says how long
            they take.

    Returns:
        The run, its metrics and its slide model.
    """
    fitted = fit_and_judge(base, data, options=options, baselines=baselines, stopwatch=stopwatch)
    return _save(fitted, out, overwrite=overwrite)


def fit_and_judge(
    base: BaseModel,
    data: CalibrationData,
    *,
    options: Mapping[str, Any],
    baselines: Mapping[str, np.ndarray] | None = None,
    stopwatch: Stopwatch | None = None,
) -> FittedRun:
    """Calibrate a base model on data and test it; arguments as for `fit_and_save`."""
    seed = int(options["seed"])
    stopwatch = stopwatch or Stopwatch()
    with stopwatch.measure("slide model"):
        slide, slide_notes = _fit_slides(base.scene, data, options.get("ground_friction"))
    stopwatch.expect_compilation()
    stopwatch.expect_fit(len(data.fitted))
    with stopwatch.measure("calibration"):
        calibration = calibrate(base, data.fitted, frame=data.fitted_frame)
    stopwatch.expect_testing(held_out=len(data.held_out) > 0)
    with stopwatch.measure("judging"):
        judged = predict_held_out(
            calibration, data.fitted, data.held_out, seed=seed, frame=data.held_out_frame
        )
        outliers = find_outliers(calibration, data.fitted, data.fitted_frame)
        efficiency = measure_data_efficiency(
            calibration,
            data.fitted,
            data.held_out,
            outliers=[outlier.row for outlier in outliers],
            seed=seed,
        )
    if judged is not None:
        judged = replace(judged, predicted={**(baselines or {}), **judged.predicted})
    # Only after testing: the ground friction identified from slides describes slides best, but
    # MuJoCo predicts strikes better with the value that was fitted to strikes.
    if slide is not None:
        calibration = with_ground_friction(calibration, slide)
    metrics = _metrics(calibration, data, judged)
    metrics |= data.notes
    if outliers:
        metrics["outliers"] = outlier_notes(outliers, data.names(held_out=False))
    if slide_notes:
        metrics["slide"] = slide_notes
    forces: list[ForceComparison] = []
    if judged is not None and data.segmented is not None:
        found = data.segmented.held_out or data.segmented.fitted
        forces = compare_forces(base.scene, data.segmented.trials, found, judged)
        if forces:
            metrics["forces"] = [compared.sentence("clashsim") for compared in forces]
    findings = RunFindings(
        calibration=calibration,
        data=data,
        judged=judged,
        slide=slide,
        outliers=outliers,
        efficiency=efficiency,
        metrics=metrics,
        seconds=stopwatch.seconds,
        forces=forces,
    )
    page = report_page(findings, seed=seed)
    record = RunRecord(
        config=options,
        metrics=metrics,
        trials={data.name: data.fitted},
        pages={"report.html": page.encode()},
    )
    run = CalibratedRun(calibration, None if slide is None else slide.model, metrics)
    return FittedRun(run, slide, record)


def _save(fitted: FittedRun, out: Path, *, overwrite: bool) -> CalibrationResult:
    """Write a run folder."""
    save_run(
        out,
        fitted.run.calibration,
        slide=fitted.slide,
        record=fitted.record,
        overwrite=overwrite,
    )
    return result_of(fitted, out)


def result_of(fitted: FittedRun, folder: Path) -> CalibrationResult:
    """The result of a calibration whose run folder was written."""
    return CalibrationResult(
        run=fitted.run,
        folder=folder,
        metrics=fitted.record.metrics,
        slide=None if fitted.slide is None else fitted.slide.content(),
    )


def _with_recorded_pair(config: CalibrationConfig, recording: Path) -> CalibrationConfig:
    """A configuration with the pair that the recording names, if it names one."""
    pairs = named_pairs(recording, config.pairs)
    if len(pairs) < 2 and config.same_material:
        raise ParamError(
            f"--same-material is for several pairs, and {recording.name!r} does not name several"
        )
    if not pairs:
        return config
    if len(pairs) > 1:
        listed = ", ".join(" and ".join(pair) for pair in pairs)
        raise ParamError(
            f"{recording.name!r} has impacts of {len(pairs)} pairs ({listed}): "
            "calibrate them with clashsim.calibrate_pairs"
        )
    refuse_names(config, recording)
    return replace(config, struck=pairs[0][0], striker=pairs[0][1])


def refuse_names(config: CalibrationConfig, recording: Path) -> None:
    """Raise a ParamError where options name the bodies that a recording names already."""
    if config.struck is not None or config.striker is not None:
        raise ParamError(
            "the bodies of each impact follow from --pairs, or from the columns "
            f"{' and '.join(BODY_COLUMNS)} of {recording.name!r}: leave out --struck and --striker"
        )


def _check_ground_friction(scene: Scene, recorded: RecordedImpacts, friction: float) -> None:
    """Raise a `ParamError`, before any work, where a given ground friction is of no use."""
    if recorded.trials is not None:
        raise ParamError(
            f"a ground friction of {friction:g} is given, but it is identified from the slides of "
            "these trials: leave out --ground-friction"
        )
    if not recorded.impacts.planar:
        raise ParamError(
            f"a ground friction of {friction:g} is given, but the impacts were recorded in space: "
            "sliding is predicted for impacts in a plane (x, y, yaw, ...)"
        )
    slides_of_given_friction(scene, friction)


def _fit_slides(
    scene: Scene, data: CalibrationData, ground_friction: float | None
) -> tuple[SlideFit | None, dict[str, Any]]:
    """A slide model from recorded slides or a given friction, and its entry of metrics.json."""
    if data.segmented is None:
        if ground_friction is None:
            return None, {}
        return slides_of_given_friction(scene, ground_friction)
    return fit_slides_of_impacts(scene, data.segmented.fitted, data.segmented.held_out)


def _metrics(
    calibration: Calibration, data: CalibrationData, judged: HeldOutPredictions | None
) -> dict[str, Any]:
    """Entries of metrics.json about a calibration; those about the recording are added later."""
    scene = calibration.base.scene
    metrics: dict[str, Any] = {"impacts": len(data.fitted), "held_out": len(data.held_out)}
    if judged is not None:
        metrics["judged"] = judged.description
        for key, of_body in (
            ("models", judged.of_struck(scene)),
            ("striker_models", judged.of_striker(scene)),
        ):
            accuracies = of_body.accuracies()
            if accuracies:
                metrics[key] = accuracies
                metrics[f"judged_{key}"] = len(of_body.rows)
    quantiles = np.quantile(data.fitted_frame.speed, _SPEED_QUANTILES)
    speeds = np.unique(np.round(quantiles, 2)).tolist()  # m/s
    identified = theta_in_ranges(calibration)
    metrics["restitution"] = {
        "speeds": speeds,
        "nominal": list(restitution_at_speeds(scene, scene.nominal, speeds).values()),
        "identified": list(restitution_at_speeds(scene, identified, speeds).values()),
    }
    in_region = calibration.base.in_training_region(data.fitted_frame, identified)
    metrics["outside"] = int((~in_region).sum())
    too_long = advise_time_step(scene, data.fitted_frame.speed, calibration.theta)
    if too_long is not None:
        metrics["time_step"] = {"sentence": too_long.sentence, "cause": too_long.cause}
    return metrics


def saved_options(
    scene: str, recording: Path, out: Path, *, config: CalibrationConfig
) -> dict[str, Any]:
    """Content of config.json: the options of a run."""
    return {
        "scene": scene,
        "impacts": str(recording),
        "out": str(out),
        "from_run": None if config.from_run is None else str(config.from_run),
        "refine": config.refine,
        "samples": config.samples,
        "base": None if config.base is None else str(config.base),
        "seed": config.seed,
        "hold_out": config.hold_out,
        "known": config.known,
        "ground_friction": config.ground_friction,
        "accept": config.accept,
        "overwrite": config.overwrite,
        "pairs": config.pairs,
        "same_material": config.same_material,
        "write_mjcf": None if config.write_mjcf is None else str(config.write_mjcf),
        "pair": {"struck": config.struck, "striker": config.striker, "ground": config.ground},
    }


def _write_mjcf(result: CalibrationResult, path: Path, overwrite: bool) -> EditedMjcf:
    """Write the scene of a run with its identified values."""
    if path.exists() and not overwrite:
        raise SceneError(
            f"the output {str(path)!r} already exists; choose another, or replace it with "
            f"--overwrite (the run is in {str(result.folder)!r})"
        )
    edited = result.run.mjcf()
    try:
        save_mjcf(path, edited)
    except SceneError as error:
        raise SceneError(
            f"{error} (clashsim export {result.folder} writes the scene with its files)"
        ) from None
    return edited
