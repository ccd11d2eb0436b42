"""What the page shows of a run: strikes to replay, simulators, the strike table, and a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.rl.follow import RouteResult, follow, sample_start
from clashsim.rl.policy import Policy
from clashsim.rl.routes import Route
from clashsim.sim.mujoco.impacts import rest_height
from clashsim.view.impact_rollout import ImpactRollout
from clashsim.view.motion import BodyMotion
from clashsim.view.poses import planar_pose
from clashsim.view.strike_sources import StrikeSource, before_of_strike

_START_STREAM = 7  # added to the seed, as `loop.lab_routes` does: the same starts as there
SIMULATED_KINDS = ("MuJoCo", "hybrid")
KINDS = ("recorded", *SIMULATED_KINDS)
"""Kinds of motion on the page: recorded, MuJoCo, and MuJoCo with the learned collision."""


class PolicyStatus(StrEnum):
    """Whether a policy can follow routes."""

    AVAILABLE = "available"
    MISSING = "missing"


@dataclass(frozen=True, eq=False)
class PolicyLookup:
    """The policy of a session, or why there is none.

    Attributes:
        status: Whether there is a policy.
        policy: The policy, if there is one.
        reason: Why there is none, in one sentence.
    """

    status: PolicyStatus
    policy: Policy | None = None
    reason: str = ""

    @staticmethod
    def available(policy: Policy) -> PolicyLookup:
        """Return the lookup of a policy that was found."""
        return PolicyLookup(PolicyStatus.AVAILABLE, policy=policy)

    @staticmethod
    def missing(reason: str) -> PolicyLookup:
        """Return a lookup without a policy; `reason` is one sentence why."""
        return PolicyLookup(PolicyStatus.MISSING, reason=reason)


@dataclass(frozen=True, eq=False)
class ViewerSession:
    """All that the page shows of a run.

    Attributes:
        title: Name of the run.
        scene: Its scene.
        source: Strikes to replay.
        rollouts: Simulators by their names on the page: "hybrid", and MuJoCo with different
            parameter values.
        make_strike_table: Makes the strike table to plan with, or raises a `ClashError` where there
            is none.
        policy: The policy to follow routes with.
        routes: Routes by name.
        caution: What the calibration concluded against relying on the run; None where nothing was.
    """

    title: str
    scene: Scene
    source: StrikeSource
    rollouts: Mapping[str, ImpactRollout]
    make_strike_table: Callable[[], StrikeModel]
    policy: PolicyLookup
    routes: Mapping[str, Route] = field(default_factory=dict)
    caution: str | None = None

    @cached_property
    def strike_table(self) -> StrikeModel:
        """The strike table; making it takes seconds the first time."""
        return self.make_strike_table()

    @cached_property
    def height(self) -> float | None:
        """Height (m) of the struck body's origin on the ground; None where there is no ground."""
        heights = rest_height(self.scene, self.rollouts["hybrid"].theta[None])
        return None if heights is None else float(heights[0])

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the parameter values that MuJoCo can be run with."""
        return tuple(name for name in self.rollouts if name != "hybrid")

    @property
    def slides(self) -> bool:
        """Whether bodies slide on a ground to rest; if not, only twists after impact are shown."""
        return self.scene.plane is not None and self.scene.ground is not None

    def simulate(self, before: np.ndarray, kind: str, values: str) -> BodyMotion:
        """Return the motion of an impact.

        Args:
            before: Both bodies before the impact (d,), as in `Impacts.before`.
            kind: "MuJoCo" or "hybrid".
            values: Name of the parameter values of MuJoCo.
        """
        return self._rollout(kind, values)(before)

    def rests(self, motions: Mapping[str, BodyMotion]) -> dict[str, np.ndarray]:
        """Return the planar pose (3,) of the struck body at the end of each motion, by kind."""
        body = self.scene.struck_body.body
        poses = {}
        for kind, motion in motions.items():
            if body in motion.poses:
                poses[kind] = planar_pose(self.scene, motion.poses[body][-1])
        return poses

    def twists(self, before: np.ndarray, values: str) -> dict[str, np.ndarray]:
        """Return the twist (k,) of the struck body when it has parted from the striker, by kind.

        Args:
            before: Both bodies before the impact (d,), as in `Impacts.before`.
            values: Name of the parameter values of MuJoCo.
        """
        twists = {}
        for kind in SIMULATED_KINDS:
            twists[kind] = self._rollout(kind, values).after(before[None])[0]
        return twists

    def simulate_strikes(
        self,
        strikes: Sequence[Mapping[str, float]],
        *,
        start: np.ndarray,
        kind: str,
        values: str,
    ) -> BodyMotion:
        """Return the motion of several strikes; each finds the body where the last one left it.

        Args:
            strikes: Strikes; each has its numbers by name, in SI units.
            start: First planar pose (3,) of the body: x, y (m), yaw (rad).
            kind: "MuJoCo" or "hybrid".
            values: Name of the parameter values of MuJoCo.
        """
        body = SimulatedBody(self.scene, self._rollout(kind, values), start)
        for strike in strikes:
            body.strike(strike)
        return body.motion

    def follow_route(
        self,
        route: Route,
        *,
        kind: str,
        values: str,
        seed: int = 0,
        on_strike: Callable[[int], None] = lambda strikes_made: None,
    ) -> tuple[RouteResult, BodyMotion]:
        """Let the policy follow a route.

        Args:
            route: The route.
            kind: "MuJoCo" or "hybrid".
            values: Name of the parameter values of MuJoCo.
            seed: Seed of the start.
            on_strike: Called before each strike with the number of strikes made so far.

        Returns:
            The result of the trial, and all strikes as one motion.
        """
        policy = self.policy.policy
        if policy is None:
            raise DataError(self.policy.reason)
        rng = np.random.default_rng([seed, _START_STREAM])
        start = sample_start(route, policy.heading_offset, rng)
        body = SimulatedBody(self.scene, self._rollout(kind, values), start, on_strike=on_strike)
        result = follow(route, policy, body)
        return result, body.motion

    def _rollout(self, kind: str, values: str) -> ImpactRollout:
        """Return the simulator of a kind; `values` chooses the parameter values of MuJoCo."""
        return self.rollouts["hybrid" if kind == "hybrid" else values]


class SimulatedBody:
    """A body that is struck in a simulator, and whose motion is kept.

    Args:
        scene: The scene.
        simulate: Returns the motion of an impact, given both bodies before it (12,).
        start: First planar pose (3,): x, y (m), yaw (rad).
        on_strike: Called before each strike with the number of strikes made so far.
    """

    def __init__(
        self,
        scene: Scene,
        simulate: Callable[[np.ndarray], BodyMotion],
        start: np.ndarray,
        *,
        on_strike: Callable[[int], None] = lambda strikes_made: None,
    ) -> None:
        self._scene = scene
        self._simulate = simulate
        self._pose = np.asarray(start, float)
        self._on_strike = on_strike
        self._motions: list[BodyMotion] = []

    @property
    def motion(self) -> BodyMotion:
        """All strikes so far as one motion."""
        joined = self._motions[0]
        for motion in self._motions[1:]:
            joined = joined.then(motion)
        return joined

    def look(self) -> np.ndarray:
        """Return the planar pose (3,) of the body: x, y (m), yaw (rad)."""
        return self._pose.copy()

    def strike(self, strike: Mapping[str, float]) -> None:
        """Strike the body; `strike` has the numbers of the strike by name, in SI units."""
        self._on_strike(len(self._motions))
        motion = self._simulate(before_of_strike(self._scene, strike, self._pose))
        self._motions.append(motion)
        last_pose = motion.poses[self._scene.struck_body.body][-1]
        self._pose = planar_pose(self._scene, last_pose)
