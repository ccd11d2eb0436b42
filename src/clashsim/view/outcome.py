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

_CLOUD_SAMPLES = 24  # sampled poses at rest that the page draws as a cloud; even


@dataclass(frozen=True, eq=False)
class ExpectedOutcome:
    """Where strikes are expected to leave a body.

    Attributes:
        before: Both bodies at each contact (K, 12), as in `Impacts.before`.
        rest: Expected pose (3,) at rest after the last strike: x, y (m), yaw (rad).
        cloud: Sampled poses (M, 3) at rest; M is 0 where the model has no noise.
        std: Standard deviation (3,) of the pose at rest: x, y (m), yaw (rad).
    """

    before: np.ndarray
    rest: np.ndarray
    cloud: np.ndarray
    std: np.ndarray


@dataclass(frozen=True, eq=False)
class PlannedOutcome:
    """A plan and its expected outcome.

    Attributes:
        plan: The plan.
        expected: Where the body is expected to come to rest.
        pose_error: Distance (m) and angle (rad) of the expected pose from the target.
        seconds: Time that planning took, s.
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
        target: Wanted planar pose (3,): x, y (m), yaw (rad).
        start: Planar pose (3,) of the body before the strikes.
        strikes: Number of strikes; 0 for the fewest that reach the target.
        seed: Seed of the search.
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
        std=planned.std,  # like `rest`, of the pose after the last strike
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
    """Return where one strike is expected to leave a body.

    Args:
        scene: The scene.
        model: Predicts where a struck body comes to rest.
        strike: The strike by the names of its numbers.
        start: Planar pose (3,) of the body.
    """
    strikes = np.array([[strike[name] for name in model.names]])  # (1, d)
    columns = {name: np.array([value]) for name, value in strike.items()}
    before, _ = before_from_strikes(scene, columns)
    cloud = sample_rests(model, strikes, start)
    return ExpectedOutcome(
        before=move_pair_to(before, start),
        rest=model.rest(start[None], strikes)[0],
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
        n: Number of samples, even.
        seed: Seed of the noise.

    Returns:
        The poses; (0, 3) where the model has no noise.
    """
    if not model.takes_noise:
        return np.zeros((0, 3))
    rng = np.random.default_rng(seed)
    pose = np.repeat(start[None], n, 0)
    for strike in strikes:
        half = rng.normal(size=(n // 2, 3))
        noise = np.vstack([half, -half])  # pairs of opposite sign: their mean is zero
        pose = model.rest(pose, np.repeat(strike[None], n, 0), noise)
    return pose


def _as_pose(pose: np.ndarray) -> tuple[float, float, float]:
    x, y, yaw = map(float, pose)
    return x, y, yaw
