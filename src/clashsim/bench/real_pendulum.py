"""A real double pendulum (BENCHMARKS.md, real-pendulum).

A model sees 40 frames and predicts the positions of the second bob in later frames. It is tested on
recordings that are held out as a whole.

    analytic              MuJoCo's double pendulum with identified parameters and the mean lengths
                          of the arms
    analytic-geometry     the same with a calibrated camera: offsets of the markers, tilt, lens, and
                          how far the links' centres of mass are off their axes
    neural                the same with a neural scalar in each joint's torque (`AugmentedSim`)
    neural-without-upper, neural-without-lower
                          `neural` with the network of one joint silenced, which shows how much that
                          network matters
    neural-dissipative    networks that act on the joints' damping, which stays positive, instead
                          of adding a torque
    residual-physics      networks that are added to the joints' accelerations, beside the
                          simulator instead of inside its torques
    analytic-formula      `analytic-geometry` with the friction formulas that suggest themselves for
                          what the networks of `neural` learned
    recurrent             a recurrent network without physics
    floor                 errors of `neural` on its own trajectories with the camera's noise: the
                          errors that it would have if it were the true model

Frames are counted from the last observed frame; only `within_mm` is the error at a frame that is
counted from the beginning of the window. All settings were chosen on a split of the recordings to
fit on. Seeds draw windows and first weights; the recordings held out are always the same. With
`--first-seed` and one resume file, seeds can be measured in several runs; a last run with all seeds
then reads them from the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from clashsim.bench import pendulum_recurrent
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.pendulum_camera import NOISE, augmentation, cut_windows, trajectory_windows
from clashsim.bench.pendulum_models import FRAMES, OBSERVED, UNITS, PendulumModels
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, optional
from clashsim.core.augmentation_spec import silence_networks
from clashsim.core.errors import DataError
from clashsim.data.pendulum import load, split
from clashsim.fit.shooting import ShootingFit
from clashsim.report.neural_scalar_plots import plot_scalar_quantiles

OPTIONS = frozenset({"root", "seeds", "first_seed", "methods", "resume"})
FAR = 5.0  # mm, error at which a prediction counts as far from the recording
_NUM_BOOTSTRAP = 1000  # resamples
_BASELINE = "analytic-geometry"  # method that ratios refer to
_LOST = 1e3  # mm, error of a prediction that is not finite
_SECOND_BOB = 2  # index of its marker; 0 is the pivot, 1 the first bob
_VALIDATION_SEED = 1  # of the split into recordings to train on and to validate on
_DRAWN_EVERY = 400  # frames between the beginnings of two windows that `draw` uses
_DRAWN_QUANTILE = 0.95  # of the recorded speeds: the range that `draw` shows
_DRAWN_POINTS = 121  # of each curve


def _silenced(models: PendulumModels, network: int) -> np.ndarray:
    """Errors (N, T), mm, of the neural model without network 0 (upper joint) or 1 (lower joint)."""
    model = models.neural
    weights = silence_networks(model.sim.augmentation, model.sim.weights, [network])
    return models.errors(replace(model, sim=model.sim.with_weights(weights)))


def _recurrent(models: PendulumModels) -> np.ndarray:
    """Errors (N, T), mm, of the recurrent network; they are set to 0 in the observed frames.

    Part of the recordings to fit on is for validation, which decides when training stops.
    """
    fit, validation = split(models.fit, seed=_VALIDATION_SEED)
    model = pendulum_recurrent.train(
        fit, validation, seed=models.seed, observed=OBSERVED, quick=models.quick
    )
    windows = models.test_windows
    second_bob = model(windows, observed=OBSERVED, steps=windows.shape[1] - OBSERVED)
    error = 1e3 * np.linalg.norm(second_bob - windows[:, OBSERVED:, _SECOND_BOB], axis=-1)
    error_while_observed = np.zeros((len(error), OBSERVED))
    return np.concatenate([error_while_observed, error], 1)


def _floor(models: PendulumModels) -> np.ndarray:
    """Errors (N, T), mm, of the neural model on its own trajectories with the camera's noise.

    The trajectories begin at the states that the model estimates for the windows to test on.
    """
    windows = models.test_windows
    true = models.predict(models.neural, windows)
    rng = np.random.default_rng([models.seed, 2])
    noisy = true + NOISE * rng.normal(size=true.shape)
    return models.errors(models.neural, noisy.reshape(windows.shape))


# From fitted models to errors (N, T), mm, of the second bob in all windows to test on.
METHODS: dict[str, Callable[[PendulumModels], np.ndarray]] = {
    "analytic": lambda models: models.errors(models.analytic),
    "analytic-geometry": lambda models: models.errors(models.geometry),
    "neural": lambda models: models.errors(models.neural),
    "neural-without-upper": lambda models: _silenced(models, 0),
    "neural-without-lower": lambda models: _silenced(models, 1),
    "neural-dissipative": lambda models: models.errors(models.dissipative),
    "residual-physics": lambda models: models.errors(models.residual),
    "analytic-formula": lambda models: models.errors(models.formula),
    "recurrent": _recurrent,
    "floor": _floor,
}


def run(options: BenchOptions) -> list[Row]:
    """Measure all methods.

    Args:
        options: What to measure; the folder of recordings is needed.

    Returns:
        One row per method and frame: median and mean error over windows and seeds (mm), and the
        ratio of medians to analytic-geometry; both with 95 % intervals, by bootstrap over
        recordings and, where there are several, over seeds.
    """
    root = options.recordings()
    methods = choose(options.methods, list(METHODS), what="method")
    first = options.first_seed
    seeds = range(first, first + options.repetitions(1))
    fit, held_out = split(load(root))
    done = read_rows(options.resume)
    recording = PendulumModels(fit, held_out, 0, options.quick).test_recordings
    held_out_names = [run.name for run in held_out]
    found: dict[str, list[np.ndarray]] = {}
    missing: list[Row] = []
    with options.progress("pendulum", len(methods) * len(seeds)) as advance:
        for seed in seeds:
            models = PendulumModels(fit, held_out, seed, options.quick)
            for method in methods:
                head = {
                    "method": method,
                    "seed": seed,
                    "quick": options.quick,
                    "held": held_out_names,
                }
                with optional(missing, method=method, seed=seed):
                    row = _finished_row(done, head)
                    if row is None:
                        row = head | _measure(METHODS[method](models))
                        if method == "neural":
                            row |= _trained_values(models.neural)
                        if method == "analytic-formula":
                            row["friction"] = [joint.figures() for joint in models.friction]
                        append_rows(options.resume, [row])
                    found.setdefault(method, []).append(np.array(row["errors"], float))
                options.save(_compare(found, recording) + missing)
                advance(1)
    return _compare(found, recording) + missing


def _finished_row(done: list[Row], head: Row) -> Row | None:
    for row in done:
        if all(row.get(key) == value for key, value in head.items()):
            return row
    return None


def _compare(found: dict[str, list[np.ndarray]], recording: np.ndarray) -> list[Row]:
    """Rows of all methods, with the ratio to the baseline where that was measured."""
    rows: list[Row] = []
    for method, errors in found.items():
        rows += _rows(method, errors, recording)
    baseline = {row["frame"]: row["error_mm"] for row in rows if row["method"] == _BASELINE}
    if not baseline:
        return rows
    of_baseline = _resampled_medians(found[_BASELINE], recording)
    ends = {}
    for method, errors in found.items():
        # Resamples of as many seeds are pairs.
        if len(errors) == len(found[_BASELINE]):
            ends[method] = _interval(_resampled_medians(errors, recording) / of_baseline)
    for row in rows:
        row["ratio"] = round(row["error_mm"] / baseline[row["frame"]], 3)
        if row["method"] in ends:
            low, high = ends[row["method"]]
            i = FRAMES.index(row["frame"])
            row["ratio_range"] = f"{low[i]:.3f} to {high[i]:.3f}"
    return rows


def _trained_values(model: ShootingFit) -> Row:
    """Values of a trained model that are written to the resume file, where `draw` reads them."""
    sim = model.sim
    assert sim.theta is not None
    return {
        "theta": sim.theta.tolist(),
        "weights": sim.weights.tolist(),
        "camera": model.camera.tolist(),
    }


def draw(root: Path, resume: Path, picture: Path) -> None:
    """Draw the outputs of both trained networks over velocities and angles.

    Args:
        root: Folder of the public recordings.
        resume: The resume file that `run` wrote.
        picture: Where the picture is written.
    """
    trained = []
    for row in read_rows(resume):
        if row["method"] == "neural" and not row["quick"] and "weights" in row:
            trained.append(row)
    if not trained:
        raise DataError(
            f"{resume.name} holds no trained model: run the bench with --resume {resume.name} first"
        )
    fit, _ = split(load(root))
    windows, _ = cut_windows(fit, frames=OBSERVED, every=_DRAWN_EVERY)
    start = trajectory_windows(windows, observed=OBSERVED).start
    angles = start[:, :2]
    velocities = start[:, 2:]
    sines = np.sin(angles)
    cosines = np.cos(angles)
    recorded = np.column_stack([sines[:, 0], cosines[:, 0], sines[:, 1], cosines[:, 1], velocities])
    upper_speed, lower_speed = np.quantile(np.abs(velocities), _DRAWN_QUANTILE, axis=0)
    angle = np.linspace(-np.pi, np.pi, _DRAWN_POINTS)
    over = {
        "qvel/upper": np.linspace(-upper_speed, upper_speed, _DRAWN_POINTS),
        "qvel/lower": np.linspace(-lower_speed, lower_speed, _DRAWN_POINTS),
        "angle/upper": angle,
        "angle/lower": angle,
    }
    weights = np.array(trained[0]["weights"])
    plot_scalar_quantiles(picture, augmentation(UNITS), weights, recorded=recorded, over=over)


def _measure(error: np.ndarray) -> Row:
    """Figures of each window, (N, 9), from errors (N, T), mm.

    The columns are the errors at all of FRAMES, counted from the last observed frame; the errors at
    all of FRAMES, counted from the beginning; and the number of frames until the error is above
    FAR.
    """
    is_far = error[:, OBSERVED:] > FAR
    until_far = np.where(is_far.any(1), is_far.argmax(1), is_far.shape[1])
    after_observed = [error[:, OBSERVED + frame - 1] for frame in FRAMES]
    after_first = [error[:, frame - 1] for frame in FRAMES]
    columns = np.stack([*after_observed, *after_first, until_far], 1)
    finite = np.nan_to_num(columns, nan=_LOST, posinf=_LOST)
    return {"errors": np.round(finite, 4).tolist()}


def _rows(method: str, errors: list[np.ndarray], recording: np.ndarray) -> list[Row]:
    """Rows of one method.

    Args:
        method: Name of the method.
        errors: For each seed, the figures (N, 9) that `_measure` gives.
        recording: Number of the recording of each window, (N,).
    """
    table = np.concatenate(errors)
    low, high = _interval(_resampled_medians(errors, recording))
    until_far = table[:, 2 * len(FRAMES)]
    rows = []
    for i, frame in enumerate(FRAMES):
        after_observed = table[:, i]
        after_first = table[:, len(FRAMES) + i]
        rows.append(
            {
                "method": method,
                "frame": frame,
                "error_mm": round(float(np.median(after_observed)), 3),
                "mean_mm": round(float(after_observed.mean()), 3),
                "low_mm": round(float(low[i]), 3),
                "high_mm": round(float(high[i]), 3),
                "within_mm": round(float(np.median(after_first)), 3),
                "until_5mm": float(np.median(until_far)),
                "windows": len(table),
                "seeds": len(errors),
            }
        )
    return rows


def _resampled_medians(errors: list[np.ndarray], recording: np.ndarray) -> np.ndarray:
    """Medians (r, 9) of the columns in r resamples of the recordings and, if several, the seeds.

    The resamples are the same for all methods, so that ratios of methods can be resampled.

    Args:
        errors: For each seed, the figures (N, 9) that `_measure` gives.
        recording: Number of the recording of each window, (N,).
    """
    groups = [np.flatnonzero(recording == number) for number in np.unique(recording)]
    rng = np.random.default_rng(0)
    medians = []
    for _ in range(_NUM_BOOTSTRAP):
        seeds = rng.integers(0, len(errors), len(errors)) if len(errors) > 1 else [0]
        drawn = rng.integers(0, len(groups), len(groups))
        windows = np.concatenate([groups[i] for i in drawn])
        medians.append(np.median(np.concatenate([errors[seed][windows] for seed in seeds]), 0))
    return np.array(medians)


def _interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the 95 % interval of each column of resampled figures (r, c)."""
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return low, high
