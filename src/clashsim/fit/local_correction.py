"""A local correction beside the physics: what similar impacts did, by a Gaussian process.

Where there is a law of a rigid point contact that explains the impacts, the process is about it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.point_contact import fit_point_contact, point_contact, point_contact_inputs
from clashsim.fit.regression import GaussianProcess, RegressionInputs, faces_meet, regress

_FEWEST = 4  # impacts that a correction needs
# What is believed of outcomes before seeing any: see `regress`.
_FLOOR = 0.5
_AMPLITUDE = 0.3
_FLOOR_ABOUT_LAW = 0.1  # the same as _FLOOR, about a law that explains most of them
_LAW_EVIDENCE = 3.0  # by which a law must be better, for its constants are fitted too
# Impacts' worth of uncertainty about the hyper-parameters, which the variance does not include.
_HYPER_COUNT = 5.0


@dataclass(frozen=True, eq=False)
class LocalPrediction:
    """What a local correction predicts of N impacts.

    Attributes:
        twist_after: (N, k).
        variance: Of (v, gyration * w), (N, k).
        proximity: How much it may count at most, (N,): 1 near the fitted impacts, 0 far away.
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
        law: The law of a point contact (3,) that it is about, if any.
    """

    inputs: RegressionInputs
    regression: GaussianProcess
    law: np.ndarray | None

    @staticmethod
    def of(scene: Scene, frame: ContactFrame, impacts: Impacts) -> LocalCorrection | None:
        """Fit the correction; None where impacts are too few, or all met alike.

        Args:
            scene: The scene.
            frame: The impacts in their contact frames.
            impacts: The recorded impacts.
        """
        inputs = RegressionInputs.of(scene, frame, impacts)
        if len(impacts) < _FEWEST or not inputs.live:
            return None
        x = inputs(scene, frame, impacts)
        change = frame.encode(impacts.after)
        after = change + frame.twist_before / frame.speed[:, None]
        size = np.linalg.norm(after, axis=1) + 0.05
        try:
            process = regress(x, change, size, floor=_FLOOR, amplitude=_AMPLITUDE)
            plain = LocalCorrection(inputs, process, None)
            if not impacts.planar or faces_meet(scene):
                return plain
            contact = point_contact_inputs(scene, frame, impacts)
            law = fit_point_contact(contact, change, size)
            left = change - point_contact(law[None], contact)
            about_law = regress(x, left, size, floor=_FLOOR_ABOUT_LAW, amplitude=_AMPLITUDE)
        except torch.linalg.LinAlgError:
            return None
        if about_law.evidence - _LAW_EVIDENCE > process.evidence:
            return LocalCorrection(inputs, about_law, law)
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
            proximity = np.ones(len(x))  # a law holds far away too
        return LocalPrediction(frame.decode(change), variance, proximity)
