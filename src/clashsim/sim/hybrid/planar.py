"""Mechanics of many touching pairs at once, for bodies that move rigidly in a plane; others are
looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.contact_geometry import Contact
from clashsim.core.impacts import MotionBefore
from clashsim.sim.hybrid.guards import Mechanics
from clashsim.sim.hybrid.pairs import CompiledPair


@dataclass(frozen=True, eq=False)
class Touching:
    """N touching pairs: their mechanics, and twists (N, k) of struck body and striker before, both
    at the struck body's origin.
    """

    mechanics: Mechanics
    twist: np.ndarray
    striker: np.ndarray


def touching(
    couple: CompiledPair,
    model: mujoco.MjModel,
    data: mujoco.MjData,
    before: np.ndarray,
    contact: Contact,
) -> Touching:
    """Mechanics of touching pairs `before` (N, d) with their contacts, in the scene that the pair
    was learned in.
    """
    hitter = couple.view.striker_body
    rigid = hitter.fixed or hitter.free or hitter.plane is not None or hitter.hinge is None
    if couple.plane is None or not rigid:
        return one_by_one(couple, model, data, before)
    first = couple.pose(model, data, before[:1])[0]
    motion = MotionBefore.of(before)
    struck, striker = motion.struck, motion.striker
    away = _shift(struck.position - striker.position)
    own = (
        np.linalg.inv(away[0]) @ first.give @ np.linalg.inv(away[0]).T
    )  # the striker's at its own origin
    give = away @ _turned(own, striker.yaw - striker.yaw[0]) @ np.swapaxes(away, 1, 2)
    arm, n = contact.point - struck.position, contact.normal
    lever = np.column_stack([n, arm[:, 0] * n[:, 1] - arm[:, 1] * n[:, 0]])
    striker_twist = np.einsum("nij,nj->ni", away, striker.twist)
    return Touching(
        Mechanics(_turned(first.compliance, struck.yaw - struck.yaw[0]), give, lever),
        struck.twist,
        striker_twist,
    )


def one_by_one(
    couple: CompiledPair, model: mujoco.MjModel, data: mujoco.MjData, before: np.ndarray
) -> Touching:
    """The same for any bodies."""
    met = couple.pose(model, data, before)
    parts = {
        k: np.stack([getattr(m, k) for m in met])
        for k in ("compliance", "give", "lever", "twist", "striker")
    }
    return Touching(
        Mechanics(parts["compliance"], parts["give"], parts["lever"]),
        parts["twist"],
        parts["striker"],
    )


def _turned(matrix: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """A planar compliance (3, 3) of a body that has been turned by angles (N,)."""
    c, s = np.cos(angle), np.sin(angle)
    r = np.zeros((len(angle), 3, 3))
    r[:, 0, 0], r[:, 0, 1], r[:, 1, 0], r[:, 1, 1], r[:, 2, 2] = c, -s, s, c, 1.0
    return r @ matrix @ np.swapaxes(r, 1, 2)


def _shift(d: np.ndarray) -> np.ndarray:
    """(N, 3, 3): from a planar twist at a point to that at another, d (N, 2) farther on the same
    body.
    """
    out = np.tile(np.eye(3), (len(d), 1, 1))
    out[:, 0, 2], out[:, 1, 2] = -d[:, 1], d[:, 0]
    return out
