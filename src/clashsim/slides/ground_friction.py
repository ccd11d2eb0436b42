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

_SLOW = 0.02  # share of the first energy below which noise counts as distance


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
        window: Over how long velocities are smoothed, s.

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
    for one in equations:
        total += one
    coefficients = _solve(total)
    error = np.full(2, np.nan)
    n = len(equations)
    if n > 2:
        # Slides, not frames, are independent: the error comes from leaving one out at a time.
        left_out = np.array([_solve(total - one) for one in equations])
        error = np.sqrt((n - 1) / n * ((left_out - left_out.mean(0)) ** 2).sum(0))
    return GroundFriction(
        float(coefficients[0]), float(coefficients[1]), float(error[0]), float(error[1])
    )


def _normal_equations(
    slide: Slide, i: int, *, gyration: float, gravity: float, window: float
) -> np.ndarray:
    """Sums (2, 3) of products of (path, angle) with (path, angle, energy lost over gravity)."""
    t, pose = slide.checked(i)
    step = float(np.median(np.diff(t)))
    even = np.arange(t[0], t[-1], step)
    pose = np.column_stack([np.interp(even, t, column) for column in pose.T])
    wanted = max(5, 2 * round(window / step / 2) + 1)
    longest = len(even) - (1 - len(even) % 2)
    frames = min(wanted, longest)  # odd, as the filter needs it
    rate = savgol_filter(pose, frames, 2, deriv=1, delta=step, axis=0)
    speed = np.linalg.norm(rate[:, :2], axis=1)
    yaw_rate = np.abs(rate[:, 2])
    energy = (speed**2 + (gyration * yaw_rate) ** 2) / 2
    first = frames // 2
    slow = np.flatnonzero(energy[first:] < _SLOW * energy[first])
    last = first + int(slow[0]) if len(slow) else len(even) - first
    if last - first < 4:
        raise DataError(f"slide {i} hardly moves")
    used = slice(first, last)
    travelled = np.column_stack([np.cumsum(speed[used]), np.cumsum(yaw_rate[used])]) * step
    travelled -= travelled[0]
    lost = (energy[used][0] - energy[used]) / gravity
    return travelled.T @ np.column_stack([travelled, lost])


def _solve(equations: np.ndarray) -> np.ndarray:
    """Coefficients (2,) of normal equations (2, 3); no torsional friction if nothing turned."""
    matrix = equations[:, :2]
    right = equations[:, 2]
    sliding_only = np.array([right[0] / matrix[0, 0], 0.0])
    if matrix[1, 1] < 1e-9 * max(matrix[0, 0], 1e-12):
        return sliding_only
    both = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return both if both[1] >= 0 else sliding_only
