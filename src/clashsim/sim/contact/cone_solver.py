"""One step of contact: the convex problem that MuJoCo solves, for a few contact points.

MuJoCo (documentation, "Computation", constraint model) takes as the acceleration of a step the
minimum of

    1/2 |x|^2 + sum over contacts of s(J x - a_ref),

where x are the accelerations by contact in unit-mass coordinates and s is the cost of an elliptic
friction cone: zero where the contact opens, quadratic where it sticks, and a cone between them
where it slips. With few contacts and about a dozen coordinates the problem is small, so it is
solved here by Newton's method in compiled code, one problem at a time.

Functions take plain arrays: in compiled loops, tuples of arrays and slices of arrays cost more than
the arithmetic. A contact has up to four rows: normal, two tangents, rotation about the normal.
"""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.compiled import compiled

# Columns of `side` (K, 4, 3), for each row of a contact.
REFERENCE = 0  # reference acceleration minus that of all other forces
WEIGHT = 1  # inverse of the row's regularisation
FRICTION = 2  # friction coefficient; in the first row that of the cone
# Columns of `span` (K, 3), for each contact.
DIM = 0  # rows that count: 0 for an open contact, 3, or 4 with torsion
FIRST = 1  # the first coordinate that the rows depend on
LAST = 2  # one after the last
# Rows of `scratch` (SCRATCH + r, r), for r coordinates.
_GRADIENT = 0
_DIRECTION = 1
_HESSIAN = 2  # and the r - 1 rows after it
SCRATCH = 2
# Rows of `local` (LOCAL, 4), for one contact.
_RESIDUAL = 0
_SLIP = 1
_FORCE = 2
_CURVATURE = 3  # and the three rows after it
LOCAL = 7

# Decrease of the cost, relative to it, that the next Newton step promises at convergence.
_TOLERANCE = 1e-12
_MAX_ITERATIONS = 30
_MAX_HALVINGS = 12  # of a Newton step
_ARMIJO = 1e-4  # share of the promised decrease that a step must reach
_ROUNDING = 1e-14  # of a cost, relative to it
_MIN_SLIP = 1e-14  # m/s^2: the direction of a slower slip is not defined


@compiled
def _contact_cost(
    k: int,
    rows: np.ndarray,
    side: np.ndarray,
    span: np.ndarray,
    x: np.ndarray,
    local: np.ndarray,
) -> float:
    """Cost of contact k at x; fills its force and curvature in `local`, where it is not open.

    Returns zero for an open contact.
    """
    dim = span[k, DIM]
    for q in range(dim):
        value = -side[k, q, REFERENCE]
        for i in range(span[k, FIRST], span[k, LAST]):
            value += rows[k, q, i] * x[i]
        local[_RESIDUAL, q] = value
    mu = side[k, 0, FRICTION]
    normal = local[_RESIDUAL, 0] * mu
    squared = 0.0
    for q in range(1, dim):
        local[_SLIP, q] = local[_RESIDUAL, q] * side[k, q, FRICTION]
        squared += local[_SLIP, q] * local[_SLIP, q]
    tangential = max(np.sqrt(squared), _MIN_SLIP)
    if normal >= mu * tangential:  # it opens
        return 0.0
    if mu * normal + tangential <= 0.0:  # it sticks
        cost = 0.0
        for q in range(dim):
            local[_FORCE, q] = side[k, q, WEIGHT] * local[_RESIDUAL, q]
            cost += 0.5 * local[_FORCE, q] * local[_RESIDUAL, q]
            for p in range(dim):
                local[_CURVATURE + q, p] = 0.0
            local[_CURVATURE + q, q] = side[k, q, WEIGHT]
        return cost
    # It slips.
    stiffness = side[k, 0, WEIGHT] / (mu * mu * (1.0 + mu * mu))
    depth = normal - mu * tangential
    across = -stiffness * depth * mu / tangential
    for q in range(dim):
        direction_q = 1.0 if q == 0 else -mu * local[_SLIP, q] / tangential
        scale_q = side[k, q, FRICTION]
        local[_FORCE, q] = stiffness * depth * direction_q * scale_q
        for p in range(q + 1):
            direction_p = 1.0 if p == 0 else -mu * local[_SLIP, p] / tangential
            value = stiffness * direction_q * direction_p
            if p > 0:
                value -= across * local[_SLIP, q] * local[_SLIP, p] / (tangential * tangential)
                if q == p:
                    value += across
            local[_CURVATURE + q, p] = value * scale_q * side[k, p, FRICTION]
            local[_CURVATURE + p, q] = local[_CURVATURE + q, p]
    return 0.5 * stiffness * depth * depth


@compiled
def cone_cost(
    rows: np.ndarray, side: np.ndarray, span: np.ndarray, x: np.ndarray, local: np.ndarray
) -> float:
    """Cost of K contacts and of x itself.

    Args:
        rows: (K, 4, r), Jacobians of the contacts' rows in unit-mass coordinates.
        side: (K, 4, 3), see `REFERENCE`, `WEIGHT` and `FRICTION`.
        span: (K, 3), see `DIM`, `FIRST` and `LAST`.
        x: (r,), accelerations by contact, in unit-mass coordinates.
        local: (LOCAL, 4), overwritten.
    """
    total = 0.0
    for i in range(len(x)):
        total += 0.5 * x[i] * x[i]
    for k in range(len(span)):
        if span[k, DIM] > 0:
            total += _contact_cost(k, rows, side, span, x, local)
    return total


@compiled
def _differentiate(
    rows: np.ndarray,
    side: np.ndarray,
    span: np.ndarray,
    x: np.ndarray,
    scratch: np.ndarray,
    local: np.ndarray,
) -> float:
    """`cone_cost`; fills the gradient and the lower half of the Hessian in `scratch`."""
    total = 0.0
    for i in range(len(x)):
        total += 0.5 * x[i] * x[i]
        scratch[_GRADIENT, i] = x[i]
        for j in range(i):
            scratch[_HESSIAN + i, j] = 0.0
        scratch[_HESSIAN + i, i] = 1.0
    for k in range(len(span)):
        dim = span[k, DIM]
        if dim == 0:
            continue
        cost = _contact_cost(k, rows, side, span, x, local)
        if cost == 0.0:
            continue
        total += cost
        for q in range(dim):
            for i in range(span[k, FIRST], span[k, LAST]):
                scratch[_GRADIENT, i] += rows[k, q, i] * local[_FORCE, q]
        for j in range(span[k, FIRST], span[k, LAST]):
            for q in range(dim):
                value = 0.0
                for p in range(dim):
                    value += local[_CURVATURE + q, p] * rows[k, p, j]
                for i in range(j, span[k, LAST]):
                    scratch[_HESSIAN + i, j] += value * rows[k, q, i]
    return total


@compiled
def _newton_direction(r: int, scratch: np.ndarray) -> float:
    """Fill the direction of the Newton step.

    The Hessian is replaced by its Cholesky factor. Returns the derivative of the cost along the
    step, which is below zero.
    """
    for i in range(r):
        for j in range(i + 1):
            value = scratch[_HESSIAN + i, j]
            for k in range(j):
                value -= scratch[_HESSIAN + i, k] * scratch[_HESSIAN + j, k]
            if i == j:
                scratch[_HESSIAN + i, j] = np.sqrt(value)
            else:
                scratch[_HESSIAN + i, j] = value / scratch[_HESSIAN + j, j]
    for i in range(r):
        value = -scratch[_GRADIENT, i]
        for k in range(i):
            value -= scratch[_HESSIAN + i, k] * scratch[_DIRECTION, k]
        scratch[_DIRECTION, i] = value / scratch[_HESSIAN + i, i]
    derivative = 0.0
    for i in range(r - 1, -1, -1):
        value = scratch[_DIRECTION, i]
        for k in range(i + 1, r):
            value -= scratch[_HESSIAN + k, i] * scratch[_DIRECTION, k]
        scratch[_DIRECTION, i] = value / scratch[_HESSIAN + i, i]
        derivative += scratch[_GRADIENT, i] * scratch[_DIRECTION, i]
    return derivative


@compiled
def solve_contacts(
    rows: np.ndarray,
    side: np.ndarray,
    span: np.ndarray,
    x: np.ndarray,
    scratch: np.ndarray,
    local: np.ndarray,
) -> None:
    """Replace x by the minimum of `cone_cost`, by Newton's method with backtracking.

    Args:
        rows: As for `cone_cost`.
        side: As for `cone_cost`.
        span: As for `cone_cost`.
        x: (r,), where to begin; overwritten.
        scratch: (SCRATCH, r), overwritten.
        local: (LOCAL, 4), overwritten.
    """
    r = len(x)
    for _ in range(_MAX_ITERATIONS):
        cost = _differentiate(rows, side, span, x, scratch, local)
        derivative = _newton_direction(r, scratch)
        if -derivative <= _TOLERANCE * cost:
            break
        length = 1.0
        for i in range(r):
            x[i] += scratch[_DIRECTION, i]
        for _ in range(_MAX_HALVINGS):
            limit = cost + _ARMIJO * length * derivative + _ROUNDING * cost
            if cone_cost(rows, side, span, x, local) <= limit:
                break
            length *= 0.5
            for i in range(r):
                x[i] -= length * scratch[_DIRECTION, i]
