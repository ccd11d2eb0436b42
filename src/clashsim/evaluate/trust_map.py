"""Where a calibration can be trusted.

A trust map holds the standard deviation that the calibration states for strikes all over what its
scene allows, and the impacts that the calibration was fitted to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_frame import frame_at_contact, inertia
from clashsim.core.contact_geometry import Contact, bring_into_contact
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import twist_weights
from clashsim.fit.calibrate import Calibration
from clashsim.fit.calibrated_run import theta_in_ranges
from clashsim.fit.sample import sample_strikes

_NUM_STRIKES = 512
# Share of the approach speed. The standard deviation is divided by the speed after impact, or by
# this share of the approach speed where the body is slower, so that it is never divided by zero.
_SLOWEST = 0.02
_SURE_STD = 0.1  # relative standard deviation below which `sentence` calls a prediction sure


@dataclass(frozen=True, eq=False)
class TrustMap:
    """How sure a calibration is of N strikes that are spread evenly over what its scene allows.

    Attributes:
        axes: Where and how the bodies collide, (N,), by a name with its unit; the position on the
            struck body comes first.
        std: Stated standard deviation divided by the size of the twist after impact, (N,).
        inside: Whether the strike lies in the training region of the distilled model, (N,).
        fitted: The same as `axes` for the M impacts that were fitted, (M,).
        fitted_inside: The same as `inside` for the impacts that were fitted, (M,).
        rate: Impacts predicted per second, contact frames included.
    """

    axes: Mapping[str, np.ndarray]
    std: np.ndarray
    inside: np.ndarray
    fitted: Mapping[str, np.ndarray]
    fitted_inside: np.ndarray
    rate: float = float("nan")

    def sentence(self) -> str:
        """How sure the model is of the strikes, and how many fitted impacts it extrapolates to."""
        low, median, high = (100 * float(q) for q in np.quantile(self.std, (0.05, 0.5, 0.95)))
        sure = 100 * float(np.mean(self.std < _SURE_STD))
        text = (
            f"Of {len(self.std)} strikes drawn evenly from what the scene allows, {sure:.0f} % "
            f"have a stated standard deviation below {100 * _SURE_STD:.0f} % of the motion after "
            "impact; "
            f"the median is {median:.1f} %, nine tenths lie between {low:.1f} and {high:.1f} %."
        )
        outside = int((~self.fitted_inside).sum())
        if outside:
            text += (
                f" {outside} of the {len(self.fitted_inside)} impacts fitted lie outside what the "
                "distilled model was trained on."
            )
        return text


def compute_trust_map(calibration: Calibration, fitted: Impacts, seed: int) -> TrustMap | None:
    """Predict strikes drawn evenly from the scene's [strikes], with standard deviations.

    Args:
        calibration: The calibrated model.
        fitted: Impacts that it was fitted to.
        seed: Seed of the strikes.

    Returns:
        The map; drawn strikes in which the bodies do not touch are left out. None if they touch in
        none.
    """
    base = calibration.base
    scene = base.scene
    theta = theta_in_ranges(calibration)
    strikes = sample_strikes(scene, _NUM_STRIKES, np.random.default_rng(seed))
    before = strikes.before[strikes.contact.touching]
    if len(before) == 0:
        return None
    impacts = _impacts_without_outcome(calibration, before, fitted)
    started = time.perf_counter()
    contact, at_contact = bring_into_contact(scene, before)
    frame = frame_at_contact(scene, at_contact, contact)
    mean, std = calibration.predict_with_std(impacts, frame)
    rate = len(before) / (time.perf_counter() - started)
    weights = twist_weights(mean.shape[1], inertia(scene, scene.struck_body).gyration)
    size = np.maximum(np.linalg.norm(mean * weights, axis=1), _SLOWEST * frame.speed)
    fitted_contact, fitted_at_contact = bring_into_contact(scene, fitted.before)
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
    """Impacts to predict; parameters that are measured with each impact are at their medians."""
    n = len(before)
    known = {}
    for name, median in calibration.scaling.median_extras().items():
        known[name] = np.full(n, median)
    unknown_after = np.zeros((n, fitted.after.shape[1]))
    return Impacts(fitted.planar, before, unknown_after, known=known)


def circumstances(scene: Scene, before: np.ndarray, contact: Contact) -> dict[str, np.ndarray]:
    """Where and how two bodies collide.

    Args:
        scene: The struck body and the striker.
        before: States of N pairs of bodies at first contact, (N, d).
        contact: Contacts of these pairs.

    Returns:
        Numbers (N,) by a name with its unit: the position on the struck body, the angle of
        incidence and the approach speed.
    """
    planar = scene.plane is not None
    unknown_after = np.zeros((len(before), 3 if planar else 6))
    pair = Impacts(planar, before, unknown_after)
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
    """Bearing of the contact point in the frame of the struck body, from -180 to 180 degrees."""
    arm = contact.point - pair.pose[:, :2]
    bearing = np.degrees(np.arctan2(arm[:, 1], arm[:, 0]) - pair.pose[:, 2])
    return {"bearing of the point struck, degrees": (bearing + 180) % 360 - 180}


def _spatial_position(pair: Impacts, contact: Contact) -> dict[str, np.ndarray]:
    """How far the contact normal passes by the origin of the struck body."""
    arm = contact.point - pair.pose[:, :3]
    distance = np.linalg.norm(np.cross(arm, contact.normal), axis=1)
    return {"distance of the normal from the origin, mm": 1e3 * distance}


def _point_velocity(pose: np.ndarray, twist: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Velocity (m/s) of the body's material point at `point` (N, 2) or (N, 3), world frame."""
    is_planar = pose.shape[1] == 3
    if is_planar:
        return twist[:, :2] + twist[:, 2:] * _rotate_left(point - pose[:, :2])
    return twist[:, :3] + np.cross(twist[:, 3:], point - pose[:, :3])


def _rotate_left(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N, 2) rotated by 90 degrees counter-clockwise."""
    return np.stack([-vectors[:, 1], vectors[:, 0]], 1)
