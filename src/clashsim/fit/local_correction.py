"""A local correction to the physics: Gaussian-process regression on similar impacts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.prediction import Prediction
from clashsim.fit.regression import GaussianProcess, RegressionInputs, regress
from clashsim.fit.stacking import share, typical_error

_MIN_IMPACTS = 4  # that a correction needs
# Arguments `floor` and `amplitude` of `regress`.
_FLOOR = 0.5
_AMPLITUDE = 0.3


@dataclass(frozen=True, eq=False)
class LocalPrediction:
    """What a local correction predicts for N impacts.

    Attributes:
        twist_after: Twists after impact (N, k), m/s and rad/s.
        share: Weight (N,) of this prediction: `LocalCorrection.credit` among the fitted impacts,
            and 0 far from them.
    """

    twist_after: np.ndarray
    share: np.ndarray


@dataclass(frozen=True, eq=False)
class LocalCorrection:
    """A Gaussian process of the fitted impacts.

    Attributes:
        inputs: How impacts become inputs of the process.
        regression: The process.
        error: Typical error of a component of a left-out impact, over the size of the outcome.
        credit: Highest weight of the correction: how much its errors on left-out impacts speak for
            it beside the physics.
        left_out_error: Its errors (N, k) on the fitted impacts, groups of which were left out.
    """

    inputs: RegressionInputs
    regression: GaussianProcess
    error: float
    credit: float
    left_out_error: np.ndarray

    @property
    def left_out(self) -> Prediction:
        """Errors on left-out impacts with their typical variance."""
        return Prediction(self.left_out_error, np.full_like(self.left_out_error, self.error**2))

    @staticmethod
    def of(
        scene: Scene,
        frame: ContactFrame,
        impacts: Impacts,
        *,
        size: np.ndarray,
        reference: np.ndarray,
    ) -> LocalCorrection | None:
        """Fit the correction; None if impacts are too few or partly measured, or no input varies.

        Args:
            scene: The scene.
            frame: The impacts in their contact frames.
            impacts: N recorded impacts.
            size: Sizes (N,) of their outcomes over the approach speed.
            reference: Such errors (N, k) of the model to be corrected, over these sizes.
        """
        inputs = RegressionInputs.of(scene, frame, impacts)
        if len(impacts) < _MIN_IMPACTS or not inputs.live or not impacts.measured.all():
            return None
        x = inputs(scene, frame, impacts)
        change = frame.encode(impacts.after)  # of the twist, over the approach speed
        try:
            process = regress(x, change, size, floor=_FLOOR, amplitude=_AMPLITUDE)
        except torch.linalg.LinAlgError:
            return None
        error = process.left_out_errors() / size[:, None]
        credit = share(error, reference)
        return LocalCorrection(inputs, process, typical_error(error), credit, error)

    def predict(
        self, scene: Scene, frame: ContactFrame, impacts: Impacts, size: np.ndarray
    ) -> LocalPrediction:
        """Predict impacts from similar ones.

        Args:
            scene: The scene.
            frame: The impacts in their contact frames.
            impacts: N impacts; their outcomes are not used.
            size: Sizes (N,) of the outcomes that the physics predicts, m/s.
        """
        x = self.inputs(scene, frame, impacts)
        change, variance = self.regression(x)
        variance = variance * frame.speed[:, None] ** 2
        # The process counts less where it is less certain than it is among the fitted impacts.
        usual = change.shape[1] * (self.error * size) ** 2
        certainty = np.minimum(1.0, 2 * usual / (usual + variance.sum(1) + 1e-12))
        weight = self.credit * self.inputs.proximity(x) * certainty
        return LocalPrediction(frame.decode(change), weight)
