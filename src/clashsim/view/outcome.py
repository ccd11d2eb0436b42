"""Where a body is expected to come to rest, by a map of strikes: after strikes that were planned
for a target, or after one made by hand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
from clashsim.plan.planner import plan, plan_fewest_strikes
from clashsim.plan.tasks import Plan, PlanningTask, pose_error

_DRAWS = 24  # outcomes that are shown as a cloud


@dataclass(frozen=True, eq=False)
class ExpectedOutcome:
    """K strikes of a body: before (K, 12) as in `Impacts`, expected rest (3,), poses (M, 3) it may
    end at, and one standard deviation of them (3,).
    """

    before: np.ndarray
    rest: np.ndarray
    cloud: np.ndarray
    std: np.ndarray


@dataclass(frozen=True, eq=False)
class PlannedOutcome:
    """A plan, what is expected of it, how far (m, rad) that is from the target, and how long (s) it
    took.
    """

    plan: Plan
    expected: ExpectedOutcome
    pose_error: tuple[float, float]
    seconds: float

    @property
    def strikes(self) -> list[dict[str, float]]:
        """The strikes by the names of their numbers."""
        return [dict(zip(self.plan.names, map(float, s), strict=True)) for s in self.plan.strikes]


def planned(
    scene: Scene,
    model: StrikeModel,
    target: np.ndarray,
    start: np.ndarray,
    *,
    strikes: int = 0,
    seed: int = 0,
) -> PlannedOutcome:
    """The strikes that bring a body from start (3,) to target (3,): so many, or as few as reach it
    where `strikes` is 0.
    """
    began = time.perf_counter()
    x, y, yaw = map(float, target)
    task = PlanningTask(
        (x, y, yaw), (float(start[0]), float(start[1]), float(start[2])), strikes=max(1, strikes)
    )
    found = plan(model, task, seed=seed) if strikes else plan_fewest_strikes(model, task, seed=seed)
    seconds = time.perf_counter() - began
    before, _ = before_from_strikes(scene, dict(zip(found.names, found.strikes.T, strict=True)))
    cloud = scattered(model, found.strikes, np.asarray(start, float))
    far, turn = pose_error(found.predicted[-1], np.asarray(target, float))
    return PlannedOutcome(
        found,
        ExpectedOutcome(move_pair_to(before, found.starts), found.predicted[-1], cloud, found.std),
        (float(far), float(abs(turn))),
        seconds,
    )


def expected(
    scene: Scene, model: StrikeModel, aims: Mapping[str, float], start: np.ndarray
) -> ExpectedOutcome:
    """What a strike by its numbers does to a body at start (3,)."""
    strike = np.array([[aims[name] for name in model.names]])
    before, _ = before_from_strikes(
        scene, {name: np.array([value]) for name, value in aims.items()}
    )
    cloud = scattered(model, strike, start)
    return ExpectedOutcome(
        move_pair_to(before, start),
        model.rest(start[None], strike)[0],
        cloud,
        cloud.std(0) if len(cloud) else np.zeros(3),
    )


def scattered(
    model: StrikeModel, strikes: np.ndarray, start: np.ndarray, *, n: int = _DRAWS, seed: int = 0
) -> np.ndarray:
    """Poses (n, 3) at which strikes (K, d), one after the other, may leave a body, by draws of what
    the model is unsure of; none where it does not know.
    """
    if not model.takes_noise:
        return np.zeros((0, 3))
    rng, pose = np.random.default_rng(seed), np.repeat(start[None], n, 0)
    for strike in strikes:
        half = rng.normal(size=(n // 2, 3))
        pose = model.rest(pose, np.repeat(strike[None], n, 0), np.vstack([half, -half]))
    return pose
