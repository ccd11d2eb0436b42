"""One step of contact: the convex problem that MuJoCo solves, for a few contact points.

MuJoCo (documentation, "Computation", constraint model) takes as the acceleration of a step the
minimum of

    1/2 |x|^2 + sum over contacts of s(J x - a_ref),

where x are the accelerations by contact in unit-mass coordinates and s is the cost of an elliptic
friction cone: zero where the contact opens, quadratic where it sticks, and a cone between them
where it slips. With few contacts and about a dozen coordinates the problem is small, so it is
solved here by Newton's method in compiled code, one problem at a time. It begins where the minimum
would be if every contact still stuck, or slipped in the same direction, as in the last time step:
that is nearly always so, and then one linear system gives the minimum.

Functions take plain arrays: in compiled loops, tuples of arrays and slices of arrays cost more than
the arithmetic. A contact has up to four rows: normal, two tangents, rotation about the normal.
"""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.compiled import compiled

# Columns of `side` (K, 4, SIDE), for each row of a contact.
REFERENCE = 0  # reference acceleration minus that of all other forces
WEIGHT = 1  # inverse of the row's regularisation
FRICTION = 2  # friction coefficient; in the first row that of the cone
# What the contact did when it was last solved: in the first row `_OPEN`, `_STUCK` or `_SLIPPED`, in
# the others the direction of the slip.
STATE = 3
SIDE = 4
_STUCK, _SLIPPED, _OPEN = 0.0, 1.0, 2.0
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
_ALONG = 3  # derivative of the depth in the friction cone
_CURVATURE = 4  # and the three rows after it
LOCAL = 8

# Decrease of the cost, relative to it, that the next Newton step promises at convergence.
_TOLERANCE = 1e-12
_MAX_ITERATIONS = 30
_MAX_HALVINGS = 12  # of a Newton step
_ARMIJO = 1e-4  # share of the promised decrease that a step must reach
_ROUNDING = 1e-14  # of a cost, relative to it
_MIN_SLIP = 1e-14  # m/s^2: the direction of a slower slip is not defined
# Share of the squared length of a row, below which what other rows do not explain is rounding.
_DEPENDENT = 1e-12


@compiled
def _contact_cost(
    k: int,
    rows: np.ndarray,
    side: np.ndarray,
    span: np.ndarray,
    x: np.ndarray,
    local: np.ndarray,
) -> float:
    """Cost of contact k at x; sets its state, and its force and curvature where it is not open.

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
    if normal >= mu * tangential:
        side[k, 0, STATE] = _OPEN
        return 0.0
    if mu * normal + tangential <= 0.0:
        side[k, 0, STATE] = _STUCK
        return _stuck_cost(k, dim, side, local)
    side[k, 0, STATE] = _SLIPPED
    for q in range(1, dim):
        side[k, q, STATE] = local[_SLIP, q] / tangential
    cost = _slipping_cost(k, dim, side, local)
    # The curvature of a slip whose direction changes.
    depth = normal - mu * tangential
    across = -side[k, 0, WEIGHT] / (mu * (1.0 + mu * mu)) * depth / tangential
    for q in range(1, dim):
        for p in range(1, dim):
            perpendicular = (1.0 if p == q else 0.0) - side[k, q, STATE] * side[k, p, STATE]
            scale = side[k, q, FRICTION] * side[k, p, FRICTION]
            local[_CURVATURE + q, p] += across * perpendicular * scale
    return cost


@compiled
def _stuck_cost(k: int, dim: int, side: np.ndarray, local: np.ndarray) -> float:
    """Cost of contact k at its residual if it sticks; fills its force and curvature."""
    cost = 0.0
    for q in range(dim):
        local[_FORCE, q] = side[k, q, WEIGHT] * local[_RESIDUAL, q]
        cost += 0.5 * local[_FORCE, q] * local[_RESIDUAL, q]
        for p in range(dim):
            local[_CURVATURE + q, p] = 0.0
        local[_CURVATURE + q, q] = side[k, q, WEIGHT]
    return cost


@compiled
def _slipping_cost(k: int, dim: int, side: np.ndarray, local: np.ndarray) -> float:
    """Cost of contact k at its residual if it slips in the direction of its state.

    Fills its force, and its curvature for slips in this direction.
    """
    mu = side[k, 0, FRICTION]
    stiffness = side[k, 0, WEIGHT] / (mu * mu * (1.0 + mu * mu))
    depth = 0.0
    for q in range(dim):
        local[_ALONG, q] = mu if q == 0 else -mu * side[k, q, STATE] * side[k, q, FRICTION]
        depth += local[_ALONG, q] * local[_RESIDUAL, q]
    for q in range(dim):
        local[_FORCE, q] = stiffness * depth * local[_ALONG, q]
        for p in range(dim):
            local[_CURVATURE + q, p] = stiffness * local[_ALONG, q] * local[_ALONG, p]
    return 0.5 * stiffness * depth * depth


@compiled
def cone_cost(
    rows: np.ndarray, side: np.ndarray, span: np.ndarray, x: np.ndarray, local: np.ndarray
) -> float:
    """Cost of K contacts and of x itself.

    Args:
        rows: (K, 4, r), Jacobians of the contacts' rows in unit-mass coordinates.
        side: (K, 4, SIDE), see `REFERENCE`, `WEIGHT`, `FRICTION` and `STATE`, which is set.
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
    _set_to_identity(len(x), scratch)
    for k in range(len(span)):
        if span[k, DIM] > 0:
            cost = _contact_cost(k, rows, side, span, x, local)
            if cost > 0.0:
                total += cost
                _add_contact(k, rows, span, scratch, local)
    return total


@compiled
def _differentiate_last_states(
    rows: np.ndarray,
    side: np.ndarray,
    span: np.ndarray,
    size: int,
    scratch: np.ndarray,
    local: np.ndarray,
) -> None:
    """Fill gradient and Hessian at zero of the cost if all contacts are as in the last solution."""
    for i in range(size):
        scratch[_GRADIENT, i] = 0.0
    _set_to_identity(size, scratch)
    for k in range(len(span)):
        dim = span[k, DIM]
        if dim == 0 or side[k, 0, STATE] == _OPEN:
            continue
        for q in range(dim):
            local[_RESIDUAL, q] = -side[k, q, REFERENCE]
        if side[k, 0, STATE] == _STUCK:
            _stuck_cost(k, dim, side, local)
        else:
            _slipping_cost(k, dim, side, local)
        _add_contact(k, rows, span, scratch, local)


@compiled
def _set_to_identity(size: int, scratch: np.ndarray) -> None:
    """Set the lower half of the Hessian to that of x itself."""
    for i in range(size):
        for j in range(i):
            scratch[_HESSIAN + i, j] = 0.0
        scratch[_HESSIAN + i, i] = 1.0


@compiled
def _add_contact(
    k: int, rows: np.ndarray, span: np.ndarray, scratch: np.ndarray, local: np.ndarray
) -> None:
    """Add force and curvature of contact k to the gradient and the lower half of the Hessian."""
    dim = span[k, DIM]
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
        side: As for `cone_cost`; the states with which the search begins are replaced.
        span: As for `cone_cost`.
        x: (r,), overwritten.
        scratch: (SCRATCH + r, r), overwritten.
        local: (LOCAL, 4), overwritten.
    """
    r = len(x)
    _differentiate_last_states(rows, side, span, r, scratch, local)
    _newton_direction(r, scratch)
    for i in range(r):
        x[i] = scratch[_DIRECTION, i]
    for _ in range(_MAX_ITERATIONS):
        cost = _differentiate(rows, side, span, x, scratch, local)
        # The Hessian is at least the identity: no step can promise more than the squared gradient.
        squared = 0.0
        for i in range(r):
            squared += scratch[_GRADIENT, i] * scratch[_GRADIENT, i]
        if squared <= _TOLERANCE * cost:
            break
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


@compiled
def solve_single_contact(
    k: int,
    rows: np.ndarray,
    side: np.ndarray,
    x: np.ndarray,
    reduced: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    scratch: np.ndarray,
    local: np.ndarray,
) -> None:
    """`solve_contacts` where only contact k touches: in as many coordinates as it has rows.

    With the Cholesky factor L of J J^T in the place of J, the problem is the same in coordinates
    z; then x = J^T y with L^T y = z.

    Args:
        k: The contact, which all coordinates may move; its `span` is in `reduced`.
        rows: As for `cone_cost`.
        side: As for `cone_cost`; the state of contact k is replaced.
        x: (r,), overwritten.
        reduced: Arrays of a problem with one contact and as many coordinates as it has rows, as for
            `cone_cost`: rows (1, 4, 4), side (1, 4, SIDE), span (1, 3) and coordinates (dim,).
        scratch: As for `solve_contacts`.
        local: As for `solve_contacts`.
    """
    factor, factor_side, factor_span, z = reduced
    dim = len(z)
    for q in range(dim):
        for column in range(SIDE):
            factor_side[0, q, column] = side[k, q, column]
        for p in range(q + 1):
            value = 0.0
            for i in range(len(x)):
                value += rows[k, q, i] * rows[k, p, i]
            squared = value
            for j in range(p):
                value -= factor[0, q, j] * factor[0, p, j]
            if q > p:
                pivot = factor[0, p, p]
                factor[0, q, p] = value / pivot if pivot > 0.0 else 0.0
            else:  # a row that depends on those before it adds no coordinate
                factor[0, q, q] = np.sqrt(value) if value > _DEPENDENT * squared else 0.0
    solve_contacts(factor, factor_side, factor_span, z, scratch, local)
    for i in range(len(x)):
        x[i] = 0.0
    for q in range(dim - 1, -1, -1):
        side[k, q, STATE] = factor_side[0, q, STATE]
        # From here on z holds y, whose entries are zero for rows that depend on others.
        for p in range(q + 1, dim):
            z[q] -= factor[0, p, q] * z[p]
        z[q] = z[q] / factor[0, q, q] if factor[0, q, q] > 0.0 else 0.0
        for i in range(len(x)):
            x[i] += z[q] * rows[k, q, i]
