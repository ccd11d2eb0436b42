"""The contact problem of an impact: all that decides its outcome, seen from the contact.

Two bodies meet. What matters of each is the inverse inertia that it shows at the contact, whatever
carries it (a free joint, slides, a servo, or nothing that moves), its velocity, and its surface
near the contact. Points, normals and twists are given in the axes of the contact, from its origin;
a twist is (linear, angular) velocity of a body at its origin. MuJoCo integrates the coordinates of
joints, which are those of the origin: with the mass centre the steps would not be the same.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

_Arrays = TypeVar("_Arrays", bound=tuple[np.ndarray, ...])

# Bodies of a contact problem. The world carries grounds and walls and never moves.
STRUCK = 0
STRIKER = 1
WORLD = 2
# What a feature meets on the other body: a plane; or, for a ball, a vertex or an edge.
PLANE = 0
VERTEX = 1
EDGE = 2
# A plane that the rim of a disc meets: at its lowest point, and a third of the rim from there.
RIM = 3
RIM_LEFT = 4
RIM_RIGHT = 5


class ContactGeometry(NamedTuple):
    """Surfaces of G pairs of bodies that touch, as K features each.

    A feature is where one body may touch another: a point with a rounding (none for a vertex; that
    of a ball, an ellipsoid, or the disc at the end of a cylinder), against a plane, a vertex or an
    edge of the other body.
    """

    # (G, K, 3), m: points, and (G, K, 3, 3), m^2: matrices of the roundings, semi-axes squared.
    point: np.ndarray
    rounding: np.ndarray
    # (G, K), m: radius of a vertex or an edge that is met, as of the axis of a capsule.
    radius: np.ndarray
    # (G, K): the body that carries the feature, and the one that it meets.
    carrier: np.ndarray
    against: np.ndarray
    # (G, K, 3): normal of the plane, towards the feature, and (G, K, 3), m: a point of the plane,
    # or the vertex, or a point of the edge.
    normal: np.ndarray
    target: np.ndarray
    # (G, K): `PLANE`, `VERTEX`, `EDGE`, or a part of a rim, and (G, K, 3): the direction of an
    # edge, or from the middle of a disc to its lowest point where it lies flat.
    kind: np.ndarray
    edge: np.ndarray
    # (G, K), m: how far the feature may move along the surface that it meets; farther away it meets
    # another part of it, which is not described.
    reach: np.ndarray
    # (K,): which set of contact parameters applies, one for each pair of geoms.
    group: np.ndarray


class PairMotion(NamedTuple):
    """How both bodies of N impacts move and resist an impulse."""

    # (N,): row of each impact in `ContactGeometry`.
    row: np.ndarray
    # (N, 2, 3), m: origin of each body, where the geometry has it.
    origin: np.ndarray
    # (N, 3), m: by how much the struck body starts elsewhere than the geometry has it.
    shift: np.ndarray
    # (N, 2, 3), m: from the origin of each body to its mass centre.
    arm: np.ndarray
    # (N, 2, 6, D): columns are the twists of unit-mass coordinates, so that basis @ basis.T is the
    # inverse inertia at the origin. A body that cannot move in all directions has fewer columns; a
    # mechanism with many joints may have more than six.
    basis: np.ndarray
    # (2,): how many columns of each basis are used; the others are not read.
    columns: np.ndarray
    # (2,): from which column on the basis rotates with the body; `columns` where it does not.
    rotating: np.ndarray
    # (N, 2, 3, 3), kg m^2: inertia of free bodies about the mass centre; zero for others.
    inertia: np.ndarray
    # (N, 2, 6), m/s and rad/s: twists before.
    twist: np.ndarray
    # (N, 2, 6), m/s^2 and rad/s^2: accelerations by everything but contact and servos.
    acceleration: np.ndarray
    # (2,): whether servos or dampers act on a body; if not, the next three are not read.
    driven: np.ndarray
    # (N, 2, D, D), 1/s: accelerations of unit-mass coordinates by servos and dampers, per unit of
    # lag behind the motion before.
    damping: np.ndarray
    # (N, 2, D, D): how much of an acceleration takes effect in a time step, since MuJoCo integrates
    # damping implicitly.
    relaxation: np.ndarray
    # (N, 2, D): `acceleration` in unit-mass coordinates.
    drift: np.ndarray


class ContactParameters(NamedTuple):
    """Parameters of S kinds of contact for N impacts, as MuJoCo defines them.

    Stiffness and damping are those of `solref` in its direct form, over the mass that is moved.
    """

    sliding_friction: np.ndarray  # (N, S)
    torsional_friction: np.ndarray  # (N, S), m
    stiffness: np.ndarray  # (N, S), 1/s^2
    damping: np.ndarray  # (N, S), 1/s
    impedance: np.ndarray  # (N, S, 5): `solimp`
    inverse_weight: np.ndarray  # (N, S), 1/kg: sum of both bodies' `body_invweight0`
    dims: np.ndarray  # (S,): 3, or 4 with torsional friction


def contiguous(arrays: _Arrays) -> _Arrays:
    """A named tuple of arrays with all of them contiguous, of 64-bit floats or integers.

    The solver is compiled anew for other kinds of arrays.
    """
    converted = []
    for array in arrays:
        kind = np.float64 if np.issubdtype(array.dtype, np.floating) else np.int64
        converted.append(np.ascontiguousarray(array, kind))
    return type(arrays)(*converted)


class ContactProblem(NamedTuple):
    """N impacts, ready to be solved."""

    geometry: ContactGeometry
    motion: PairMotion
    parameters: ContactParameters
    timestep: float  # s
    impratio: float  # MuJoCo's option of that name
    num_strike: int  # how many sets of contact parameters, the first, are those of the two bodies
