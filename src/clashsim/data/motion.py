"""Motion on one side of an impact as a polynomial, over as many frames as agree with it, with the error of its velocity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Motion(Protocol):
    """Coordinates (n, k) and their rates (n, k) at times (n,); sd (k,): of the rates at the impact; misfit: rms residual over the noise."""

    @property
    def sd(self) -> np.ndarray: ...
    @property
    def misfit(self) -> float: ...
    def place(self, t: np.ndarray) -> np.ndarray: ...
    def rate(self, t: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where a motion must begin: the motion before the impact, coordinates (k,) and rates (k,) at `time`, with sd (k,) of the coordinates."""

    time: float
    place: np.ndarray
    rate: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True, eq=False)
class Polynomial:
    """Coefficients (order + 1, k) in powers of t - origin; sd, place_sd (k,): of rate and place at the origin."""

    origin: float
    coefficients: np.ndarray
    sd: np.ndarray
    place_sd: np.ndarray
    misfit: float

    def place(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, k) at times (n,)."""
        return np.vander(t - self.origin, len(self.coefficients), increasing=True) @ self.coefficients

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates (n, k) at times (n,)."""
        powers = np.arange(1, len(self.coefficients))
        if len(powers) == 0:
            return np.zeros((len(t), self.coefficients.shape[1]))
        return np.vander(t - self.origin, len(powers), increasing=True) @ (powers[:, None] * self.coefficients[1:])


def polynomial(t: np.ndarray, pose: np.ndarray, noise: np.ndarray, *, order: int, origin: float, anchor: Anchor | None = None) -> Polynomial:
    """Least squares of coordinates (n, k) with noise (k,), through an anchor if there is one; errors are those at `origin`."""
    weight = np.ones(len(t))
    if anchor is not None:
        t, pose = np.append(t, anchor.time), np.vstack([pose, anchor.place])
        weight = np.append(weight, float(np.median(noise / anchor.sd)))
    scale = max(float(np.abs(t - origin).max()), 1e-9)
    basis = np.vander((t - origin) / scale, max(order, 1) + 1, increasing=True)  # of a body at rest, too, the slope says how sure that is
    fitted = basis[:, : order + 1] * weight[:, None]
    coefficients = np.linalg.lstsq(fitted, pose * weight[:, None], rcond=None)[0]
    left = (pose - basis[:, : order + 1] @ coefficients) * weight[:, None] / noise
    misfit = float(np.sqrt((left**2).sum() / max((len(t) - order - 1) * pose.shape[1], 1)))
    inverse = np.linalg.pinv(basis * weight[:, None])
    spread = noise * max(misfit, 1.0)
    return Polynomial(origin, coefficients / (scale ** np.arange(order + 1))[:, None], np.linalg.norm(inverse[1]) / scale * spread,
                      (np.linalg.norm(inverse[0]) if order else 1 / np.sqrt(len(t))) * spread, misfit)


def smooth(t: np.ndarray, pose: np.ndarray, noise: np.ndarray, *, origin: float, orders: Sequence[int] = (0, 1, 2), anchor: Anchor | None = None) -> Polynomial:
    """The polynomial with the smallest error of its rate at `origin` among those that agree with the frames they cover.

    For each order the window grows away from the origin until residuals exceed the noise or the rate leaves the interval that the
    shorter windows gave it (Lepski's rule): a long window has little noise, a window too long a bias, and this finds where they meet.
    """
    by_distance = np.argsort(np.abs(t - origin), kind="stable")
    best: Polynomial | None = None
    spare: Polynomial | None = None
    for order in orders:
        kept: Polynomial | None = None
        for n in _sizes(len(t), order):
            rows = np.sort(by_distance[:n])
            fit = polynomial(t[rows], pose[rows], noise, order=order, origin=origin, anchor=anchor)
            free = max((n - order - 1) * pose.shape[1], 1)
            if spare is None or fit.misfit < spare.misfit:
                spare = fit
            here = np.array([origin])
            moved = _slope(t[rows], pose[rows], noise) > 3.0 if order == 0 else kept is not None and (np.abs(fit.rate(here) - kept.rate(here))[0] > 2 * kept.sd).any()
            if fit.misfit > 1.15 + 2 / np.sqrt(2 * free) or moved:
                break
            kept = fit
        if kept is not None and (best is None or float((kept.sd / noise).max()) < float((best.sd / noise).max())):
            best = kept
    assert spare is not None
    return best if best is not None else spare


def _sizes(n: int, order: int) -> list[int]:
    """Window lengths to try, growing by half, all frames last."""
    sizes, size = [], float(max(order + 3, 5))
    while size < n:
        sizes.append(int(size))
        size *= 1.5
    return [*sizes, n]


def _slope(t: np.ndarray, pose: np.ndarray, noise: np.ndarray) -> float:
    """Largest slope of the coordinates over its standard deviation."""
    s = t - t.mean()
    length = max(float(np.linalg.norm(s)), 1e-12)
    return float((np.abs(s @ pose) / length / noise).max())


def crossing(old: Motion, new: Motion, near: float, weight: np.ndarray) -> float:
    """Time near `near` at which two motions come closest, coordinates weighed by weight (k,)."""
    moment = near
    for _ in range(4):
        here = np.array([moment])
        gap, rate = ((new.place(here) - old.place(here))[0] * weight, (new.rate(here) - old.rate(here))[0] * weight)
        moment -= float(np.clip(gap @ rate / max(rate @ rate, 1e-12), -0.05, 0.05))
    return moment
