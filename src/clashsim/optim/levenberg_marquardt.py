"""Levenberg-Marquardt from many starts at once, each with its own damping, each step taken only
where it lowers the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
_FIRST, _LEAST, _MOST = 1e-2, 1e-9, 1e9


@dataclass(frozen=True, eq=False)
class Descent:
    """Points (m, q), their losses (m,), dampings (m,) to go on with, residuals (m, n) and slopes
    (m, n, q) there, and the loss after each step (steps, m).
    """

    points: np.ndarray
    loss: np.ndarray
    damping: np.ndarray
    residual: np.ndarray
    jacobian: np.ndarray
    trace: np.ndarray


def levenberg_marquardt(
    evaluate: Evaluate,
    starts: np.ndarray,
    *,
    low: np.ndarray | float = -1.0,
    high: np.ndarray | float = 1.0,
    steps: int = 20,
    tolerance: float = 0.0,
) -> Descent:
    """Descend from starts (m, q) inside [low, high]; `evaluate` gives residuals (m, n) and slopes
    (m, n, q) at points (m, q), the loss is their squared sum.

    Damping is Marquardt's, of the size of each diagonal entry, so that parameters and weights of
    any size move alike. A residual that is not finite counts as a step to be taken back. Ends when
    no loss fell by more than `tolerance` of itself in eight steps: refused that often, steps have
    become tiny.
    """
    kept = np.clip(np.array(starts, float), low, high)
    residual, slope = evaluate(kept)
    loss, damping = _loss(residual, slope), np.full(len(kept), _FIRST)
    residual, slope, trace = residual.copy(), slope.copy(), [loss]
    for _ in range(steps):
        moved = np.clip(kept - _step(residual, slope, damping), low, high)
        value, turn = evaluate(moved)
        found = _loss(value, turn)
        better = found < loss
        kept[better], residual[better], slope[better] = moved[better], value[better], turn[better]
        loss = np.where(better, found, loss)
        damping = np.clip(np.where(better, damping / 5, damping * 8), _LEAST, _MOST)
        trace.append(loss)
        if tolerance and len(trace) > 8 and (trace[-9] - loss <= tolerance * trace[-9]).all():
            break
    return Descent(kept, loss, damping, residual, slope, np.stack(trace))


def _loss(residual: np.ndarray, slope: np.ndarray) -> np.ndarray:
    whole = np.isfinite(residual).all(1) & np.isfinite(slope).all((1, 2))
    with np.errstate(over="ignore"):  # a simulation on its way to infinity
        return np.where(whole, (np.where(np.isfinite(residual), residual, 0) ** 2).sum(1), np.inf)


def _step(residual: np.ndarray, slope: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Steps (m, q); zero where a start itself is not finite, for there is nothing to go by."""
    whole = np.isfinite(_loss(residual, slope))
    residual, slope = (
        np.where(whole[:, None], residual, 0),
        np.where(whole[:, None, None], slope, 0),
    )
    hessian = slope.transpose(0, 2, 1) @ slope
    size = np.einsum("mii->mi", hessian)
    size = np.maximum(size, 1e-6 * size.max(1, keepdims=True) + 1e-12)
    hessian = hessian + (damping[:, None] * size)[:, :, None] * np.eye(slope.shape[2])
    return np.linalg.solve(hessian, (slope.transpose(0, 2, 1) @ residual[..., None]))[..., 0]
