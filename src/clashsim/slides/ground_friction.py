"""Friction of the ground from slides: linear regression on the energy that a slide loses.

With speed v, yaw rate w and radius of gyration r, a body that slides and turns on the ground loses

    E(0) - E(t) = g (mu * path(t) + tau * angle(t)),   E = (v^2 + r^2 w^2) / 2 per unit of mass.

This is linear in the sliding friction mu and the torsional friction tau (m), and it needs no
accelerations, which motion capture hardly resolves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import savgol_filter

from clashsim.core.errors import DataError
from clashsim.slides.slide import Slide

# Share of the initial energy below which a slide is not used: there noise looks like motion.
_SLOW = 0.02
_MIN_WINDOW = 5  # samples of the velocity filter
_FILTER_DEGREE = 2  # of the polynomials of the velocity filter
_MIN_SAMPLES = 4  # of a slide that are used
_MIN_TURN = 1e-9  # squared angle over squared path (rad^2 / m^2) below which a slide does not turn


@dataclass(frozen=True)
class GroundFriction:
    """Friction of the ground with its standard errors over slides.

    Attributes:
        sliding: Sliding friction coefficient.
        torsional: Torsional friction, m.
        sliding_error: Standard error of the sliding friction.
        torsional_error: Standard error of the torsional friction, m.
    """

    sliding: float
    torsional: float
    sliding_error: float
    torsional_error: float


def ground_friction(
    slides: Sequence[Slide], *, gyration: float, gravity: float = 9.81, window: float = 0.05
) -> GroundFriction:
    """Regress the friction of the ground on slides.

    Args:
        slides: The recorded slides.
        gyration: Radius of gyration about the plane's normal, m.
        gravity: m/s^2.
        window: Length of the window that smooths velocities, s.

    Returns:
        Friction and its standard errors, which are NaN for fewer than three slides.
    """
    if not slides:
        raise DataError("there are no slides to regress ground friction on")
    equations = []
    for i, slide in enumerate(slides):
        equations.append(
            _normal_equations(slide, i, gyration=gyration, gravity=gravity, window=window)
        )
    total = np.zeros((2, 3))
    for of_slide in equations:
        total += of_slide
    coefficients = _solve(total)
    error = np.full(2, np.nan)
    n = len(equations)
    if n > 2:
        # Jackknife over slides, since the samples within a slide are not independent.
        left_out = np.array([_solve(total - of_slide) for of_slide in equations])
        error = np.sqrt((n - 1) / n * ((left_out - left_out.mean(0)) ** 2).sum(0))
    return GroundFriction(
        float(coefficients[0]), float(coefficients[1]), float(error[0]), float(error[1])
    )


def _normal_equations(
    slide: Slide, i: int, *, gyration: float, gravity: float, window: float
) -> np.ndarray:
    """Normal equations (2, 3) of one slide's regression: matrix (2, 2) and right-hand side.

    They are sums over samples of (path, angle) times (path, angle, lost energy over gravity).
    """
    t, pose = slide.checked(i)
    step = float(np.median(np.diff(t)))
    even_times = np.arange(t[0], t[-1], step)
    pose = np.column_stack([np.interp(even_times, t, column) for column in pose.T])
    wanted = max(_MIN_WINDOW, 2 * round(window / step / 2) + 1)
    longest = len(even_times) - (1 - len(even_times) % 2)
    window_samples = min(wanted, longest)  # both are odd, as the filter requires
    rate = savgol_filter(pose, window_samples, _FILTER_DEGREE, deriv=1, delta=step, axis=0)
    speed = np.linalg.norm(rate[:, :2], axis=1)
    yaw_rate = np.abs(rate[:, 2])
    energy = (speed**2 + (gyration * yaw_rate) ** 2) / 2
    first = window_samples // 2
    slow = np.flatnonzero(energy[first:] < _SLOW * energy[first])
    last = first + int(slow[0]) if len(slow) else len(even_times) - first
    if last - first < _MIN_SAMPLES:
        raise DataError(f"slide {i} hardly moves")
    used = slice(first, last)
    travelled = np.column_stack([np.cumsum(speed[used]), np.cumsum(yaw_rate[used])]) * step
    travelled -= travelled[0]
    lost = (energy[used][0] - energy[used]) / gravity
    return travelled.T @ np.column_stack([travelled, lost])


def _solve(equations: np.ndarray) -> np.ndarray:
    """Sliding and torsional friction (2,) from normal equations (2, 3).

    Torsional friction is zero if no slide turned, or where the regression would make it negative.
    """
    matrix = equations[:, :2]
    right = equations[:, 2]
    sliding_only = np.array([right[0] / matrix[0, 0], 0.0])
    if matrix[1, 1] < _MIN_TURN * max(matrix[0, 0], 1e-12):
        return sliding_only
    both = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return both if both[1] >= 0 else sliding_only
