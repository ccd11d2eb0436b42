"""Costs of strike sequences for a batch of tasks, and the plans at the best of them.

A search sees points of a unit box. Here they become strikes, the model predicts where the body
comes to rest, and the loss of Eq. 5 and the penalty for leaving the arm's reach give the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.protocols import StrikeModel
from clashsim.plan.gradient import Tensor, as_tensor, repeat_rows
from clashsim.plan.outcomes import (
    EXACT,
    OutcomeSampler,
    Repeatability,
    pose_std,
    probabilities,
)
from clashsim.plan.tasks import (
    Plan,
    PlanningTask,
    PlanStatus,
    pose_error,
    pose_loss,
    reach_penalty,
    strike_bounds,
)

_PENALTY_IGNORED = 1e-4  # m2: the penalty for leaving the reach by 0.1 mm, which is tolerated
_NOISE_STREAM = 1  # added to the seed, so that the noise differs from the numbers of the search
# Strikes are almost as good as the best if the squared distance of their expected outcome from the
# target is larger by no more than that of this share of the tolerance.
_NEARLY = 0.25
_COUNT_WORDS = ("one strike", "two strikes", "three strikes")


@dataclass(frozen=True)
class NoiseSamples:
    """Numbers of samples of the model's noise.

    Attributes:
        cost: Over which a cost is averaged; 0: the cost of the expected outcome.
        choice: Over which the choice among almost equally good strikes is averaged; 0: the one of
            the lowest cost is chosen.
    """

    cost: int = 0
    choice: int = 0


class BatchCost:
    """Costs of strike sequences, as points of the unit box, for all T tasks at once.

    Args:
        model: Predicts where a struck body comes to rest.
        tasks: T tasks with the same number of strikes K, reach and tau.
        samples: Numbers of samples of the model's noise.
        seed: Seed of the noise.
    """

    def __init__(
        self,
        model: StrikeModel,
        tasks: Sequence[PlanningTask],
        *,
        samples: NoiseSamples = NoiseSamples(),
        seed: int,
    ) -> None:
        self.model = model
        self.tasks = tasks
        self.strikes_per_task = tasks[0].strikes
        self.low, self.high = strike_bounds(model, tasks[0].reach)
        self.start = np.array([task.start for task in tasks])
        self.target = np.array([task.target for task in tasks])
        self.seed = seed
        self.noise = self._noise(samples.cost)
        self.choice_noise = self._noise(samples.choice)

    @property
    def dim(self) -> int:
        """Dimension of the unit box: K strikes of d numbers."""
        return self.strikes_per_task * len(self.model.names)

    def cost(self, points: np.ndarray) -> np.ndarray:
        """Return the costs (T, P) in m2 of points (T, P, K d) of the unit box."""
        return self._array_cost(points, self.noise)

    def choose(self, points: np.ndarray) -> np.ndarray:
        """Return one of the points (T, S, K d) of each task, (T, K d).

        It is the best one, or one that is almost as good and of which the model is surer.
        """
        cost = self.cost(points)
        if self.choice_noise is not None and points.shape[1] > 1:
            nearly = np.array([(_NEARLY * task.tolerance[0]) ** 2 for task in self.tasks])
            is_as_good = cost <= cost.min(1, keepdims=True) + nearly[:, None]
            cost = np.where(is_as_good, self._array_cost(points, self.choice_noise), np.inf)
        return points[np.arange(len(points)), cost.argmin(1)]

    def torch_cost(self, points: Tensor) -> Tensor:
        """Return the costs of `cost` for tensors, differentiable by torch."""
        return self._cost(
            points, self.noise, rest=self.model, convert=as_tensor, repeat=repeat_rows
        )

    def cost_on_device(self, model: Any) -> Callable[[Tensor], Tensor]:
        """Return `torch_cost` with a copy of the model that is on the device of the points."""

        def cost(points: Tensor) -> Tensor:
            return self._cost(
                points,
                self.noise,
                rest=model,
                convert=lambda array: as_tensor(array).to(points.device, points.dtype),
                repeat=repeat_rows,
            )

        return cost

    def _noise(self, samples: int) -> np.ndarray | None:
        """Samples of the model's noise (n, K, 3) in standard deviations; None for no noise."""
        if not samples or not self.model.takes_noise:
            return None
        pairs = -(-samples // 2)
        rng = np.random.default_rng([self.seed, _NOISE_STREAM])
        half = rng.normal(size=(pairs, self.strikes_per_task, 3))
        # Samples come in pairs of opposite sign, so that what is linear in the noise averages out
        # whatever the samples are.
        return np.concatenate([half, -half])

    def _array_cost(self, points: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """Costs (T, P) of points (T, P, K d), the mean over samples of noise (n, K, 3) if any."""
        costs: np.ndarray = self._cost(
            points,
            noise,
            rest=self.model.rest,
            convert=lambda array: array,
            repeat=lambda rows, n: np.repeat(rows, n, 0),
        )
        return costs

    def _cost(
        self, points: Any, noise: np.ndarray | None, *, rest: Any, convert: Any, repeat: Any
    ) -> Any:
        """Return costs (T, P) of arrays or tensors.

        Args:
            points: Points (T, P, K d) of the unit box.
            noise: Samples (n, K, 3) over which costs are averaged, if any.
            rest: Predicts poses at rest from poses, strikes and noise.
            convert: Turns an array into the type of the points.
            repeat: Repeats each row of such an array n times, copies side by side.
        """
        tasks, points_per_task = points.shape[:2]
        samples = 1 if noise is None else len(noise)
        reach = self.tasks[0].reach
        # From here on a row is one noise sample of one point of one task, in this order.
        sequences = points.reshape(tasks * points_per_task, self.strikes_per_task, -1)
        strikes = convert(self.low) + convert(self.high - self.low) * sequences
        strikes = repeat(strikes, samples)
        pose = repeat(convert(self.start), points_per_task * samples)
        target = repeat(convert(self.target), points_per_task * samples)
        total = 0.0
        for k in range(self.strikes_per_task):
            noise_of_strike = None
            if noise is not None:
                noise_of_strike = convert(np.tile(noise[:, k], (tasks * points_per_task, 1)))
            strike = strikes[:, k]
            end = rest(pose, strike, noise_of_strike)
            total = total + reach_penalty(
                reach, self.model.names, start=pose, strike=strike, end=end
            )
            pose = end
        total = total + pose_loss(pose, target, self.tasks[0].tau)
        return total.reshape(tasks, points_per_task, samples).mean(2)

    def plans_at(
        self, points: np.ndarray, evaluations: int, *, repeatability: Repeatability = EXACT
    ) -> list[Plan]:
        """Return the plans at points (T, K d) of the unit box.

        Args:
            points: The best point of each task.
            evaluations: Number of strike sequences that the search evaluated for each task.
            repeatability: How exactly strikes are repeated, for the probabilities.
        """
        shape = (len(self.tasks), self.strikes_per_task, len(self.model.names))
        strikes = self.low + (self.high - self.low) * points.reshape(shape)
        reach = self.tasks[0].reach
        pose = self.start
        poses = []
        penalty = np.zeros(len(strikes))
        for k in range(self.strikes_per_task):
            strike = strikes[:, k]
            end = self.model.rest(pose, strike)
            penalty += reach_penalty(reach, self.model.names, start=pose, strike=strike, end=end)
            poses.append(end)
            pose = end
        predicted = np.stack(poses, 1)  # (T, K, 3): the pose after each strike
        last_pose_std = np.zeros((len(strikes), 3))
        within: list[float | None] = [None] * len(strikes)
        if self.model.takes_noise:
            sampler = OutcomeSampler(
                self.model, self.strikes_per_task, repeatability=repeatability, seed=self.seed
            )
            outcomes = sampler.rest_poses(self.start, strikes)  # (T, S, 3)
            last_pose_std = pose_std(outcomes)
            within = probabilities(outcomes, self.tasks).tolist()
        plans = []
        for i, task in enumerate(self.tasks):
            leaves_reach = bool(penalty[i] > _PENALTY_IGNORED)
            status, reason = _judge(task, predicted[i, -1], leaves_reach=leaves_reach)
            plans.append(
                Plan(
                    task=task,
                    names=self.model.names,
                    strikes=strikes[i],
                    predicted=predicted[i],
                    std=last_pose_std[i],
                    cost=float(pose_loss(predicted[i, -1], np.array(task.target), task.tau)),
                    status=status,
                    reason=reason,
                    evaluations=evaluations,
                    leaves_reach=leaves_reach,
                    probability=within[i],
                )
            )
        return plans


def _judge(
    task: PlanningTask, final_pose: np.ndarray, *, leaves_reach: bool
) -> tuple[PlanStatus, str]:
    """Return whether a plan that ends at a pose (3,) reaches its target, and why, in words."""
    distance, angle = pose_error(final_pose, np.array(task.target))
    distance = float(abs(distance))
    angle = float(abs(angle))
    max_distance, max_angle = task.tolerance
    if leaves_reach:
        return (
            PlanStatus.OUT_OF_REACH,
            "no strike within the arm's reach brings the body to the target: "
            "allow another side, speed or workspace",
        )
    if distance > max_distance or angle > max_angle:
        return (
            PlanStatus.OUT_OF_REACH,
            f"the nearest found that {_COUNT_WORDS[task.strikes - 1]} can bring the body is "
            f"{1e3 * distance:.0f} mm and {np.degrees(angle):.0f} degrees from the target",
        )
    return (
        PlanStatus.FOUND,
        f"expected {1e3 * distance:.1f} mm and {np.degrees(angle):.1f} degrees from the target "
        f"(tolerance {1e3 * max_distance:.0f} mm and {np.degrees(max_angle):.0f} degrees)",
    )
