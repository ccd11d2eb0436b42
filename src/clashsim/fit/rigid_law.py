"""The law of rigid point contact beside the calibrated contact: what predictions fall back to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_frame import ContactFrame
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.point_contact import fit_point_contact, point_contact, point_contact_inputs
from clashsim.fit.prediction import Prediction
from clashsim.fit.stacking import share, typical_error

_MIN_IMPACTS = 4  # that the law needs: it has three constants


@dataclass(frozen=True, eq=False)
class RigidLaw:
    """A law of rigid point contact with three constants, and how much it counts.

    Constants hold everywhere. So, unlike a regression, the law counts far from the fitted impacts
    as much as among them.

    Attributes:
        law: Restitution, friction, tangential restitution (3,).
        error: Typical error of a component of a left-out impact, over the size of the outcome.
        share: Its weight beside the calibrated contact.
        left_out_error: Its errors (N, k) on the fitted impacts, groups of which were left out.
    """

    law: np.ndarray
    error: float
    share: float
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
    ) -> RigidLaw | None:
        """Fit the law; None if impacts are too few or partly measured.

        Args:
            scene: The scene.
            frame: The impacts in their contact frames.
            impacts: N recorded impacts.
            size: Sizes (N,) of their outcomes over the approach speed.
            reference: Such errors (N, k) of the calibrated contact, over these sizes.
        """
        if len(impacts) < _MIN_IMPACTS or not impacts.measured.all():
            return None
        inputs = point_contact_inputs(scene, frame, impacts)
        fit = fit_point_contact(inputs, frame.encode(impacts.after), size)
        error = fit.left_out_error
        return RigidLaw(fit.law, typical_error(error), share(error, reference), error)

    def predict(self, scene: Scene, frame: ContactFrame, impacts: Impacts) -> np.ndarray:
        """Twists after impact (N, k), m/s and rad/s."""
        inputs = point_contact_inputs(scene, frame, impacts)
        return frame.decode(point_contact(self.law[None], inputs))
