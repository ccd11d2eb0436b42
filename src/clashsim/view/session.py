"""A run as the page uses it: strikes to replay, simulators to strike in, the map of strikes to plan with, a policy to follow a route."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.rl.follow import Followed, follow, start_of
from clashsim.rl.policy import Policy
from clashsim.rl.routes import Route
from clashsim.view.motion import Motion, flat
from clashsim.view.roll import Roller
from clashsim.view.strikes import Source, Strike, aimed

KINDS = ("recorded", "MuJoCo", "hybrid")


@dataclass(frozen=True, eq=False)
class Session:
    """rollers: simulators by what they are called on the page, the hybrid one as "hybrid", the others are MuJoCo with different values.

    make_map: makes the map of strikes, or says why there is none. policy: one, or a sentence on why there is none. notes: sentences for the page.
    """

    title: str
    scene: Scene
    source: Source
    rollers: Mapping[str, Roller]
    make_map: Callable[[], StrikeModel]
    policy: Policy | str
    routes: Mapping[str, Route] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def map(self) -> StrikeModel:
        """The map of strikes; it takes seconds the first time."""
        return self.make_map()

    @property
    def values(self) -> tuple[str, ...]:
        """What MuJoCo can be run with."""
        return tuple(name for name in self.rollers if name != "hybrid")

    def rolled(self, before: np.ndarray, kind: str, values: str) -> Motion:
        """An impact `before` (d,) as motion, by kind: MuJoCo with `values`, or hybrid."""
        return self.rollers["hybrid" if kind == "hybrid" else values](before)

    def rest(self, motion: Motion) -> np.ndarray | None:
        """Planar pose (3,) of the struck body at the end of a motion; None in space, or where it was not seen."""
        pose = motion.poses.get(self.scene.struck_body.body)
        return None if pose is None or self.scene.plane is None else flat(self.scene, pose[-1])

    def twist(self, motion: Motion) -> np.ndarray:
        """Planar twist (3,) of the struck body over the first 20 ms after it has left the touch behind."""
        assert self.scene.plane is not None
        a, b = 0.015, 0.035  # s: the touch itself lasts some milliseconds
        first, last = (flat(self.scene, motion.at(t)[self.scene.struck_body.body]) for t in (a, b))
        move = last - first
        move[2] = (move[2] + np.pi) % (2 * np.pi) - np.pi
        return move / (b - a)

    def strike(self, i: int) -> Strike:
        """A strike to replay."""
        return self.source[i]

    def struck(self, strikes: Sequence[Mapping[str, float]], start: np.ndarray, kind: str, values: str) -> Motion:
        """Strikes by their numbers, each where the last one left the body, as one motion; start (3,): where it lies first."""
        world = Rolled(self.scene, lambda before: self.rolled(before, kind, values), start)
        for strike in strikes:
            world.strike(strike)
        return world.motion

    def followed(self, route: Route, kind: str, values: str, *, seed: int = 0, told: Callable[[int], None] = lambda made: None) -> tuple[Followed, Motion]:
        """The policy on a route: what became of it, and all strikes as one motion; `told` hears before each strike how many were made."""
        if isinstance(self.policy, str):
            raise DataError(self.policy)
        start = start_of(route, self.policy.ahead, np.random.default_rng([seed, 7]))
        world = Rolled(self.scene, lambda before: self.rolled(before, kind, values), start, told)
        return follow(route, self.policy, world), world.motion


class Rolled:
    """A world in which bodies are struck by a simulator, which keeps their motion."""

    def __init__(self, scene: Scene, roll: Callable[[np.ndarray], Motion], start: np.ndarray, told: Callable[[int], None] = lambda made: None) -> None:
        self._scene, self._roll, self._pose, self._told = scene, roll, np.asarray(start, float), told
        self._motions: list[Motion] = []

    @property
    def motion(self) -> Motion:
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
