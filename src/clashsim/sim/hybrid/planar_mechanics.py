"""Mechanics of many touching pairs at once, for bodies that move rigidly in a plane.

Inverse inertias of the same pair in different poses differ by a rotation and a shift only, so they
are computed in MuJoCo for the first pose and transformed to the others. For bodies that do not move
rigidly in a plane they are computed in MuJoCo for every pose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clashsim.core.contact_geometry import Contact
from clashsim.core.impacts import MotionBefore
from clashsim.sim.hybrid.compiled_pair import CompiledPair
from clashsim.sim.hybrid.contact_probe import ContactProbe
from clashsim.sim.hybrid.guards import ContactMechanics


@dataclass(frozen=True, eq=False)
class TouchingPairs:
    """N touching pairs; twists (m/s and rad/s) refer to the struck body's origin.

    Attributes:
        mechanics: How the pairs respond to impulses.
        struck_twist: (N, k), of the struck body before the collision.
        striker_twist: (N, k), of the striker before the collision.
    """

    mechanics: ContactMechanics
    struck_twist: np.ndarray
    striker_twist: np.ndarray


def touching_pairs(
    pair: CompiledPair,
    probe_of: Callable[[int], ContactProbe],
    *,
    before: np.ndarray,
    contact: Contact,
) -> TouchingPairs:
    """Mechanics of touching pairs, in the scene that the pair was learned in.

    Args:
        pair: The pair in the compiled model.
        probe_of: A probe with a number of simulations or more.
        before: (N, d), columns as in `Impacts`.
        contact: Where the pairs touch.
    """
    striker = pair.scene.striker_body
    moves_rigidly = (
        striker.fixed or striker.free or striker.plane is not None or striker.hinge is None
    )
    if pair.plane is None or not moves_rigidly:
        return touching_pairs_one_by_one(pair, probe_of(len(before)), before=before)
    first = pair.contact_states_at(probe_of(1), before[:1]).mechanics
    motion = MotionBefore.of(before)
    struck_position = motion.struck.position
    struck_yaw = motion.struck.yaw
    striker_position = motion.striker.position
    striker_yaw = motion.striker.yaw
    striker_twist = motion.striker.twist

    # From twists at the striker's origin to those at the struck body's.
    to_struck_origin = _shift_twist(struck_position - striker_position)
    to_striker_origin = np.linalg.inv(to_struck_origin[0])
    at_striker_origin = to_striker_origin @ first.striker_inverse_inertia[0] @ to_striker_origin.T
    striker_inverse_inertia = (
        to_struck_origin
        @ _rotated(at_striker_origin, striker_yaw - striker_yaw[0])
        @ np.swapaxes(to_struck_origin, 1, 2)
    )
    arm = contact.point - struck_position
    normal = contact.normal
    moment = arm[:, 0] * normal[:, 1] - arm[:, 1] * normal[:, 0]
    mechanics = ContactMechanics(
        struck_inverse_inertia=_rotated(
            first.struck_inverse_inertia[0], struck_yaw - struck_yaw[0]
        ),
        striker_inverse_inertia=striker_inverse_inertia,
        normal_jacobian=np.column_stack([normal, moment]),
    )
    return TouchingPairs(
        mechanics,
        struck_twist=motion.struck.twist,
        striker_twist=np.einsum("nij,nj->ni", to_struck_origin, striker_twist),
    )


def touching_pairs_one_by_one(
    pair: CompiledPair, probe: ContactProbe, *, before: np.ndarray
) -> TouchingPairs:
    """The same as `touching_pairs`, for bodies of any kind."""
    contacts = pair.contact_states_at(probe, before)
    return TouchingPairs(contacts.mechanics, contacts.struck_twist, contacts.striker_twist)


def _rotated(inverse_inertia: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    """Inverse inertias (N, 3, 3) of one body (3, 3) after it was rotated by yaw (N,), rad."""
    cos = np.cos(yaw)
    sin = np.sin(yaw)
    rotation = np.zeros((len(yaw), 3, 3))
    rotation[:, 0, 0] = cos
    rotation[:, 0, 1] = -sin
    rotation[:, 1, 0] = sin
    rotation[:, 1, 1] = cos
    rotation[:, 2, 2] = 1.0
    return rotation @ inverse_inertia @ np.swapaxes(rotation, 1, 2)


def _shift_twist(offset: np.ndarray) -> np.ndarray:
    """(N, 3, 3): from planar twists at a point to those `offset` (N, 2) away on the same body."""
    matrix = np.tile(np.eye(3), (len(offset), 1, 1))
    matrix[:, 0, 2] = -offset[:, 1]
    matrix[:, 1, 2] = offset[:, 0]
    return matrix
