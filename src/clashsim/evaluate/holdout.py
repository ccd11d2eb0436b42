"""How good a calibration is: on impacts held out, or leaving each fifth out in turn, beside MuJoCo
before and after identification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import relative_error, summary
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.calibrated_run import theta_in_ranges
from clashsim.sim.mujoco.impacts import simulate_impacts

_FOLDS = 5


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """What calibrated models were judged on, in words and as impacts, what each predicted (N, k)
    and how far clashsim trusts it (N, k).

    rows (N,): which of the impacts held out these are, or of those fitted where none was held out.
    """

    description: str
    impacts: Impacts
    predicted: dict[str, np.ndarray]
    std: np.ndarray
    rows: np.ndarray


def predict_held_out(
    calibration: Calibration, fitted: Impacts, held_out: Impacts, *, seed: int
) -> HeldOutPredictions | None:
    """Predictions of impacts that were not fitted; none where the impacts are too few to leave any
    out.
    """
    if len(held_out):
        return HeldOutPredictions(
            f"on {len(held_out)} impacts held out",
            held_out,
            predict_with_each_model(calibration, held_out),
            calibration.std(held_out),
            np.arange(len(held_out)),
        )
    if len(fitted) < _FOLDS:
        return None
    parts = np.array_split(np.random.default_rng(seed).permutation(len(fitted)), _FOLDS)
    turns = [
        (
            calibrate(
                calibration.base, fitted[np.setdiff1d(np.arange(len(fitted)), rows)], seed=seed
            ),
            fitted[rows],
        )
        for rows in parts
    ]
    said = [predict_with_each_model(model, part) for model, part in turns]
    whole = {name: np.concatenate([turn[name] for turn in said]) for name in said[0]}
    spread = np.concatenate([model.std(part) for model, part in turns])
    return HeldOutPredictions(
        f"on {len(fitted)} impacts, each fifth left out in turn",
        fitted[np.concatenate(parts)],
        whole,
        spread,
        np.concatenate(parts),
    )


def accuracies_by_model(scene: Scene, judged: HeldOutPredictions) -> dict[str, dict[str, Any]]:
    """A row of accuracies for each model."""
    gyration = inertia(scene, scene.struck_body).gyration
    return {
        name: dict(summary([relative_error(after, judged.impacts.after, gyration)]))
        for name, after in judged.predicted.items()
    }


def predict_with_each_model(calibration: Calibration, impacts: Impacts) -> dict[str, np.ndarray]:
    """Twists after impact (N, k) by MuJoCo at nominal and at identified theta, and by the
    calibrated model.
    """
    scene = calibration.base.scene
    thetas = {"MuJoCo, nominal": scene.nominal, "MuJoCo, identified": theta_in_ranges(calibration)}
    return {name: _mujoco(scene, impacts, theta) for name, theta in thetas.items()} | {
        "clashsim": calibration.predict(impacts)
    }


def _mujoco(scene: Scene, impacts: Impacts, theta: np.ndarray) -> np.ndarray:
    """Twists after impact (N, k) of MuJoCo itself, measured parameters taken from the impacts; NaN
    where an impact had no end.
    """
    whole = np.tile(theta, (len(impacts), 1))
    for i, p in enumerate(scene.params):
        if p.name in impacts.known:
            whole[:, i] = impacts.known[p.name]
    outcome = simulate_impacts(scene, advance_to_contact(scene, impacts.before)[1], whole)
    return np.where(outcome.usable[:, None], outcome.after, np.nan)
