"""How good predicted twists are: relative error, accuracy at a threshold, and whether a stated
spread is honest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.core.errors import DataError

ALPHAS = (0.1, 0.2)
SHARES = (0.5, 0.8, 0.9)


def weights(k: int, gyration: float) -> np.ndarray:
    """Factors (k,) that turn a planar (k = 3) or spatial (k = 6) twist (v, w) into (v, gyration *
    w), all in m/s.
    """
    if k not in (3, 6):
        raise DataError(f"a twist has 3 or 6 entries, got {k}")
    return np.r_[np.ones(2 if k == 3 else 3), np.full(1 if k == 3 else 3, gyration)]


def relative_error(predicted: np.ndarray, after: np.ndarray, gyration: float) -> np.ndarray:
    """|v_hat - v| / |v| (...,) with v = (v, gyration * w), for twists (..., k); what is not finite
    counts as infinitely wrong.
    """
    scale = weights(after.shape[-1], gyration)
    size = np.linalg.norm(after * scale, axis=-1)
    error = np.linalg.norm((predicted - after) * scale, axis=-1) / np.maximum(size, 1e-12)
    return np.where(np.isfinite(error), error, np.inf)


def accuracy(error: np.ndarray, alpha: float) -> float:
    """Share of impacts with a relative error below alpha (CLASH, Eq. 4)."""
    return float(np.mean(error < alpha)) if len(error) else float("nan")


def summary(errors: Sequence[np.ndarray]) -> dict[str, float | int]:
    """The figures of a bench row from the held-out relative errors of each seed: means over seeds,
    sd and worst seed of accuracy(0.1).
    """
    shares = {alpha: np.array([accuracy(e, alpha) for e in errors]) for alpha in ALPHAS}
    first = shares[ALPHAS[0]]
    out: dict[str, float | int] = {
        f"accuracy_{alpha}": float(s.mean()) for alpha, s in shares.items()
    }
    out["accuracy_0.05"] = float(
        np.mean([accuracy(e, 0.05) for e in errors])
    )  # where all methods are within a tenth, this still tells them apart
    return out | {
        "median": float(np.mean([np.median(e) for e in errors])),
        "sd_0.1": float(first.std()),
        "worst_0.1": float(first.min()),
        "seeds": len(errors),
    }


def coverage(
    error: np.ndarray, spread: np.ndarray, shares: Sequence[float] = SHARES
) -> dict[float, float]:
    """How often errors (N, k) lie inside the central interval that a Gaussian of that spread (N, k)
    holds with probability `share`.

    An honest spread covers each share by that share; less is overconfidence.
    """
    from scipy.stats import norm

    z = np.abs(np.asarray(error, float)) / np.maximum(np.asarray(spread, float), 1e-300)
    return {share: float(np.mean(z <= norm.ppf(0.5 + share / 2))) for share in shares}
