"""How well a calibration predicts impacts that it was not fitted to, compared with MuJoCo.

These impacts are the held-out ones. Where none are held out, the fitted impacts are split into
five folds, and each fold is predicted by a calibration on the other four.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clashsim.core.contact_frame import ContactFrame, inertia
from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.effects import measurement_delay
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import accuracy_summary, relative_error
from clashsim.fit.calibrate import Calibration, calibrate_subsets
from clashsim.fit.calibrated_run import theta_in_ranges
from clashsim.sim.mujoco.impacts import simulate_impacts

_NUM_FOLDS = 5


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """Predictions of N impacts that were not fitted.

    Attributes:
        description: How the impacts were held out, in words.
        impacts: The impacts.
        predicted: Twists of the struck body after impact, (N, k), by the name of the model.
        half_widths: Half-widths (2, N, k) of the intervals that clashsim states for its own
            predictions, which should hold each of `INTERVAL_SHARES` of the outcomes.
        rows: Index (N,) of each of these impacts among those held out, or, where none were held
            out, among those fitted.
        striker_predicted: The same of the striker, by the name of the model; empty where its
            outcomes were not recorded.
    """

    description: str
    impacts: Impacts
    predicted: dict[str, np.ndarray]
    half_widths: np.ndarray
    rows: np.ndarray
    striker_predicted: dict[str, np.ndarray] = field(default_factory=dict)

    def of_struck(self, scene: Scene) -> BodyPredictions:
        """The predictions of the struck body, of the impacts in which it was recorded."""
        gyration = inertia(scene, scene.struck_body).gyration
        return _recorded(self.impacts.after, self.predicted, gyration)

    def of_striker(self, scene: Scene) -> BodyPredictions:
        """The predictions of the striker, of the impacts in which it was recorded."""
        gyration = inertia(scene, scene.striker_body).gyration
        measured = self.impacts.striker_after
        # Of a striker that no impact moves, as one in a hand, nothing is predicted.
        if measured is None or not self.striker_predicted:
            measured = np.full_like(self.impacts.after, np.nan)
        return _recorded(measured, self.striker_predicted, gyration)


@dataclass(frozen=True, eq=False)
class BodyPredictions:
    """Predictions of one body of M impacts in which it was recorded.

    Attributes:
        rows: (M,), indices of the impacts.
        measured: Twists after impact, (M, k), NaN for components that were not measured.
        predicted: Predicted twists, (M, k), by the name of the model.
        gyration: Radius of gyration of the body, m.
    """

    rows: np.ndarray
    measured: np.ndarray
    predicted: dict[str, np.ndarray]
    gyration: float

    def accuracies(self) -> dict[str, dict[str, Any]]:
        """Accuracies and median error as `accuracy_summary` gives them, by name of the model."""
        if len(self.rows) == 0:
            return {}
        accuracies = {}
        for name, predicted in self.predicted.items():
            error = relative_error(predicted, self.measured, self.gyration)
            accuracies[name] = dict(accuracy_summary([error]))
        return accuracies


def _recorded(
    measured: np.ndarray, predicted: dict[str, np.ndarray], gyration: float
) -> BodyPredictions:
    """Measured and predicted twists (N, k) of the impacts in which anything was measured."""
    rows = np.flatnonzero(~np.isnan(measured).all(1))
    of_rows = {name: twist[rows] for name, twist in predicted.items()}
    return BodyPredictions(rows, measured[rows], of_rows, gyration)


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """Predictions of N impacts; see `HeldOutPredictions`."""

    predicted: dict[str, np.ndarray]
    half_widths: np.ndarray
    striker_predicted: dict[str, np.ndarray]

    @staticmethod
    def joined(parts: list[ModelPredictions]) -> ModelPredictions:
        """Predictions of several sets of impacts, one after the other."""

        def concatenated(tables: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
            return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

        return ModelPredictions(
            concatenated([part.predicted for part in parts]),
            np.concatenate([part.half_widths for part in parts], axis=1),
            concatenated([part.striker_predicted for part in parts]),
        )


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
        seed: Seed of the folds.
        frame: Contact frames of `held_out`; None computes them.

    Returns:
        The predictions; None where the impacts are too few to leave any out.
    """
    if len(held_out):
        found = predict_with_each_model(calibration, held_out, frame)
        return HeldOutPredictions(
            description=f"on {len(held_out)} impacts held out",
            impacts=held_out,
            predicted=found.predicted,
            half_widths=found.half_widths,
            rows=np.arange(len(held_out)),
            striker_predicted=found.striker_predicted,
        )
    if len(fitted) < _NUM_FOLDS:
        return None
    order = np.random.default_rng(seed).permutation(len(fitted))
    folds = np.array_split(order, _NUM_FOLDS)
    parts = []
    others = [np.setdiff1d(np.arange(len(fitted)), fold) for fold in folds]
    models = calibrate_subsets(calibration, fitted, others)
    for fold, model in zip(folds, models, strict=True):
        # Of each fold alike, whatever was recorded of the bodies in it.
        of_striker = _striker_is_judged(calibration.base.scene, fitted)
        parts.append(predict_with_each_model(model, fitted[fold], of_striker=of_striker))
    found = ModelPredictions.joined(parts)
    rows = np.concatenate(folds)
    return HeldOutPredictions(
        description=f"on {len(fitted)} impacts, by 5-fold cross-validation",
        impacts=fitted[rows],
        predicted=found.predicted,
        half_widths=found.half_widths,
        rows=rows,
        striker_predicted=found.striker_predicted,
    )


def _striker_is_judged(scene: Scene, impacts: Impacts) -> bool:
    """Whether impacts change the striker's motion, and its outcomes were recorded."""
    return scene.striker_yields and bool(impacts.striker_measured.any())


def predict_with_each_model(
    calibration: Calibration,
    impacts: Impacts,
    frame: ContactFrame | None = None,
    *,
    of_striker: bool | None = None,
) -> ModelPredictions:
    """Predict impacts with MuJoCo before and after identification, and with the calibrated model.

    Args:
        calibration: The calibrated model.
        impacts: The impacts.
        frame: Contact frames of `impacts`; None computes them.
        of_striker: Whether the striker's outcomes are predicted too; None where they were recorded.

    Returns:
        The predictions of each model.
    """
    scene = calibration.base.scene
    if of_striker is None:
        of_striker = _striker_is_judged(scene, impacts)
    _, touching = bring_into_contact(scene, impacts.before)
    predicted = {}
    striker_predicted = {}
    for name, theta in (
        ("MuJoCo, nominal", scene.nominal),
        ("MuJoCo, identified", theta_in_ranges(calibration)),
    ):
        both = _predict_with_mujoco(scene, impacts, touching, theta)
        predicted[name], striker_predicted[name] = both[:, 0], both[:, 1]
    predicted["clashsim"], half_widths = calibration.predict_with_intervals(impacts, frame)
    if not of_striker:
        return ModelPredictions(predicted, half_widths, {})
    striker_predicted["clashsim"] = calibration.predict_striker(impacts, frame)
    return ModelPredictions(predicted, half_widths, striker_predicted)


def _predict_with_mujoco(
    scene: Scene, impacts: Impacts, touching: np.ndarray, theta: np.ndarray
) -> np.ndarray:
    """Twists of both bodies (N, 2, k) by MuJoCo at theta (p,); NaN where an impact did not end.

    The pair starts at first contact, `touching` (N, d). A parameter that was measured with each
    impact has its measured values instead of the one in theta.
    """
    theta_of_each = np.tile(theta, (len(impacts), 1))
    for i, param in enumerate(scene.params):
        if param.name in impacts.known:
            theta_of_each[:, i] = impacts.known[param.name]
    outcome = simulate_impacts(scene, touching, theta_of_each, of_striker=True)
    assert outcome.striker_after is not None
    both = np.stack([outcome.after, outcome.striker_after], axis=1)
    falls = np.stack([scene.free_fall, scene.striker_body.free_fall(scene.base, scene.plane)])
    both = both + measurement_delay(scene, theta_of_each)[:, None, None] * falls
    return np.where(outcome.usable[:, None, None], both, np.nan)
