"""Scenes that nobody has prepared: `clashsim calibrate SCENE IMPACTS` without settings.

Methods:

    clashsim             calibrated by the command's default, from the struck body's outcomes
    clashsim-both        the same from the outcomes of both bodies, where nothing drives the striker
    mujoco-identified    MuJoCo with friction, stiffness and damping identified on the same impacts
    mujoco-default       MuJoCo with the author's values
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.bench.user_scenes import (
    RecordedMotion,
    UserScene,
    hidden_model,
    record_motion,
    user_scenes,
)
from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.files import write_flushed
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.recorded_joints import with_motion_from_joints
from clashsim.data.impact_files import write_impacts
from clashsim.evaluate.metrics import accuracy_summary, relative_error
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.gradient import identify_by_gradient
from clashsim.fit.solved_model import SolvedModel
from clashsim.pipeline.calibration import CalibrationConfig, calibrate_run
from clashsim.pipeline.pair_calibration import calibrate_pairs
from clashsim.sim.mujoco.impacts import simulate_impacts

OPTIONS = frozenset({"seeds", "sets", "methods"})
METHODS = ("clashsim", "clashsim-both", "mujoco-identified", "mujoco-default")
_NUM_FITTED = 12
_NUM_TESTED = 48
_QUICK_TESTED = 8
_QUICK_SETS = ("box tossed on a floor", "tee struck by a pusher")
_MODELS = "CLASHSIM_MODELS"  # variable that names a folder with the model of a real arm
# Standard deviations of the noise: m, rad; m/s and rad/s, and shares of the largest value.
_POSITION_NOISE = 2e-4
_ANGLE_NOISE = 2e-3
_VELOCITY_NOISE = 2e-3
_ANGULAR_NOISE = 0.02
_RELATIVE_NOISE = 0.005
_ENCODER_NOISE = 1e-4  # rad
_JOINT_RATE_NOISE = 2e-3  # rad/s


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Calibrate scenes as users bring them.

    Args:
        options: Sets and methods to measure, repetitions, and what to do with the rows.

    Returns:
        Rows of set, method, n, seeds, accuracy_0.1, accuracy_0.2 and median; for clashsim also
        seconds, the time of the command, and left_out, how many recorded impacts it did not use,
        and, where nothing drives the striker, striker_accuracy_0.1 and striker_median.
    """
    rows: list[Row] = []
    folder = os.environ.get(_MODELS)
    wanted = options.sets or (_QUICK_SETS if options.quick else None)
    scenes = [
        scene
        for scene in user_scenes(None if folder is None else Path(folder))
        if wanted is None or scene.name in wanted
    ]
    with options.progress("scenes", len(scenes)) as advance:
        for _, of_text in groupby(scenes, key=lambda scene: (scene.xml, scene.planar)):
            pairs = list(of_text)
            with optional(rows, set=pairs[0].name, method="clashsim"):
                rows += _rows(pairs, options)
            options.save(rows)
            advance(len(pairs))
    return rows


def _rows(scenes: Sequence[UserScene], options: BenchOptions) -> list[Row]:
    """Rows of all methods for one scene, or for the pairs of one scene."""
    errors: dict[tuple[str, str], list[np.ndarray]] = {}
    striker_errors: dict[tuple[str, str], list[np.ndarray]] = {}
    figures: dict[str, Row] = {}
    seeds = options.repetitions(1)
    num_tested = _QUICK_TESTED if options.quick else _NUM_TESTED
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        model = hidden_model(scenes[0], rng)
        recorded = [
            recorded_impacts(scene, model, _NUM_FITTED + num_tested, rng, of_striker=True)
            for scene in scenes
        ]
        fitted = [impacts[np.arange(_NUM_FITTED)] for impacts in recorded]
        of_struck = [replace(impacts, striker_after=None) for impacts in fitted]
        wanted = options.methods or METHODS
        fits = {"clashsim": _timed_runs(scenes, of_struck, seed, figures, "clashsim", seeds)}
        # Nothing is predicted of a striker that no impact moves, as one in a hand.
        yields = any(run.scene.striker_yields for run in fits["clashsim"])
        both_recorded = any(impacts.striker_after is not None for impacts in fitted)
        if "clashsim-both" in wanted and both_recorded and yields:
            fits["clashsim-both"] = _timed_runs(
                scenes, fitted, seed, figures, "clashsim-both", seeds
            )
        for i, (scene, impacts) in enumerate(zip(scenes, recorded, strict=True)):
            test = impacts[np.arange(_NUM_FITTED, len(impacts))]
            test = with_motion_from_joints(test, fits["clashsim"][i].scene)
            frame = contact_frame(fits["clashsim"][i].scene, test, strict=False)
            test = test[np.flatnonzero(frame.contact.touching)]
            for method in wanted:
                if method == "clashsim-both" and method not in fits:
                    continue
                found = fits.get(method, fits["clashsim"])[i]
                known = with_motion_from_joints(of_struck[i], found.scene)
                predicted = _predict(method, found, known, test)
                gyration = inertia(found.scene, found.scene.struck_body).gyration
                error = relative_error(predicted, test.after, gyration)
                errors.setdefault((scene.name, method), []).append(error)
                if method in fits and test.striker_after is not None and yields:
                    striker = found.calibration.predict_striker(test)
                    gyration = inertia(found.scene, found.scene.striker_body).gyration
                    error = relative_error(striker, test.striker_after, gyration)
                    striker_errors.setdefault((scene.name, method), []).append(error)
    rows = []
    for (name, method), found_errors in errors.items():
        row = {"set": name, "method": method, "n": _NUM_FITTED}
        row |= accuracy_summary(found_errors) | figures.get(method, {})
        if (name, method) in striker_errors:
            of_striker = accuracy_summary(striker_errors[name, method])
            row["striker_accuracy_0.1"] = of_striker["accuracy_0.1"]
            row["striker_median"] = of_striker["median"]
        rows.append(row)
    return rows


def _timed_runs(
    scenes: Sequence[UserScene],
    fitted: Sequence[Impacts],
    seed: int,
    figures: dict[str, Row],
    method: str,
    seeds: int,
) -> list[CalibratedRun]:
    """The run of each pair; adds the duration and the impacts left out to a method's figures."""
    with TemporaryDirectory() as folder:
        runs, seconds, left_out = calibrated_runs(scenes, fitted, Path(folder), seed)
    row = figures.setdefault(method, {"seconds": 0.0, "left_out": 0})
    row["seconds"] += seconds / seeds
    row["left_out"] += left_out
    return runs


def recorded_impacts(
    scene: UserScene,
    model: mujoco.MjModel,
    n: int,
    rng: np.random.Generator,
    *,
    of_striker: bool = False,
) -> Impacts:
    """Record n impacts with noise.

    Args:
        scene: The scene.
        model: As `hidden_model` makes it.
        n: How many impacts.
        rng: Draws starts and noise.
        of_striker: Whether the outcome of a striker that nothing drives is recorded too.
    """
    motion = record_motion(scene, model, n, rng)
    impacts = _noisy(scene, motion.before, motion.after, rng)
    if scene.joints:
        return _with_joints_alone(impacts, motion, rng)
    if scene.striker is None or model.nu or not of_striker:
        return impacts
    (own_rng,) = rng.spawn(1)
    return replace(impacts, striker_after=_outcome(scene, motion.striker_after, own_rng))


def _with_joints_alone(
    impacts: Impacts, motion: RecordedMotion, rng: np.random.Generator
) -> Impacts:
    """Impacts with the joints of an arm, as its log has them, in place of its tool's motion."""
    before = impacts.before.copy()
    striker = MotionBefore.of(before).striker
    striker.rows[:] = 0.0
    if not impacts.planar:
        striker.quaternion[:, 0] = 1.0
    columns = {}
    for name, angles in motion.angles.items():
        columns[name] = angles + rng.normal(0, _ENCODER_NOISE, len(angles))
        rates = motion.rates[name]
        columns[f"{name}_velocity"] = rates + rng.normal(0, _JOINT_RATE_NOISE, len(rates))
    return replace(impacts, before=before, known=columns)


def in_one_recording(scenes: Sequence[UserScene], impacts: Sequence[Impacts]) -> Impacts:
    """Impacts of several pairs of one scene in one table, which names their bodies.

    Args:
        scenes: The scene of each pair.
        impacts: The impacts of each pair.
    """
    bodies = []
    for scene, of_pair in zip(scenes, impacts, strict=True):
        names = [scene.arguments["struck"], scene.arguments["striker"]]
        bodies.append(np.tile(names, (len(of_pair), 1)))
    of_strikers = []
    for of_pair in impacts:
        unknown = np.full_like(of_pair.after, np.nan)
        of_strikers.append(unknown if of_pair.striker_after is None else of_pair.striker_after)
    striker_after = np.concatenate(of_strikers)
    return replace(
        impacts[0],
        before=np.concatenate([of_pair.before for of_pair in impacts]),
        after=np.concatenate([of_pair.after for of_pair in impacts]),
        bodies=np.concatenate(bodies),
        striker_after=None if np.isnan(striker_after).all() else striker_after,
    )


def calibrated_runs(
    scenes: Sequence[UserScene], fitted: Sequence[Impacts], folder: Path, seed: int
) -> tuple[list[CalibratedRun], float, int]:
    """The run of each pair, the seconds of the command, and how many impacts it leaves out."""
    scene = scenes[0]
    several = len(scenes) > 1
    path = folder / f"scene{scene.suffix}"
    write_flushed(path, scene.xml.encode())
    for name, content in scene.assets.items():
        write_flushed(folder / name, content)
    recording = folder / "impacts.csv"
    write_impacts(recording, in_one_recording(scenes, fitted) if several else fitted[0])
    config = CalibrationConfig(seed=seed)
    start = time.perf_counter()
    if several:
        of_pairs = calibrate_pairs(str(path), recording, folder / "run", config=config)
        results = [of_pairs.pairs["-".join(pair.arguments.values())] for pair in scenes]
    else:
        names = (scene.arguments.get("struck"), scene.arguments.get("striker"))
        config = replace(config, struck=names[0], striker=names[1])
        results = [calibrate_run(str(path), recording, folder / "run", config=config)]
    seconds = time.perf_counter() - start
    num_used = sum(int(result.metrics["impacts"]) for result in results)
    num_recorded = sum(len(impacts) for impacts in fitted)
    return [result.run for result in results], seconds, num_recorded - num_used


def _predict(method: str, found: CalibratedRun, fitted: Impacts, test: Impacts) -> np.ndarray:
    """Twists (N, k) after the test impacts."""
    if method.startswith("clashsim"):
        return found.calibration.predict(test)
    scene = found.scene
    contact = [p for p in scene.params if p.name in ("friction", "stiffness", "damping")]
    identified = method == "mujoco-identified"
    plain = scene.with_params(contact if identified else ())
    if not identified:
        before = contact_frame(plain, test).before
        return simulate_impacts(plain, before, np.zeros((len(test), 0))).after
    model = SolvedModel(plain)
    frame = contact_frame(plain, fitted, strict=False)
    usable = fitted[np.flatnonzero(frame.contact.touching)]
    return model.predict(test, identify_by_gradient(model, usable).theta)


def _noisy(
    scene: UserScene, before: np.ndarray, after: np.ndarray, rng: np.random.Generator
) -> Impacts:
    """What was recorded of n impacts: motion in a plane or in space, with noise."""
    bodies = [before[:, :13], before[:, 13:]]
    columns = [_in_plane(body) if scene.planar else body.copy() for body in bodies]
    is_fixed = scene.striker is None
    for body in columns[:1] if is_fixed else columns:
        _add_noise(body, rng)
    return Impacts(scene.planar, np.concatenate(columns, axis=1), _outcome(scene, after, rng))


def _outcome(scene: UserScene, after: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What was recorded of a body's twists (n, 6) after impact, in a plane or in space."""
    outcome = after[:, [0, 1, 5]] if scene.planar else after.copy()
    _add_twist_noise(outcome, rng)
    return outcome


def _in_plane(body: np.ndarray) -> np.ndarray:
    """Position, yaw and twist (n, 6) in the x-y plane of bodies (n, 13) in space."""
    yaw = Rotation.from_quat(body[:, 3:7], scalar_first=True).as_euler("ZYX")[:, 0]
    return np.column_stack([body[:, :2], yaw, body[:, 7:9], body[:, 12]])


def _add_noise(body: np.ndarray, rng: np.random.Generator) -> None:
    """Add noise to poses and twists, (n, 6) or (n, 13)."""
    n, width = body.shape
    if width == 6:
        body[:, :2] += rng.normal(0, _POSITION_NOISE, (n, 2))
        body[:, 2] += rng.normal(0, _ANGLE_NOISE, n)
        _add_twist_noise(body[:, 3:], rng)
        return
    body[:, :3] += rng.normal(0, _POSITION_NOISE, (n, 3))
    rotation = Rotation.from_rotvec(rng.normal(0, _ANGLE_NOISE, (n, 3)))
    rotated = rotation * Rotation.from_quat(body[:, 3:7], scalar_first=True)
    body[:, 3:7] = rotated.as_quat(scalar_first=True)
    _add_twist_noise(body[:, 7:], rng)


def _add_twist_noise(twist: np.ndarray, rng: np.random.Generator) -> None:
    """Add noise to twists, (n, 3) or (n, 6)."""
    count = 2 if twist.shape[1] == 3 else 3
    for part, least in ((twist[:, :count], _VELOCITY_NOISE), (twist[:, count:], _ANGULAR_NOISE)):
        std = least + _RELATIVE_NOISE * np.abs(part).max(1, keepdims=True)
        part += rng.normal(0, 1, part.shape) * std
