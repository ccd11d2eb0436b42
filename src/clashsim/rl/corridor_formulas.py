"""Formulas of sequential pushing (CLASH, Sec. IV-C, Table V), for numpy and torch alike.

Poses are in the frame of the segment: its start is the origin, its direction the x axis. A body's
heading is the direction in which it moves when it is struck in the middle of the side that may be
struck; the heading is its yaw plus `heading_offset`.

Each function takes `xp`, the library of its arrays: numpy, or torch on a device. Neither scenes nor
MuJoCo are loaded, so that the formulas also work where MuJoCo is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from clashsim.rl.routes import CORRIDOR_WIDTH, GOAL_RADIUS, SEGMENT_LENGTH

MAX_STRIKES = 5  # T of the paper: strikes allowed in a segment
LEFT_CORRIDOR_REWARD = -10.0  # r_0 of the paper
OBSERVATION_SIZE = 7
START_SAMPLES = 7  # uniform numbers in [0, 1) from which a start is computed
LOOKAHEAD_TRIES = 48  # random strikes that a lookahead chooses from
# Metres before the start and beyond the end that still belong to a segment: a body begins a segment
# where it reached the previous sub-goal, up to this far from it.
_END_MARGIN = GOAL_RADIUS
_STRAIGHT_SHARE = 0.25  # of the episodes whose route does not turn at the sub-goal
# Weights of `lookahead_value`.
_TOWARDS_GOAL_WEIGHT = 0.3
_AT_GOAL_VALUE = 2.0  # so that values at the sub-goal (1 to 3) exceed all others
_LEFT_CORRIDOR_VALUE = -10.0


@dataclass(frozen=True)
class StartDistribution:
    """Where episodes start in training, and how much outcomes of strikes vary.

    Attributes:
        position_radius: Starts are within this distance (m) of the beginning of the segment.
        max_heading: Headings are within this angle (rad) of the segment's.
        max_heading_change: At the sub-goal the route turns by at most this angle (rad).
        anywhere_share: Share of the starts that are anywhere along the corridor, so that sub-goals
            are reached early in training.
        noise: Twists after a collision vary by this many of the model's own standard deviations.
    """

    position_radius: float = 0.035
    max_heading: float = 0.8
    max_heading_change: float = 1.7
    anywhere_share: float = 0.0
    noise: float = 0.0


class StrikeOutcome(NamedTuple):
    """The result of a strike in each of N environments; arrays or tensors (N,)."""

    reward: Any
    ended: Any  # whether the episode is over
    reached: Any  # whether the body is at its goal


def strikes_from_actions(low: Any, high: Any, action: Any, *, xp: Any = np) -> Any:
    """Return strikes (N, d) for actions (N, d): -1 stands for `low` (d,) and 1 for `high` (d,)."""
    return low + (high - low) * (xp.clip(action, -1, 1) + 1) / 2


def start_poses(
    uniform: Any, starts: StartDistribution, heading_offset: float, *, xp: Any = np
) -> tuple[Any, Any]:
    """Return where episodes start.

    Args:
        uniform: Uniform random numbers (7, N) in [0, 1).
        starts: The distribution of the starts.
        heading_offset: Angle from a body's yaw to its heading (rad).
        xp: The library of the arrays.

    Returns:
        Poses (N, 3), and heading changes (N,) of the route at the sub-goal (rad).
    """
    direction, distance, heading, along, anywhere, change, straight = uniform
    direction = 2 * np.pi * direction
    distance = starts.position_radius * xp.sqrt(distance)  # uniform over the disc
    along = (SEGMENT_LENGTH - GOAL_RADIUS) * along * (anywhere < starts.anywhere_share)
    heading = -starts.max_heading + 2 * starts.max_heading * heading
    pose = xp.stack(
        [
            along + distance * xp.cos(direction),
            distance * xp.sin(direction),
            heading - heading_offset,
        ],
        1,
    )
    change = -starts.max_heading_change + 2 * starts.max_heading_change * change
    return pose, change * (straight > _STRAIGHT_SHARE)


def lookahead_value(pose: Any, heading_offset: float, heading_change: Any, *, xp: Any = np) -> Any:
    """Return a heuristic value of poses, by which a lookahead compares random strikes.

    It is high near the sub-goal, headed for it and inside the corridor.

    Args:
        pose: Poses (N, 3) in the frame of the segment.
        heading_offset: Angle from a body's yaw to its heading (rad).
        heading_change: By how much the route turns at the sub-goal, (N,) in rad.
        xp: The library of the arrays.

    Returns:
        Values (N,), higher is better.
    """
    distance, reached, left_corridor = _locate(pose, xp)
    heading = pose[:, 2] + heading_offset
    bearing_of_goal = xp.arctan2(-pose[:, 1], SEGMENT_LENGTH - pose[:, 0])
    towards_goal = xp.cos(heading - bearing_of_goal)
    off_centre = xp.abs(pose[:, 1]) / (CORRIDOR_WIDTH / 2)  # 1 at the edge of the corridor
    value_on_the_way = _TOWARDS_GOAL_WEIGHT * towards_goal - distance / SEGMENT_LENGTH - off_centre
    value_at_goal = _AT_GOAL_VALUE + xp.cos(heading - heading_change)
    value = xp.where(reached, value_at_goal, value_on_the_way)
    return value + _LEFT_CORRIDOR_VALUE * left_corridor


def judge_poses(
    pose: Any, heading_offset: float, heading_change: Any, *, strikes_made: Any, xp: Any = np
) -> StrikeOutcome:
    """Return rewards and ends of episodes for bodies that came to rest.

    Args:
        pose: Poses (N, 3) at rest, in the frame of the segment.
        heading_offset: Angle from a body's yaw to its heading (rad).
        heading_change: By how much the route turns at the sub-goal, (N,) in rad.
        strikes_made: Strikes so far (N,), this one included.
        xp: The library of the arrays.
    """
    distance, reached, left_corridor = _locate(pose, xp)
    reward = rewards(
        distance=distance,
        angle=pose[:, 2] + heading_offset - heading_change,
        strikes_made=strikes_made,
        reached=reached,
        left_corridor=left_corridor,
        xp=xp,
    )
    ended = reached | left_corridor | (strikes_made >= MAX_STRIKES)
    return StrikeOutcome(reward, ended, reached)


def rewards(
    *,
    distance: Any,
    angle: Any,
    strikes_made: Any,
    reached: Any,
    left_corridor: Any,
    xp: Any = np,
) -> Any:
    """Return the reward of the paper, R1 + R2 + R3 + R4 of Table V.

    Args:
        distance: Distance to the sub-goal, (N,) in m.
        angle: Angle between the body's heading and the next segment's, (N,) in rad.
        strikes_made: Strikes so far, (N,).
        reached: Whether the body is at the sub-goal, (N,).
        left_corridor: Whether it has left the corridor, (N,).
        xp: The library of the arrays.

    Returns:
        Rewards (N,).
    """
    near_goal = xp.exp(-(distance**2))
    at_goal = (1 + xp.cos(angle)) / 2 + MAX_STRIKES - strikes_made
    return near_goal + reached * at_goal + left_corridor * LEFT_CORRIDOR_REWARD


def observations(
    pose: Any,
    heading_offset: float,
    heading_change: Any,
    *,
    length: Any,
    strikes_made: Any,
    xp: Any = np,
) -> Any:
    """Return what a policy sees.

    Args:
        pose: Poses (N, 3) in the frame of the segment.
        heading_offset: Angle from a body's yaw to its heading (rad).
        heading_change: By how much the route turns at the sub-goal, (N,) in rad.
        length: Length of the segment, (N,) in m.
        strikes_made: Strikes so far, (N,).
        xp: The library of the arrays.

    Returns:
        Observations (N, 7): position in the corridor (2), position of the sub-goal in the frame of
        the body with x along its heading (2), cosine and sine of the angle from its heading to the
        next segment, and the strikes made as a share of those allowed. Lengths are relative to
        `SEGMENT_LENGTH`. The share is not in the paper, although the paper's reward depends on it.
    """
    heading = pose[:, 2] + heading_offset
    cos, sin = xp.cos(heading), xp.sin(heading)
    goal_x, goal_y = length - pose[:, 0], -pose[:, 1]
    angle = heading_change - heading
    # Policies are trained in corridors of `SEGMENT_LENGTH`: in another one, x is counted from its
    # end, so that the sub-goal is at the same x.
    x_in_corridor = pose[:, 0] + SEGMENT_LENGTH - length
    return xp.stack(
        [
            x_in_corridor / SEGMENT_LENGTH,
            pose[:, 1] / SEGMENT_LENGTH,
            (cos * goal_x + sin * goal_y) / SEGMENT_LENGTH,
            (cos * goal_y - sin * goal_x) / SEGMENT_LENGTH,
            xp.cos(angle),
            xp.sin(angle),
            strikes_made / MAX_STRIKES,
        ],
        1,
    )


def _locate(pose: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return the distance to the sub-goal (m), whether it is reached, and whether the body left.

    All are (N,), for poses (N, 3) in the frame of the segment.
    """
    x, y = pose[:, 0], pose[:, 1]
    distance = xp.hypot(x - SEGMENT_LENGTH, y)
    reached = distance < GOAL_RADIUS
    beside = xp.abs(y) > CORRIDOR_WIDTH / 2
    before_or_beyond = (x < -_END_MARGIN) | (x > SEGMENT_LENGTH + _END_MARGIN)
    left_corridor = ~reached & (beside | before_or_beyond)
    return distance, reached, left_corridor
