"""A witness beside the physics: what similar impacts did, by a Gaussian process, about the law of a
rigid point contact where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.point_contact import fit_point_contact, point_contact, point_contact_inputs
from clashsim.fit.regression import Regression, RegressionInputs, faces_meet, regress

_FEWEST = 4  # impacts that a witness needs
_FLOOR, _AMPLITUDE = 0.5, 0.3  # what it believes of outcomes before seeing any: see `regress`
_ABOUT = 0.1  # the same as _FLOOR, about a law that explains most of them
_LAW = 3.0  # what the constants of a law cost, as evidence
_DOUBT = (
    5.0  # impacts' worth of doubt about its hyper-parameters, which its variance does not know of
)


@dataclass(frozen=True, eq=False)
class LocalCorrection:
    """A Gaussian process of the fitted impacts, how impacts become its inputs, and the law (3,)
    that it is about, if any.
    """

    inputs: RegressionInputs
    regression: Regression
    law: np.ndarray | None

    @staticmethod
    def of(scene: Scene, frame: ContactFrame, impacts: Impacts) -> LocalCorrection | None:
        """What the impacts say by themselves; nothing where they are too few, or all met alike."""
        inputs = RegressionInputs.of(scene, frame, impacts)
        if len(impacts) < _FEWEST or not inputs.live:
            return None
        x, change = inputs(scene, frame, impacts), frame.encode(impacts.after)
        size = np.linalg.norm(change + frame.twist_before / frame.speed[:, None], axis=1) + 0.05
        try:
            plain = LocalCorrection(
                inputs, regress(x, change, size, floor=_FLOOR, amplitude=_AMPLITUDE), None
            )
            if not impacts.planar or faces_meet(scene):
                return plain
            place = point_contact_inputs(scene, frame, impacts)
            law = fit_point_contact(place, change, size)
            lawful = LocalCorrection(
                inputs,
                regress(
                    x,
                    change - point_contact(law[None], place),
                    size,
                    floor=_ABOUT,
                    amplitude=_AMPLITUDE,
                ),
                law,
            )
        except torch.linalg.LinAlgError:
            return None
        return lawful if lawful.regression.evidence - _LAW > plain.regression.evidence else plain

    def __call__(
        self, scene: Scene, frame: ContactFrame, impacts: Impacts
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Twist after (N, k), variance of (v, gyration * w) (N, k), and how much of a say (N,) it
        has at most.
        """
        x = self.inputs(scene, frame, impacts)
        mean, variance = self.regression(x)
        variance = variance * (1 + _DOUBT / len(self.regression.x)) * frame.speed[:, None] ** 2
        if self.law is None:
            return frame.decode(mean), variance, self.inputs.near(x)
        return (
            frame.decode(
                mean + point_contact(self.law[None], point_contact_inputs(scene, frame, impacts))
            ),
            variance,
            np.ones(len(x)),
        )  # a law holds far away too
