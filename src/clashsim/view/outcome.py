"""Where a strike table expects a body to come to rest: after planned strikes, or one by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
from clashsim.plan.planner import PlannerConfig, plan, plan_fewest_strikes
from clashsim.plan.tasks import Plan, PlanningTask, pose_error

_CLOUD_SAMPLES = 24  # outcomes that are shown as a cloud


@dataclass(frozen=True, eq=False)
class ExpectedOutcome:
    """What strikes are expected to do to a body.

    Attributes:
        before: Both bodies at each contact (K, 12), as in `Impacts.before`.
        rest: Expected pose at rest (3,): x, y (m), yaw (rad).
        cloud: Sampled poses at rest (M, 3); none where the model has no noise.
        std: One standard deviation of the pose (3,).
    """

    before: np.ndarray
    rest: np.ndarray
    cloud: np.ndarray
    std: np.ndarray


@dataclass(frozen=True, eq=False)
class PlannedOutcome:
    """A plan and what is expected of it.

    Attributes:
        plan: The plan.
        expected: Where the body is expected to come to rest.
        pose_error: Distance (m) and angle (rad) of that from the target.
        seconds: That planning took.
    """

    plan: Plan
    expected: ExpectedOutcome
    pose_error: tuple[float, float]
    seconds: float

    @property
    def strikes(self) -> list[dict[str, float]]:
        """The strikes by the names of their numbers."""
        names = self.plan.names
        return [dict(zip(names, map(float, row), strict=True)) for row in self.plan.strikes]


def plan_outcome(
    scene: Scene,
    model: StrikeModel,
    target: np.ndarray,
    *,
    start: np.ndarray,
    strikes: int = 0,
    seed: int = 0,
) -> PlannedOutcome:
    """Plan the strikes that bring a body to a target.

    Args:
        scene: The scene.
        model: Predicts where a struck body comes to rest.
        target: Planar pose (3,).
        start: Planar pose (3,).
        strikes: How many; 0 for as few as reach the target.
        seed: Of the search.
    """
    began = time.perf_counter()
    task = PlanningTask(_as_pose(target), _as_pose(start), strikes=max(1, strikes))
    config = PlannerConfig(seed=seed)
    planned = plan(model, task, config) if strikes else plan_fewest_strikes(model, task, config)
    seconds = time.perf_counter() - began
    before, _ = before_from_strikes(scene, dict(zip(planned.names, planned.strikes.T, strict=True)))
    rest = planned.predicted[-1]
    distance, angle = pose_error(rest, np.asarray(target, float))
    expected = ExpectedOutcome(
        before=move_pair_to(before, planned.starts),
        rest=rest,
        cloud=sample_rests(model, planned.strikes, np.asarray(start, float)),
        std=planned.std,
    )
    return PlannedOutcome(
        plan=planned,
        expected=expected,
        pose_error=(float(distance), float(abs(angle))),
        seconds=seconds,
    )


def strike_outcome(
    scene: Scene, model: StrikeModel, strike: Mapping[str, float], *, start: np.ndarray
) -> ExpectedOutcome:
    """Return what one strike is expected to do to a body.

    Args:
        scene: The scene.
        model: Predicts where a struck body comes to rest.
        strike: The strike by the names of its numbers.
        start: Planar pose (3,) of the body.
    """
    row = np.array([[strike[name] for name in model.names]])
    columns = {name: np.array([value]) for name, value in strike.items()}
    before, _ = before_from_strikes(scene, columns)
    cloud = sample_rests(model, row, start)
    return ExpectedOutcome(
        before=move_pair_to(before, start),
        rest=model.rest(start[None], row)[0],
        cloud=cloud,
        std=cloud.std(0) if len(cloud) else np.zeros(3),
    )


def sample_rests(
    model: StrikeModel,
    strikes: np.ndarray,
    start: np.ndarray,
    *,
    n: int = _CLOUD_SAMPLES,
    seed: int = 0,
) -> np.ndarray:
    """Return poses (n, 3) at which strikes may leave a body, by samples of the model's noise.

    Args:
        model: Predicts where a struck body comes to rest.
        strikes: Strikes (K, d), one after the other.
        start: Planar pose (3,) of the body.
        n: Number of samples.
        seed: Of the noise.

    Returns:
        The poses; none where the model has no noise.
    """
    if not model.takes_noise:
        return np.zeros((0, 3))
    rng = np.random.default_rng(seed)
    pose = np.repeat(start[None], n, 0)
    for strike in strikes:
        half = rng.normal(size=(n // 2, 3))
        noise = np.vstack([half, -half])
        pose = model.rest(pose, np.repeat(strike[None], n, 0), noise)
    return pose


def _as_pose(pose: np.ndarray) -> tuple[float, float, float]:
    x, y, yaw = map(float, pose)
    return x, y, yaw
