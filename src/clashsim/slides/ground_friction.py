"""Friction of the ground from slides: sliding and torsional, by linear regression on the energy
that a slide loses.

With speed v, spin w and radius of gyration r, a body that slides and turns on the ground loses

    E(0) - E(t) = g (mu * path(t) + tau * angle(t)),   E = (v^2 + r^2 w^2) / 2 per unit of mass,

linear in the friction coefficient mu and the torsional one tau (m), and it needs no accelerations,
which motion capture hardly gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import savgol_filter

from clashsim.core.errors import DataError
from clashsim.slides.slide import Slide


@dataclass(frozen=True)
class GroundFriction:
    """Sliding coefficient and torsional one (m), each with its standard error over slides."""

    sliding: float
    torsional: float
    sliding_error: float
    torsional_error: float


def ground_friction(
    slides: Sequence[Slide], *, gyration: float, gravity: float = 9.81, window: float = 0.05
) -> GroundFriction:
    """Regress friction on slides; `window` (s) is over how long velocities are smoothed."""
    if not slides:
        raise DataError("there are no slides to regress ground friction on")
    sums, parts = np.zeros((2, 3)), []
    for i, slide in enumerate(slides):
        part = _normal_equations(slide, i, gyration=gyration, gravity=gravity, window=window)
        sums += part
        parts.append(part)
    coefficients = _solve(sums)
    # Slides, not frames, are independent: the error comes from leaving one slide out at a time.
    left_out = (
        np.array([_solve(sums - p) for p in parts])
        if len(parts) > 2
        else np.tile(coefficients, (1, 1))
    )
    n = len(left_out)
    error = (
        np.sqrt((n - 1) / n * ((left_out - left_out.mean(0)) ** 2).sum(0))
        if n > 2
        else np.full(2, np.nan)
    )
    return GroundFriction(
        float(coefficients[0]), float(coefficients[1]), float(error[0]), float(error[1])
    )


def _normal_equations(
    slide: Slide, i: int, *, gyration: float, gravity: float, window: float
) -> np.ndarray:
    """(2, 3): sums of products of (path, angle) with (path, angle, energy lost over gravity), while
    the body moves.
    """
    t, pose = slide.checked(i)
    step = float(np.median(np.diff(t)))
    even = np.arange(t[0], t[-1], step)
    pose = np.column_stack([np.interp(even, t, c) for c in pose.T])
    frames = min(max(5, 2 * round(window / step / 2) + 1), len(even) - (1 - len(even) % 2))
    rate = savgol_filter(pose, frames, 2, deriv=1, delta=step, axis=0)
    speed, spin = np.linalg.norm(rate[:, :2], axis=1), np.abs(rate[:, 2])
    energy = (speed**2 + (gyration * spin) ** 2) / 2
    edge = frames // 2
    moving = np.flatnonzero(
        energy[edge:] < 0.02 * energy[edge]
    )  # once it is slow, noise counts as way
    last = edge + int(moving[0]) if len(moving) else len(even) - edge
    if last - edge < 4:
        raise DataError(f"slide {i} hardly moves")
    use = slice(edge, last)
    way = np.column_stack([np.cumsum(speed[use]), np.cumsum(spin[use])]) * step
    way -= way[0]
    lost = (energy[use][0] - energy[use]) / gravity
    return way.T @ np.column_stack([way, lost])


def _solve(sums: np.ndarray) -> np.ndarray:
    """Coefficients (2,) of the normal equations; torsional friction is zero where nothing turned."""
    matrix, right = sums[:, :2], sums[:, 2]
    if matrix[1, 1] < 1e-9 * max(matrix[0, 0], 1e-12):
        return np.array([right[0] / matrix[0, 0], 0.0])
    out = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return out if out[1] >= 0 else np.array([right[0] / matrix[0, 0], 0.0])
