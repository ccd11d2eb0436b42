"""How good predicted twists are: relative error, accuracy at a threshold, coverage of intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.core.errors import DataError

ALPHAS = (0.1, 0.2)  # thresholds of accuracy in every table
_FINE_ALPHA = 0.05  # a further threshold, at which good methods still differ
_MIN_SIZE = 1e-12  # m/s, of a measured twist, so that no division is by zero


def twist_weights(k: int, gyration: float) -> np.ndarray:
    """Factors that turn a twist (v, w) into (v, gyration * w), all in m/s.

    Args:
        k: 3 for a planar twist, 6 for a spatial one.
        gyration: Radius of gyration, m.

    Returns:
        Factors, (k,).
    """
    if k not in (3, 6):
        raise DataError(f"a twist has 3 or 6 entries, got {k}")
    linear, angular = (2, 1) if k == 3 else (3, 3)
    return np.r_[np.ones(linear), np.full(angular, gyration)]


def relative_error(predicted: np.ndarray, after: np.ndarray, gyration: float) -> np.ndarray:
    """Relative error |v_hat - v| / |v| of twists, with v = (v, gyration * w).

    Args:
        predicted: Twists, (..., k).
        after: Measured twists, (..., k); NaN for components that were not measured, which do not
            count.
        gyration: Radius of gyration, m.

    Returns:
        Errors, (...,); a prediction that is not finite counts as infinitely wrong.
    """
    weights = twist_weights(after.shape[-1], gyration)
    measured = ~np.isnan(after)
    size = np.linalg.norm(np.where(measured, after, 0.0) * weights, axis=-1)
    miss = np.where(measured, predicted - after, 0.0)
    error = np.linalg.norm(miss * weights, axis=-1) / np.maximum(size, _MIN_SIZE)
    return np.where(np.isfinite(error), error, np.inf)


def accuracy(error: np.ndarray, alpha: float) -> float:
    """Share of impacts with a relative error below alpha (CLASH, Eq. 4)."""
    return float(np.mean(error < alpha)) if len(error) else float("nan")


def accuracy_summary(errors: Sequence[np.ndarray]) -> dict[str, float | int]:
    """Figures of a table's row from held-out relative errors.

    Args:
        errors: For each seed, the relative errors of all impacts tested, (N,).

    Returns:
        Means over seeds of the accuracies and of the median error, the standard deviation and the
        worst seed of accuracy(0.1), and the number of seeds.
    """
    summary: dict[str, float | int] = {}
    for alpha in ALPHAS:
        summary[f"accuracy_{alpha}"] = _mean_accuracy(errors, alpha)
    summary[f"accuracy_{_FINE_ALPHA}"] = _mean_accuracy(errors, _FINE_ALPHA)
    per_seed = np.array([accuracy(error, ALPHAS[0]) for error in errors])
    summary["median"] = float(np.mean([np.median(error) for error in errors]))
    summary["sd_0.1"] = float(per_seed.std())
    summary["worst_0.1"] = float(per_seed.min())
    summary["seeds"] = len(errors)
    return summary


def _mean_accuracy(errors: Sequence[np.ndarray], alpha: float) -> float:
    return float(np.mean([accuracy(error, alpha) for error in errors]))


def coverage(error: np.ndarray, half_widths: np.ndarray) -> np.ndarray:
    """How often errors lie within stated intervals.

    Args:
        error: Errors, (N, k); NaN where nothing was measured, which does not count.
        half_widths: Half-widths of intervals that should hold each of `INTERVAL_SHARES` of the
            errors, (2, N, k).

    Returns:
        The share of errors inside, (2,).
    """
    counted = ~np.isnan(error)
    inside = np.abs(np.where(counted, error, np.inf)) <= half_widths
    return inside.sum((1, 2)) / max(int(counted.sum()), 1)
