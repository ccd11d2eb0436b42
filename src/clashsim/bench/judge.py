"""How good a calibration is: on impacts held out, or leaving each fifth out in turn, beside MuJoCo before and after identification."""

from __future__ import annotations

from typing import Any

import numpy as np

from clashsim.core.contact import touch
from clashsim.core.frame import inertia
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.report.metrics import relative_error, summary
from clashsim.sim.mujoco import simulate

_FOLDS = 5


def judge(calibration: Calibration, fitted: Impacts, held_out: Impacts, *, seed: int) -> dict[str, Any]:
    """What was judged on, in words, and a row of figures for each model; nothing where the impacts are too few to leave any out."""
    scene = calibration.base.scene
    if len(held_out):
        return {"judged": f"on {len(held_out)} impacts held out", "models": _scores(scene, held_out, guesses(calibration, held_out))}
    if len(fitted) < _FOLDS:
        return {}
    parts = np.array_split(np.random.default_rng(seed).permutation(len(fitted)), _FOLDS)
    rest = [np.setdiff1d(np.arange(len(fitted)), rows) for rows in parts]
    turns = [guesses(calibrate(calibration.base, fitted[others], seed=seed), fitted[rows]) for rows, others in zip(parts, rest, strict=True)]
    whole = {name: np.concatenate([turn[name] for turn in turns]) for name in turns[0]}
    return {"judged": f"on {len(fitted)} impacts, each fifth left out in turn", "models": _scores(scene, fitted[np.concatenate(parts)], whole)}


def guesses(calibration: Calibration, impacts: Impacts) -> dict[str, np.ndarray]:
    """Twists after impact (N, k) by MuJoCo at nominal and at identified theta, and by the calibrated model."""
    scene = calibration.base.scene
    thetas = {"MuJoCo, nominal": scene.nominal, "MuJoCo, identified": within(calibration)}
    return {name: _mujoco(scene, impacts, theta) for name, theta in thetas.items()} | {"clashsim": calibration.predict(impacts)}


def within(calibration: Calibration) -> np.ndarray:
    """Identified theta (p,), held to the ranges: beyond them MuJoCo was never asked."""
    return np.array([np.clip(e.value, p.low, p.high) for p, e in zip(calibration.base.scene.params, calibration.theta, strict=True)])


def _scores(scene: Scene, impacts: Impacts, models: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    gyration = inertia(scene, scene.struck_body).gyration
    return {name: dict(summary([relative_error(after, impacts.after, gyration)])) for name, after in models.items()}


def _mujoco(scene: Scene, impacts: Impacts, theta: np.ndarray) -> np.ndarray:
    """Twists after impact (N, k) of MuJoCo itself, measured parameters taken from the impacts; NaN where an impact had no end."""
    whole = np.tile(theta, (len(impacts), 1))
    for i, p in enumerate(scene.params):
        if p.name in impacts.known:
            whole[:, i] = impacts.known[p.name]
    outcome = simulate(scene, touch(scene, impacts.before)[1], whole)
    return np.where(outcome.usable[:, None], outcome.after, np.nan)
