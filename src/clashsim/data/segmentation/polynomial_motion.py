"""Motion on one side of an impact: a polynomial over as many frames as agree with it.

A long window averages noise out, but a window that is too long is biased by what the polynomial
cannot follow. The fits here choose the order and the window for the smallest error of the velocity
at the impact, and report that error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

_LINEAR = slice(0, 3)  # columns of the position among spatial coordinates
_ANGULAR = slice(3, 6)  # columns of the rotation vector
_LINEAR_ORDERS = (0, 1, 2)
_ANGULAR_ORDERS = (0, 1, 2, 3)  # tumbling is not as simple as free fall

_MAX_MISFIT = 1.15  # rms residual over noise of an infinitely long window that still agrees
_MAX_MISFIT_DEVIATIONS = 3.0  # standard deviations that are added to it for a short window
_MAX_RATE_CHANGE = 3.0  # standard deviations by which a longer window may change the rate
_MAX_REST_RATE = 3.5  # standard deviations of the rate of a body that is at rest
_MAX_FAILURES = 2  # windows that disagree in a row: a single one may be chance
_MIN_WINDOW = 5  # frames
_WINDOW_GROWTH = 1.5  # from one window to the next


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where the motion after an impact begins: on the motion before it.

    Attributes:
        time: Time of the impact, s.
        coordinates: Coordinates (k,) of the motion before at that time.
        rate: Rates (k,) of the motion before at that time.
        std: Standard deviations (k,) of the coordinates.
    """

    time: float
    coordinates: np.ndarray
    rate: np.ndarray
    std: np.ndarray

    def part(self, columns: slice) -> Anchor:
        """The anchor of some of the coordinates."""
        return Anchor(self.time, self.coordinates[columns], self.rate[columns], self.std[columns])


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A polynomial motion.

    Attributes:
        origin: Time of the impact, s.
        coefficients: (order + 1, k) in powers of t - origin.
        std: Standard deviations (k,) of the rates at the origin.
        coordinates_std: Standard deviations (k,) of the coordinates at the origin.
        misfit: Root mean square residual over the noise.
    """

    origin: float
    coefficients: np.ndarray
    std: np.ndarray
    coordinates_std: np.ndarray
    misfit: float

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, k) at times (n,) in s."""
        powers = np.vander(t - self.origin, len(self.coefficients), increasing=True)
        return powers @ self.coefficients

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates (n, k) per second at times (n,) in s."""
        exponents = np.arange(1, len(self.coefficients))
        if len(exponents) == 0:
            return np.zeros((len(t), self.coefficients.shape[1]))
        powers = np.vander(t - self.origin, len(exponents), increasing=True)
        return powers @ (exponents[:, None] * self.coefficients[1:])


@dataclass(frozen=True, eq=False)
class SpatialMotion:
    """Position and rotation of a body in space, each with a polynomial and a window of its own."""

    linear: Polynomial
    angular: Polynomial

    @property
    def std(self) -> np.ndarray:
        """Standard deviations (6,) of the rates at the impact."""
        return np.concatenate([self.linear.std, self.angular.std])

    @property
    def coordinates_std(self) -> np.ndarray:
        """Standard deviations (6,) of the coordinates at the impact."""
        return np.concatenate([self.linear.coordinates_std, self.angular.coordinates_std])

    @property
    def misfit(self) -> float:
        """The larger misfit of the two polynomials."""
        return max(self.linear.misfit, self.angular.misfit)

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, 6) at times (n,) in s."""
        return np.hstack([self.linear.coordinates(t), self.angular.coordinates(t)])

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates (n, 6) per second at times (n,) in s."""
        return np.hstack([self.linear.rate(t), self.angular.rate(t)])

    def pose(self, times: np.ndarray) -> tuple[np.ndarray, Rotation]:
        """Positions (n, 3), m, and n rotations from the reference, at times (n,) in s."""
        return self.linear.coordinates(times), Rotation.from_rotvec(self.angular.coordinates(times))


def fit_polynomial(
    t: np.ndarray,
    coordinates: np.ndarray,
    noise: np.ndarray,
    *,
    order: int,
    origin: float,
    anchor: Anchor | None = None,
) -> Polynomial:
    """Fit a polynomial of one order to all frames by least squares.

    Args:
        t: Times (n,) of the frames, s.
        coordinates: Coordinates (n, k).
        noise: Standard deviations (n, k) of the coordinates.
        order: Order of the polynomial; 0 is a body at rest.
        origin: Time of the impact, s: the reported errors are those at this time.
        anchor: A point the polynomial goes through, with its own weight.

    Returns:
        The polynomial with its errors at `origin`.
    """
    mean_noise = np.sqrt((noise**2).mean(0))
    weight = np.ones(len(t))
    if anchor is not None:
        t = np.append(t, anchor.time)
        coordinates = np.vstack([coordinates, anchor.coordinates])
        anchor_weight = float(np.median(mean_noise / anchor.std))
        weight = np.append(weight, anchor_weight)
    duration = max(float(np.abs(t - origin).max()), 1e-9)
    # The basis has a rate even for a body at rest: the rate shows how certain the rest is.
    basis = np.vander((t - origin) / duration, max(order, 1) + 1, increasing=True)
    used_basis = basis[:, : order + 1]
    coefficients = np.linalg.lstsq(
        used_basis * weight[:, None], coordinates * weight[:, None], rcond=None
    )[0]
    residuals = (coordinates - used_basis @ coefficients) * weight[:, None] / mean_noise
    degrees_of_freedom = max((len(t) - order - 1) * coordinates.shape[1], 1)
    misfit = float(np.sqrt((residuals**2).sum() / degrees_of_freedom))
    # Row i has the weights of the frames in coefficient i: 0 is the coordinate, 1 its rate.
    inverse = np.linalg.pinv(basis * weight[:, None])
    frame_std = mean_noise * max(misfit, 1.0)
    # Standard deviations at the origin for frames with a standard deviation of 1.
    rate_gain = np.linalg.norm(inverse[1]) / duration
    coordinate_gain = np.linalg.norm(inverse[0]) if order else 1 / np.sqrt(len(t))
    return Polynomial(
        origin=origin,
        coefficients=coefficients / (duration ** np.arange(order + 1))[:, None],
        std=rate_gain * frame_std,
        coordinates_std=coordinate_gain * frame_std,
        misfit=misfit,
    )


def fit_spatial_motion(
    t: np.ndarray,
    coordinates: np.ndarray,
    noise: np.ndarray,
    *,
    origin: float,
    anchor: Anchor | None = None,
) -> SpatialMotion:
    """Fit position and rotation vector of coordinates (n, 6) separately by `fit_smooth_motion`."""
    linear = fit_smooth_motion(
        t,
        coordinates[:, _LINEAR],
        noise[:, _LINEAR],
        origin=origin,
        anchor=None if anchor is None else anchor.part(_LINEAR),
    )
    angular = fit_smooth_motion(
        t,
        coordinates[:, _ANGULAR],
        noise[:, _ANGULAR],
        origin=origin,
        orders=_ANGULAR_ORDERS,
        anchor=None if anchor is None else anchor.part(_ANGULAR),
    )
    return SpatialMotion(linear, angular)


def fit_smooth_motion(
    t: np.ndarray,
    coordinates: np.ndarray,
    noise: np.ndarray,
    *,
    origin: float,
    orders: Sequence[int] = _LINEAR_ORDERS,
    anchor: Anchor | None = None,
) -> Polynomial:
    """Fit the polynomial with the smallest error of its rate among those that agree with the data.

    For each order the window grows away from the impact until residuals exceed the noise or the
    rate leaves the interval that the shorter windows gave it (Lepski's rule).

    Args:
        t: Times (n,) of the frames, s.
        coordinates: Coordinates (n, k).
        noise: Standard deviations (n, k) of the coordinates.
        origin: Time of the impact, s.
        orders: Orders of polynomials to try.
        anchor: A point the polynomial goes through.

    Returns:
        The best polynomial that agrees with its frames. Where none does, the one with the smallest
        error regardless, and where there are too few frames a straight line.
    """
    mean_noise = noise.mean(0)

    def relative_error(fit: Polynomial) -> float:
        return float((fit.std / mean_noise).max())

    by_distance = np.argsort(np.abs(t - origin), kind="stable")
    best: Polynomial | None = None
    fallback: Polynomial | None = None
    for order in orders:
        accepted: Polynomial | None = None
        failures = 0
        for size in _window_sizes(len(t), order):
            rows = np.sort(by_distance[:size])
            fit = fit_polynomial(
                t[rows], coordinates[rows], noise[rows], order=order, origin=origin, anchor=anchor
            )
            is_better_fallback = fallback is None or relative_error(fit) < relative_error(fallback)
            if order > 0 and is_better_fallback:
                fallback = fit
            if order == 0:
                rate = _rate_over_noise(t[rows], coordinates[rows], noise[rows].mean(0))
                rate_is_off = rate > _MAX_REST_RATE
            else:
                rate_is_off = accepted is not None and _rate_differs(fit, accepted)
            degrees_of_freedom = max((size - order - 1) * coordinates.shape[1], 1)
            # The misfit of a perfect model has a standard deviation of 1 / sqrt(2 dof).
            allowed_misfit = _MAX_MISFIT + _MAX_MISFIT_DEVIATIONS / np.sqrt(2 * degrees_of_freedom)
            if fit.misfit > allowed_misfit or rate_is_off:
                failures += 1
                if failures == _MAX_FAILURES:
                    break
            else:
                accepted = fit
                failures = 0
        if accepted is None:
            continue
        if best is None or relative_error(accepted) < relative_error(best):
            best = accepted
    if best is not None:
        return best
    if fallback is not None:
        return fallback
    return fit_polynomial(t, coordinates, noise, order=1, origin=origin, anchor=anchor)


def _window_sizes(frames: int, order: int) -> Iterator[int]:
    """Numbers of frames in the windows to try, growing by `_WINDOW_GROWTH`, all frames last.

    Polynomials of order 2 and above get no window with fewer than two frames per coefficient.
    """
    two_per_coefficient = 2 * (order + 1)
    if frames < two_per_coefficient and order >= 2:
        return
    size = float(max(two_per_coefficient, _MIN_WINDOW))
    while size < frames:
        yield int(size)
        size *= _WINDOW_GROWTH
    yield frames


def _rate_differs(fit: Polynomial, shorter: Polynomial) -> bool:
    """Whether a longer window gives another rate at the impact than a shorter one allows."""
    at_impact = np.array([fit.origin])
    change = np.abs(fit.rate(at_impact) - shorter.rate(at_impact))[0]
    return bool((change > _MAX_RATE_CHANGE * shorter.std).any())


def _rate_over_noise(t: np.ndarray, coordinates: np.ndarray, noise: np.ndarray) -> float:
    """Largest rate of coordinates (n, k) over its standard deviation, for noise (k,)."""
    centred = t - t.mean()
    length = max(float(np.linalg.norm(centred)), 1e-12)  # never a division by zero
    return float((np.abs(centred @ coordinates) / length / noise).max())
