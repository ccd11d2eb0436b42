"""What a strike is planned for: the body's start and target, the arm's limits, and the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel

TAU = 0.01  # m2/rad2, weight of the orientation (CLASH, Eq. 5)
MAX_STRIKES = 3
TOLERANCE = (0.01, 0.2)  # m and rad: within which a target counts as reached
_MAX_COORDINATE = 100.0  # m or rad: a larger value is a mistake in units
_PENALTY_WEIGHT = 1e4  # leaving the reach costs this many times a miss of the same size
_GRADIENT_GUARD = 1e-18  # m2: keeps the gradient of the square root finite at the target
_LIMIT_COUNTS = {"speed": 2, "bearing": 2, "workspace": 4}  # numbers in each limit of `Reach`


@dataclass(frozen=True)
class Reach:
    """Limits of the arm, in world axes; None means no limit.

    Attributes:
        speed: Lowest and highest speed of a strike (m/s).
        bearing: Bearings (rad) of the striker seen from the body at which the arm can strike: all
            from the first value counter-clockwise to the second.
        workspace: x low, x high, y low, y high (m) that the body may not leave.
    """

    speed: tuple[float, float] | None = None
    bearing: tuple[float, float] | None = None
    workspace: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        for name, count in _LIMIT_COUNTS.items():
            value = getattr(self, name)
            if value is None:
                continue
            if len(value) != count or not all(map(math.isfinite, value)):
                raise DataError(f"the limits of {name} are {count} finite numbers, got {value}")
        if self.bearing is not None and self.bearing[0] == self.bearing[1]:
            raise DataError(
                "the side from which the arm strikes needs two different bearings, "
                f"got {self.bearing}"
            )
        if self.speed is not None and not 0 < self.speed[0] < self.speed[1]:
            raise DataError(f"the limits of speed must be above zero, low first, got {self.speed}")
        if self.workspace is not None:
            x_low, x_high, y_low, y_high = self.workspace
            if not (x_low < x_high and y_low < y_high):
                raise DataError(
                    f"a workspace is x low, x high, y low, y high, got {self.workspace}"
                )


@dataclass(frozen=True)
class PlanningTask:
    """Bring a body from a start pose to a target pose.

    Attributes:
        target: x, y (m), yaw (rad) in the world.
        start: x, y (m), yaw (rad) in the world.
        strikes: Number of strikes, 1 to 3.
        tau: Weight of the orientation in the loss (m2/rad2).
        tolerance: Distance (m) and angle (rad) within which the target counts as reached.
        reach: Limits of the arm.
    """

    target: tuple[float, float, float]
    start: tuple[float, float, float] = (0.0, 0.0, 0.0)
    strikes: int = 1
    tau: float = TAU
    tolerance: tuple[float, float] = TOLERANCE
    reach: Reach = Reach()

    def __post_init__(self) -> None:
        for name in ("target", "start"):
            given = getattr(self, name)
            pose = tuple(map(float, given))
            is_finite = len(pose) == 3 and all(map(math.isfinite, pose))
            if not is_finite or max(map(abs, pose)) > _MAX_COORDINATE:
                raise DataError(
                    f"the {name} must be three finite numbers x, y (m), yaw (rad), "
                    f"none beyond {_MAX_COORDINATE:g}, got {given}"
                )
            object.__setattr__(self, name, pose)
        if not 1 <= self.strikes <= MAX_STRIKES:
            raise DataError(f"one to three strikes can be planned at once, got {self.strikes}")
        valid_tau = 0 <= self.tau < math.inf
        valid_tolerance = len(self.tolerance) == 2 and all(
            0 < limit < math.inf for limit in self.tolerance
        )
        if not (valid_tau and valid_tolerance):
            raise DataError(
                "tau may not be negative and tolerances must be above zero, "
                f"got {self.tau} and {self.tolerance}"
            )


class PlanStatus(StrEnum):
    """How planning ended."""

    FOUND = "found"
    OUT_OF_REACH = "out of reach"
    NOT_FOUND = "not found"
    UNRELIABLE = "unreliable"


@dataclass(frozen=True, eq=False)
class Plan:
    """Planned strikes, the poses they are predicted to lead to, and how planning ended.

    Attributes:
        task: What was planned for.
        names: Names of the d numbers of a strike.
        strikes: The strikes (K, d).
        predicted: Pose (K, 3) after each strike: x, y (m), yaw (rad) in the world.
        std: Standard deviation (3,) of the pose after the last strike: x, y (m), yaw (rad); half
            the width of the interval that holds the middle 68 %.
        cost: Loss of Eq. 5 (CLASH) at the pose after the last strike (m2).
        status: Whether the target is reached, and by a model that can be relied on.
        reason: The status in one sentence.
        evaluations: Number of strike sequences that the search evaluated.
        leaves_reach: Whether the plan violates a limit of the arm.
        probability: Of ending within the task's tolerance, by what the model states about its
            errors; None for a model that states nothing.
    """

    task: PlanningTask
    names: tuple[str, ...]
    strikes: np.ndarray
    predicted: np.ndarray
    std: np.ndarray
    cost: float
    status: PlanStatus
    reason: str
    evaluations: int
    leaves_reach: bool = False
    probability: float | None = None

    @property
    def probability_sentence(self) -> str:
        """The probability in words; empty where it is not known."""
        if self.probability is None:
            return ""
        distance, angle = self.task.tolerance
        return (
            f"probability of ending within {1e3 * distance:.3g} mm and {np.degrees(angle):.3g} "
            f"degrees of the target: {self.probability:.2f}"
        )

    @property
    def starts(self) -> np.ndarray:
        """Pose of the body before each strike, (K, 3)."""
        return np.vstack([self.task.start, self.predicted[:-1]])

    def by_unreliable_model(self, caution: str | None) -> Plan:
        """The plan by a model of which a calibration concluded that it cannot be relied on.

        Args:
            caution: What was concluded; None where nothing speaks against the model.
        """
        if not caution or self.status is not PlanStatus.FOUND:
            return self
        reason = f"{self.reason}, by a model that cannot be relied on: {caution}"
        return replace(self, status=PlanStatus.UNRELIABLE, reason=reason)


def pose_error(pose: Any, target: Any) -> tuple[Any, Any]:
    """Return how far poses are from targets.

    Args:
        pose: Planar poses (..., 3), an array or a tensor.
        target: Planar poses (..., 3) of the same kind.

    Returns:
        Distance (...,) in m, and angle (...,) in rad, signed and wrapped to -pi..pi.
    """
    difference = pose - target
    squared = difference[..., 0] ** 2 + difference[..., 1] ** 2
    distance = (squared + _GRADIENT_GUARD) ** 0.5
    return distance, wrap_angle(difference[..., 2])


def pose_loss(pose: Any, target: Any, tau: Any) -> Any:
    """Return the loss of Eq. 5 with a wrapped angle, (...,) in m2, for poses (..., 3)."""
    distance, angle = pose_error(pose, target)
    return distance**2 + tau * angle**2


def reach_penalty(reach: Reach, names: Sequence[str], *, start: Any, strike: Any, end: Any) -> Any:
    """Return the penalty for leaving the arm's reach.

    Args:
        reach: Limits of the arm.
        names: Names of the d numbers of a strike.
        start: Poses (N, 3) before the strike, an array or a tensor.
        strike: Strikes (N, d).
        end: Poses (N, 3) after the strike.

    Returns:
        Penalty (N,) in m2, zero within the reach.
    """
    total = 0.0 * end[..., 0]
    if reach.bearing is not None and "point" in names:
        half_width = _width_of_side(reach.bearing) / 2
        middle = reach.bearing[0] + half_width
        point = strike[..., list(names).index("point")]
        excess = abs(wrap_angle(start[..., 2] + point - middle)) - half_width
        total = total + TAU * _positive_part(excess) ** 2  # rad2 to m2, as in the loss
    if reach.workspace is not None:
        x_low, x_high, y_low, y_high = reach.workspace
        x, y = end[..., 0], end[..., 1]
        for excess in (x_low - x, x - x_high, y_low - y, y - y_high):
            total = total + _positive_part(excess) ** 2
    return _PENALTY_WEIGHT * total


def strike_bounds(model: StrikeModel, reach: Reach) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest strike (d,) that the model covers and the arm allows."""
    low = model.low.copy()
    high = model.high.copy()
    if reach.speed is not None and "speed" in model.names:
        i = model.names.index("speed")
        low[i] = max(low[i], reach.speed[0])
        high[i] = min(high[i], reach.speed[1])
        if low[i] >= high[i]:
            raise DataError(
                f"the arm strikes at {reach.speed[0]:g} to {reach.speed[1]:g} m/s, "
                f"but the model knows {model.low[i]:g} to {model.high[i]:g} m/s only"
            )
    return low, high


def _positive_part(value: Any) -> Any:
    """Return values where they are above zero, and zero elsewhere; arrays or tensors."""
    return value * (value > 0)


def _width_of_side(bearing: tuple[float, float]) -> float:
    """Return the angle from the first bearing counter-clockwise to the second, (0, 2 pi]."""
    return (bearing[1] - bearing[0]) % (2 * math.pi) or 2 * math.pi
