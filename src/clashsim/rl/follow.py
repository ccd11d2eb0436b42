"""Follow a route with a policy, in reality, a laboratory or a simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clashsim.core.protocols import StrikeModel
from clashsim.rl.corridor_formulas import MAX_STRIKES, observations
from clashsim.rl.policy import Policy
from clashsim.rl.routes import GOAL_RADIUS, Route


class StruckBody(Protocol):
    """A body that a policy strikes: in a laboratory, or in a simulator."""

    def look(self) -> np.ndarray:
        """Return the measured pose (3,) of the body at rest: x, y (m), yaw (rad) in the world."""

    def strike(self, strike: Mapping[str, float]) -> object:
        """Strike the body and wait until it rests; the return value is ignored.

        Args:
            strike: Numbers of the strike by name, in SI units.
        """


@dataclass(frozen=True, eq=False)
class RouteResult:
    """One trial on a route.

    Attributes:
        reached: Number of sub-goals reached.
        success: Whether all sub-goals were reached.
        poses: Poses (M + 1, 3) of the body in the world, before and after each strike.
        strikes: The strikes (M, d) between these poses.
        reason: Why the trial ended.
    """

    reached: int
    success: bool
    poses: np.ndarray
    strikes: np.ndarray
    reason: str


def follow(route: Route, policy: Policy, body: StruckBody) -> RouteResult:
    """Strike a body through all segments of a route, at most `MAX_STRIKES` times in each.

    Args:
        route: The corridors and their sub-goals.
        policy: Chooses the strikes.
        body: The body at the start of the route.

    Returns:
        The trial, which ends at the last sub-goal, after a strike that leaves the corridors, or
        when a sub-goal was not reached by the strikes allowed.
    """
    poses = [body.look()]
    strikes: list[np.ndarray] = []

    def result(reached: int, reason: str) -> RouteResult:
        """Return the trial so far."""
        return RouteResult(
            reached=reached,
            success=reached == len(route),
            poses=np.array(poses),
            strikes=np.array(strikes),
            reason=reason,
        )

    for segment in range(len(route)):
        goal = np.array(route.points[segment + 1])
        for strikes_made in range(MAX_STRIKES):
            strike = _choose_strike(
                route, policy, segment=segment, pose=poses[-1], strikes_made=strikes_made
            )
            body.strike(dict(zip(policy.names, strike.tolist(), strict=True)))
            strikes.append(strike)
            poses.append(body.look())
            position = poses[-1][:2]
            if np.linalg.norm(position - goal) < GOAL_RADIUS:
                break
            if not route.inside(position):
                return result(segment, "left the corridor")
        else:
            return result(segment, f"not there after {MAX_STRIKES} strikes")
    return result(len(route), "reached the end")


def sample_start(
    route: Route,
    heading_offset: float,
    rng: np.random.Generator,
    *,
    max_heading: float = 0.5,
) -> np.ndarray:
    """Return where a trial begins: at the first point, headed along the first segment.

    Args:
        route: The route; `route.random` decides whether the heading is random.
        heading_offset: Angle from the body's yaw to its heading (rad).
        rng: Draws the random heading.
        max_heading: Largest deviation (rad) of a random heading from the first segment's.

    Returns:
        A pose (3,) in the world: x, y (m), yaw (rad).
    """
    deviation = rng.uniform(-max_heading, max_heading) if route.random else 0.0
    yaw = route.headings[0] - heading_offset + deviation
    return np.array([*route.points[0], yaw])


def _choose_strike(
    route: Route, policy: Policy, *, segment: int, pose: np.ndarray, strikes_made: int
) -> np.ndarray:
    """Return the strike (d,) of a policy for a body at a pose (3,) in the world."""
    start = np.array(route.points[segment])
    pose_in_segment = _in_segment_frame(pose, start, route.headings[segment])
    observation = observations(
        pose_in_segment[None],
        policy.heading_offset,
        np.array([route.heading_change(segment)]),
        length=route.lengths[segment : segment + 1],
        strikes_made=np.array([strikes_made]),
    )
    return policy(observation.astype(np.float32))[0]


def _in_segment_frame(pose: np.ndarray, start: np.ndarray, heading: float) -> np.ndarray:
    """Return a world pose (3,) in the frame of the segment from `start` (2,) along `heading`."""
    cos, sin = np.cos(heading), np.sin(heading)
    x, y = pose[:2] - start
    return np.array([cos * x + sin * y, cos * y - sin * x, pose[2] - heading])


class Simulated:
    """A `StruckBody` that moves as a `StrikeModel` predicts it.

    Args:
        model: Predicts where a struck body comes to rest.
        start: First pose (3,) in the world: x, y (m), yaw (rad).
        rng: Draws the model's noise, if it has one; None: outcomes do not vary.
    """

    def __init__(
        self, model: StrikeModel, start: np.ndarray, rng: np.random.Generator | None = None
    ) -> None:
        self._model = model
        self._pose = np.asarray(start, float)
        self._rng = rng

    def look(self) -> np.ndarray:
        """Return the pose (3,) of the body in the world."""
        return self._pose.copy()

    def strike(self, strike: Mapping[str, float]) -> None:
        """Strike the body; `strike` has the numbers of the strike by name."""
        noise = None
        if self._rng is not None and self._model.takes_noise:
            noise = self._rng.normal(size=(1, 3))
        row = np.array([[strike[name] for name in self._model.names]])
        self._pose = self._model.rest(self._pose[None], row, noise)[0]
