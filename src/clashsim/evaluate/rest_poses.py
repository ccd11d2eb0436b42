"""Where struck bodies come to rest: measured, and predicted by each collision model.

The same slide model follows each collision model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clashsim.core.angles import wrap_angle
from clashsim.data.segmentation.result import MeasuredImpact
from clashsim.evaluate.holdout import HeldOutPredictions
from clashsim.fit.slides_from_trials import slides_to_rest
from clashsim.slides.law import SlideModel

_FEWEST_SLIDES = 3  # recorded until rest, for a comparison


@dataclass(frozen=True, eq=False)
class RestDisplacements:
    """Displacements of M bodies from impact to rest: x, y (m) and yaw (rad), world frame.

    Attributes:
        rows: For each body, the index of its impact among the held-out predictions, (M,).
        measured: Measured displacements, (M, 3).
        predicted: Predicted displacements, (M, 3), by the name of the model; NaN where the model
            predicts no twist.
    """

    rows: np.ndarray
    measured: np.ndarray
    predicted: Mapping[str, np.ndarray]

    def errors(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Distance and angle between predicted and measured pose at rest.

        Args:
            name: Name of the model.

        Returns:
            Distances (M,), mm, and angles (M,), degrees; infinite where the model predicts no
            twist.
        """
        gap = self.predicted[name] - self.measured
        gap[:, 2] = wrap_angle(gap[:, 2])
        gap = np.nan_to_num(gap, nan=np.inf)
        distance = 1e3 * np.linalg.norm(gap[:, :2], axis=1)
        return distance, np.degrees(np.abs(gap[:, 2]))

    def sentence(self, ours: str, baseline: str | None) -> str:
        """Median errors of our model and of a baseline, in words.

        Args:
            ours: Name of our model.
            baseline: Name of the model to compare with, if any.
        """
        distance, angle = self._median_errors(ours)
        text = (
            f"With its slide model, struck bodies come to rest {distance:.1f} mm and {angle:.1f}° "
            f"from its prediction (median of {len(self.rows)})"
        )
        if baseline is None or baseline not in self.predicted:
            return f"{text}."
        distance, angle = self._median_errors(baseline)
        return f"{text}; with the collision of {baseline}, {distance:.1f} mm and {angle:.1f}°."

    def _median_errors(self, name: str) -> tuple[float, float]:
        distance, angle = self.errors(name)
        return float(np.median(distance)), float(np.median(angle))


def compare_rest_poses(
    slide: SlideModel, predictions: HeldOutPredictions, found: Sequence[MeasuredImpact]
) -> RestDisplacements | None:
    """Compare displacements from impact to rest, measured and predicted.

    Args:
        slide: Predicts the pose at rest from the pose and the twist after impact.
        predictions: Twists after impact that each model predicts.
        found: The measured impacts that `predictions.rows` indexes: those held out, or those
            fitted.

    Returns:
        The displacements; None where too few slides were recorded until rest.
    """
    rows, start, end = slides_to_rest([found[int(i)] for i in predictions.rows])
    if len(rows) < _FEWEST_SLIDES:
        return None
    predicted = {}
    for name, twists in predictions.predicted.items():
        twist = twists[rows]
        finite_twist = torch.as_tensor(np.nan_to_num(twist, nan=0.0))
        with torch.no_grad():
            rest = slide.rest(torch.as_tensor(start), finite_twist).numpy()
        displacement = rest - start
        displacement[~np.isfinite(twist).all(1)] = np.nan
        predicted[name] = displacement
    return RestDisplacements(rows, end - start, predicted)
