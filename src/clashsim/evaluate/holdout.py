"""How good a calibration is: on impacts held out, or leaving each fifth out in turn, beside MuJoCo
before and after identification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.contact_frame import ContactFrame, inertia
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
    calibration: Calibration,
    fitted: Impacts,
    held_out: Impacts,
    *,
    seed: int,
    frame: ContactFrame | None = None,
) -> HeldOutPredictions | None:
    """Predict impacts that were not fitted.

    Args:
        calibration: Calibration on all of `fitted`.
        fitted: Impacts that it was fitted to.
        held_out: Impacts held out; if empty, each fifth of `fitted` is left out in turn.
        seed: Of the division into fifths.
        frame: Contact frames of `held_out`, where these are known already.

    Returns:
        The predictions of each model; None where the impacts are too few to leave any out.
    """
    if len(held_out):
        predicted, std = predict_with_each_model(calibration, held_out, frame)
        return HeldOutPredictions(
            f"on {len(held_out)} impacts held out",
            held_out,
            predicted,
            std,
            np.arange(len(held_out)),
        )
    if len(fitted) < _FOLDS:
        return None
    all_rows = np.arange(len(fitted))
    folds = np.array_split(np.random.default_rng(seed).permutation(len(fitted)), _FOLDS)
    predictions = []
    stds = []
    for rows in folds:
        others = np.setdiff1d(all_rows, rows)
        model = calibrate(calibration.base, fitted[others], seed=seed)
        predicted, std = predict_with_each_model(model, fitted[rows])
        predictions.append(predicted)
        stds.append(std)
    order = np.concatenate(folds)
    return HeldOutPredictions(
        f"on {len(fitted)} impacts, each fifth left out in turn",
        fitted[order],
        {name: np.concatenate([fold[name] for fold in predictions]) for name in predictions[0]},
        np.concatenate(stds),
        order,
    )


def accuracies_by_model(scene: Scene, judged: HeldOutPredictions) -> dict[str, dict[str, Any]]:
    """A row of accuracies for each model."""
    gyration = inertia(scene, scene.struck_body).gyration
    return {
        name: dict(summary([relative_error(after, judged.impacts.after, gyration)]))
        for name, after in judged.predicted.items()
    }


def predict_with_each_model(
    calibration: Calibration, impacts: Impacts, frame: ContactFrame | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Predict impacts with MuJoCo at nominal and at identified theta, and with the calibration.

    Args:
        calibration: The calibrated model.
        impacts: The impacts.
        frame: Their contact frames, where these are known already.

    Returns:
        Twists after impact (N, k) in m/s and rad/s by name of the model, and one standard deviation
        (N, k) of the calibrated model's.
    """
    scene = calibration.base.scene
    _, touching = advance_to_contact(scene, impacts.before)
    identified = theta_in_ranges(calibration)
    after, std = calibration.predict_with_std(impacts, frame)
    predicted = {
        "MuJoCo, nominal": _mujoco(scene, impacts, touching, scene.nominal),
        "MuJoCo, identified": _mujoco(scene, impacts, touching, identified),
        "clashsim": after,
    }
    return predicted, std


def _mujoco(scene: Scene, impacts: Impacts, touching: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Twists after impact (N, k) of MuJoCo itself; NaN where an impact did not end.

    Args:
        scene: The scene.
        impacts: Parameters that were measured with each impact replace those of `theta`.
        touching: Poses and twists (N, d) of the pair at first contact.
        theta: Parameters (p,) in natural units.
    """
    thetas = np.tile(theta, (len(impacts), 1))
    for column, param in enumerate(scene.params):
        if param.name in impacts.known:
            thetas[:, column] = impacts.known[param.name]
    outcome = simulate_impacts(scene, touching, thetas)
    return np.where(outcome.usable[:, None], outcome.after, np.nan)
