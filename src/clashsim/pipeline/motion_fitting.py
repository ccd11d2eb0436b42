"""`fit_run`: from a scene and recorded trajectories to a run folder.

A run is a scene with identified parameters (and networks, for some methods), a test on trials that
were not fitted, and a report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import ClashError, DataError, ParamError, did_you_mean
from clashsim.core.motion_params import choose_params
from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import FEWEST_FRAMES, ObservedMotion, observe_trials
from clashsim.core.progress import Progress, quiet
from clashsim.core.trials import Trials
from clashsim.data.folders import check_output_folder
from clashsim.evaluate.motion_errors import (
    MotionPrediction,
    diverging_trials,
    error_figures,
    penetration,
    predict_trials,
)
from clashsim.fit.joint_states import joint_states
from clashsim.fit.motion_methods import MethodResult, method_named, refusal
from clashsim.fit.motion_run import (
    METHODS,
    MotionMethod,
    MotionRecord,
    MotionRun,
    save_motion_run,
)
from clashsim.fit.motion_segments import ContactTimes, find_contacts
from clashsim.fit.recorded_scene import MotionFitConfig, RecordedScene
from clashsim.pipeline.arguments import check_not_negative
from clashsim.pipeline.durations import Stopwatch, say_nothing
from clashsim.pipeline.recordings import read_recording
from clashsim.report.motion_page import MotionContent, motion_report, seconds_text
from clashsim.sim.graph.simulator import GraphSim

AS_GIVEN = "scene as given"
_FEWEST_TO_HOLD_OUT = 3  # trials, below which none is held out
_NAMED_TRIALS = 3  # that a note names


@dataclass(frozen=True)
class FitRunConfig:
    """How a run is fitted to trajectories.

    Attributes:
        method: What is fitted and simulates: mujoco, mjx, neural or graph.
        compare: Further methods, fitted and tested on the same trials.
        params: Names of the parameters to identify, of groups or patterns; empty for a default set.
        bodies: Names of the recorded bodies to use; empty for all.
        hold_out: Share of the trials kept back to test the result, at least 0 and below 1.
        seed: Seed of the fit and of the choice of held-out trials.
        duration: Seconds of a trial that are used at most.
        overwrite: Whether an existing run is replaced.
        fit: Settings of the fit; its seed is replaced by that above.
    """

    method: MotionMethod = "mujoco"
    compare: tuple[MotionMethod, ...] = ()
    params: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    hold_out: float = 0.25
    seed: int = 0
    duration: float = 10.0
    overwrite: bool = False
    fit: MotionFitConfig = MotionFitConfig()


@dataclass(frozen=True, eq=False)
class FitRunResult:
    """A fitted run and the content of its folder.

    Attributes:
        run: The run.
        folder: The run folder that was written.
        metrics: Content of its metrics.json.
    """

    run: MotionRun
    folder: Path
    metrics: Mapping[str, Any]


def fit_run(
    scene: str,
    recording: Path | str,
    out: Path | str,
    *,
    config: FitRunConfig = FitRunConfig(),
    notify: Callable[[str], object] = say_nothing,
    progress: Progress = quiet,
) -> FitRunResult:
    """Identify a scene's parameters on whole recorded trajectories, and write a run folder.

    Finished stages are kept in hidden files beside the folder until it is written, so that the same
    call continues after it was killed.

    Args:
        scene: An MJCF or URDF file, or the name of a built-in scene.
        recording: File with trials of `clashsim import` or `clashsim record`.
        out: Run folder to write.
        config: How to fit.
        notify: Called with sentences for the user.
        progress: Shows the progress.

    Returns:
        The run and its metrics.
    """
    check_fit_config(config)
    loaded = MotionScene.load(scene)
    trials = _long_enough(_shortened(read_recording(Path(recording)), config.duration))
    check_output_folder(Path(out), overwrite=config.overwrite)
    stopwatch = Stopwatch(notify)
    with stopwatch.measure("reading"):
        motion = observe_trials(loaded, trials, config.bodies)
        states = joint_states(motion, seed=config.seed)
        contacts = find_contacts(loaded, motion, states)
        params = choose_params(loaded, config.params, contacts.touching, stops=contacts.stops)
    notes = [*trials.notes, *motion.notes, *_contact_notes(motion, contacts)]
    for note in notes:
        notify(note)
    fitted_rows, held_rows = _split(len(trials), config)
    recorded = RecordedScene(loaded.with_params(params), motion, states, contacts)
    to_fit = recorded.subset(fitted_rows)
    to_test = recorded.subset(held_rows if len(held_rows) else fitted_rows)
    out = Path(out)
    with stopwatch.measure("checking"):
        methods, refused = _possible(to_fit, config)
    for method, reason in refused.items():
        notes.append(f"{method} is not compared: {reason}")
        notify(notes[-1])
    checkpoints = {method: out.with_name(f".{out.name}.{method}.fit") for method in methods}
    out.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, MethodResult] = {}
    for method, checkpoint in checkpoints.items():
        settings = replace(config.fit, seed=config.seed, checkpoint=checkpoint)
        # Networks are added to parameters that may have been identified already.
        known = {"analytic": results.get("mujoco")} if method == "neural" else {}
        try:
            with stopwatch.measure(method):
                results[method] = method_named(method)(
                    to_fit, config=settings, progress=progress, **known
                )
        except ClashError as error:
            if method == config.method:
                raise
            refused[method] = str(error)
            notes.append(f"{method} is not compared: {error}")
            notify(notes[-1])
            continue
        for note in results[method].notes:
            notes.append(f"{method}: {note}" if len(methods) > 1 else note)
            notify(notes[-1])
    results = {method: results[method] for method in _in_table(config) if method in results}
    with stopwatch.measure("testing"):
        predictions = _predictions(results, to_test)
    main = results[config.method]
    tested = replace(to_test, scene=main.model.scene)
    for note in _divergence_notes(tested, MotionRun(main.model).theta):
        notes.append(note)
        notify(note)
    metrics = _metrics(predictions, results, to_test, main=config.method)
    metrics |= {
        "trials": len(fitted_rows),
        "held_out": len(held_rows),
        "judged": _judged(len(held_rows), len(fitted_rows)),
        "refused": refused,
        "seconds": dict(stopwatch.seconds),
    }
    metrics["conclusion"] = fit_conclusion(metrics, main=config.method)
    run = MotionRun(main.model, metrics, tuple(notes))
    page = motion_report(
        MotionContent(
            title=f"{loaded.name}: {config.method} on {Path(recording).name}",
            data=f"{len(trials)} trials of {Path(recording).name}",
            conclusion=metrics["conclusion"],
            judged=metrics["judged"],
            predictions=predictions,
            figures=metrics["models"],
            penetration=metrics.get("penetration", {}),
            params=main.model.scene.params,
            estimates=main.model.estimates,
            friction=metrics.get("friction", ()),
            notes=notes,
            facts={
                "trials": f"{len(fitted_rows)} fitted, {len(held_rows)} held out",
                "simulated segments": str(main.fit.evaluations),
                "time": seconds_text(stopwatch.seconds),
            },
        )
    )
    record = MotionRecord(
        config=_saved_options(scene, recording, out, config),
        trials=trials,
        held_out=tuple(trials[int(row)].name for row in held_rows),
        pages={"report.html": page.encode()},
    )
    save_motion_run(out, run, record, overwrite=config.overwrite)
    for checkpoint in checkpoints.values():
        checkpoint.unlink(missing_ok=True)
    return FitRunResult(run, out, metrics)


def check_fit_config(config: FitRunConfig) -> None:
    """Raise a ParamError for options that no fit can have.

    Args:
        config: The options.
    """
    check_not_negative(seed=config.seed)
    for method in (config.method, *config.compare):
        if method not in METHODS:
            raise ParamError(f"there is no method {method!r}; {did_you_mean(method, METHODS)}")
    if config.fit.dissipative and "neural" not in (config.method, *config.compare):
        raise ParamError("dissipative networks are those of the method neural: use --method neural")
    if not 0 <= config.hold_out < 1:
        raise ParamError(
            f"the share to hold out must be at least 0 and below 1, got {config.hold_out}"
        )
    if not config.duration > 0:
        raise ParamError(f"the duration must be above 0 s, got {config.duration}")


def _shortened(trials: Trials, duration: float) -> Trials:
    """Trials of at most a duration (s)."""
    items = []
    for trial in trials:
        rows = trial.t - trial.t[0] <= duration
        if rows.all():
            items.append(trial)
            continue
        if rows.sum() < 2:
            raise DataError(
                f"trial {trial.name!r} has no two frames within the first {duration:g} s"
            )
        poses = {name: pose[rows] for name, pose in trial.poses.items()}
        signals = {name: values[rows] for name, values in trial.signals.items()}
        items.append(replace(trial, t=trial.t[rows], poses=poses, signals=signals))
    if not items:
        raise DataError("the file holds no trials")
    return replace(trials, items=tuple(items))


def _divergence_notes(to_test: RecordedScene, theta: np.ndarray | None) -> list[str]:
    """A sentence on trials in which the simulation diverges."""
    lost = diverging_trials(to_test, theta)
    if not lost:
        return []
    timestep = float(to_test.scene.author.opt.timestep)
    return [
        f"the simulation of the fitted scene diverges in {_listed(lost)}: its predictions there "
        f"mean nothing; try a smaller time step than {timestep:g} s or the integrator implicitfast"
    ]


def _in_table(config: FitRunConfig) -> list[MotionMethod]:
    """The methods of a run, the main one first."""
    return list(dict.fromkeys((config.method, *config.compare)))


def _possible(
    to_fit: RecordedScene, config: FitRunConfig
) -> tuple[list[MotionMethod], dict[str, str]]:
    """The methods that can take the scene, and why others cannot.

    The method mujoco comes first, because others may continue from it.

    Raises:
        ClashError: The main method cannot.
    """
    methods = []
    refused: dict[str, str] = {}
    for method in _in_table(config):
        reason = refusal(method, to_fit)
        if reason is None:
            methods.append(method)
        elif method == config.method:
            raise reason
        else:
            refused[method] = str(reason)
    return sorted(methods, key=lambda method: method != "mujoco"), refused


def _long_enough(trials: Trials) -> Trials:
    """The trials without those that have too few frames, unless all have."""
    kept = tuple(trial for trial in trials if len(trial.t) >= FEWEST_FRAMES)
    short = [trial.name for trial in trials if len(trial.t) < FEWEST_FRAMES]
    if not kept or not short:
        return trials
    note = f"left out, with fewer than {FEWEST_FRAMES} frames: {_listed(short)}"
    return replace(trials, items=kept, notes=(*trials.notes, note))


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED_TRIALS} more" if len(names) > _NAMED_TRIALS else ""
    return ", ".join(names[:_NAMED_TRIALS]) + more


def _contact_notes(motion: ObservedMotion, contacts: ContactTimes) -> list[str]:
    """Sentences on trials whose start is uncertain."""
    names = [
        trial.name
        for trial, touches in zip(motion.trials, contacts.from_start, strict=True)
        if touches
    ]
    if not names:
        return []
    return [
        f"bodies touch in the first frame of {_listed(names)}: the velocity at the start is less "
        "certain there, because contact changes it while it is measured"
    ]


def _split(count: int, config: FitRunConfig) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the trials to fit and of those held out."""
    held = round(config.hold_out * count)
    if config.hold_out > 0 and count >= _FEWEST_TO_HOLD_OUT:
        held = min(max(held, 1), count - 1)
    elif count < _FEWEST_TO_HOLD_OUT:
        held = 0
    order = np.random.default_rng(config.seed).permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])


def _predictions(
    results: Mapping[str, MethodResult], to_test: RecordedScene
) -> dict[str, MotionPrediction]:
    """Predictions of all methods and of the scene as given."""
    predictions = {}
    for name, result in results.items():
        run = MotionRun(result.model)
        fitted = replace(to_test, scene=result.model.scene)
        # The scene's own MuJoCo predicts in one batch what the others' simulators do.
        simulator = None if name == "mujoco" else run.simulator()
        step = simulator.dt if isinstance(simulator, GraphSim) else None
        predictions[name] = predict_trials(fitted, run.theta, simulator=simulator, timestep=step)
    as_given = replace(to_test, scene=to_test.scene.with_params(()))
    predictions[AS_GIVEN] = predict_trials(as_given, None)
    return predictions


def _metrics(
    predictions: Mapping[str, MotionPrediction],
    results: Mapping[str, MethodResult],
    to_test: RecordedScene,
    *,
    main: str,
) -> dict[str, Any]:
    """Entries of metrics.json about errors."""
    metrics: dict[str, Any] = {
        "method": main,
        "models": {name: error_figures(p) for name, p in predictions.items()},
        "evaluations": {name: result.fit.evaluations for name, result in results.items()},
        "stages": [list(stage) for stage in results[main].fit.trace],
    }
    depths = {name: penetration(to_test, p) for name, p in predictions.items()}
    depths["recording"] = penetration(to_test, predictions[main], of_recording=True)
    friction = [one.figures() for result in results.values() for one in result.friction]
    if friction:
        metrics["friction"] = friction
    found = {name: dict(depth) for name, depth in depths.items() if depth is not None}
    return metrics | ({"penetration": found} if found else {})


def _judged(held_out: int, fitted: int) -> str:
    """On which trials models were tested."""
    if held_out:
        return f"on {held_out} held-out {'trial' if held_out == 1 else 'trials'}"
    return (
        "on the fitted trial itself" if fitted == 1 else f"on the {fitted} fitted trials themselves"
    )


def fit_conclusion(metrics: Mapping[str, Any], *, main: str) -> str:
    """What a fit is good for, in one sentence.

    Args:
        metrics: Content of metrics.json.
        main: Name of the method.
    """
    ours = 100 * metrics["models"][main]["error"]
    given = 100 * metrics["models"][AS_GIVEN]["error"]
    text = (
        f"From the first frames, {main} predicts whole trials to {ours:.3g} % of the body size "
        f"{metrics['judged']}; the scene as given to {given:.3g} %"
    )
    if ours >= given:
        return f"{text}: the fit does not improve the scene."
    return f"{text}."


def is_improved(metrics: Mapping[str, Any]) -> bool:
    """Whether a fit predicts better than the scene as given, on trials that it did not see.

    Args:
        metrics: Content of metrics.json.
    """
    models = metrics["models"]
    better = models[metrics["method"]]["error"] < models[AS_GIVEN]["error"]
    return bool(better and metrics["held_out"])


def _saved_options(
    scene: str, recording: Path | str, out: Path | str, config: FitRunConfig
) -> dict[str, Any]:
    """Content of config.json: the options of a run."""
    names: Sequence[str] = ("method", "compare", "params", "bodies", "hold_out", "seed", "duration")
    options = {name: getattr(config, name) for name in names}
    options["dissipative"] = config.fit.dissipative
    return {"scene": scene, "trials": str(recording), "out": str(out)} | options
