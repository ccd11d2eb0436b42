"""A run as the page uses it: strikes to replay, simulators to strike in, the map of strikes to plan
with, a policy to follow a route.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from clashsim.view.motion import BodyMotion, flat
from clashsim.view.strike_sources import StrikeSource, aimed

KINDS = ("recorded", "MuJoCo", "hybrid")


@dataclass(frozen=True, eq=False)
class ViewerSession:
    """rollers: simulators by what they are called on the page, the hybrid one as "hybrid", the
    others are MuJoCo with different values.

    make_map: makes the map of strikes, or says why there is none. policy: one, or a sentence on why
    there is none.
    """

    title: str
    scene: Scene
    source: StrikeSource
    rollers: Mapping[str, ImpactRollout]
    make_map: Callable[[], StrikeModel]
    policy: Policy | str
    routes: Mapping[str, Route] = field(default_factory=dict)

    @cached_property
    def map(self) -> StrikeModel:
        """The map of strikes; it takes seconds the first time."""
        return self.make_map()

    @cached_property
    def height(self) -> float | None:
        """Height (m) of the struck body's origin when it lies on the ground; None where it lies on
        none.
        """
        found = rest_height(self.scene, self.rollers["hybrid"].theta[None])
        return None if found is None else float(found[0])

    @property
    def values(self) -> tuple[str, ...]:
        """What MuJoCo can be run with."""
        return tuple(name for name in self.rollers if name != "hybrid")

    def rolled(self, before: np.ndarray, kind: str, values: str) -> BodyMotion:
        """An impact `before` (d,) as motion, by kind: MuJoCo with `values`, or hybrid."""
        return self.rollers["hybrid" if kind == "hybrid" else values](before)

    @property
    def slides(self) -> bool:
        """Whether bodies slide on a ground until they come to rest; else what counts is how they
        move after the impact.
        """
        return self.scene.plane is not None and self.scene.ground is not None

    def rests(self, motions: Mapping[str, BodyMotion]) -> dict[str, np.ndarray]:
        """Planar poses (3,) of the struck body at the end of motions, by kind."""
        body = self.scene.struck_body.body
        return {
            kind: flat(self.scene, motion.poses[body][-1])
            for kind, motion in motions.items()
            if body in motion.poses
        }

    def twists(self, before: np.ndarray, values: str) -> dict[str, np.ndarray]:
        """Twists (k,) of the struck body when it has parted from the striker, by kind, for an
        impact `before` (d,).
        """
        return {
            kind: self.rollers["hybrid" if kind == "hybrid" else values].after(before[None])[0]
            for kind in KINDS[1:]
        }

    def struck(
        self, strikes: Sequence[Mapping[str, float]], start: np.ndarray, kind: str, values: str
    ) -> BodyMotion:
        """Strikes by their numbers, each where the last one left the body, as one motion; start
        (3,): where it lies first.
        """
        world = RolloutWorld(self.scene, lambda before: self.rolled(before, kind, values), start)
        for strike in strikes:
            world.strike(strike)
        return world.motion

    def followed(
        self,
        route: Route,
        kind: str,
        values: str,
        *,
        seed: int = 0,
        told: Callable[[int], None] = lambda made: None,
    ) -> tuple[RouteResult, BodyMotion]:
        """The policy on a route: what became of it, and all strikes as one motion; `told` hears
        before each strike how many were made.
        """
        if isinstance(self.policy, str):
            raise DataError(self.policy)
        start = sample_start(route, self.policy.heading_offset, np.random.default_rng([seed, 7]))
        world = RolloutWorld(
            self.scene, lambda before: self.rolled(before, kind, values), start, told
        )
        return follow(route, self.policy, world), world.motion


class RolloutWorld:
    """A world in which bodies are struck by a simulator, which keeps their motion."""

    def __init__(
        self,
        scene: Scene,
        roll: Callable[[np.ndarray], BodyMotion],
        start: np.ndarray,
        told: Callable[[int], None] = lambda made: None,
    ) -> None:
        self._scene, self._roll, self._pose, self._told = (
            scene,
            roll,
            np.asarray(start, float),
            told,
        )
        self._motions: list[BodyMotion] = []

    @property
    def motion(self) -> BodyMotion:
        """All strikes so far as one motion."""
        whole = self._motions[0]
        for more in self._motions[1:]:
            whole = whole.then(more)
        return whole

    def look(self) -> np.ndarray:
        """Pose (3,)."""
        return self._pose.copy()

    def strike(self, strike: Mapping[str, float]) -> None:
        """Strike by name."""
        self._told(len(self._motions))
        self._motions.append(self._roll(aimed(self._scene, dict(strike), self._pose)))
        self._pose = flat(self._scene, self._motions[-1].poses[self._scene.struck_body.body][-1])
