"""Follow a route with a policy, in any world that can be looked at and struck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clashsim.core.protocols import StrikeModel
from clashsim.rl.policy import Policy
from clashsim.rl.push import MAX_STRIKES, observed
from clashsim.rl.routes import GOAL_RADIUS, Route


class World(Protocol):
    """Where strikes are made: a laboratory, or a simulator."""

    def look(self) -> np.ndarray:
        """Measured pose (3,) of the body at rest."""

    def strike(self, strike: Mapping[str, float]) -> object:
        """Strike it, and wait until it rests; what is returned does not matter here."""


@dataclass(frozen=True, eq=False)
class RouteResult:
    """One trial: sub-goals reached, poses (M + 1, 3) and the strikes (M, d) between them, and why
    it ended.
    """

    reached: int
    success: bool
    poses: np.ndarray
    strikes: np.ndarray
    reason: str


def follow(route: Route, policy: Policy, world: World) -> RouteResult:
    """Strike a body through all segments of a route, at most `MAX_STRIKES` in each; a strike that
    leaves the corridors ends the trial.
    """
    poses, strikes = [world.look()], []
    for segment in range(len(route)):
        goal, heading = np.array(route.points[segment + 1]), route.headings[segment]
        for made in range(MAX_STRIKES):
            seen = _from_segment(poses[-1], np.array(route.points[segment]), heading)
            strike = policy(
                observed(
                    seen[None],
                    policy.heading_offset,
                    np.array([route.turn(segment)]),
                    route.lengths[segment : segment + 1],
                    np.array([made]),
                )
            )[0]
            world.strike(dict(zip(policy.names, strike.tolist(), strict=True)))
            strikes.append(strike)
            poses.append(world.look())
            if np.linalg.norm(poses[-1][:2] - goal) < GOAL_RADIUS:
                break
            if not route.inside(poses[-1][:2]):
                return RouteResult(
                    segment, False, np.array(poses), np.array(strikes), "left the corridor"
                )
        else:
            return RouteResult(
                segment,
                False,
                np.array(poses),
                np.array(strikes),
                f"not there after {MAX_STRIKES} strikes",
            )
    return RouteResult(len(route), True, np.array(poses), np.array(strikes), "reached the end")


def sample_start(
    route: Route, ahead: float, rng: np.random.Generator, *, heading: float = 0.5
) -> np.ndarray:
    """Where a trial begins (3,): at the first point, headed along the first segment or, on routes
    with a random start, within `heading` (rad) of it.
    """
    return np.array(
        [
            *route.points[0],
            route.headings[0] - ahead + (rng.uniform(-heading, heading) if route.random else 0.0),
        ]
    )


def _from_segment(pose: np.ndarray, start: np.ndarray, heading: float) -> np.ndarray:
    c, s = np.cos(heading), np.sin(heading)
    x, y = pose[:2] - start
    return np.array([c * x + s * y, c * y - s * x, pose[2] - heading])


class Simulated:
    """A `World` by a `StrikeModel`."""

    def __init__(
        self, model: StrikeModel, start: np.ndarray, rng: np.random.Generator | None = None
    ) -> None:
        """rng: where given and the model knows what it is unsure of, outcomes scatter by that."""
        self._model, self._pose, self._rng = model, np.asarray(start, float), rng

    def look(self) -> np.ndarray:
        """Pose (3,)."""
        return self._pose.copy()

    def strike(self, strike: Mapping[str, float]) -> None:
        """Strike by name."""
        noise = (
            None
            if self._rng is None or not self._model.takes_noise
            else self._rng.normal(size=(1, 3))
        )
        self._pose = self._model.rest(
            self._pose[None], np.array([[strike[n] for n in self._model.names]]), noise
        )[0]
