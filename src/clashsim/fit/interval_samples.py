"""Ranges and samples of parameters from their estimates, for domain randomisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from clashsim.core.errors import ParamError
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.core.params import Param, from_unit, to_unit

_NORMAL_90 = 1.64  # standard deviations between an estimate and either end of its interval
_MAX_SAMPLES = 10_000_000


def estimate_ranges(
    params: Sequence[Param], estimates: Sequence[Estimate]
) -> dict[str, tuple[float, float]]:
    """The 90 % intervals of estimates, clipped to the parameters' ranges.

    Args:
        params: The parameters.
        estimates: Their estimates, in the same order.

    Returns:
        Low and high of each parameter by name, natural units.
    """
    low, high = _interval_ends(params, estimates)
    found = {}
    for i, param in enumerate(params):
        found[param.name] = (float(low[i]), float(high[i]))
    return found


def sample_estimates(
    params: Sequence[Param],
    estimates: Sequence[Estimate],
    theta: np.ndarray,
    *,
    n: int,
    seed: int,
) -> np.ndarray:
    """Sample each parameter independently from the normal distribution of its interval.

    The distribution is on the parameter's own scale, and samples are clipped to its range; a
    parameter whose interval reaches an end of its range therefore often has the value of that end.
    KNOWN parameters are sampled uniformly between the ends of their intervals. With the same seed,
    a larger number of samples begins with the same ones.

    Args:
        params: The parameters.
        estimates: Their estimates.
        theta: Their values (p,), natural units, within their ranges.
        n: Number of samples.
        seed: Seed of the random numbers.

    Returns:
        Thetas (n, p), natural units.
    """
    if not 1 <= n <= _MAX_SAMPLES or seed < 0:
        raise ParamError(
            "one to ten million samples and a seed that is not negative are needed, "
            f"got {n} and {seed}"
        )
    low, high = _interval_ends(params, estimates)
    centre = to_unit(params, theta)
    above = to_unit(params, high) - centre
    below = centre - to_unit(params, low)
    # If the range cuts off one side of the interval, the other gives the standard deviation.
    std = np.maximum(above, below) / _NORMAL_90
    z = np.random.default_rng(seed).normal(size=(n, len(params)))
    samples = from_unit(params, np.clip(centre + std * z, -1, 1))
    known = [estimate.status is EstimateStatus.KNOWN for estimate in estimates]
    samples = np.where(known, low + (high - low) * ndtr(z), samples)
    # Rounding in the logarithmic scale may end slightly beyond the range.
    return np.clip(samples, [p.low for p in params], [p.high for p in params])


def _interval_ends(
    params: Sequence[Param], estimates: Sequence[Estimate]
) -> tuple[np.ndarray, np.ndarray]:
    """Low and high ends (p,) of the intervals, clipped to the parameters' ranges."""
    lowest = np.array([param.low for param in params])
    highest = np.array([param.high for param in params])
    low = np.clip([estimate.low for estimate in estimates], lowest, highest)
    high = np.clip([estimate.high for estimate in estimates], lowest, highest)
    return low, high
