"""The arm: a tip of finite mass on a stiff servo that follows a commanded path, with scatter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# A seven-axis arm of 18 kg, seen at its flange along the table; the servo of Cartesian velocity
# control answers in about 15 ms.
MASS = 2.5  # kg
STIFFNESS = 1.0e4  # N/m
DAMPING = 250.0  # N s/m
LEAD = 0.10  # s of the approach that is recorded before the planned touch
BRAKING = 10.0  # m/s^2, within the 13 m/s^2 that the arm allows
# Metres past the planned touch at which braking starts, so that a small error of the pose still
# gives a full hit.
OVERTRAVEL = 0.002
RETREAT = 0.25  # m/s, away from the block
RETREAT_DISTANCE = 0.12  # m
SPEED_SCATTER = 0.01  # standard deviation from strike to strike, relative
ANGLE_SCATTER = 0.005  # rad, standard deviation of the direction of travel
TIP_SCATTER = 1.5e-4  # m, standard deviation of the tip on either axis


@dataclass(frozen=True, eq=False)
class CommandedPath:
    """A commanded path of the tip over the table, world axes.

    Attributes:
        times: (K,), s, of its corners: start, braking, reversed, stopping, end.
        velocities: (K, 2), m/s, at the corners; linear in between.
        start: (2,), m, where it begins.
    """

    times: np.ndarray
    velocities: np.ndarray
    start: np.ndarray


def tip_path(touch: np.ndarray, velocity: np.ndarray, rng: np.random.Generator) -> CommandedPath:
    """Make the path of a strike as the arm follows it, with its scatter.

    Args:
        touch: (2,), m, commanded position of the tip at the touch, world axes.
        velocity: (2,), m/s, commanded velocity there.
        rng: Source of the scatter.

    Returns:
        The path: approach, braking, retreat.
    """
    speed = float(np.linalg.norm(velocity)) * (1 + SPEED_SCATTER * rng.normal())
    angle = np.arctan2(velocity[1], velocity[0]) + ANGLE_SCATTER * rng.normal()
    direction = np.array([np.cos(angle), np.sin(angle)])
    start = touch + TIP_SCATTER * rng.normal(size=2) - LEAD * speed * direction
    braking = LEAD + OVERTRAVEL / speed
    reversed_at = braking + (speed + RETREAT) / BRAKING
    stopping = reversed_at + RETREAT_DISTANCE / RETREAT
    times = np.array([0.0, braking, reversed_at, stopping, stopping + RETREAT / BRAKING])
    speeds = [speed, speed, -RETREAT, -RETREAT, 0.0]
    return CommandedPath(times, np.outer(speeds, direction), start)
