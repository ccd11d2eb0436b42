"""How well a calibration predicts impacts that it was not fitted to, compared with MuJoCo.

These impacts are the held-out ones. Where none are held out, the fitted impacts are split into
five folds, and each fold is predicted by a calibration on the other four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.contact_frame import ContactFrame, inertia
from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import accuracy_summary, relative_error
from clashsim.fit.calibrate import Calibration, calibrate_subsets
from clashsim.fit.calibrated_run import theta_in_ranges
from clashsim.sim.mujoco.impacts import simulate_impacts

_FOLD_SAMPLES = 3  # posterior samples of a calibration on folds
_NUM_FOLDS = 5


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """Predictions of N impacts that were not fitted.

    Attributes:
        description: How the impacts were held out, in words.
        impacts: The impacts.
        predicted: Twists after impact, (N, k), by the name of the model.
        std: Standard deviation that clashsim states for its own prediction, (N, k).
        rows: Index (N,) of each of these impacts among those held out, or, where none were held
            out, among those fitted.
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
        calibration: The calibration to test; it is repeated on folds where nothing is held out.
        fitted: Impacts that it was fitted to.
        held_out: Impacts that it was not fitted to; may be none.
        seed: Seed of the folds, and of the calibrations on them.
        frame: Contact frames of `held_out`; None computes them.

    Returns:
        The predictions; None where the impacts are too few to leave any out.
    """
    if len(held_out):
        predicted, std = predict_with_each_model(calibration, held_out, frame)
        return HeldOutPredictions(
            description=f"on {len(held_out)} impacts held out",
            impacts=held_out,
            predicted=predicted,
            std=std,
            rows=np.arange(len(held_out)),
        )
    if len(fitted) < _NUM_FOLDS:
        return None
    order = np.random.default_rng(seed).permutation(len(fitted))
    folds = np.array_split(order, _NUM_FOLDS)
    predictions = []
    stds = []
    others = [np.setdiff1d(np.arange(len(fitted)), fold) for fold in folds]
    models = calibrate_subsets(
        calibration, fitted, others, seed=seed, posterior_samples=_FOLD_SAMPLES
    )
    for fold, model in zip(folds, models, strict=True):
        predicted_fold, std_fold = predict_with_each_model(model, fitted[fold])
        predictions.append(predicted_fold)
        stds.append(std_fold)
    predicted = {}
    for name in predictions[0]:
        predicted[name] = np.concatenate([by_model[name] for by_model in predictions])
    rows = np.concatenate(folds)
    return HeldOutPredictions(
        description=f"on {len(fitted)} impacts, by 5-fold cross-validation",
        impacts=fitted[rows],
        predicted=predicted,
        std=np.concatenate(stds),
        rows=rows,
    )


def accuracies_by_model(scene: Scene, held_out: HeldOutPredictions) -> dict[str, dict[str, Any]]:
    """Accuracies and median error of each model.

    Args:
        scene: The scene of the impacts; its struck body gives the radius of gyration.
        held_out: Predictions of all models.

    Returns:
        Figures as `accuracy_summary` gives them, by the name of the model.
    """
    gyration = inertia(scene, scene.struck_body).gyration
    accuracies = {}
    for name, predicted in held_out.predicted.items():
        error = relative_error(predicted, held_out.impacts.after, gyration)
        accuracies[name] = dict(accuracy_summary([error]))
    return accuracies


def predict_with_each_model(
    calibration: Calibration, impacts: Impacts, frame: ContactFrame | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Predict impacts with MuJoCo before and after identification, and with the calibrated model.

    Args:
        calibration: The calibrated model.
        impacts: The impacts.
        frame: Contact frames of `impacts`; None computes them.

    Returns:
        Twists after impact, (N, k), by the name of the model, and the standard deviation that the
        calibrated model states for its own prediction, (N, k).
    """
    scene = calibration.base.scene
    _, touching = bring_into_contact(scene, impacts.before)
    identified = theta_in_ranges(calibration)
    after, std = calibration.predict_with_std(impacts, frame)
    predicted = {
        "MuJoCo, nominal": _predict_with_mujoco(scene, impacts, touching, scene.nominal),
        "MuJoCo, identified": _predict_with_mujoco(scene, impacts, touching, identified),
        "clashsim": after,
    }
    return predicted, std


def _predict_with_mujoco(
    scene: Scene, impacts: Impacts, touching: np.ndarray, theta: np.ndarray
) -> np.ndarray:
    """Twists after impact (N, k) by MuJoCo at theta (p,); NaN where an impact did not end.

    The pair starts at first contact, `touching` (N, d). A parameter that was measured with each
    impact has its measured values instead of the one in theta.
    """
    theta_of_each = np.tile(theta, (len(impacts), 1))
    for i, param in enumerate(scene.params):
        if param.name in impacts.known:
            theta_of_each[:, i] = impacts.known[param.name]
    outcome = simulate_impacts(scene, touching, theta_of_each)
    return np.where(outcome.usable[:, None], outcome.after, np.nan)
