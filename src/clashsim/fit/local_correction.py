"""A local correction to the physics: Gaussian-process regression on similar impacts.

If a law of rigid point contact explains the impacts, the process only models the differences from
this law.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.point_contact import fit_point_contact, point_contact, point_contact_inputs
from clashsim.fit.regression import GaussianProcess, RegressionInputs, faces_meet, regress

_MIN_IMPACTS = 4  # that a correction needs
# Arguments `floor` and `amplitude` of `regress`.
_FLOOR = 0.5
_AMPLITUDE = 0.3
_FLOOR_ABOUT_LAW = 0.1  # `floor` for the differences from a law
# By how much (nats) the evidence must be higher with a law, because its constants are fitted too.
_LAW_EVIDENCE = 3.0
# The variance ignores the uncertainty of the hyper-parameters. With n impacts it is multiplied by
# 1 + this / n.
_HYPER_COUNT = 5.0
_SIZE_FLOOR = 0.05  # added to the size of outcomes, over the approach speed


@dataclass(frozen=True, eq=False)
class LocalPrediction:
    """What a local correction predicts for N impacts.

    Attributes:
        twist_after: Twists after impact (N, k), m/s and rad/s.
        variance: Variance of (v, gyration * w) in the contact's axes, (N, k), m^2/s^2.
        proximity: Highest weight (N,) of this prediction: at most 1 near the fitted impacts, 0 far
            away.
    """

    twist_after: np.ndarray
    variance: np.ndarray
    proximity: np.ndarray


@dataclass(frozen=True, eq=False)
class LocalCorrection:
    """A Gaussian process of the fitted impacts.

    Attributes:
        inputs: How impacts become inputs of the process.
        regression: The process.
        law: Law of a point contact (3,) whose errors the process models; None if it models the
            outcomes themselves.
        loo_median: Median error, over the size of the outcome, of predicting each fitted impact
            from the others.
        credit: Highest weight of the correction, given how well the physics does.
    """

    inputs: RegressionInputs
    regression: GaussianProcess
    law: np.ndarray | None
    loo_median: float = 0.0
    credit: float = 1.0

    def beside(self, physics_error: float) -> LocalCorrection:
        """The correction with less credit the worse it is than the physics.

        Args:
            physics_error: Median leave-one-out error of the physics, as `loo_median`.
        """
        own, other = self.loo_median**2, physics_error**2
        return replace(self, credit=min(1.0, 2 * other / max(own + other, 1e-12)))

    @staticmethod
    def of(scene: Scene, frame: ContactFrame, impacts: Impacts) -> LocalCorrection | None:
        """Fit the correction; None if impacts are too few or partly measured, or no input varies.

        Args:
            scene: The scene.
            frame: The impacts in their contact frames.
            impacts: The recorded impacts.
        """
        inputs = RegressionInputs.of(scene, frame, impacts)
        if len(impacts) < _MIN_IMPACTS or not inputs.live or not impacts.measured.all():
            return None
        x = inputs(scene, frame, impacts)
        change = frame.encode(impacts.after)  # of the twist, over the approach speed
        after = change + frame.twist_before / frame.speed[:, None]
        size = np.linalg.norm(after, axis=1) + _SIZE_FLOOR
        try:
            process = regress(x, change, size, floor=_FLOOR, amplitude=_AMPLITUDE)
            plain = LocalCorrection(inputs, process, None, _median_error(process, size))
            if not impacts.planar or faces_meet(scene):
                return plain
            contact = point_contact_inputs(scene, frame, impacts)
            law = fit_point_contact(contact, change, size)
            law_error = change - point_contact(law[None], contact)
            about_law = regress(x, law_error, size, floor=_FLOOR_ABOUT_LAW, amplitude=_AMPLITUDE)
        except torch.linalg.LinAlgError:
            return None
        if about_law.evidence - _LAW_EVIDENCE > process.evidence:
            return LocalCorrection(inputs, about_law, law, _median_error(about_law, size))
        return plain

    def predict(self, scene: Scene, frame: ContactFrame, impacts: Impacts) -> LocalPrediction:
        """Predict impacts from similar ones.

        Args:
            scene: The scene.
            frame: The impacts in their contact frames.
            impacts: N impacts; their outcomes are not used.
        """
        x = self.inputs(scene, frame, impacts)
        change, variance = self.regression(x)
        inflation = 1 + _HYPER_COUNT / len(self.regression.x)
        variance = variance * inflation * frame.speed[:, None] ** 2
        proximity = self.inputs.proximity(x)
        if self.law is not None:
            contact = point_contact_inputs(scene, frame, impacts)
            change = change + point_contact(self.law[None], contact)
            proximity = np.ones(len(x))  # a law also holds far from the fitted impacts
        return LocalPrediction(frame.decode(change), variance, self.credit * proximity)


def _median_error(process: GaussianProcess, size: np.ndarray) -> float:
    """Median leave-one-out error of a process, over the sizes (n,) of the outcomes."""
    return float(np.median(np.linalg.norm(process.leave_one_out(), axis=1) / size))
