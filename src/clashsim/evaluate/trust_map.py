"""Where a calibration is to be trusted.

Its stated standard deviation over all strikes that its scene allows, beside the impacts that it was
fitted to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_frame import frame_at_contact, inertia
from clashsim.core.contact_geometry import Contact, advance_to_contact
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import twist_weights
from clashsim.fit.calibrate import Calibration
from clashsim.fit.calibrated_run import theta_in_ranges
from clashsim.fit.sample import sample_strikes

_NUM_STRIKES = 2048
# Of the approach speed: the standard deviation of a body that is slower than this after impact is
# divided by this instead of by its speed.
_SLOWEST = 0.02


@dataclass(frozen=True, eq=False)
class TrustMap:
    """How sure a calibration is of N strikes that are spread evenly over what its scene allows.

    Attributes:
        axes: Where and how bodies meet, (N,), by a name with its unit; the position on the struck
            body comes first.
        std: Stated standard deviation over the size of the outcome, (N,).
        inside: Whether the distilled model was trained there, (N,).
        fitted: The same as `axes` of the M impacts that were fitted, (M,).
        fitted_inside: The same as `inside` of these impacts, (M,).
        rate: Impacts per second that were predicted for this, contact frames included.
    """

    axes: Mapping[str, np.ndarray]
    std: np.ndarray
    inside: np.ndarray
    fitted: Mapping[str, np.ndarray]
    fitted_inside: np.ndarray
    rate: float = float("nan")

    def sentence(self) -> str:
        """How sure the model is of these strikes, and whether it extrapolates to fitted ones."""
        low, median, high = (100 * float(q) for q in np.quantile(self.std, (0.05, 0.5, 0.95)))
        sure = 100 * float(np.mean(self.std < 0.1))
        text = (
            f"Of {len(self.std)} strikes drawn evenly from what the scene allows, {sure:.0f} % "
            "have a stated standard deviation below 10 % of the motion after impact; "
            f"the median is {median:.1f} %, nine tenths lie between {low:.1f} and {high:.1f} %."
        )
        outside = int((~self.fitted_inside).sum())
        if outside:
            text += (
                f" {outside} of the {len(self.fitted_inside)} impacts fitted lie outside what the "
                "distilled model was trained on."
            )
        return text


def compute_trust_map(calibration: Calibration, fitted: Impacts, seed: int) -> TrustMap:
    """Predict strikes drawn evenly from the scene's [strikes], with standard deviations.

    Args:
        calibration: The calibrated model.
        fitted: Impacts that it was fitted to.
        seed: Of the strikes.
    """
    base = calibration.base
    scene = base.scene
    theta = theta_in_ranges(calibration)
    strikes = sample_strikes(scene, _NUM_STRIKES, np.random.default_rng(seed))
    before = strikes.before[strikes.contact.touching]
    impacts = _impacts_without_outcome(calibration, before, fitted)
    started = time.perf_counter()
    contact, at_contact = advance_to_contact(scene, before)
    frame = frame_at_contact(scene, at_contact, contact)
    mean, std = calibration.predict_with_std(impacts, frame)
    rate = len(before) / (time.perf_counter() - started)
    weights = twist_weights(mean.shape[1], inertia(scene, scene.struck_body).gyration)
    size = np.maximum(np.linalg.norm(mean * weights, axis=1), _SLOWEST * frame.speed)
    fitted_contact, fitted_at_contact = advance_to_contact(scene, fitted.before)
    fitted_frame = frame_at_contact(scene, fitted_at_contact, fitted_contact)
    return TrustMap(
        axes=circumstances(scene, at_contact, contact),
        std=np.linalg.norm(std * weights, axis=1) / size,
        inside=base.in_training_region(frame, theta),
        fitted=circumstances(scene, fitted_at_contact, fitted_contact),
        fitted_inside=base.in_training_region(fitted_frame, theta),
        rate=rate,
    )


def _impacts_without_outcome(
    calibration: Calibration, before: np.ndarray, fitted: Impacts
) -> Impacts:
    """Impacts to predict; what is measured with each impact is at its median."""
    n = len(before)
    medians = calibration.scaling.centres[-1]
    known = {}
    for name, median in zip(calibration.scaling.extras, medians, strict=True):
        known[name] = np.full(n, float(median))
    return Impacts(fitted.planar, before, np.zeros((n, fitted.after.shape[1])), known=known)


def circumstances(scene: Scene, before: np.ndarray, contact: Contact) -> dict[str, np.ndarray]:
    """Where and how two bodies meet.

    Args:
        scene: The struck body and the striker.
        before: States of N pairs of bodies that touch, (N, d).
        contact: Their contacts.

    Returns:
        Numbers (N,) by a name with its unit: the position on the struck body, the angle of
        incidence and the approach speed.
    """
    planar = scene.plane is not None
    pair = Impacts(planar, before, np.zeros((len(before), 3 if planar else 6)))
    position = _planar_position(pair, contact) if planar else _spatial_position(pair, contact)
    struck = _point_velocity(pair.pose, pair.twist, contact.point)
    striker = _point_velocity(pair.striker_pose, pair.striker_twist, contact.point)
    approach = striker - struck
    normal_speed = (approach * contact.normal).sum(1)
    if planar:
        tangential_speed = (approach * _rotate_left(contact.normal)).sum(1)
    else:
        tangential = approach - normal_speed[:, None] * contact.normal
        tangential_speed = np.linalg.norm(tangential, axis=1)
    angle = np.arctan2(tangential_speed, normal_speed)
    return position | {
        "angle to the normal, degrees": np.degrees(angle),
        "approach speed, m/s": np.linalg.norm(approach, axis=1),
    }


def _planar_position(pair: Impacts, contact: Contact) -> dict[str, np.ndarray]:
    """Bearing of the contact point in the frame of the struck body."""
    arm = contact.point - pair.pose[:, :2]
    bearing = np.degrees(np.arctan2(arm[:, 1], arm[:, 0]) - pair.pose[:, 2])
    return {"bearing of the point struck, degrees": (bearing + 180) % 360 - 180}


def _spatial_position(pair: Impacts, contact: Contact) -> dict[str, np.ndarray]:
    """How far the contact normal passes by the origin of the struck body."""
    arm = contact.point - pair.pose[:, :3]
    distance = np.linalg.norm(np.cross(arm, contact.normal), axis=1)
    return {"distance of the normal from the origin, mm": 1e3 * distance}


def _point_velocity(pose: np.ndarray, twist: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Velocity of the body's point at `point` (N, 2) or (N, 3), world frame, m/s."""
    if pose.shape[1] == 3:
        return twist[:, :2] + twist[:, 2:] * _rotate_left(point - pose[:, :2])
    return twist[:, :3] + np.cross(twist[:, 3:], point - pose[:, :3])


def _rotate_left(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N, 2) rotated by 90 degrees."""
    return np.stack([-vectors[:, 1], vectors[:, 0]], 1)
