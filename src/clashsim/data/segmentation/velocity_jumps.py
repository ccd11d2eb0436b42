"""Knots: moments at which a body's velocity jumps while its position does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.data.segmentation.trajectory import thinned

_SPANS = (
    0.05,
    0.1,
)  # s on each side of a knot over which motion is taken as a parabola: short for quick hits, long for slow ones
_FEWEST = 5  # frames on each side
_BEND = 5.0  # m/s^2, the acceleration that friction or gravity may well have
# How much a jump must lower the sum of squared residuals over noise, against the best sudden change
# of acceleration
_EVIDENCE = 15.0


@dataclass(frozen=True, eq=False)
class VelocityJump:
    """Time (s) of a jump, between which two times it lies, its size (k,) in the units of the rates,
    and the evidence for it.
    """

    time: float
    low: float
    high: float
    jump: np.ndarray
    evidence: float


def velocity_jumps(
    t: np.ndarray, pose: np.ndarray, noise: np.ndarray, *, scale: np.ndarray, least: float
) -> list[VelocityJump]:
    """Jumps of more than `least` (m/s) in the rate of coordinates (n, k) with noise (n, k); `scale`
    (k,) turns rates into m/s.

    At each place between two frames a parabola on each side, joined there in position, is set
    against parabolas that are joined in
    velocity too, at any place near by: friction that sets in or ends bends a motion in the second
    way, only an impact in the first.
    """
    if len(t) < 2:
        return []
    t, pose, noise = thinned(t, pose, noise)
    rate = 1 / float(np.median(np.diff(t)))
    kept: list[VelocityJump] = []
    for span in _SPANS:
        # A long span that holds two hits puts its jump between them, so it only adds what the short
        # one has not seen.
        kept += [
            knot
            for knot in _look(t, pose, noise, scale, m=max(_FEWEST, round(span * rate)))
            if np.linalg.norm(knot.jump * scale) > least
            and all(abs(knot.time - other.time) > max(_SPANS[0], 3.5 / rate) for other in kept)
        ]
    return sorted(kept, key=lambda knot: knot.time)


def _look(
    t: np.ndarray, pose: np.ndarray, noise: np.ndarray, scale: np.ndarray, *, m: int
) -> list[VelocityJump]:
    """Jumps for which there is evidence in m frames on each side, the best within half of that."""
    n = len(t) - 2 * m + 1
    if n < 1:
        return []
    rows = np.arange(n)[:, None] + np.arange(2 * m)
    middle = 0.5 * (t[m - 1 : m - 1 + n] + t[m : m + n])
    s = t[rows] - middle[:, None]
    span = np.abs(s).max(1, keepdims=True)
    unit = noise.min(0)
    trust = (
        1 / np.max(noise / unit, axis=1)[rows][:, :, None]
    )  # frames in motion are less sure by the jitter of their time stamps
    s, y = s / span, (pose[rows] - pose[rows].mean(1, keepdims=True)) / unit
    # What friction or gravity may bend a path by bounds the parabolas: without it a sharp bend over
    # a few frames would pass for a jump.
    stiff = (2 * float(np.exp(np.log(unit * scale).mean())) / (_BEND * span[:, 0] ** 2)) ** 2
    joined, coefficients = _misfit(trust * _parabolas(s, 0.0, smooth=False), trust * y, stiff)
    jump = (coefficients[:, 2] - coefficients[:, 1]) / span * unit
    evidence = _misfit(trust * _parabolas(s, 0.0, smooth=True), trust * y, stiff)[0] - joined
    likely = np.flatnonzero(
        evidence > _EVIDENCE
    )  # few places get this far, so the search for the best bend costs little
    for place in np.unique(np.linspace(2, 2 * m - 2, min(2 * m - 3, 13)).astype(int)):
        at = 0.5 * (s[likely, place - 1] + s[likely, place])
        bent = _misfit(
            trust[likely] * _parabolas(s[likely], at, smooth=True),
            (trust * y)[likely],
            stiff[likely],
        )[0]
        evidence[likely] = np.minimum(evidence[likely], bent - joined[likely])
    width = m // 2 + 1
    rank = (
        evidence - joined
    )  # where two hits are in sight, a knot between them may say more but does not fit
    # A maximum at either end only says that more of the jump lies beyond it.
    return [
        VelocityJump(
            float(middle[i]), float(t[i + m - 1]), float(t[i + m]), jump[i], float(evidence[i])
        )
        for i in np.flatnonzero(evidence > _EVIDENCE)
        if 0 < i < n - 1 and rank[i] >= rank[max(i - width, 0) : i + width + 1].max()
    ]


def _parabolas(s: np.ndarray, at: np.ndarray | float, *, smooth: bool) -> np.ndarray:
    """Basis (n, 2m, 4 or 5) of two parabolas joined at `at` (n,), in velocity too where smooth."""
    r = s - np.reshape(at, (-1, 1))
    left, right = np.minimum(r, 0), np.maximum(r, 0)
    linear = [r] if smooth else [left, right]
    return np.stack([np.ones_like(r), *linear, left**2, right**2], axis=2)


def _misfit(basis: np.ndarray, y: np.ndarray, stiff: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum of squared residuals (n,) over all coordinates, squares of the bends times `stiff` (n,)
    added, and the coefficients (n, p, k).
    """
    normal = np.einsum("nip,niq->npq", basis, basis) + 1e-9 * np.eye(basis.shape[2])
    normal[:, [-2, -1], [-2, -1]] += stiff[:, None]
    right = np.einsum("nip,nik->npk", basis, y)
    coefficients = np.linalg.solve(normal, right)
    return (y**2).sum((1, 2)) - (right * coefficients).sum((1, 2)), coefficients
