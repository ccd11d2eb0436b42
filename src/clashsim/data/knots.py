"""Knots: moments at which a body's velocity jumps while its position does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SPAN = 0.05  # s on each side of a knot over which motion is taken as a parabola
_FEWEST, _MOST = 5, 12  # frames on each side
_EVIDENCE = 30.0  # how much a jump must lower the sum of squared residuals over noise, against the best sudden change of acceleration


@dataclass(frozen=True, eq=False)
class Knot:
    """Time (s) of a jump, between which two times it lies, its size (k,) in the units of the rates, and the evidence for it."""

    time: float
    low: float
    high: float
    jump: np.ndarray
    evidence: float


def knots(t: np.ndarray, pose: np.ndarray, noise: np.ndarray, *, scale: np.ndarray, least: float) -> list[Knot]:
    """Jumps of more than `least` (m/s) in the rate of coordinates (n, k); `scale` (k,) turns rates into m/s.

    At each place between two frames a parabola on each side, joined there in position, is set against parabolas that are joined in
    velocity too, at any place near by: friction that sets in or ends bends a motion in the second way, only an impact in the first.
    """
    rate = 1 / max(float(np.median(np.diff(t))), 1e-9) if len(t) > 1 else 0.0
    group = max(1, round(rate / 250))
    if group > 1:  # fast cameras: means of a few frames say the same with less noise
        n = len(t) // group * group
        t, pose, noise, rate = t[:n].reshape(-1, group).mean(1), pose[:n].reshape(-1, group, pose.shape[1]).mean(1), noise / np.sqrt(group), rate / group
    m = int(np.clip(round(_SPAN * rate), _FEWEST, _MOST))
    n = len(t) - 2 * m + 1
    if n < 1:
        return []
    rows = np.arange(n)[:, None] + np.arange(2 * m)
    middle = 0.5 * (t[m - 1 : m - 1 + n] + t[m : m + n])
    s = t[rows] - middle[:, None]
    span = np.abs(s).max(1, keepdims=True)
    s, y = s / span, (pose[rows] - pose[rows].mean(1, keepdims=True)) / noise
    joined, coefficients = _misfit(_parabolas(s, 0.0, smooth=False), y)
    bent = np.full(n, np.inf)
    for place in range(2, 2 * m - 1):
        bent = np.minimum(bent, _misfit(_parabolas(s, 0.5 * (s[:, place - 1] + s[:, place]), smooth=True), y)[0])
    evidence = bent - joined
    jump = (coefficients[:, 2] - coefficients[:, 1]) / span * noise
    size = np.linalg.norm(jump * scale, axis=1)
    width = m // 2 + 1
    found = []
    for i in np.flatnonzero((evidence > _EVIDENCE) & (size > least)):
        around = evidence[max(i - width, 0) : i + width + 1]
        if evidence[i] >= around.max():
            found.append(Knot(float(middle[i]), float(t[i + m - 1]), float(t[i + m]), jump[i], float(evidence[i])))
    return found


def _parabolas(s: np.ndarray, at: np.ndarray | float, *, smooth: bool) -> np.ndarray:
    """Basis (n, 2m, 4 or 5) of two parabolas joined at `at` (n,), in velocity too where smooth."""
    r = s - np.reshape(at, (-1, 1))
    left, right = np.minimum(r, 0), np.maximum(r, 0)
    linear = [r] if smooth else [left, right]
    return np.stack([np.ones_like(r), *linear, left**2, right**2], axis=2)


def _misfit(basis: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum of squared residuals (n,) over all coordinates, and the coefficients (n, p, k)."""
    normal = np.einsum("nip,niq->npq", basis, basis) + 1e-9 * np.eye(basis.shape[2])
    right = np.einsum("nip,nik->npk", basis, y)
    coefficients = np.linalg.solve(normal, right)
    return (y**2).sum((1, 2)) - (right * coefficients).sum((1, 2)), coefficients
