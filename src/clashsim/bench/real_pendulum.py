"""A real double pendulum (BENCHMARKS.md, real-pendulum): 40 frames observed, the second bob
predicted, on whole recordings held out.

    analytic           MuJoCo's double pendulum with identified parameters and the mean lengths of
                       the arms
    analytic-geometry  the same with a calibrated camera: offsets of the markers, tilt, lens, and
                       where the links are centred across
    neural             the same with a neural scalar in each joint's torque (`AugmentedSim`)
    neural-without-upper, neural-without-lower  that with one of the two silenced: which of them
      mattered
    recurrent          a recurrent network without physics
    floor              what neural would get were it the truth: its own trajectories, seen with the
                       camera's noise

Frames are counted after the observed ones; `within_mm` is the error at that frame counted from the
first observed one. Whatever had to be chosen was chosen on a split inside of the runs to fit on.
Seeds draw windows and first weights, never what is held out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.bench import pendulum_recurrent
from clashsim.bench.lab_sets import choose
from clashsim.bench.pendulum_camera import (
    CAMERA,
    EYE,
    INITIAL_CAMERA,
    NOISE,
    PARAMS,
    PLAIN,
    RADII,
    SCENE,
    augmentation,
    cut_windows,
    seen,
    trajectory_windows,
)
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.core.augmentation_spec import initial_weights, silence_networks
from clashsim.core.errors import DataError
from clashsim.core.progress import Progress, quiet
from clashsim.data.pendulum import RATE, PendulumRun, load, split
from clashsim.fit.shooting import (
    FreeParameters,
    ShootingFit,
    fit_by_shooting,
    rollout_uncontrolled,
    shorten_windows,
)
from clashsim.report.neural_scalar_plots import plot_scalar_quantiles
from clashsim.sim.augmented.simulator import AugmentedSim

OBSERVED, FRAMES, EVERY = 40, (50, 100, 200, 400), 200
FAR = 5.0  # mm
# Units of each network, R, windows to fit on and the lengths they are fitted at: chosen on
# recordings kept aside of those to fit on (docs/augmented.md).
UNITS, RIDGE, WINDOWS, LENGTHS = 8, 1e-5, 512, (64, 160, 320)
STEPS, TRAINING = (
    15,
    (12, 12, 30),
)  # of Levenberg-Marquardt, at most: without weights, and with them at each length
# Frames a step in fitting, which is as exact and half the work; predictions step frame by frame
SKIP = 2
_DRAWS = 1000  # of the bootstrap
_WHOLE = tuple(range(len(PARAMS)))


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs to fit on and to test on, and how large everything is."""

    fit: list[PendulumRun]
    held: list[PendulumRun]
    seed: int
    quick: bool

    @property
    def lengths(self) -> tuple[int, ...]:
        """Frames of a window, one after the other: short ones first, for long ones have many
        basins.
        """
        return LENGTHS[:1] if self.quick else LENGTHS

    @property
    def augmentation(self) -> Any:
        """Both networks."""
        return augmentation(2 if self.quick else UNITS)

    @cached_property
    def windows(self) -> np.ndarray:
        """Windows to fit on."""
        rng = np.random.default_rng([self.seed, 1])
        return cut_windows(
            self.fit,
            frames=self.lengths[-1] + 1,
            every=60,
            limit=24 if self.quick else WINDOWS,
            rng=rng,
        )[0]

    @cached_property
    def tested(self) -> tuple[np.ndarray, np.ndarray]:
        """Windows to test on, and their recordings."""
        windows, recording = cut_windows(
            self.held, frames=OBSERVED + FRAMES[-1], every=4000 if self.quick else EVERY
        )
        if not len(windows):
            raise DataError(f"no run that is held out has {OBSERVED + FRAMES[-1]} frames")
        return windows, recording

    @cached_property
    def analytic(self) -> ShootingFit:
        """Identified without geometry."""
        weights = initial_weights(self.augmentation, seed=self.seed)
        sim = AugmentedSim(
            SCENE, self.augmentation, theta=SCENE.nominal, weights=weights, timestep=SKIP / RATE
        )
        begun = trajectory_windows(self.windows, observed=OBSERVED, skip=SKIP)
        return self.fitted(
            ShootingFit(sim, INITIAL_CAMERA, begun.start, begun.own, np.zeros(0)),
            FreeParameters(PLAIN, RADII),
        )

    @cached_property
    def geometry(self) -> ShootingFit:
        """With the camera calibrated; the lens waits until the rest is near."""
        return self.fitted(self.analytic, FreeParameters(_WHOLE, tuple(range(len(CAMERA)))))

    @cached_property
    def neural(self) -> ShootingFit:
        """With networks trained."""
        return self.fitted(
            self.geometry,
            FreeParameters(_WHOLE, tuple(range(len(CAMERA))), train=True, ridge=RIDGE),
        )

    def fitted(self, before: ShootingFit, free: FreeParameters) -> ShootingFit:
        """Fitted at one length after the other."""
        begun, origin = (
            trajectory_windows(self.windows, observed=OBSERVED, skip=SKIP),
            before.sim.weights,
        )
        lengths = (
            list(zip(self.lengths, TRAINING, strict=False))
            if free.train
            else [(n, STEPS) for n in sorted({self.lengths[0], self.lengths[-1]})]
        )
        for length, steps in lengths:
            start = fit_by_shooting(
                before.sim,
                shorten_windows(begun, OBSERVED // SKIP),
                EYE,
                camera=before.camera,
                steps=5,
            ).start
            most = 2 if self.quick else steps
            before = fit_by_shooting(
                before.sim,
                shorten_windows(begun, length // SKIP + 1, start=start),
                EYE,
                camera=before.camera,
                free=free,
                steps=most,
                origin=origin,
            )
        return before

    @cached_property
    def by_frame(self) -> AugmentedSim:
        """The simulator that steps frame by frame, untrained."""
        return AugmentedSim(SCENE, self.augmentation)

    def predicted(self, model: ShootingFit, windows: np.ndarray) -> np.ndarray:
        """What the camera would see (N, T, 6), m, by a model that saw the first frames of windows
        (N, T, 3, 2).
        """
        sim = self.by_frame.with_weights(model.sim.weights, model.sim.theta)
        at = fit_by_shooting(
            sim,
            shorten_windows(trajectory_windows(windows, observed=OBSERVED), OBSERVED),
            EYE,
            camera=model.camera,
            steps=8,
        )
        return seen(
            rollout_uncontrolled(sim, at.start, steps=windows.shape[1] - 1), model.camera, at.own
        )

    def errors(self, model: ShootingFit, windows: np.ndarray | None = None) -> np.ndarray:
        """Distances (N, frames), mm, of the second bob from where it was."""
        windows = self.tested[0] if windows is None else windows
        return 1e3 * np.linalg.norm(
            self.predicted(model, windows)[..., 4:] - windows[:, :, 2], axis=-1
        )


def _silenced(setting: Setting, which: int) -> np.ndarray:
    model = setting.neural
    sim = model.sim.with_weights(
        silence_networks(model.sim.augmentation, model.sim.weights, [which])
    )
    return setting.errors(ShootingFit(sim, model.camera, model.start, model.own, model.error))


def _recurrent(setting: Setting) -> np.ndarray:
    """Its own runs kept aside to know when to stop, of those to fit on."""
    fit, aside = split(setting.fit, seed=1)
    model = pendulum_recurrent.train(
        fit, aside, seed=setting.seed, observed=OBSERVED, quick=setting.quick
    )
    windows = setting.tested[0]
    places = model(windows, observed=OBSERVED, steps=windows.shape[1] - OBSERVED)
    after = 1e3 * np.linalg.norm(places - windows[:, OBSERVED:, 2], axis=-1)
    return np.concatenate([np.zeros((len(after), OBSERVED)), after], 1)


def _floor(setting: Setting) -> np.ndarray:
    """Trajectories of the neural model from the starts that the windows seem to have, seen with
    noise.
    """
    model, windows = setting.neural, setting.tested[0]
    true = setting.predicted(model, windows)
    noisy = true + NOISE * np.random.default_rng([setting.seed, 2]).normal(size=true.shape)
    return setting.errors(model, noisy.reshape(windows.shape))


METHODS: dict[str, Callable[[Setting], np.ndarray]] = {
    "analytic": lambda s: s.errors(s.analytic),
    "analytic-geometry": lambda s: s.errors(s.geometry),
    "neural": lambda s: s.errors(s.neural),
    "neural-without-upper": lambda s: _silenced(s, 0),
    "neural-without-lower": lambda s: _silenced(s, 1),
    "recurrent": _recurrent,
    "floor": _floor,
}


def run(
    root: Path,
    seeds: int = 1,
    quick: bool = False,
    *,
    methods: Sequence[str] | None = None,
    resume: Path | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of every method and frame: median and mean over windows and seeds, the median's 95 %
    interval by drawing recordings anew, and the ratio to analytic-geometry.
    """
    ways, seeds = choose(methods, [*METHODS]), 1 if quick else seeds
    fit, held = split(load(root))
    done, found = kept(resume), dict[str, list[np.ndarray]]()
    recording = Setting(fit, held, 0, quick).tested[1]
    names = [run.name for run in held]
    missing: list[Row] = []
    with progress("pendulum", len(ways) * seeds) as advance:
        for seed in range(seeds):
            setting = Setting(fit, held, seed, quick)
            for method in ways:
                at = {"method": method, "seed": seed, "quick": quick, "held": names}
                with optional(missing, method=method, seed=seed):
                    one = next((r for r in done if {k: r.get(k) for k in at} == at), None)
                    if one is None:
                        one = (
                            at
                            | _measure(METHODS[method](setting))
                            | (_kept(setting.neural) if method == "neural" else {})
                        )
                        keep(resume, [one])
                    found.setdefault(method, []).append(np.array(one["errors"], float))
                save(_compared(found, recording) + missing)
                advance(1)
    return _compared(found, recording) + missing


def _compared(found: dict[str, list[np.ndarray]], recording: np.ndarray) -> list[Row]:
    """Rows of all methods, with the ratio to analytic-geometry where that was measured."""
    rows = [row for method, errors in found.items() for row in _rows(method, errors, recording)]
    base = {r["frame"]: r["error_mm"] for r in rows if r["method"] == "analytic-geometry"}
    return [
        row | ({"ratio": round(row["error_mm"] / base[row["frame"]], 3)} if base else {})
        for row in rows
    ]


def _kept(model: ShootingFit) -> Row:
    """What the resume file holds of a trained model, for `draw`."""
    return {
        "theta": model.sim.theta.tolist(),
        "weights": model.sim.weights.tolist(),
        "camera": model.camera.tolist(),
    }  # type: ignore[union-attr]


def draw(root: Path, resume: Path, picture: Path) -> None:
    """What both networks of a run have learnt, over the speeds and turns of the runs they were
    fitted on; `resume` is the file of `run`.
    """
    row = next(
        (r for r in kept(resume) if r["method"] == "neural" and not r["quick"] and "weights" in r),
        None,
    )
    if row is None:
        raise DataError(
            f"{resume.name} holds no trained model: run the bench with --resume {resume.name} first"
        )
    start = trajectory_windows(
        cut_windows(split(load(root))[0], frames=OBSERVED, every=400)[0], observed=OBSERVED
    ).start
    recorded = np.column_stack(
        [
            np.sin(start[:, 0]),
            np.cos(start[:, 0]),
            np.sin(start[:, 1]),
            np.cos(start[:, 1]),
            start[:, 2:],
        ]
    )
    reach = np.quantile(np.abs(start[:, 2:]), 0.95, axis=0)
    turn = np.linspace(-np.pi, np.pi, 121)
    over = {
        "qvel/upper": np.linspace(-reach[0], reach[0], 121),
        "qvel/lower": np.linspace(-reach[1], reach[1], 121),
        "angle/upper": turn,
        "angle/lower": turn,
    }
    plot_scalar_quantiles(
        picture, augmentation(UNITS), np.array(row["weights"]), recorded=recorded, over=over
    )


def _measure(error: np.ndarray) -> Row:
    """Errors (N, 9) of each window: at every frame counted from either end of what is observed, and
    how many frames until it is far off.
    """
    after = error[:, OBSERVED:] > FAR
    until = np.where(after.any(1), after.argmax(1), after.shape[1])
    columns = [
        *(error[:, OBSERVED + f - 1] for f in FRAMES),
        *(error[:, f - 1] for f in FRAMES),
        until,
    ]
    return {
        "errors": np.round(np.nan_to_num(np.stack(columns, 1), nan=1e3, posinf=1e3), 4).tolist()
    }


def _rows(method: str, errors: list[np.ndarray], recording: np.ndarray) -> list[Row]:
    table, labels = np.concatenate(errors), np.tile(recording, len(errors))
    groups = [table[labels == r] for r in np.unique(labels)]
    rng = np.random.default_rng(0)
    drawn = np.array(
        [
            np.median(
                np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))]), 0
            )
            for _ in range(_DRAWS)
        ]
    )
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return [
        {
            "method": method,
            "frame": f,
            "error_mm": round(float(np.median(table[:, i])), 3),
            "mean_mm": round(float(table[:, i].mean()), 3),
            "low_mm": round(float(low[i]), 3),
            "high_mm": round(float(high[i]), 3),
            "within_mm": round(float(np.median(table[:, 4 + i])), 3),
            "until_5mm": float(np.median(table[:, 8])),
            "windows": len(table),
            "seeds": len(errors),
        }
        for i, f in enumerate(FRAMES)
    ]
