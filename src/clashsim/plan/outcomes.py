"""Samples of where bodies come to rest after a plan, and how probably within the tolerance.

What is uncertain: the twists after the strikes, by the model's stated standard deviations; how far
bodies slide after them; and how exactly the arm and the operator repeat a strike, if that is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit
from scipy.stats import qmc

from clashsim.core.errors import ParamError
from clashsim.core.protocols import StrikeModel
from clashsim.core.rest_uncertainty import NORMAL_NOISE, RestUncertainty
from clashsim.plan.tasks import PlanningTask, pose_error

_LOG2_SAMPLES = 9  # of the outcomes of a plan: 512, which is 0.01 in a probability
_MAX_ROWS = 65_536  # strikes that a model predicts in one call
_EDGE = 1e-9  # least distance of uniform samples from 0 and 1, where quantiles are infinite
_UPPER = float(ndtr(1.0))  # share of a normal distribution below one standard deviation
_NOISE_STREAM = 1  # added to the seed, so that the noise differs from the numbers of the search
_COMPONENTS = 3  # of a twist, and of a planar pose
_STRIKE_NAMES = ("speed", "point", "deflection")  # numbers of a strike that may be repeated


@dataclass(frozen=True)
class Repeatability:
    """How exactly strikes are repeated: standard deviations, zero where they are not known.

    Attributes:
        speed: Of a strike's speed, relative.
        point: Of the bearing (rad) of the contact point.
        deflection: Of the direction (rad) of the striker's velocity.
        position: Of x and y (m) of the body before the first strike.
        yaw: Of the yaw (rad) of the body before the first strike.
    """

    speed: float = 0.0
    point: float = 0.0
    deflection: float = 0.0
    position: float = 0.0
    yaw: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                raise ParamError(
                    f"the repeatability of the {field.name} is a finite standard deviation, zero "
                    f"or above, got {value}"
                )


EXACT = Repeatability()


class OutcomeSampler:
    """Samples of poses at rest, the same noise for every plan.

    Args:
        model: Predicts where a struck body comes to rest, and with what standard deviation.
        strikes_per_plan: Number K of strikes.
        repeatability: How exactly strikes are repeated.
        seed: Seed of the noise.
    """

    def __init__(
        self, model: StrikeModel, strikes_per_plan: int, *, repeatability: Repeatability, seed: int
    ) -> None:
        self.model = model
        self.uncertainty: RestUncertainty = getattr(model, "uncertainty", NORMAL_NOISE)
        uniform = _uniform_samples(_COMPONENTS * (1 + 3 * strikes_per_plan), seed)
        noise = ndtri(uniform)
        start_std = np.array([repeatability.position, repeatability.position, repeatability.yaw])
        self.start_error = start_std * noise[:, :_COMPONENTS]  # (S, 3), m and rad
        shape = (len(noise), strikes_per_plan, 3, _COMPONENTS)
        of_strikes = noise[:, _COMPONENTS:].reshape(shape)
        tails = uniform[:, _COMPONENTS:].reshape(shape)[:, :, 0]
        # (S, K, 3) each: errors of the twist in standard deviations, of slides, and of strikes.
        self.twist_noise = student_noise(tails, self.uncertainty.degrees_of_freedom)
        self.slide_noise = of_strikes[:, :, 1]
        self.strike_noise = of_strikes[:, :, 2]
        self.repeatability = repeatability

    def rest_poses(self, start: np.ndarray, strikes: np.ndarray) -> np.ndarray:
        """Sample poses at rest after the last strike.

        Args:
            start: Poses (T, 3) of the bodies before the first strike: x, y (m) and yaw (rad).
            strikes: Strikes (T, K, d) of T plans.

        Returns:
            S samples for each plan, (T, S, 3).
        """
        plans_at_once = max(1, _MAX_ROWS // len(self.start_error))
        parts = []
        for first in range(0, len(start), plans_at_once):
            chosen = slice(first, first + plans_at_once)
            parts.append(self._rest_poses(start[chosen], strikes[chosen]))
        return np.concatenate(parts)

    def _rest_poses(self, start: np.ndarray, strikes: np.ndarray) -> np.ndarray:
        samples = len(self.start_error)
        plans = len(start)
        # A row is one sample of one plan; all samples of the first plan come first.
        pose = np.repeat(start, samples, 0) + np.tile(self.start_error, (plans, 1))
        for k in range(strikes.shape[1]):
            strike = self._as_executed(np.repeat(strikes[:, k], samples, 0), k)
            end = self.model.rest(pose, strike, np.tile(self.twist_noise[:, k], (plans, 1)))
            pose = end + self._slide_error(end - pose, k)
        return pose.reshape(plans, samples, _COMPONENTS)

    def _as_executed(self, strike: np.ndarray, k: int) -> np.ndarray:
        """Strikes (T S, d) with errors of the arm, within the ranges that the model covers."""
        noise = np.tile(self.strike_noise[:, k], (len(strike) // len(self.strike_noise), 1))
        executed = strike.copy()
        for column, name in enumerate(_STRIKE_NAMES):
            if name in self.model.names:
                i = self.model.names.index(name)
                size = strike[:, i] if name == "speed" else 1.0
                executed[:, i] += getattr(self.repeatability, name) * size * noise[:, column]
        return np.clip(executed, self.model.low, self.model.high)

    def _slide_error(self, motion: np.ndarray, k: int) -> np.ndarray:
        """Errors (T S, 3) of poses at rest, in proportion to the motion (T S, 3)."""
        to_metres = np.array([1.0, 1.0, self.uncertainty.gyration])
        length = np.linalg.norm(motion * to_metres, axis=1, keepdims=True)
        noise = np.tile(self.slide_noise[:, k], (len(motion) // len(self.slide_noise), 1))
        return self.uncertainty.slide_std * length * noise / to_metres


def student_noise(uniform: np.ndarray, degrees_of_freedom: float) -> np.ndarray:
    """Noise of a Student-t distribution, of which 68 % lie within one either way.

    Args:
        uniform: Uniform samples in (0, 1), of any shape.
        degrees_of_freedom: Infinite for a normal distribution.
    """
    if not math.isfinite(degrees_of_freedom):
        return np.asarray(ndtri(uniform))
    quantiles = stdtrit(degrees_of_freedom, uniform)
    return np.asarray(quantiles / stdtrit(degrees_of_freedom, _UPPER))


def pose_std(poses: np.ndarray) -> np.ndarray:
    """Standard deviations (T, 3) of sampled poses (T, S, 3): half the width of the middle 68 %.

    With heavy tails the root mean square would be that of a few samples.
    """
    low, high = np.quantile(poses, [1 - _UPPER, _UPPER], axis=1)
    return np.asarray((high - low) / 2)


def probabilities(poses: np.ndarray, tasks: Sequence[PlanningTask]) -> np.ndarray:
    """Shares (T,) of sampled poses (T, S, 3) that lie within the tolerances of T tasks."""
    targets = np.array([task.target for task in tasks])
    tolerances = np.array([task.tolerance for task in tasks])
    distance, angle = pose_error(poses, targets[:, None])
    within = (distance <= tolerances[:, :1]) & (np.abs(angle) <= tolerances[:, 1:])
    return np.asarray(within.mean(1))


@lru_cache(maxsize=8)
def _uniform_samples(dim: int, seed: int) -> np.ndarray:
    """Evenly distributed points (S, dim) of the unit box: a scrambled Sobol sequence.

    It takes a third of the time of a plan in a strike table, so it is kept; do not write to it.
    """
    rng = np.random.default_rng([seed, _NOISE_STREAM])
    points = qmc.Sobol(dim, scramble=True, rng=rng).random_base2(_LOG2_SAMPLES)
    points = np.clip(points, _EDGE, 1 - _EDGE)
    points.setflags(write=False)
    return points
