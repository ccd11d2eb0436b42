"""What no collision can do, whatever a network says: gain energy, drive the bodies into each other,
or make momentum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SLACK = 1e-9  # relative: rounding is not a violation


@dataclass(frozen=True, eq=False)
class Mechanics:
    """What N colliding pairs are made of, at the struck bodies' origins; k = 3 in a plane, 6 in
    space.

    compliance (N, k, k): twist that a unit impulse gives the struck body. give (N, k, k): likewise
    the striker, zero where it is fixed.
    normal (N, k): its product with a relative twist is the speed at which the surfaces part.
    """

    compliance: np.ndarray
    give: np.ndarray
    normal: np.ndarray


def guard(
    m: Mechanics, before: np.ndarray, after: np.ndarray, striker: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nearest allowed twist after (N, k), the impulse on the struck body (N, k), and which rows had
    to be moved (N,).

    before, after, striker (N, k): twists of the struck body before and after, and of the striker
    before, all at the struck body's origin. With impulse p the relative twist becomes u+ = u + A p,
    A = compliance + give, and the pair's kinetic energy in its own frame changes by (|u+|^2 -
    |u|^2) / 2 in the metric of A^-1 (for a striker that is fixed or driven: the struck body's
    energy in the striker's frame). So energy bounds u+ to a ball about zero and parting to a
    half-space through its centre: the nearest point of the half-space, shortened to the ball, is
    the nearest point of both. That the striker gets -p keeps momentum by construction.
    """
    total = m.compliance + m.give
    impulse = np.linalg.solve(m.compliance, (after - before)[..., None])[..., 0]
    u = before - striker
    end = u + np.einsum("nij,nj->ni", total, impulse)
    out = np.einsum("nij,nj->ni", total, m.normal)
    parting = (m.normal * end).sum(1)
    into = np.minimum(parting, 0.0)
    end = end - (into / (m.normal * out).sum(1))[:, None] * out
    had, has = _size(total, u), _size(total, end)
    shrink = np.minimum(1.0, had / np.maximum(has, 1e-300))
    moved = (shrink < 1 - _SLACK) | (into < -_SLACK * np.abs((m.normal * u).sum(1)))
    end = np.where(moved[:, None], end * shrink[:, None], end)
    impulse = np.where(
        moved[:, None], np.linalg.solve(total, (end - u)[..., None])[..., 0], impulse
    )
    return before + np.einsum("nij,nj->ni", m.compliance, impulse), impulse, moved


def energy(m: Mechanics, relative: np.ndarray) -> np.ndarray:
    """Kinetic energy (N,) of the pair in its own frame, for relative twists (N, k)."""
    return 0.5 * _size(m.compliance + m.give, relative) ** 2


def _size(total: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum((u * np.linalg.solve(total, u[..., None])[..., 0]).sum(1), 0.0))
