"""A calibrated collision model: fits of the contact, a rigid law, and a local correction.

Predictions average nested models. Fits of constants and of fields are weighted by how well they
predict groups of impacts that were left out. A law of rigid contact counts by its errors on such
groups, everywhere; a regression on similar impacts counts by them close to the fitted impacts
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from clashsim.core.contact_frame import ContactFrame, contact_frame, inertia
from clashsim.core.estimates import Estimate
from clashsim.core.impacts import Impacts
from clashsim.core.intervals import INTERVAL_SHARES
from clashsim.core.recorded_joints import with_postures
from clashsim.fit.base import BaseModel
from clashsim.fit.both_bodies import predict_striker
from clashsim.fit.fields import Posterior, outcome_jacobian, predict_posteriors
from clashsim.fit.input_scaling import InputScaling
from clashsim.fit.interval_widths import IntervalWidths
from clashsim.fit.local_correction import LocalCorrection
from clashsim.fit.lockstep import FieldData
from clashsim.fit.prediction import Prediction, average
from clashsim.fit.predictive_variance import pose_variance, predictive_variance
from clashsim.fit.rigid_law import RigidLaw

_TINY = 1e-18  # m^2/s^2, added to the squared size of an outcome


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated collision model; an `ImpactModel`.

    Attributes:
        base: The base model.
        theta: Estimates in `scene.params` order.
        posteriors: Fits with different prior scales.
        weights: Weight of each posterior in the predictions; they sum to 1.
        scaling: Standardisation of the circumstances of an impact.
        rigid_law: Law of rigid contact; None if it could not be fitted.
        local_correction: Regression on similar impacts, without physics; None if it could not be
            fitted.
        left_out: Errors of predicting each fitted impact from the other groups of consecutive
            impacts, over the size of its outcome, in the contact frame: what was observed minus
            what was predicted.
        all_uncertainty: Whether standard deviations include what the impacts leave open about each
            fit; without it predictions take a fraction of the time.
        recorded: Motion before the fitted impacts, (N, d) as in `Impacts`, with the bodies
            touching; None in calibrations of earlier versions.
    """

    base: BaseModel
    theta: tuple[Estimate, ...]
    posteriors: tuple[Posterior, ...]
    weights: tuple[float, ...]
    scaling: InputScaling
    rigid_law: RigidLaw | None
    local_correction: LocalCorrection | None
    left_out: Prediction
    all_uncertainty: bool = True
    recorded: np.ndarray | None = None

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise relative to the outcome, the mean over the fits.

        Like stated standard deviations, it is as wide as errors on left-out impacts show.
        """
        pairs = zip(self.weights, self.posteriors, strict=True)
        of_fits = sum(weight * posterior.scales.noise**2 for weight, posterior in pairs)
        return self.interval_widths.std**2 * of_fits

    @property
    def constants(self) -> torch.Tensor:
        """Constants (p,) of the most probable fit, on the unit scale, from nominal values."""
        return self.posteriors[int(np.argmax(self.weights))].anchor

    @cached_property
    def interval_widths(self) -> IntervalWidths:
        """How wide intervals are, by the errors on left-out impacts."""
        return IntervalWidths.of(self.left_out)

    @cached_property
    def most_probable(self) -> Calibration:
        """The same with one sample of each fit, the most probable one.

        Its predictions take a fraction of the time; their standard deviations are too small.
        """
        return replace(self, all_uncertainty=False)

    def predict_by_fits(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> list[np.ndarray]:
        """Twists after impact (N, k) by each fit alone, m/s and rad/s.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, if already computed.
        """
        frame = frame or contact_frame(self.base.scene, impacts)
        data = self.scaling.data(self.base, frame, impacts.known)
        predictions = predict_posteriors(self.posteriors, data)
        return [frame.decode(change.numpy()) for change, _ in predictions]

    def predict(self, impacts: Impacts) -> np.ndarray:
        """Mean twist after impact (N, k), m/s and rad/s."""
        return replace(self, all_uncertainty=False).predict_with_std(impacts)[0]

    def with_postures(self, impacts: Impacts) -> Calibration:
        """The same for arms in the posture of each impact, not that of the nearest fitted one.

        Args:
            impacts: Impacts with recorded joints; others change nothing.
        """
        scene = with_postures(self.base.scene, impacts)
        if scene is self.base.scene:
            return self
        return replace(self, base=replace(self.base, scene=scene))

    def predict_striker(self, impacts: Impacts, frame: ContactFrame | None = None) -> np.ndarray:
        """The striker's twist after impact (N, k), m/s and rad/s, by the impulse of `predict`.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, if already computed.
        """
        frame = frame or contact_frame(self.base.scene, impacts)
        twist_after = self.predict(impacts)
        data = self.scaling.data(self.base, frame, impacts.known)
        phi = torch.zeros(len(impacts), len(self.base.scene.params), dtype=torch.float64)
        predictions = predict_posteriors(self.posteriors, data)
        for weight, (_, of_fit) in zip(self.weights, predictions, strict=True):
            phi += weight * of_fit
        return predict_striker(self.base, impacts, frame, phi=phi, twist_after=twist_after)

    def std(self, impacts: Impacts) -> np.ndarray:
        """Standard deviations of the twist after impact (N, k), m/s and rad/s.

        They include what the fitted impacts leave open, the disagreement of models, and the noise,
        and are as wide as errors on left-out impacts show that they must be: about 68 % of
        outcomes lie within one.
        """
        return self.predict_with_std(impacts)[1]

    def predict_with_std(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`predict` and `std` in one evaluation.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, if already computed.

        Returns:
            Mean twist after impact and its standard deviations, (N, k) each.
        """
        if frame is None and impacts.joints:
            posed = self.with_postures(impacts)
            frame = contact_frame(posed.base.scene, impacts)
            return posed.predict_with_std(impacts, frame)
        scene = self.base.scene
        frame = frame or contact_frame(scene, impacts)
        num_linear = 2 if impacts.planar else 3
        num_angular = impacts.after.shape[1] - num_linear
        gyration = inertia(scene, scene.struck_body).gyration
        # Factors (k,) from a twist (v, w) to (v, gyration * w).
        to_speed = np.r_[np.ones(num_linear), np.full(num_angular, gyration)]
        prediction = self._of_fits(impacts, frame, to_speed)
        if self.rigid_law is not None:
            law = self.rigid_law
            mean = law.predict(scene, frame, impacts) * to_speed
            variance = np.broadcast_to((law.error * prediction.size) ** 2, mean.shape)
            prediction = prediction.mixed_with(Prediction(mean, variance), law.share)
        if self.local_correction is not None:
            size = prediction.size
            local = self.local_correction.predict(scene, frame, impacts, size[:, 0])
            variance = np.broadcast_to(
                (self.local_correction.error * size) ** 2, prediction.mean.shape
            )
            of_similar = Prediction(local.twist_after * to_speed, variance)
            prediction = prediction.mixed_with(of_similar, local.share[:, None])
        squared_size = np.square(prediction.size) + _TINY
        relative = self.interval_widths.corrected(prediction.variance / squared_size)
        std = np.sqrt(relative * squared_size)
        return prediction.mean / to_speed, std / to_speed

    def predict_with_intervals(
        self, impacts: Impacts, frame: ContactFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`predict` with intervals.

        Args:
            impacts: N impacts; their outcomes are not used.
            frame: The impacts in their contact frames, if already computed.

        Returns:
            Mean twist after impact (N, k), and half-widths (2, N, k) of the intervals that hold
            each of `INTERVAL_SHARES` of the outcomes.
        """
        mean, std = self.predict_with_std(impacts, frame)
        widths = [self.interval_widths.half_width(share) for share in INTERVAL_SHARES]
        return mean, np.array(widths)[:, None, None] * std

    def _of_fits(self, impacts: Impacts, frame: ContactFrame, to_speed: np.ndarray) -> Prediction:
        """The average of the fits, by their weights."""
        data = self.scaling.data(self.base, frame, impacts.known)
        predictions = predict_posteriors(self.posteriors, data)
        changes = [change for change, _ in predictions]
        parameters = [phi for _, phi in predictions]
        means = [frame.decode(change.numpy()) * to_speed for change in changes]
        noise = np.array([posterior.scales.noise**2 for posterior in self.posteriors])
        relative = np.broadcast_to(noise[:, None, None], (len(means), *means[0].shape))
        if self.all_uncertainty:
            # From variances along the contact's axes to those along the world's.
            to_world = np.square(np.linalg.inv(frame.axes) * to_speed[:, None])
            left_open = self._open_variances(data, parameters, changes).numpy()
            relative = relative + np.einsum("nij,mnj->mni", to_world, left_open)
        weighted = sum(w * mean for w, mean in zip(self.weights, means, strict=True))
        squared_size = np.square(weighted).sum(1, keepdims=True)
        of_fits = [Prediction(m, v * squared_size) for m, v in zip(means, relative, strict=True)]
        return average(of_fits, self.weights)

    def _open_variances(
        self, data: FieldData, parameters: list[torch.Tensor], changes: list[torch.Tensor]
    ) -> torch.Tensor:
        """What the impacts leave open about each of M fits, relative to the size: (M, N, k).

        All fits share the Jacobian of the most probable one, which is the costly part.
        """
        best = int(np.argmax(self.weights))
        jacobian, size = outcome_jacobian(data, parameters[best])
        shape = (changes[best] + data.twist_before) / size[:, None]
        variances = []
        for posterior in self.posteriors:
            variances.append(predictive_variance(posterior, data.context, jacobian, shape))
        return torch.stack(variances) + pose_variance(self.base.scene, jacobian)
