"""The arm: a tip of finite mass on a stiff servo that follows a commanded path, with scatter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# A seven-axis arm of 18 kg: effective mass at its flange for motion along the table. The servo of
# its Cartesian velocity control responds in about 15 ms.
MASS = 2.5  # kg
STIFFNESS = 1.0e4  # N/m
DAMPING = 250.0  # N s/m
LEAD = 0.10  # s, duration of the approach until the planned contact
BRAKING = 10.0  # m/s^2, within the 13 m/s^2 that the arm allows
# m past the planned contact at which braking starts, so that the tip has full speed at contact also
# where the measured pose of the block is slightly wrong.
OVERTRAVEL = 0.002
RETREAT = 0.25  # m/s, speed of the motion away from the block
RETREAT_DISTANCE = 0.12  # m
# Standard deviations from strike to strike.
SPEED_SCATTER = 0.01  # of the speed, relative
ANGLE_SCATTER = 0.005  # rad, of the direction of travel
TIP_SCATTER = 1.5e-4  # m, of the tip's position along each axis


@dataclass(frozen=True, eq=False)
class CommandedPath:
    """A commanded path of the tip over the table, in world axes.

    Attributes:
        times: (5,), s: start of the approach, start of braking, full retreat speed reached, start
            of stopping, end.
        velocities: (5, 2), m/s, of the tip at these times; linear in between.
        start: (2,), m, position of the tip at the start.
    """

    times: np.ndarray
    velocities: np.ndarray
    start: np.ndarray


def tip_path(touch: np.ndarray, velocity: np.ndarray, rng: np.random.Generator) -> CommandedPath:
    """Make the path of a strike as the arm follows it, with its scatter.

    Args:
        touch: (2,), m, commanded position of the tip's centre at contact, world axes.
        velocity: (2,), m/s, commanded velocity of the tip at contact, world axes.
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
