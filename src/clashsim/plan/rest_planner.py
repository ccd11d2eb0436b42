"""Plan how to set a body in motion so that it comes to rest at a place, by search over rollouts.

The same search serves throws and strikes in space. A rollout ends in one of several faces and
places, and small errors grow with every bounce. So the search does not look for the pose that one
rollout predicts: it looks for launches that end at the target most of the time, under the error of
the launch and the stated uncertainty of the collision model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.progress import Progress, quiet
from clashsim.optim.search import Cem, CmaEs, pick_distant
from clashsim.plan.launch import UNITS, Launch, Range, chosen_names
from clashsim.plan.rest_target import RestTarget, axis_up
from clashsim.plan.tasks import PlanStatus

_COLLISIONS = 12  # with noise of their own; later ones get the same numbers again


_FEWEST_POPULATIONS = 4
_FEWEST_JUDGED = 24  # rollouts from which a probability is estimated


class RestSimulator(Protocol):
    """Simulates bodies until they lie still."""

    def rests(self, start: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return poses (N, 7) of the body at the end, and whether it lay still, (N,).

        Args:
            start: (N, s), states.
            noise: (N, c, 6), standard normal numbers for the outcomes of the first c collisions.
        """


@dataclass(frozen=True)
class RestPlannerConfig:
    """How launches are searched for; the same seed gives the same plan.

    Attributes:
        method: CMA-ES or the cross-entropy method.
        scattered: Rollouts of random launches before the search begins.
        starts: Searches, which begin at the best of them that are apart from each other.
        population: Launches that each search tries in a round.
        rounds: Number of rounds.
        samples: Rollouts of each launch in the search, with different errors.
        finalists: Launches that are compared at the end.
        judged: Rollouts of each finalist; those of the best give its probability.
        min_probability: Of ending within the tolerance, from which a plan counts as found.
        launch_std: Standard deviations of the launched body's velocity (m/s) and angular velocity
            (rad/s), each component.
        seed: Seed of the search and of all noise.
    """

    method: Literal["cmaes", "cem"] = "cmaes"
    scattered: int = 192
    starts: int = 2
    population: int = 16
    rounds: int = 12
    samples: int = 3
    finalists: int = 8
    judged: int = 96
    min_probability: float = 0.5
    launch_std: tuple[float, float] = (0.01, 0.1)
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.launch_std) < 0 or not np.isfinite(self.launch_std).all():
            raise DataError(
                "the errors of a launch are standard deviations, which may not be negative, "
                f"got {self.launch_std}"
            )

    def with_rollouts(self, rollouts: int) -> RestPlannerConfig:
        """The same search with about as many rollouts as given."""
        least = self.starts * self.population
        if rollouts < _FEWEST_POPULATIONS * least:
            raise DataError(
                f"a search takes {_FEWEST_POPULATIONS * least} simulations or more, got {rollouts}"
            )
        share = rollouts / self.rollouts
        scattered = max(least, round(share * self.scattered))
        return replace(
            self,
            scattered=scattered,
            rounds=max(1, round(share * self.rounds)),
            judged=max(_FEWEST_JUDGED, round(min(share, 1.0) * self.judged)),
        )

    @property
    def rollouts(self) -> int:
        """Number of rollouts of a plan."""
        searched = self.starts * self.population * self.samples * self.rounds
        return self.scattered + searched + self.finalists * self.first_judged + self.judged

    @property
    def first_judged(self) -> int:
        """Rollouts of each finalist before the best of them is judged."""
        return max(1, self.judged // 4)


@dataclass(frozen=True, eq=False)
class RestPlan:
    """A planned launch, and where the body is expected to come to rest.

    Attributes:
        target: Where it should.
        kind: "throw" or "strike".
        numbers: The numbers of the launch, by name, in the units of `plan.launch.UNITS`.
        state: (s,), of the simulator at the launch.
        poses: (M, 7), positions (m) and quaternions wxyz of simulated bodies at rest, with errors
            of the launch and of the model.
        probability: Share of them within the tolerance.
        status: Whether the target is reached, and by a model that can be relied on.
        reason: The status in one sentence.
        rollouts: Number of rollouts of the search.
    """

    target: RestTarget
    kind: str
    numbers: Mapping[str, float]
    state: np.ndarray
    poses: np.ndarray
    probability: float
    status: PlanStatus
    reason: str
    rollouts: int

    @property
    def position(self) -> np.ndarray:
        """Expected x, y (2,), m: the mean of the simulated ones."""
        mean: np.ndarray = self.poses[:, :2].mean(0)
        return mean

    @property
    def std(self) -> np.ndarray:
        """Standard deviation (2,), m, of x and y."""
        std: np.ndarray = self.poses[:, :2].std(0)
        return std

    @property
    def up(self) -> tuple[str, float]:
        """The body axis that most often points up, and how often."""
        names, counts = np.unique(axis_up(self.poses), return_counts=True)
        most = int(counts.argmax())
        return str(names[most]), float(counts[most] / len(self.poses))

    @property
    def yaw(self) -> tuple[float, float]:
        """Mean and standard deviation (rad) of the yaw, where the most frequent axis is up."""
        axis, _ = self.up
        yaws = replace(self.target, up=axis).yaw_of(self.poses[axis_up(self.poses) == axis])
        direction = np.exp(1j * yaws).mean()
        mean = float(np.angle(direction))
        deviations = np.angle(np.exp(1j * (yaws - mean)))
        return mean, float(deviations.std())

    def by_unreliable_model(self, caution: str | None) -> RestPlan:
        """The plan by a model of which a calibration concluded that it cannot be relied on.

        Args:
            caution: What was concluded; None where nothing speaks against the model.
        """
        if not caution or self.status is not PlanStatus.FOUND:
            return self
        reason = f"{self.reason}, by a model that cannot be relied on: {caution}"
        return replace(self, status=PlanStatus.UNRELIABLE, reason=reason)


def plan_rest(
    launch: Launch,
    target: RestTarget,
    simulator: RestSimulator,
    *,
    judge: RestSimulator | None = None,
    config: RestPlannerConfig = RestPlannerConfig(),
    progress: Progress = quiet,
) -> RestPlan:
    """Plan a launch after which a body comes to rest at a target.

    Args:
        launch: What can be chosen.
        target: Where the body should come to rest.
        simulator: Of the search.
        judge: Simulates the best launches at the end; by default the same simulator.
        config: How to search.
        progress: Shows how many rollouts are done.
    """
    search = _Search(launch, target, simulator, judge or simulator, config)
    with progress("planning", config.rollouts) as advance:
        search.advance = advance
        return search.plan()


class _Search:
    """The search for one target."""

    def __init__(
        self,
        launch: Launch,
        target: RestTarget,
        simulator: RestSimulator,
        judge: RestSimulator,
        config: RestPlannerConfig,
    ) -> None:
        self.launch = launch
        self.target = target
        self.simulator = simulator
        self.judge = judge
        self.config = config
        self.names = chosen_names(launch.ranges)
        if not self.names:
            raise DataError("nothing can be chosen: all limits of the launch are single values")
        self.rng = np.random.default_rng(config.seed)
        self.advance = lambda done: None

    def plan(self) -> RestPlan:
        """Scatter launches, search from the best, and judge the best of all."""
        config = self.config
        scattered = self.rng.uniform(size=(config.scattered, len(self.names)))
        costs, _, at_rest = self._evaluate(scattered, 1)
        if not at_rest.any():
            raise DataError(
                f"the body never came to rest in {config.scattered} simulations: "
                "choose limits with which it stays on the ground"
            )
        order = np.argsort(costs)
        centres, _ = pick_distant(scattered[order][None], costs[order][None], config.starts)
        kind = CmaEs if config.method == "cmaes" else Cem
        searcher = kind(centres[0], config.population, config.seed)
        tried = [scattered]
        tried_costs = [costs]
        for _ in range(config.rounds):
            points = searcher.ask()  # (starts, population, d)
            merged = points.reshape(-1, points.shape[2])
            costs, _, _ = self._evaluate(merged, config.samples)
            searcher.tell(points, costs.reshape(points.shape[:2]))
            tried.append(merged)
            tried_costs.append(costs)
        return self._best(np.concatenate(tried), np.concatenate(tried_costs))

    def _best(self, points: np.ndarray, costs: np.ndarray) -> RestPlan:
        """The plan of the best of points (N, d) whose costs (N,) a few rollouts estimated."""
        config = self.config
        finalists = points[np.argsort(costs)[: config.finalists]]
        costs, _, _ = self._evaluate(finalists, config.first_judged, self.judge)
        best = finalists[int(costs.argmin())]
        _, poses, at_rest = self._evaluate(best[None], config.judged, self.judge)
        reached = self.target.is_reached(poses, at_rest)
        numbers = self._numbers(best[None])
        state = self.launch.states(numbers, np.zeros((1, 6)))[0]
        probability = float(reached.mean())
        status, reason = self._status(probability, poses)
        return RestPlan(
            target=self.target,
            kind=self.launch.kind,
            numbers={name: float(values[0]) for name, values in numbers.items()},
            state=state,
            poses=poses,
            probability=probability,
            status=status,
            reason=reason,
            rollouts=config.rollouts,
        )

    def _evaluate(
        self, points: np.ndarray, samples: int, simulator: RestSimulator | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean losses (N,) of points (N, d), and all poses at rest (N samples, 7).

        All points get the same errors, so that the difference of their losses is their own.
        """
        n = len(points)
        twist_std = np.repeat(self.config.launch_std, 3)
        twist_noise = np.tile(twist_std * self.rng.normal(size=(samples, 6)), (n, 1))
        noise = np.tile(self.rng.normal(size=(samples, _COLLISIONS, 6)), (n, 1, 1))
        numbers = self._numbers(np.repeat(points, samples, 0))
        states = self.launch.states(numbers, twist_noise)
        poses, at_rest = (simulator or self.simulator).rests(states, noise)
        losses = self.target.loss(poses, at_rest).reshape(n, samples)
        self.advance(len(states))
        return losses.mean(1), poses, at_rest

    def _numbers(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Numbers (N,) by name of points (N, d) of the unit box."""
        numbers = {}
        for name, limits in self.launch.ranges.items():
            numbers[name] = np.full(len(points), float(limits[0]))
        for name, column in zip(self.names, points.T, strict=True):
            numbers[name] = _between(self.launch.ranges[name], column)
        return numbers

    def _status(self, probability: float, poses: np.ndarray) -> tuple[PlanStatus, str]:
        """Whether a launch reaches the target, and why, in words."""
        max_distance, max_angle = self.target.tolerance
        within = f"within {1e3 * max_distance:.0f} mm"
        if self.target.up is not None or self.target.yaw is not None:
            within += f" and {np.degrees(max_angle):.0f} degrees"
        ends = f"ends {within} of the target with a probability of {100 * probability:.0f} %"
        if probability >= self.config.min_probability:
            return PlanStatus.FOUND, f"the {self.launch.kind} {ends}"
        distance, _ = self.target.errors(poses)
        return PlanStatus.NOT_FOUND, (
            f"the best {self.launch.kind} that was found {ends} "
            f"(median distance {1e3 * np.median(distance):.0f} mm): allow a larger tolerance, "
            "other limits or a nearer target"
        )


def _between(limits: Range, share: np.ndarray) -> np.ndarray:
    low, high = limits
    return low + (high - low) * share


def units_of(numbers: Mapping[str, float]) -> dict[str, str]:
    """Units of the numbers of a launch, by name."""
    return {name: UNITS[name] for name in numbers}
