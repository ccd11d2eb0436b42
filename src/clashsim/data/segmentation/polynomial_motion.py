"""Motion on one side of an impact as a polynomial, over as many frames as agree with it, with the
error of its velocity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

_MOVE, _TURN = slice(0, 3), slice(3, 6)


class FittedMotion(Protocol):
    """Coordinates (n, k) and their rates (n, k) at times (n,); sd, place_sd (k,): of rates and
    coordinates at the impact; misfit: rms residual over the noise.
    """

    @property
    def std(self) -> np.ndarray: ...
    @property
    def coordinates_std(self) -> np.ndarray: ...
    @property
    def misfit(self) -> float: ...
    def coordinates(self, t: np.ndarray) -> np.ndarray: ...
    def rate(self, t: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where a motion must begin: the motion before the impact, coordinates (k,) and rates (k,) at
    `time`, with sd (k,) of the coordinates.
    """

    time: float
    coordinates: np.ndarray
    rate: np.ndarray
    std: np.ndarray


@dataclass(frozen=True, eq=False)
class Polynomial:
    """Coefficients (order + 1, k) in powers of t - origin; sd, place_sd (k,): of rate and place at
    the origin.
    """

    origin: float
    coefficients: np.ndarray
    std: np.ndarray
    coordinates_std: np.ndarray
    misfit: float

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, k) at times (n,)."""
        return (
            np.vander(t - self.origin, len(self.coefficients), increasing=True) @ self.coefficients
        )

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates (n, k) at times (n,)."""
        powers = np.arange(1, len(self.coefficients))
        if len(powers) == 0:
            return np.zeros((len(t), self.coefficients.shape[1]))
        return np.vander(t - self.origin, len(powers), increasing=True) @ (
            powers[:, None] * self.coefficients[1:]
        )


@dataclass(frozen=True, eq=False)
class SpatialMotion:
    """Position and turn of a body in space, each with a polynomial and a window of its own: gravity
    is simple, tumbling is not.
    """

    linear: Polynomial
    angular: Polynomial

    @property
    def std(self) -> np.ndarray:
        """Standard deviations (6,) of the rates."""
        return np.concatenate([self.linear.std, self.angular.std])

    @property
    def coordinates_std(self) -> np.ndarray:
        """Standard deviations (6,) of the coordinates."""
        return np.concatenate([self.linear.coordinates_std, self.angular.coordinates_std])

    @property
    def misfit(self) -> float:
        """The larger of the two."""
        return max(self.linear.misfit, self.angular.misfit)

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, 6) at times (n,)."""
        return np.hstack([self.linear.coordinates(t), self.angular.coordinates(t)])

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates (n, 6) at times (n,)."""
        return np.hstack([self.linear.rate(t), self.angular.rate(t)])


def polynomial(
    t: np.ndarray,
    pose: np.ndarray,
    noise: np.ndarray,
    *,
    order: int,
    origin: float,
    anchor: Anchor | None = None,
) -> Polynomial:
    """Least squares of coordinates (n, k) with noise (n, k), through an anchor if there is one;
    errors are those at `origin`.
    """
    noise = np.sqrt((noise**2).mean(0))
    weight = np.ones(len(t))
    if anchor is not None:
        t, pose = np.append(t, anchor.time), np.vstack([pose, anchor.coordinates])
        weight = np.append(weight, float(np.median(noise / anchor.std)))
    scale = max(float(np.abs(t - origin).max()), 1e-9)
    basis = np.vander(
        (t - origin) / scale, max(order, 1) + 1, increasing=True
    )  # of a body at rest, too, the slope says how sure that is
    fitted = basis[:, : order + 1] * weight[:, None]
    coefficients = np.linalg.lstsq(fitted, pose * weight[:, None], rcond=None)[0]
    left = (pose - basis[:, : order + 1] @ coefficients) * weight[:, None] / noise
    misfit = float(np.sqrt((left**2).sum() / max((len(t) - order - 1) * pose.shape[1], 1)))
    inverse = np.linalg.pinv(basis * weight[:, None])
    spread = noise * max(misfit, 1.0)
    return Polynomial(
        origin,
        coefficients / (scale ** np.arange(order + 1))[:, None],
        np.linalg.norm(inverse[1]) / scale * spread,
        (np.linalg.norm(inverse[0]) if order else 1 / np.sqrt(len(t))) * spread,
        misfit,
    )


def in_space(
    t: np.ndarray,
    pose: np.ndarray,
    noise: np.ndarray,
    *,
    origin: float,
    anchor: Anchor | None = None,
) -> SpatialMotion:
    """`smooth` for the position and the turn of coordinates (n, 6), apart."""
    halves = [
        None
        if anchor is None
        else Anchor(anchor.time, anchor.coordinates[part], anchor.rate[part], anchor.std[part])
        for part in (_MOVE, _TURN)
    ]
    return SpatialMotion(
        smooth(t, pose[:, _MOVE], noise[:, _MOVE], origin=origin, anchor=halves[0]),
        smooth(
            t, pose[:, _TURN], noise[:, _TURN], origin=origin, orders=(0, 1, 2, 3), anchor=halves[1]
        ),
    )


def smooth(
    t: np.ndarray,
    pose: np.ndarray,
    noise: np.ndarray,
    *,
    origin: float,
    orders: Sequence[int] = (0, 1, 2),
    anchor: Anchor | None = None,
) -> Polynomial:
    """The polynomial with the smallest error of its rate at `origin` among those that agree with
    the frames they cover.

    For each order the window grows away from the origin until residuals exceed the noise or the
    rate leaves the interval that the shorter windows gave it (Lepski's rule): a long window has
    little noise, a window too long a bias, and this finds where they meet.
    """
    unit = noise.mean(0)
    by_distance = np.argsort(np.abs(t - origin), kind="stable")
    best: Polynomial | None = None
    spare: Polynomial | None = None
    for order in orders:
        kept: Polynomial | None = None
        failed = 0  # in a row: one may be chance
        for n in _sizes(len(t), order):
            rows = np.sort(by_distance[:n])
            fit = polynomial(
                t[rows], pose[rows], noise[rows], order=order, origin=origin, anchor=anchor
            )
            free = max((n - order - 1) * pose.shape[1], 1)
            if order > 0 and (
                spare is None or float((fit.std / unit).max()) < float((spare.std / unit).max())
            ):
                spare = fit
            here = np.array([origin])
            moved = (
                _slope(t[rows], pose[rows], noise[rows].mean(0)) > 3.5
                if order == 0
                else kept is not None
                and (np.abs(fit.rate(here) - kept.rate(here))[0] > 3 * kept.std).any()
            )
            if fit.misfit > 1.15 + 3 / np.sqrt(2 * free) or moved:
                failed += 1
                if failed == 2:
                    break
                continue
            kept, failed = fit, 0
        if kept is not None and (
            best is None or float((kept.std / unit).max()) < float((best.std / unit).max())
        ):
            best = kept
    if best is None and spare is None:
        return polynomial(t, pose, noise, order=1, origin=origin, anchor=anchor)
    return best or spare  # type: ignore[return-value]


def _sizes(n: int, order: int) -> list[int]:
    """Window lengths to try, growing by half, all frames last."""
    sizes, size = [], float(max(2 * order + 2, 5))
    while size < n:
        sizes.append(int(size))
        size *= 1.5
    return [*sizes, n] if n >= 2 * order + 2 or order < 2 else []


def _slope(t: np.ndarray, pose: np.ndarray, noise: np.ndarray) -> float:
    """Largest slope of the coordinates over its standard deviation."""
    s = t - t.mean()
    length = max(float(np.linalg.norm(s)), 1e-12)
    return float((np.abs(s @ pose) / length / noise).max())


def crossing(old: FittedMotion, new: FittedMotion, near: float, weight: np.ndarray) -> float:
    """Time near `near` at which two motions come closest, coordinates weighed by weight (k,)."""
    moment = near
    for _ in range(4):
        here = np.array([moment])
        gap, rate = (
            (new.coordinates(here) - old.coordinates(here))[0] * weight,
            (new.rate(here) - old.rate(here))[0] * weight,
        )
        moment -= float(np.clip(gap @ rate / max(rate @ rate, 1e-12), -0.05, 0.05))
    return moment
