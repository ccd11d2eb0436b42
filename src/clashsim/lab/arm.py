"""The arm: a tip of finite mass that a servo of finite stiffness keeps on a commanded path, with
limited repeatability.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# A seven-axis arm of 18 kg, seen at its flange along the table; the servo of Cartesian velocity
# control answers in about 15 ms.
MASS = 2.5  # kg
STIFFNESS = 1.0e4  # N/m
DAMPING = 250.0  # N s/m
LEAD = 0.10  # s of the approach that is recorded before the planned touch
BRAKING = 10.0  # m/s2, within the 13 m/s2 that the arm allows
# M past the planned touch at which braking starts, so that a small error of the pose still gives a
# full hit
OVERTRAVEL = 0.002
RETREAT = 0.25  # m/s, away from the block
SPEED_SCATTER = 0.01  # relative, from strike to strike
ANGLE_SCATTER = 0.005  # rad, of the direction of travel
TIP_SCATTER = 1.5e-4  # m, of the tip on either axis


@dataclass(frozen=True, eq=False)
class Path:
    """A commanded path: times (K,) s of its corners, velocities (K, 2) m/s there (linear between)
    and start (2,) m.
    """

    times: np.ndarray
    velocities: np.ndarray
    start: np.ndarray


def path(touch: np.ndarray, velocity: np.ndarray, rng: np.random.Generator) -> Path:
    """The path that the arm takes when told to be at `touch` (2,) with `velocity` (2,), world axes."""
    speed = float(np.linalg.norm(velocity)) * (1 + SPEED_SCATTER * rng.normal())
    angle = np.arctan2(velocity[1], velocity[0]) + ANGLE_SCATTER * rng.normal()
    way = np.array([np.cos(angle), np.sin(angle)])
    start = touch + TIP_SCATTER * rng.normal(size=2) - LEAD * speed * way
    brake = LEAD + OVERTRAVEL / speed
    turned = brake + (speed + RETREAT) / BRAKING
    away = turned + 0.12 / RETREAT
    times = np.array([0.0, brake, turned, away, away + RETREAT / BRAKING])
    return Path(times, np.outer([speed, speed, -RETREAT, -RETREAT, 0.0], way), start)
