"""Whole trajectories of objects with joints that nobody has prepared: `clashsim fit` by default.

Methods:

    mujoco           clashsim fit --method mujoco
    mjx              clashsim fit --method mjx
    neural           clashsim fit --method neural
    least-squares    the same parameters by scipy's least_squares on whole trials, with finite
                     differences and fitted starts, from the author's values
    author           the scene as given
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from clashsim.bench.articulated_scenes import SCENES, ArticulatedScene, record_trials
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.files import write_atomic
from clashsim.core.motion_params import choose_params
from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import observe_trials
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.trials import Trials
from clashsim.data.trial_files import write_trials
from clashsim.evaluate.motion_errors import MotionPrediction, error_figures, predict_trials
from clashsim.fit.joint_states import joint_states
from clashsim.fit.motion_run import METHODS as FIT_METHODS
from clashsim.fit.motion_run import MotionMethod
from clashsim.fit.motion_segments import find_contacts
from clashsim.fit.recorded_scene import MotionFitConfig, RecordedScene
from clashsim.pipeline.motion_fitting import FitRunConfig, fit_run

OPTIONS = frozenset({"seeds", "sets", "methods"})
AUTHOR = "author"
LEAST_SQUARES = "least-squares"
METHODS = ("mujoco", LEAST_SQUARES, AUTHOR)
_NUM_FITTED = 10
_NUM_TESTED = 10
_QUICK_SETS = ("drawer",)
_BUDGET = 60.0  # s, of least squares
_SHIFT = 2.0  # of its variables
_DIFFERENCE = 1e-3  # of least squares, on the unit scale


class _OutOfTimeError(Exception):
    """Least squares has used its budget."""


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Fit scenes of objects with joints to recordings made in MuJoCo.

    Args:
        options: Sets and methods to measure, repetitions, and what to do with the rows.

    Returns:
        Rows of set, method, error_pct (root mean square, of the body size), and where there are
        such, position_mm, rotation_deg (of bodies), joint_deg, joint_mm; for methods with
        intervals also inside, how many of the parameters that the file gets wrong have their true
        value in the 90 % interval, and of, how many such there are; and seconds.
    """
    rows: list[Row] = []
    wanted = options.sets or (_QUICK_SETS if options.quick else None)
    scenes = [scene for scene in SCENES if wanted is None or scene.name in wanted]
    seeds = options.repetitions(1)
    with options.progress("scenes", seeds * len(scenes)) as advance:
        for scene in scenes:
            for seed in range(options.first_seed, options.first_seed + seeds):
                with optional(rows, set=scene.name, seed=seed, method="all"):
                    _measure(scene, seed, options, rows)
                options.save(rows)
                advance(1)
    return rows


def _measure(scene: ArticulatedScene, seed: int, options: BenchOptions, rows: list[Row]) -> None:
    """Append rows of all methods for one scene."""
    trials = record_trials(scene, _NUM_FITTED + _NUM_TESTED, seed)
    fitted, tested = Trials(trials.items[:_NUM_FITTED]), Trials(trials.items[_NUM_FITTED:])
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_atomic(folder / "scene.xml", scene.xml.encode())
        write_trials(folder / "trials.safetensors", fitted)
        loaded = MotionScene.load(folder / "scene.xml")
        to_test = _recorded(loaded, tested, scene)
        for method in options.methods or METHODS:
            head: Row = {"set": scene.name, "seed": seed, "method": method}
            with optional(rows, **head):
                start = time.perf_counter()
                if method in FIT_METHODS:
                    found = _fitted(folder, method, scene, seed, to_test)
                elif method == LEAST_SQUARES:
                    found = _least_squares(_recorded(loaded, fitted, scene), to_test)
                else:
                    as_given = to_test.scene.with_params(())
                    given = RecordedScene(
                        as_given, to_test.motion, to_test.states, to_test.contacts
                    )
                    found = {"prediction": predict_trials(given, None)}
                seconds = time.perf_counter() - start
                rows.append(head | _figures(found, scene) | {"seconds": seconds})
            options.save(rows)


def _recorded(loaded: MotionScene, trials: Trials, scene: ArticulatedScene) -> RecordedScene:
    """Trials of a scene with the parameters that `clashsim fit` identifies by default."""
    motion = observe_trials(loaded, trials)
    states = joint_states(motion)
    contacts = find_contacts(loaded, motion, states)
    params = choose_params(loaded, scene.params, contacts.touching, stops=contacts.stops)
    return RecordedScene(loaded.with_params(params), motion, states, contacts)


def _fitted(
    folder: Path, method: MotionMethod, scene: ArticulatedScene, seed: int, to_test: RecordedScene
) -> dict[str, Any]:
    """What `clashsim fit` predicts, and its estimates."""
    config = FitRunConfig(method=method, params=scene.params, hold_out=0.0, seed=seed)
    run = fit_run(
        str(folder / "scene.xml"), folder / "trials.safetensors", folder / method, config=config
    ).run
    tested = RecordedScene(run.scene, to_test.motion, to_test.states, to_test.contacts)
    simulator = None if method == "mujoco" else run.simulator()
    prediction = predict_trials(tested, run.theta, simulator=simulator)
    return {"prediction": prediction, "params": run.scene.params, "estimates": run.estimates}


def _least_squares(to_fit: RecordedScene, to_test: RecordedScene) -> dict[str, Any]:
    """What an engineer would write first: residuals of whole trials, and scipy."""
    params = to_fit.scene.params
    problem = to_fit.problem(to_fit.whole(), MotionFitConfig())
    begin = time.perf_counter()
    best: tuple[float, np.ndarray] = (np.inf, to_unit(params, to_fit.scene.nominal))

    def residual(unit: np.ndarray) -> np.ndarray:
        nonlocal best
        if time.perf_counter() - begin > _BUDGET:
            raise _OutOfTimeError
        state = problem.fit_starts(unit, differentiate=False).state
        found = problem.residuals(state[None], problem.theta(unit[None]))[0].ravel()
        best = min(best, (float(found @ found), unit.copy()), key=lambda pair: pair[0])
        return found

    first = np.clip(best[1], -0.99, 0.99)
    with suppress(_OutOfTimeError):
        # Steps are relative to the variable, which therefore stays away from zero.
        least_squares(
            lambda shifted: residual(shifted - _SHIFT),
            first + _SHIFT,
            bounds=(_SHIFT - 1, _SHIFT + 1),
            diff_step=_DIFFERENCE / _SHIFT,
        )
    return {"prediction": predict_trials(to_test, from_unit(params, best[1]))}


def _figures(found: dict[str, Any], scene: ArticulatedScene) -> Row:
    """The figures of a row."""
    prediction: MotionPrediction = found["prediction"]
    figures = error_figures(prediction)
    row: Row = {"error_pct": 100 * figures["error"]}
    for name in ("position_mm", "rotation_deg"):
        values = [errors[name]["mean"] for errors in figures["bodies"].values()]
        if values:
            row[name] = float(np.mean(values))
    for unit in ("deg", "mm"):
        values = [errors[unit]["mean"] for errors in figures["joints"].values() if unit in errors]
        if values:
            row[f"joint_{unit}"] = float(np.mean(values))
    if "estimates" in found:
        row |= _coverage(scene, found["params"], found["estimates"])
    return row


def _coverage(
    scene: ArticulatedScene, params: Sequence[Param], estimates: Sequence[Estimate]
) -> Row:
    """How many true values lie in their intervals, of the parameters that the file gets wrong."""
    inside = []
    fitted = []
    for param, estimate in zip(params, estimates, strict=True):
        truth = scene.truth.get(param.target)
        if truth is None:
            continue
        inside.append(estimate.low <= param.sign * truth <= estimate.high)
        fitted.append(estimate.status == EstimateStatus.FITTED)
    return {"inside": int(sum(inside)), "fitted": int(sum(fitted)), "of": len(inside)}
