"""A collision model asked at contacts that are already known, and whether to trust its answer.

The hybrid simulator uses a prediction only where the model was trained and its own standard
deviation is small; MuJoCo resolves the other collisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from clashsim.core.contact_frame import ContactFrame, frame_at_contact
from clashsim.core.contact_geometry import Contact
from clashsim.core.effects import measurement_delay
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.params import pair_rows
from clashsim.core.protocols import ImpactModel, ThetaModel
from clashsim.core.scene import STRIKE, Scene

# A network is called with a multiple of this many rows. Matrix products round differently with the
# number of rows, and the same impact should give the same bits whatever else is in the call.
_ROW_MULTIPLE = 16
_TINY_STIFFNESS = 1e-9  # 1/s^2, keeps a division defined
_UNKNOWN_STD = 1e9  # in place of a standard deviation that is not finite: too large to be trusted


class Trust(StrEnum):
    """Why a collision is resolved by a learned model, or left to MuJoCo."""

    LEARNED = "learned"
    OUTSIDE = "outside the model's domain"
    UNSURE = "standard deviation too large"


TRUST = tuple(Trust)


class CollisionPrediction(NamedTuple):
    """Predicted outcomes of N collisions.

    Attributes:
        twist_after: (N, k), of the struck body, m/s and rad/s, axes of the scene.
        std: (N, k), standard deviation of the same.
        trust: (N,), index in `TRUST` of whether to use a prediction and, where not, why.
        striker_after: (N, k), of the striker; None where the struck body's twist shows the impulse.
    """

    twist_after: np.ndarray
    std: np.ndarray
    trust: np.ndarray
    striker_after: np.ndarray | None = None


def _contact_duration(scene: Scene, theta: np.ndarray) -> np.ndarray:
    """Durations (N,), s, of contacts: half a period of the spring, for parameters (N, p)."""
    first, second = np.tile(
        scene.base.pair_solref[pair_rows(scene.base, STRIKE)[0]], (len(theta), 1)
    ).T
    for i, param in enumerate(scene.params):
        if param.target == f"pair/{STRIKE}/solref[0]":
            first = param.sign * theta[:, i]
        elif param.target == f"pair/{STRIKE}/solref[1]":
            second = param.sign * theta[:, i]
    # Negative numbers are stiffness and damping, positive ones time constant and damping ratio.
    half_period = np.pi / np.sqrt(np.maximum(-first, _TINY_STIFFNESS))
    return np.where(first < 0, half_period, np.pi * first * second)


@dataclass(frozen=True, eq=False)
class CollisionModel:
    """An impact model in the scene it was learned in, with a limit on how unsure it may be.

    Attributes:
        scene: The scene in which the model was learned.
        model: Predicts twists after impact.
        max_relative_std: Largest trusted standard deviation, relative to the approach speed.
        known: Values of parameters that were measured, by name.
    """

    scene: Scene
    model: ImpactModel | ThetaModel
    max_relative_std: float = 0.3
    known: Mapping[str, float] = field(default_factory=dict)

    @property
    def own_theta(self) -> np.ndarray:
        """Theta (p,) that the model was calibrated to, else the scene's nominal values."""
        estimates = getattr(self.model, "theta", None)
        if estimates is None:
            return self.scene.nominal
        return np.array([estimate.value for estimate in estimates])

    @property
    def degrees_of_freedom(self) -> float:
        """Those of the Student-t distribution of its errors, if it has one; else infinite."""
        widths = getattr(self.model, "interval_widths", None)
        return math.inf if widths is None else float(widths.degrees_of_freedom)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of measured twists over their size; 0 if not known."""
        return math.sqrt(getattr(self.model, "noise_variance", 0.0))

    @property
    def most_probable(self) -> CollisionModel:
        """The same with a quicker model that has no samples, where there is one."""
        return replace(self, model=getattr(self.model, "most_probable", self.model))

    def predict(
        self, before: np.ndarray, contact: Contact, theta: np.ndarray
    ) -> CollisionPrediction:
        """Predict the outcomes of N pairs that touch.

        Args:
            before: (N, d), columns as in `Impacts`.
            contact: Where the pairs touch.
            theta: (p,) or (N, p), of the model's scene.

        Returns:
            The predictions, with the reason for each one that should not be used.
        """
        n = len(before)
        padding = np.zeros(-n % _ROW_MULTIPLE, int)  # row 0 again, to fill up the call
        rows = np.r_[np.arange(n), padding]
        theta = np.broadcast_to(theta, (n, len(self.scene.params)))[rows]
        before, frame_velocity = self._in_rest_frame(before[rows])
        frame = frame_at_contact(self.scene, before, contact[rows])
        after, std = self._predict_padded(before, frame, theta)
        # The collision takes no time in the simulation, which goes on with gravity from the touch.
        until_measured = _contact_duration(self.scene, theta) + measurement_delay(self.scene, theta)
        after = after - until_measured[:, None] * self.scene.free_fall
        striker_after = self._striker_after(before, frame, theta)
        if striker_after is not None:
            fall = self.scene.striker_body.free_fall(self.scene.base, self.scene.plane)
            striker_after = (striker_after - until_measured[:, None] * fall)[:n]
        # Back to velocities relative to the world; angular ones are the same in both.
        angular_entries = after.shape[1] - frame_velocity.shape[1]
        after = after + np.pad(frame_velocity, ((0, 0), (0, angular_entries)))
        usable_std = np.where(np.isfinite(std), std, _UNKNOWN_STD)
        std_in_frame = np.einsum("nij,nj->ni", np.abs(frame.axes), usable_std)
        relative_std = np.linalg.norm(std_in_frame, axis=1) / frame.speed
        inside = self._in_domain(frame, theta) & np.isfinite(after).all(1)
        sure = relative_std <= self.max_relative_std
        usable = np.where(sure, TRUST.index(Trust.LEARNED), TRUST.index(Trust.UNSURE))
        trust = np.where(inside, usable, TRUST.index(Trust.OUTSIDE))
        return CollisionPrediction(after[:n], std[:n], trust[:n], striker_after)

    def _predict_padded(
        self, before: np.ndarray, frame: ContactFrame, theta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Twist after and its standard deviation, (N, k) each."""
        if isinstance(self.model, ThetaModel):
            members = frame.decode(self.model.members(frame, theta))
            return members.mean(0), members.std(0)
        return self.model.predict_with_std(self._impacts(before), frame)

    def _striker_after(
        self, before: np.ndarray, frame: ContactFrame, theta: np.ndarray
    ) -> np.ndarray | None:
        """Twists (N, k) of the striker after; None where those of the struck body are enough.

        Joints take part of an impulse on a body that they leave fewer directions than a twist has,
        so that its twist does not show what the striker got.
        """
        scene = self.scene
        hides_impulse = len(scene.struck_body.qvel) < len(scene.free_fall)
        predict = getattr(self.model, "predict_striker", None)
        if predict is None or not hides_impulse or not scene.striker_yields:
            return None
        own_theta = {"theta": theta} if isinstance(self.model, ThetaModel) else {}
        predicted: np.ndarray = predict(self._impacts(before), frame, **own_theta)
        return predicted

    def _impacts(self, before: np.ndarray) -> Impacts:
        """Impacts to be predicted, from motion before (N, d)."""
        planar = self.scene.plane is not None
        return Impacts(
            planar,
            before,
            after=np.zeros((len(before), 3 if planar else 6)),  # placeholder: to be predicted
            known={name: np.full(len(before), value) for name, value in self.known.items()},
        )

    @property
    def _theta_model(self) -> ThetaModel | None:
        """The base model that the model is or builds on; the region for which it holds is known."""
        if isinstance(self.model, ThetaModel):
            return self.model
        base = getattr(self.model, "base", None)
        return base if isinstance(base, ThetaModel) else None

    def _in_rest_frame(self, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Impacts relative to the moving struck body, for models of struck bodies at rest.

        Returns:
            The impacts (N, d), columns as in `Impacts`, and the velocity (N, 2 or 3), m/s, that was
            subtracted from both bodies: zero where nothing was changed.
        """
        theta_model = self._theta_model
        velocity = MotionBefore.of(before).struck.velocity.copy()
        if theta_model is None or self.scene.striker_body.fixed or not theta_model.needs_rest:
            return before, np.zeros_like(velocity)
        before = before.copy()
        motion = MotionBefore.of(before)
        motion.struck.velocity[:] -= velocity
        motion.striker.velocity[:] -= velocity
        return before, velocity

    def _in_domain(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        """Whether contacts (N,) lie in the region for which the model holds."""
        theta_model = self._theta_model
        if theta_model is None:
            return np.ones(len(frame.features), bool)
        return theta_model.in_training_region(frame, theta)
