"""Laws that no collision breaks, whatever a network predicts.

A collision cannot add energy, it cannot drive the bodies further into each other, and it cannot
create momentum. `enforce_mechanics` moves a predicted outcome to the nearest allowed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_SLACK = 1e-9  # relative size up to which a violation counts as rounding
_TINY = 1e-300  # keeps a division by a vanishing speed defined
# Determinant of an inverse inertia over the product of its diagonal, at most which it is singular:
# joints leave the body fewer directions than a twist has.
_SINGULAR = 1e-10
_PSEUDO_INVERSE_CUTOFF = 1e-8


@dataclass(frozen=True, eq=False)
class ContactMechanics:
    """How N colliding pairs respond to an impulse.

    Twists (m/s and rad/s) and impulses (N s and N m s) refer to the origin of the struck body, in
    the axes of the scene; they have k = 3 entries in a plane, 6 in space.

    Attributes:
        struck_inverse_inertia: (N, k, k), twist that a unit impulse gives the struck body.
        striker_inverse_inertia: (N, k, k), the same for the striker; zero where it is fixed.
        normal_jacobian: (N, k), its product with a relative twist is the speed (m/s) at which the
            surfaces part.
    """

    struck_inverse_inertia: np.ndarray
    striker_inverse_inertia: np.ndarray
    normal_jacobian: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> ContactMechanics:
        return ContactMechanics(
            self.struck_inverse_inertia[rows],
            self.striker_inverse_inertia[rows],
            self.normal_jacobian[rows],
        )

    @staticmethod
    def joined(parts: Sequence[ContactMechanics]) -> ContactMechanics:
        """Those of several sets of pairs, one after the other."""
        return ContactMechanics(
            np.concatenate([part.struck_inverse_inertia for part in parts]),
            np.concatenate([part.striker_inverse_inertia for part in parts]),
            np.concatenate([part.normal_jacobian for part in parts]),
        )

    @property
    def relative_inverse_inertia(self) -> np.ndarray:
        """(N, k, k): change of the relative twist by a unit impulse between the bodies."""
        return self.struck_inverse_inertia + self.striker_inverse_inertia


class GuardedOutcome(NamedTuple):
    """Outcomes of N collisions that obey mechanics.

    Attributes:
        twist_after: (N, k), of the struck body.
        impulse: (N, k), on the struck body; the striker gets the opposite.
        corrected: (N,), whether a prediction had to be moved.
    """

    twist_after: np.ndarray
    impulse: np.ndarray
    corrected: np.ndarray


def enforce_mechanics(
    mechanics: ContactMechanics,
    twist_before: np.ndarray,
    twist_after: np.ndarray,
    *,
    striker_twist: np.ndarray,
    impulse: np.ndarray | None = None,
) -> GuardedOutcome:
    """Move predicted twists to the nearest ones that obey mechanics.

    An impulse p changes the relative twist u of the bodies to u+ = u + A p, where A is the sum of
    both inverse inertias. The pair's kinetic energy in its own frame changes by
    (|u+|^2 - |u|^2) / 2 in the metric of A^-1. (For a striker that is fixed or driven this is the
    struck body's energy in the striker's frame.) So energy confines u+ to a ball about zero, and
    parting confines it to a half-space through the centre of that ball. The nearest point of the
    half-space, shortened to the ball, is therefore the nearest point of both. Momentum is conserved
    by construction, because the striker gets -p.

    Args:
        mechanics: The responses of the N pairs.
        twist_before: (N, k), of the struck body before the collision.
        twist_after: (N, k), predicted for the struck body.
        striker_twist: (N, k), of the striker before, at the struck body's origin.
        impulse: (N, k), predicted on the struck body; None where its change of twist shows it. That
            of a hinged body does not: its joint takes part of the impulse.

    Returns:
        The allowed outcomes; rows that were allowed already are unchanged.
    """
    struck = mechanics.struck_inverse_inertia
    total = mechanics.relative_inverse_inertia
    normal = mechanics.normal_jacobian
    is_predicted = impulse is not None
    if impulse is None:
        impulse = _smallest_impulse(struck, twist_after - twist_before)
    relative_before = twist_before - striker_twist
    relative_after = relative_before + np.einsum("nij,nj->ni", total, impulse)

    # Parting: add the normal impulse that stops surfaces which would still approach each other.
    normal_response = np.einsum("nij,nj->ni", total, normal)  # relative twist by a normal impulse
    parting_speed = (normal * relative_after).sum(1)
    closing_left = np.minimum(parting_speed, 0.0)
    missing_impulse = -closing_left / (normal * normal_response).sum(1)
    relative_after = relative_after + missing_impulse[:, None] * normal_response

    approach_speed = np.abs((normal * relative_before).sum(1))
    corrected = closing_left < -_SLACK * approach_speed
    if is_predicted:
        # Energy: shorten the impulse until it does no work on the pair.
        impulse = impulse + missing_impulse[:, None] * normal
        work = (relative_before * impulse).sum(1)
        gained = 0.5 * np.einsum("ni,nij,nj->n", impulse, total, impulse)
        shrink = np.clip(-work / np.maximum(gained, _TINY), 0.0, 1.0)
        corrected |= shrink < 1 - _SLACK
        impulse = shrink[:, None] * impulse
    else:
        # Energy: shorten the relative twist to the length it had before.
        norm_before = _energy_norm(total, relative_before)
        norm_after = _energy_norm(total, relative_after)
        shrink = np.minimum(1.0, norm_before / np.maximum(norm_after, _TINY))
        corrected |= shrink < 1 - _SLACK
        change = shrink[:, None] * relative_after - relative_before
        if corrected.any():
            impulse[corrected] = _smallest_impulse(total[corrected], change[corrected])
    changed = twist_before + np.einsum("nij,nj->ni", struck, impulse)
    allowed = np.where(corrected[:, None], changed, twist_after)
    return GuardedOutcome(allowed, impulse, corrected)


def kinetic_energy(mechanics: ContactMechanics, relative_twist: np.ndarray) -> np.ndarray:
    """Kinetic energy (N,), J, of pairs in their own frames, for relative twists (N, k)."""
    return 0.5 * _energy_norm(mechanics.relative_inverse_inertia, relative_twist) ** 2


def _energy_norm(inverse_inertia: np.ndarray, twist: np.ndarray) -> np.ndarray:
    """Length (N,) of twists (N, k) in the metric in which half its square is kinetic energy."""
    momentum = _smallest_impulse(inverse_inertia, twist)
    return np.sqrt(np.maximum((twist * momentum).sum(1), 0.0))


def _smallest_impulse(inverse_inertia: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Impulses (N, k) that change twists by (N, k).

    Joints let a hinged body, say, turn only. Of the impulses that then have the same effect this is
    the smallest one, and changes that no impulse can make are ignored.
    """
    diagonal = np.diagonal(inverse_inertia, axis1=1, axis2=2)
    singular = np.linalg.det(inverse_inertia) <= _SINGULAR * diagonal.prod(1)
    found = np.empty_like(change)
    if not singular.all():
        regular = ~singular
        solved = np.linalg.solve(inverse_inertia[regular], change[regular, :, None])
        found[regular] = solved[..., 0]
    if singular.any():
        inverse = np.linalg.pinv(
            inverse_inertia[singular], rcond=_PSEUDO_INVERSE_CUTOFF, hermitian=True
        )
        found[singular] = np.einsum("nij,nj->ni", inverse, change[singular])
    return found
