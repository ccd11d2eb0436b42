"""What every motion fitted to frames provides, and the time at which two such motions meet."""

from __future__ import annotations

from typing import Protocol

import numpy as np

_CLOSEST_ITERATIONS = 4
_MAX_CLOSEST_STEP = 0.05  # s


class FittedMotion(Protocol):
    """Smooth coordinates of a body near an impact, and how well they are known.

    In the plane there are k = 3 coordinates (x, y, yaw), in space k = 6 (position and rotation
    vector); units are m and rad.
    """

    @property
    def std(self) -> np.ndarray:
        """Standard deviations (k,) of the rates at the impact."""
        ...

    @property
    def coordinates_std(self) -> np.ndarray:
        """Standard deviations (k,) of the coordinates at the impact."""
        ...

    @property
    def misfit(self) -> float:
        """Root mean square residual over the noise; 1 for a perfect model."""
        ...

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, k) at times (n,) in s."""
        ...

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates of the coordinates (n, k) per second at times (n,) in s."""
        ...


def closest_time(
    before: FittedMotion, after: FittedMotion, start: float, *, weight: np.ndarray
) -> float:
    """Find the time at which two motions come closest, by Gauss-Newton steps from a start.

    Args:
        before: Motion before the impact.
        after: Motion after the impact.
        start: Time to start from, s.
        weight: Weights (k,) of the coordinates.

    Returns:
        The time of the closest approach, s.
    """
    time = start
    for _ in range(_CLOSEST_ITERATIONS):
        now = np.array([time])
        gap = (after.coordinates(now) - before.coordinates(now))[0] * weight
        gap_rate = (after.rate(now) - before.rate(now))[0] * weight
        step = gap @ gap_rate / max(gap_rate @ gap_rate, 1e-12)  # never divides by zero
        time -= float(np.clip(step, -_MAX_CLOSEST_STEP, _MAX_CLOSEST_STEP))
    return time
