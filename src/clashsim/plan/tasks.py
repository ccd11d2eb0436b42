"""What a strike is planned for: where a body lies, where it shall lie, and what the arm can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel

TAU = 0.01  # m2/rad2, weight of the orientation (CLASH, Eq. 5)
_FARTHEST = 100.0  # m or rad: what lies beyond is a mistake in units
_BREACH = 1e4  # how much worse than a miss of the same size it is to leave what the arm can reach


@dataclass(frozen=True)
class Reach:
    """Limits of the arm, all in world axes; None: none.

    speed (m/s): least and greatest of a strike. bearing (rad): the side from which the arm can
    strike, as the bearing of the tip seen from the body, from the first counter-clockwise to the
    second. workspace (m): x low, x high, y low, y high that the body may not leave.
    """

    speed: tuple[float, float] | None = None
    bearing: tuple[float, float] | None = None
    workspace: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        for name, count in (("speed", 2), ("bearing", 2), ("workspace", 4)):
            value = getattr(self, name)
            if value is not None and (len(value) != count or not all(map(math.isfinite, value))):
                raise DataError(f"the limits of {name} are {count} finite numbers, got {value}")
        if self.bearing is not None and self.bearing[0] == self.bearing[1]:
            raise DataError(
                f"the side from which the arm strikes needs two different bearings, got {self.bearing}"
            )
        if self.speed is not None and not 0 < self.speed[0] < self.speed[1]:
            raise DataError(f"the limits of speed must be above zero, low first, got {self.speed}")
        if self.workspace is not None and not (
            self.workspace[0] < self.workspace[1] and self.workspace[2] < self.workspace[3]
        ):
            raise DataError(f"a workspace is x low, x high, y low, y high, got {self.workspace}")


@dataclass(frozen=True)
class PlanningTask:
    """Bring a body from start to target, x, y (m) and yaw (rad) each, within a tolerance (m, rad)
    that counts as there.
    """

    target: tuple[float, float, float]
    start: tuple[float, float, float] = (0.0, 0.0, 0.0)
    strikes: int = 1
    tau: float = TAU
    tolerance: tuple[float, float] = (0.01, 0.2)
    reach: Reach = Reach()

    def __post_init__(self) -> None:
        for name in ("target", "start"):
            value = tuple(map(float, getattr(self, name)))
            if (
                len(value) != 3
                or not all(map(math.isfinite, value))
                or max(map(abs, value)) > _FARTHEST
            ):
                raise DataError(
                    f"the {name} must be three finite numbers x, y (m), yaw (rad), none beyond {_FARTHEST:g}, got {getattr(self, name)}"
                )
            object.__setattr__(self, name, value)
        if not 1 <= self.strikes <= 3:
            raise DataError(f"one to three strikes can be planned at once, got {self.strikes}")
        if (
            not 0 <= self.tau < math.inf
            or len(self.tolerance) != 2
            or not all(0 < t < math.inf for t in self.tolerance)
        ):
            raise DataError(
                f"tau may not be negative and tolerances must be above zero, got {self.tau} and {self.tolerance}"
            )


class PlanStatus(StrEnum):
    """How planning ended."""

    FOUND = "found"
    OUT_OF_REACH = "out of reach"


@dataclass(frozen=True, eq=False)
class Plan:
    """Strikes (K, d) by `names`, the poses (K, 3) expected after each, one standard deviation of
    the last (3,), and what it costs (Eq. 5, m2).
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
    breached: bool = False  # whether it leaves what the arm can reach

    @property
    def starts(self) -> np.ndarray:
        """Where the body lies before each strike, (K, 3)."""
        return np.vstack([self.task.start, self.predicted[:-1]])


def pose_error(pose: Any, target: Any) -> tuple[Any, Any]:
    """Distance (m) and angle (rad, signed) of poses (..., 3) from targets; arrays or tensors."""
    gap = pose - target
    distance = (gap[..., 0] ** 2 + gap[..., 1] ** 2 + 1e-18) ** 0.5
    return distance, wrap_angle(gap[..., 2])


def loss(pose: Any, target: Any, tau: Any) -> Any:
    """Eq. 5 with a wrapped angle: (...,) for poses and targets (..., 3)."""
    far, turn = pose_error(pose, target)
    return far**2 + tau * turn**2


def breach(reach: Reach, names: Sequence[str], start: Any, strike: Any, end: Any) -> Any:
    """What leaving the arm's reach costs, (N,): zero inside; start, end (N, 3) and strike (N, d),
    arrays or tensors.
    """
    total = 0.0 * end[..., 0]
    if reach.bearing is not None and "point" in names:
        middle, half = reach.bearing[0] + _ahead(reach.bearing) / 2, _ahead(reach.bearing) / 2
        bearing = start[..., 2] + strike[..., list(names).index("point")]
        beyond = abs(wrap_angle(bearing - middle)) - half
        total = total + TAU * (beyond * (beyond > 0)) ** 2
    if reach.workspace is not None:
        x0, x1, y0, y1 = reach.workspace
        for beyond in (x0 - end[..., 0], end[..., 0] - x1, y0 - end[..., 1], end[..., 1] - y1):
            total = total + (beyond * (beyond > 0)) ** 2
    return _BREACH * total


def _ahead(bearing: tuple[float, float]) -> float:
    """From the first bearing counter-clockwise to the second, (0, 2 pi]."""
    return (bearing[1] - bearing[0]) % (2 * math.pi) or 2 * math.pi


def box(model: StrikeModel, reach: Reach) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest strike (d,) that both the model knows and the arm allows."""
    low, high = model.low.copy(), model.high.copy()
    if reach.speed is not None and "speed" in model.names:
        i = model.names.index("speed")
        low[i], high[i] = max(low[i], reach.speed[0]), min(high[i], reach.speed[1])
        if low[i] >= high[i]:
            raise DataError(
                f"the arm strikes at {reach.speed[0]:g} to {reach.speed[1]:g} m/s, but the model knows {model.low[i]:g} to {model.high[i]:g} m/s only"
            )
    return low, high
