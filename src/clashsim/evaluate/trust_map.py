"""Where a calibration is trusted: its spread over all strikes that its scene allows, beside the
impacts it was fitted to.
"""

from __future__ import annotations

import time

import numpy as np

from clashsim.core.contact_frame import frame_at_contact, inertia
from clashsim.core.contact_geometry import Contact, advance_to_contact
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import weights
from clashsim.fit.calibrate import Calibration
from clashsim.fit.calibrated_run import theta_in_ranges
from clashsim.fit.sample import sample_strikes
from clashsim.report.trust_maps import TrustMap

_STRIKES = 2048
# Of the approach speed: the spread of what hardly moves after impact is told relative to this
_SLOWEST = 0.02


def compute_trust_map(calibration: Calibration, fitted: Impacts, seed: int) -> TrustMap:
    """Strikes drawn evenly from the scene's [strikes], how sure the calibration is of each, and where
    the fitted impacts lie among them.
    """
    base, scene = calibration.base, calibration.base.scene
    strikes = sample_strikes(scene, _STRIKES, np.random.default_rng(seed))
    before = strikes.before[strikes.contact.touching]
    known = dict(
        zip(calibration.scale.extras, map(float, calibration.scale.centres[-1]), strict=True)
    )  # measured with each impact: at the median
    impacts = Impacts(
        fitted.planar,
        before,
        np.zeros((len(before), fitted.after.shape[1])),
        known={k: np.full(len(before), v) for k, v in known.items()},
    )
    started = time.perf_counter()
    contact, moved = advance_to_contact(scene, before)
    frame = frame_at_contact(scene, moved, contact)
    centre, spread = calibration.predict_with_std(impacts, frame)
    rate = len(before) / (time.perf_counter() - started)
    unit = weights(centre.shape[1], inertia(scene, scene.struck_body).gyration)
    size = np.maximum(np.linalg.norm(centre * unit, axis=1), _SLOWEST * frame.speed)
    theirs, met = advance_to_contact(scene, fitted.before)
    return TrustMap(
        circumstances(scene, moved, contact),
        np.linalg.norm(spread * unit, axis=1) / size,
        base.in_training_region(frame, theta_in_ranges(calibration)),
        circumstances(scene, met, theirs),
        base.in_training_region(frame_at_contact(scene, met, theirs), theta_in_ranges(calibration)),
        rate,
    )


def circumstances(scene: Scene, before: np.ndarray, contact: Contact) -> dict[str, np.ndarray]:
    """Where and how bodies that touch (N, d) meet, as numbers (N,) by a name with its unit: the
    place on the struck body, the angle of incidence, the speed.
    """
    n, normal = len(before), contact.normal
    motion = MotionBefore.of(before)
    arm = contact.point - motion.struck.position
    if scene.plane is not None:
        bearing = np.degrees(np.arctan2(arm[:, 1], arm[:, 0]) - motion.struck.yaw)
        place = {"bearing of the point struck, degrees": _whole(bearing)}
    else:
        place = {
            "distance of the normal from the origin, mm": 1e3
            * np.linalg.norm(np.cross(arm, normal), axis=1)
        }
    striker_velocity = motion.striker.velocity_at(contact.point)
    # Of the striker as the struck body sees it.
    approach = striker_velocity - motion.struck.velocity_at(contact.point)
    into = (approach * normal).sum(1)
    along = (
        (approach * _left(normal)).sum(1)
        if scene.plane is not None
        else np.linalg.norm(approach - into[:, None] * normal, axis=1)
    )
    return place | {
        "angle to the normal, degrees": np.degrees(np.arctan2(along, into)),
        "approach speed, m/s": np.linalg.norm(approach, axis=1).reshape(n),
    }


def _left(vectors: np.ndarray) -> np.ndarray:
    return np.stack([-vectors[:, 1], vectors[:, 0]], 1)


def _whole(degrees: np.ndarray) -> np.ndarray:
    """Angles on -180 to 180."""
    return (degrees + 180) % 360 - 180
