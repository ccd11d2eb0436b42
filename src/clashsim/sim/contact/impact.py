"""Impacts solved directly: the contact problem stepped from the first touch to the parting.

The same equations and time steps as MuJoCo, without its search for contacts and without the rest of
the scene. A step takes about a microsecond, so that no network is needed in place of the solver.
Functions take plain arrays, for the reason given in `clashsim.sim.contact.cone_solver`.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from clashsim.core.workers import default_threads
from clashsim.sim.contact.compiled import compiled, is_cached
from clashsim.sim.contact.cone_solver import (
    DIM,
    FIRST,
    FRICTION,
    LAST,
    LOCAL,
    REFERENCE,
    SCRATCH,
    SIDE,
    WEIGHT,
    solve_contacts,
    solve_single_contact,
)
from clashsim.sim.contact.problem import EDGE, RIM, RIM_RIGHT, VERTEX, ContactProblem
from clashsim.sim.mujoco.impacts import SETTLED, SETTLING_TIME, ImpactEnd

_MIN_REGULARISATION = 1e-15  # MuJoCo's mjMINVAL
_MIN_IMPEDANCE = 1e-4  # MuJoCo's mjMINIMP
_MAX_IMPEDANCE = 0.9999  # MuJoCo's mjMAXIMP
_ROWS_PER_THREAD = 64  # impacts, below which another thread does not pay
_PARTED = int(ImpactEnd.PARTED)
_SETTLED = int(ImpactEnd.SETTLED)
_UNFINISHED = int(ImpactEnd.UNFINISHED)
# End of an impact in which a body came to a part of the other's surface that is not described.
BEYOND_REACH = 1 + max(int(end) for end in ImpactEnd)

# Columns of `bodies` (2, _BODY), the state of both bodies.
_ORIGIN = 0  # m
_START = 3  # m, the origin where the geometry has it
_TWIST = 6  # m/s and rad/s
_SMOOTH = 12  # accelerations by everything but contact
_OTHER = 18  # accelerations by everything but contact, servos and the body's own rotation
_ROTATION = 24  # since the start, row by row
_INERTIA = 33  # of a free body at its orientation at the start, row by row
_ARM = 42  # m, from the origin to the mass centre, at the start
_BODY = 45
# Columns of `features` (K, _FEATURE), where an impact's surfaces may touch.
_POINT = 0
_NORMAL = 3
_TARGET = 6
_EDGE = 9
_ROUNDING = 12
_RADIUS = 21
_REACH = 22
_FEATURE = 23
# Columns of `kinds` (K, 4).
_CARRIER = 0
_AGAINST = 1
_KIND = 2
_GROUP = 3
# Columns of `placed` (K + 1, _PLACED): where features are, the last row for the contact that is
# being stated.
_GAP = 0  # m
_AT = 1  # point, m
_AXES = 4  # normal and two tangents
_JACOBIAN = 13  # of a row, by the twist of a body
_PLACED = 19
# Columns of `parameters` (S, _PARAMETER), of each kind of contact.
_SLIDING = 0
_TORSIONAL = 1
_STIFFNESS = 2
_DAMPING = 3
_INVERSE_WEIGHT = 4
_DIMS = 5
_SOLIMP = 6
_PARAMETER = 11
_MAX_CONTACTS = 4  # of a group, as in MuJoCo
_SINE_OF_A_THIRD = 0.8660254037844386  # of a turn, 120 degrees


_Arrays = tuple[np.ndarray, ...]
_Vector = tuple[float, float, float]
_Pair = tuple[int, int]
_Settings = tuple[_Pair, _Pair, tuple[bool, bool], tuple[float, float], tuple[int, int, int]]


def solve_impacts(
    problem: ContactProblem, *, duration: float = 0.25, threads: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Solve N impacts from the first touch to the parting.

    Args:
        problem: The contact problems.
        duration: s, after which an impact is left unfinished.
        threads: Threads to use; 0 for one on each core.

    Returns:
        Twists (N, 2, 6) of both bodies at their origins after impact, m/s and rad/s, in the axes of
        the contact at the start; and how each impact ended (N,), `ImpactEnd` or `BEYOND_REACH`.
    """
    n = len(problem.motion.row)
    twist_after = np.empty((n, 2, 6))
    end = np.empty(n, np.int64)
    steps = max(1, round(duration / problem.timestep))
    settling_steps = max(2, round(SETTLING_TIME / problem.timestep))

    def solve(first: int, last: int) -> None:
        _solve_rows(
            (first, last),
            (tuple(problem.geometry), tuple(problem.motion), tuple(problem.parameters)),
            (problem.timestep, problem.impratio),
            (steps, settling_steps, problem.num_strike),
            (twist_after, end),
        )

    threads = min(threads or default_threads(), max(1, n // _ROWS_PER_THREAD))
    if threads == 1:
        solve(0, n)
    else:
        # More parts than threads, because impacts take different numbers of steps.
        bounds = np.linspace(0, n, 4 * threads + 1).astype(int).tolist()
        list(_thread_pool(threads, os.getpid()).map(solve, bounds[:-1], bounds[1:]))
    return twist_after, end


def is_compiled() -> bool:
    """Whether impacts can be solved at once; the first use on a machine compiles the solver."""
    return is_cached(_solve_rows)


@lru_cache(maxsize=4)
def _thread_pool(threads: int, process: int) -> ThreadPoolExecutor:
    """A pool that is kept, because making one takes longer than many impacts.

    Each process has its own: threads do not survive a fork.
    """
    del process
    return ThreadPoolExecutor(threads, thread_name_prefix="clashsim-contact")


@compiled
def _solve_rows(
    span: tuple[int, int],
    problem: tuple[_Arrays, _Arrays, _Arrays],
    options: tuple[float, float],
    limits: tuple[int, int, int],
    out: tuple[np.ndarray, np.ndarray],
) -> None:
    """Solve impacts span[0] to span[1].

    Args:
        span: The first impact, and one after the last.
        problem: The arrays of `ContactGeometry`, `PairMotion` and `ContactParameters`.
        options: Time step, s, and impratio.
        limits: Steps after which an impact is left unfinished, steps that a pair has to stay
            together to count as settled, and the number of sets of contact parameters, the first,
            that are those of the two bodies.
        out: Twists after (N, 2, 6) and ends (N,), to be filled.
    """
    geometry, motion, given = problem
    basis, columns, rotating = motion[4], motion[5], motion[6]
    driven, damping, relaxation, drift = motion[10], motion[11], motion[12], motion[13]
    point, group = geometry[0], geometry[-1]
    dims = given[-1]
    twist_after, end = out
    count = point.shape[1]
    bodies = np.zeros((2, _BODY))
    features = np.zeros((count, _FEATURE))
    kinds = np.zeros((count, 4), np.int64)
    kinds[:, _GROUP] = group
    parameters = np.zeros((len(dims), _PARAMETER))
    parameters[:, _DIMS] = dims
    for n in range(span[0], span[1]):
        _load_bodies(n, motion, bodies)
        _load_features(motion[0][n], geometry, features, kinds)
        _load_parameters(n, given, parameters)
        end[n] = _solve_one(
            (bodies, basis[n], damping[n], relaxation[n], drift[n]),
            (features, kinds, parameters),
            (
                (columns[0], columns[1]),
                (rotating[0], rotating[1]),
                (driven[0], driven[1]),
                options,
                limits,
            ),
        )
        for b in range(2):
            for i in range(6):
                twist_after[n, b, i] = bodies[b, _TWIST + i]


@compiled
def _load_bodies(n: int, motion: _Arrays, bodies: np.ndarray) -> None:
    """Put both bodies at the start of impact n."""
    origin, shift, arm = motion[1], motion[2], motion[3]
    inertia, twist, acceleration = motion[7], motion[8], motion[9]
    for b in range(2):
        for i in range(3):
            bodies[b, _START + i] = origin[n, b, i]
            bodies[b, _ORIGIN + i] = origin[n, b, i]
            if b == 0:
                bodies[b, _ORIGIN + i] += shift[n, i]
            bodies[b, _ARM + i] = arm[n, b, i]
        for i in range(6):
            bodies[b, _TWIST + i] = twist[n, b, i]
            bodies[b, _OTHER + i] = acceleration[n, b, i]
        for i in range(9):
            bodies[b, _ROTATION + i] = 1.0 if i % 4 == 0 else 0.0
            bodies[b, _INERTIA + i] = inertia[n, b, i // 3, i % 3]


@compiled
def _load_features(row: int, geometry: _Arrays, features: np.ndarray, kinds: np.ndarray) -> None:
    """Copy the features of a row of the geometry."""
    point, rounding, radius, carrier, against, normal, target, kind, edge, reach, _ = geometry
    for k in range(len(features)):
        for i in range(3):
            features[k, _POINT + i] = point[row, k, i]
            features[k, _NORMAL + i] = normal[row, k, i]
            features[k, _TARGET + i] = target[row, k, i]
            features[k, _EDGE + i] = edge[row, k, i]
            for j in range(3):
                features[k, _ROUNDING + 3 * i + j] = rounding[row, k, i, j]
        features[k, _RADIUS] = radius[row, k]
        features[k, _REACH] = reach[row, k]
        kinds[k, _CARRIER] = carrier[row, k]
        kinds[k, _AGAINST] = against[row, k]
        kinds[k, _KIND] = kind[row, k]


@compiled
def _load_parameters(n: int, given: _Arrays, parameters: np.ndarray) -> None:
    """Copy the contact parameters of impact n."""
    sliding, torsional, stiffness, damping, impedance, inverse_weight, _ = given
    for s in range(len(parameters)):
        parameters[s, _SLIDING] = sliding[n, s]
        parameters[s, _TORSIONAL] = torsional[n, s]
        parameters[s, _STIFFNESS] = stiffness[n, s]
        parameters[s, _DAMPING] = damping[n, s]
        parameters[s, _INVERSE_WEIGHT] = inverse_weight[n, s]
        for i in range(5):
            parameters[s, _SOLIMP + i] = impedance[n, s, i]


@compiled
def _solve_one(
    moving: _Arrays,
    surfaces: tuple[np.ndarray, np.ndarray, np.ndarray],
    settings: _Settings,
) -> int:
    """Step an impact until its end and return it; leaves the twists after in `bodies`.

    Args:
        moving: Bodies, and their basis, damping, relaxation and drift as in `PairMotion`.
        surfaces: Features, their kinds, and contact parameters.
        settings: Columns of both bases, columns from which on they rotate, whether the bodies are
            driven, (time step, impratio), and limits as for `_solve_rows`.
    """
    bodies, start_basis, damping, relaxation, drift = moving
    features, kinds, parameters = surfaces
    columns, rotating, driven, options, limits = settings
    count = len(features)
    size = columns[0] + columns[1]
    basis = start_basis.copy()
    rows = np.zeros((count, 4, size))
    side = np.zeros((count, 4, SIDE))
    span = np.zeros((count, 3), np.int64)
    for k in range(count):
        both = kinds[k, _AGAINST] < 2
        span[k, FIRST] = 0 if both or kinds[k, _CARRIER] == 0 else columns[0]
        span[k, LAST] = size if both or kinds[k, _CARRIER] == 1 else columns[0]
    x = np.zeros(size)
    strike_dim = int(parameters[0, _DIMS])
    single = (
        np.zeros((1, 4, 4)),
        np.zeros((1, 4, SIDE)),
        np.array([[strike_dim, 0, strike_dim]]),
        np.zeros(strike_dim),
    )
    applied = np.zeros(size)
    scratch = np.zeros((SCRATCH + size, size))
    local = np.zeros((LOCAL, 4))
    placed = np.zeros((count + 1, _PLACED))
    lag = np.zeros((3, 2, basis.shape[2]))
    approach = -1.0  # speed at the first touch; negative before it
    quiet_steps = 0
    for _ in range(limits[0]):
        for b in range(2):
            _accelerate(b, bodies)
            if driven[b]:
                _drive(b, columns[b], bodies, basis, (lag, damping, drift))
            if rotating[b] < columns[b]:
                _rotate_inertia(b, (rotating[b], columns[b]), bodies, start_basis, basis)
        deepest = 1.0  # gap of the impact's deepest contact; positive where none touches
        closing = 0.0
        num_contacts = 0
        touching = 0  # the last feature that touches
        for k in range(count):
            _place_feature(k, features, kinds, bodies, placed)
        for group in range(len(parameters)):
            _keep_four(group, kinds, placed)
        for k in range(count):
            gap = placed[k, _GAP]
            span[k, DIM] = 0
            if gap >= 0.0:
                continue
            num_contacts += 1
            touching = k
            if features[k, _REACH] < np.inf and _is_beyond_reach(k, features, kinds, bodies):
                return BEYOND_REACH
            group = kinds[k, _GROUP]
            dim = int(parameters[group, _DIMS])
            span[k, DIM] = dim
            _set_impedance(k, gap, parameters, group, options[1], side)
            for q in range(dim):
                velocity = _fill_row(
                    (k, q, kinds[k, _CARRIER], kinds[k, _AGAINST]),
                    columns,
                    bodies,
                    basis,
                    placed,
                    (rows, side),
                )
                damper = parameters[group, _DAMPING] / parameters[group, _SOLIMP + 1]
                side[k, q, REFERENCE] -= damper * velocity
                if q == 0 and group < limits[2] and gap < deepest:
                    deepest = gap
                    closing = abs(velocity)
        if deepest < 0.0:
            if approach < 0.0:
                approach = closing
            quiet_steps = quiet_steps + 1 if closing < SETTLED * approach else 0
            if quiet_steps >= limits[1]:
                return _SETTLED
        elif approach >= 0.0:
            return _PARTED
        is_single = num_contacts == 1 and span[touching, DIM] == strike_dim < size
        if is_single and span[touching, LAST] - span[touching, FIRST] == size:
            solve_single_contact(touching, rows, side, x, single, scratch, local)
        elif num_contacts > 0:
            solve_contacts(rows, side, span, x, scratch, local)
        else:
            x[:] = 0.0
        for j in range(size):
            applied[j] = x[j]
        first = 0
        for b in range(2):
            if driven[b]:
                _relax(b, (columns[b], first), options[0], applied, (lag, relaxation))
            first += columns[b]
        _advance(columns, bodies, basis, applied, options[0])
    return _UNFINISHED


@compiled
def _accelerate(b: int, bodies: np.ndarray) -> None:
    """Fill the accelerations of body b by everything but contact, servos and its own rotation."""
    for i in range(6):
        bodies[b, _SMOOTH + i] = bodies[b, _OTHER + i]


@compiled
def _drive(
    b: int, columns: int, bodies: np.ndarray, basis: np.ndarray, drive: tuple[np.ndarray, ...]
) -> None:
    """Add the accelerations of body b by its servos and dampers.

    Args:
        b: The body.
        columns: Of its basis.
        bodies: The bodies.
        basis: (2, 6, D).
        drive: Lag (3, 2, D), whose first part is the change of unit-mass velocities since the start
            and whose second is filled with their accelerations; damping and drift.
    """
    lag, damping, drift = drive
    for j in range(columns):
        braking = 0.0
        for k in range(columns):
            braking -= damping[b, j, k] * lag[0, b, k]
        lag[1, b, j] = drift[b, j] + braking
        for i in range(6):
            bodies[b, _SMOOTH + i] += basis[b, i, j] * braking


@compiled
def _relax(
    b: int,
    span: tuple[int, int],
    timestep: float,
    x: np.ndarray,
    drive: tuple[np.ndarray, np.ndarray],
) -> None:
    """Reduce the acceleration of body b in this time step by what servos and dampers do in it.

    Args:
        b: The body.
        span: Columns of its basis, and its first entry in x.
        timestep: s.
        x: (r,), accelerations of unit-mass coordinates by contact, changed in place.
        drive: Lag as for `_drive`, changed in place; and relaxation (2, D, D).
    """
    lag, relaxation = drive
    columns, first = span
    for j in range(columns):
        lag[1, b, j] += x[first + j]
    for j in range(columns):
        relaxed = 0.0
        for k in range(columns):
            relaxed += relaxation[b, j, k] * lag[1, b, k]
        lag[2, b, j] = relaxed
    for j in range(columns):
        x[first + j] += lag[2, b, j] - lag[1, b, j]
        lag[0, b, j] += timestep * lag[2, b, j]


@compiled
def _times(matrix: np.ndarray, b: int, first: int, vector: _Vector) -> _Vector:
    """Product of the 3 x 3 matrix in row b of an array, from column `first` on, with a vector."""
    x, y, z = vector
    return (
        matrix[b, first] * x + matrix[b, first + 1] * y + matrix[b, first + 2] * z,
        matrix[b, first + 3] * x + matrix[b, first + 4] * y + matrix[b, first + 5] * z,
        matrix[b, first + 6] * x + matrix[b, first + 7] * y + matrix[b, first + 8] * z,
    )


@compiled
def _times_transposed(matrix: np.ndarray, b: int, first: int, vector: _Vector) -> _Vector:
    """Product of such a matrix, transposed, with a vector."""
    x, y, z = vector
    return (
        matrix[b, first] * x + matrix[b, first + 3] * y + matrix[b, first + 6] * z,
        matrix[b, first + 1] * x + matrix[b, first + 4] * y + matrix[b, first + 7] * z,
        matrix[b, first + 2] * x + matrix[b, first + 5] * y + matrix[b, first + 8] * z,
    )


@compiled
def _rotate_inertia(
    b: int,
    span: tuple[int, int],
    bodies: np.ndarray,
    start_basis: np.ndarray,
    basis: np.ndarray,
) -> None:
    """Rotate the basis of body b, and add the acceleration that its own rotation causes.

    Args:
        b: The body.
        span: The first column that rotates, and one after the last.
        bodies: The bodies.
        start_basis: (2, 6, D), at the start.
        basis: (2, 6, D), filled.
    """
    for j in range(span[0], span[1]):
        column = (start_basis[b, 0, j], start_basis[b, 1, j], start_basis[b, 2, j])
        basis[b, 0, j], basis[b, 1, j], basis[b, 2, j] = _times(bodies, b, _ROTATION, column)
        column = (start_basis[b, 3, j], start_basis[b, 4, j], start_basis[b, 5, j])
        basis[b, 3, j], basis[b, 4, j], basis[b, 5, j] = _times(bodies, b, _ROTATION, column)
    u, v, w = bodies[b, _TWIST + 3], bodies[b, _TWIST + 4], bodies[b, _TWIST + 5]
    # The mass centre moves on straight ahead, so the origin is accelerated towards it.
    arm = (bodies[b, _ARM], bodies[b, _ARM + 1], bodies[b, _ARM + 2])
    x, y, z = _times(bodies, b, _ROTATION, arm)
    along = u * x + v * y + w * z
    squared = u * u + v * v + w * w
    bodies[b, _SMOOTH] += squared * x - along * u
    bodies[b, _SMOOTH + 1] += squared * y - along * v
    bodies[b, _SMOOTH + 2] += squared * z - along * w
    # Euler's equation: the torque by which angular momentum would have to be kept from rotating.
    momentum = _times_transposed(bodies, b, _ROTATION, (u, v, w))
    momentum = _times(bodies, b, _INERTIA, momentum)
    p, q, r = _times(bodies, b, _ROTATION, momentum)
    torque_x, torque_y, torque_z = q * w - r * v, r * u - p * w, p * v - q * u
    for j in range(span[0], span[1]):
        along = basis[b, 3, j] * torque_x + basis[b, 4, j] * torque_y + basis[b, 5, j] * torque_z
        for i in range(6):
            bodies[b, _SMOOTH + i] += basis[b, i, j] * along


@compiled
def _carried(b: int, bodies: np.ndarray, x: float, y: float, z: float) -> _Vector:
    """Where body b has carried a point since the start."""
    arm = (x - bodies[b, _START], y - bodies[b, _START + 1], z - bodies[b, _START + 2])
    x, y, z = _times(bodies, b, _ROTATION, arm)
    return bodies[b, _ORIGIN] + x, bodies[b, _ORIGIN + 1] + y, bodies[b, _ORIGIN + 2] + z


@compiled
def _place_feature(
    k: int, features: np.ndarray, kinds: np.ndarray, bodies: np.ndarray, placed: np.ndarray
) -> None:
    """Find the present gap of feature k and, where it touches, point and axes of its contact."""
    carrier, against = kinds[k, _CARRIER], kinds[k, _AGAINST]
    x, y, z = _carried(
        carrier, bodies, features[k, _POINT], features[k, _POINT + 1], features[k, _POINT + 2]
    )
    met = (features[k, _TARGET], features[k, _TARGET + 1], features[k, _TARGET + 2])
    normal = (features[k, _NORMAL], features[k, _NORMAL + 1], features[k, _NORMAL + 2])
    if against < 2:
        met = _carried(against, bodies, met[0], met[1], met[2])
    kind = kinds[k, _KIND]
    if kind in (VERTEX, EDGE):  # the normal is the direction from it
        normal = (x - met[0], y - met[1], z - met[2])
        if kind == EDGE:
            edge = (features[k, _EDGE], features[k, _EDGE + 1], features[k, _EDGE + 2])
            if against < 2:
                edge = _times(bodies, against, _ROTATION, edge)
            along = edge[0] * normal[0] + edge[1] * normal[1] + edge[2] * normal[2]
            normal = (
                normal[0] - along * edge[0],
                normal[1] - along * edge[1],
                normal[2] - along * edge[2],
            )
        length = np.sqrt(normal[0] ** 2 + normal[1] ** 2 + normal[2] ** 2)
        normal = (normal[0] / length, normal[1] / length, normal[2] / length)
    elif against < 2:
        normal = _times(bodies, against, _ROTATION, normal)
    u, v, w = normal
    gap = u * (x - met[0]) + v * (y - met[1]) + w * (z - met[2]) - features[k, _RADIUS]
    if kind >= RIM:
        local = _times_transposed(bodies, carrier, _ROTATION, normal)
        to_rim = _times(bodies, carrier, _ROTATION, _to_rim(k, kind, local, features))
        x, y, z = x + to_rim[0], y + to_rim[1], z + to_rim[2]
        gap += u * to_rim[0] + v * to_rim[1] + w * to_rim[2]
    elif features[k, _ROUNDING] + features[k, _ROUNDING + 4] + features[k, _ROUNDING + 8] > 0.0:
        local = _times_transposed(bodies, carrier, _ROTATION, normal)
        low = _times(features, k, _ROUNDING, local)
        squared = low[0] * local[0] + low[1] * local[1] + low[2] * local[2]
        if squared > 1e-24:  # not a disc that lies flat
            radius = np.sqrt(squared)
            low = _times(bodies, carrier, _ROTATION, low)
            x, y, z = x - low[0] / radius, y - low[1] / radius, z - low[2] / radius
            gap -= radius
    placed[k, _GAP] = gap
    if gap < 0.0:  # MuJoCo's contact point is midway between the two surfaces
        placed[k, _AT] = x - 0.5 * gap * u
        placed[k, _AT + 1] = y - 0.5 * gap * v
        placed[k, _AT + 2] = z - 0.5 * gap * w
        _fill_axes(k, u, v, w, placed)


@compiled
def _to_rim(k: int, kind: int, normal: _Vector, features: np.ndarray) -> _Vector:
    """From the middle of disc k to the point of its rim that may touch a plane.

    Where three points of a rim touch, MuJoCo takes the lowest, and two that lie a third of the rim
    from there.

    Args:
        k: The feature.
        kind: `RIM`, `RIM_LEFT` or `RIM_RIGHT`.
        normal: Of the plane, in the axes of the features.
        features: The features.
    """
    low = _times(features, k, _ROUNDING, normal)
    squared = low[0] * normal[0] + low[1] * normal[1] + low[2] * normal[2]
    if squared > 1e-24:
        radius = np.sqrt(squared)
        x, y, z = -low[0] / radius, -low[1] / radius, -low[2] / radius
    else:  # it lies flat
        edge = (features[k, _EDGE], features[k, _EDGE + 1], features[k, _EDGE + 2])
        low = _times(features, k, _ROUNDING, edge)
        radius = np.sqrt(low[0] * edge[0] + low[1] * edge[1] + low[2] * edge[2])
        x, y, z = radius * edge[0], radius * edge[1], radius * edge[2]
    if kind == RIM:
        return x, y, z
    # In the plane of the disc, at right angles to the lowest point.
    p = normal[1] * z - normal[2] * y
    q = normal[2] * x - normal[0] * z
    r = normal[0] * y - normal[1] * x
    length = np.sqrt(p * p + q * q + r * r)
    if length == 0.0:
        return -0.5 * x, -0.5 * y, -0.5 * z
    scale = _SINE_OF_A_THIRD * np.sqrt(x * x + y * y + z * z) / length
    if kind == RIM_RIGHT:
        scale = -scale
    return scale * p - 0.5 * x, scale * q - 0.5 * y, scale * r - 0.5 * z


@compiled
def _is_beyond_reach(k: int, features: np.ndarray, kinds: np.ndarray, bodies: np.ndarray) -> bool:
    """Whether feature k has moved too far along the surface that it meets."""
    carrier, against = kinds[k, _CARRIER], kinds[k, _AGAINST]
    point = (features[k, _POINT], features[k, _POINT + 1], features[k, _POINT + 2])
    target = (features[k, _TARGET], features[k, _TARGET + 1], features[k, _TARGET + 2])
    x, y, z = _carried(carrier, bodies, point[0], point[1], point[2])
    u, v, w = _carried(against, bodies, target[0], target[1], target[2])
    x, y, z = _times_transposed(bodies, against, _ROTATION, (x - u, y - v, z - w))
    # By how much it has moved, seen from the body that it meets.
    x -= point[0] - target[0]
    y -= point[1] - target[1]
    z -= point[2] - target[2]
    along_normal = (
        x * features[k, _NORMAL] + y * features[k, _NORMAL + 1] + z * features[k, _NORMAL + 2]
    )
    squared = x * x + y * y + z * z - along_normal * along_normal
    return squared > features[k, _REACH] * features[k, _REACH]


@compiled
def _keep_four(group: int, kinds: np.ndarray, placed: np.ndarray) -> None:
    """Open all contacts of a group but four, as MuJoCo does.

    Kept are the deepest, the one that is farthest from it, the one that is farthest from the line
    through both, and the one that is farthest from these three on the other side of that line.
    """
    count = 0
    first = -1
    for k in range(len(kinds)):
        if kinds[k, _GROUP] == group and placed[k, _GAP] < 0.0:
            count += 1
            if first < 0 or placed[k, _GAP] < placed[first, _GAP]:
                first = k
    if count <= _MAX_CONTACTS:
        return
    second = first
    largest = -1.0
    for k in range(len(kinds)):
        if kinds[k, _GROUP] == group and placed[k, _GAP] < 0.0:
            squared = 0.0
            for i in range(3):
                squared += (placed[k, _AT + i] - placed[first, _AT + i]) ** 2
            if squared > largest:
                second, largest = k, squared
    left, right = first, first
    most, least = 0.0, 0.0
    for k in range(len(kinds)):
        if kinds[k, _GROUP] == group and placed[k, _GAP] < 0.0:
            side = _side_of_line(k, first, second, placed)
            if side > most:
                left, most = k, side
            if side < least:
                right, least = k, side
    for k in range(len(kinds)):
        if kinds[k, _GROUP] == group and k not in (first, second, left, right):
            placed[k, _GAP] = 0.0


@compiled
def _side_of_line(k: int, first: int, second: int, placed: np.ndarray) -> float:
    """On which side of the line through two contacts a third one lies, and how far, m^2."""
    x = placed[second, _AT] - placed[first, _AT]
    y = placed[second, _AT + 1] - placed[first, _AT + 1]
    z = placed[second, _AT + 2] - placed[first, _AT + 2]
    u = placed[k, _AT] - placed[first, _AT]
    v = placed[k, _AT + 1] - placed[first, _AT + 1]
    w = placed[k, _AT + 2] - placed[first, _AT + 2]
    return (
        placed[first, _AXES] * (y * w - z * v)
        + placed[first, _AXES + 1] * (z * u - x * w)
        + placed[first, _AXES + 2] * (x * v - y * u)
    )


@compiled
def _fill_axes(k: int, u: float, v: float, w: float, placed: np.ndarray) -> None:
    """Fill the axes of contact k: its normal (u, v, w) and two tangents."""
    if abs(u) < 0.7:
        x, y, z = 1.0 - u * u, -u * v, -u * w
    else:
        x, y, z = -v * u, 1.0 - v * v, -v * w
    length = np.sqrt(x * x + y * y + z * z)
    x, y, z = x / length, y / length, z / length
    placed[k, _AXES], placed[k, _AXES + 1], placed[k, _AXES + 2] = u, v, w
    placed[k, _AXES + 3], placed[k, _AXES + 4], placed[k, _AXES + 5] = x, y, z
    placed[k, _AXES + 6] = v * z - w * y
    placed[k, _AXES + 7] = w * x - u * z
    placed[k, _AXES + 8] = u * y - v * x


@compiled
def _impedance(depth: float, parameters: np.ndarray, group: int) -> float:
    """MuJoCo's impedance at a depth (m)."""
    lowest, highest = parameters[group, _SOLIMP], parameters[group, _SOLIMP + 1]
    midpoint, power = parameters[group, _SOLIMP + 3], parameters[group, _SOLIMP + 4]
    share = min(depth / parameters[group, _SOLIMP + 2], 1.0)
    if share == 1.0 or power == 1.0:
        rise = share
    elif share <= midpoint:
        rise = share**power / midpoint ** (power - 1.0)
    else:
        rise = 1.0 - (1.0 - share) ** power / (1.0 - midpoint) ** (power - 1.0)
    return min(max(lowest + rise * (highest - lowest), _MIN_IMPEDANCE), _MAX_IMPEDANCE)


@compiled
def _set_impedance(
    k: int,
    gap: float,
    parameters: np.ndarray,
    group: int,
    impratio: float,
    side: np.ndarray,
) -> None:
    """Fill weight, friction and the spring's reference of all rows of contact k."""
    impedance = _impedance(-gap, parameters, group)
    deep = parameters[group, _SOLIMP + 1]
    regularisation = (1.0 - impedance) / impedance * parameters[group, _INVERSE_WEIGHT]
    regularisation = max(regularisation, _MIN_REGULARISATION)
    sliding = parameters[group, _SLIDING]
    side[k, 0, REFERENCE] = -parameters[group, _STIFFNESS] / (deep * deep) * impedance * gap
    side[k, 0, WEIGHT] = 1.0 / regularisation
    side[k, 0, FRICTION] = sliding / np.sqrt(impratio)
    for q in range(1, int(parameters[group, _DIMS])):
        friction = sliding if q < 3 else parameters[group, _TORSIONAL]
        ratio = friction / sliding
        side[k, q, REFERENCE] = 0.0
        side[k, q, WEIGHT] = impratio * ratio * ratio / regularisation
        side[k, q, FRICTION] = friction


@compiled
def _fill_row(
    place: tuple[int, int, int, int],
    columns: tuple[int, int],
    bodies: np.ndarray,
    basis: np.ndarray,
    placed: np.ndarray,
    contacts: tuple[np.ndarray, np.ndarray],
) -> float:
    """Fill a row of a contact's Jacobian and subtract its smooth acceleration from the reference.

    Args:
        place: Contact, row, the body that carries the feature, and the one it meets.
        columns: Columns of both bases.
        bodies: The bodies.
        basis: (2, 6, D).
        placed: Where the features are.
        contacts: `rows` and `side` of the solver.

    Returns:
        Velocity of the contact along the row, m/s or rad/s.
    """
    k, q, carrier, against = place
    rows, side = contacts
    velocity = 0.0
    first = 0
    for b in range(2):
        sign = 0.0
        if carrier == b:
            sign = 1.0
        elif against == b:
            sign = -1.0
        if sign != 0.0:
            _twist_jacobian(k, q, b, bodies, placed)
            for i in range(6):
                jacobian = sign * placed[-1, _JACOBIAN + i]
                velocity += jacobian * bodies[b, _TWIST + i]
                side[k, q, REFERENCE] -= jacobian * bodies[b, _SMOOTH + i]
            for j in range(columns[b]):
                value = 0.0
                for i in range(6):
                    value += placed[-1, _JACOBIAN + i] * basis[b, i, j]
                rows[k, q, first + j] = sign * value
        first += columns[b]
    return velocity


@compiled
def _twist_jacobian(k: int, q: int, b: int, bodies: np.ndarray, placed: np.ndarray) -> None:
    """Fill the Jacobian (6,) of row q of contact k by the twist of body b."""
    if q == 3:  # rotation about the normal
        for i in range(3):
            placed[-1, _JACOBIAN + i] = 0.0
            placed[-1, _JACOBIAN + 3 + i] = placed[k, _AXES + i]
        return
    first = _AXES + 3 * q
    u, v, w = placed[k, first], placed[k, first + 1], placed[k, first + 2]
    x = placed[k, _AT] - bodies[b, _ORIGIN]
    y = placed[k, _AT + 1] - bodies[b, _ORIGIN + 1]
    z = placed[k, _AT + 2] - bodies[b, _ORIGIN + 2]
    placed[-1, _JACOBIAN] = u
    placed[-1, _JACOBIAN + 1] = v
    placed[-1, _JACOBIAN + 2] = w
    placed[-1, _JACOBIAN + 3] = y * w - z * v
    placed[-1, _JACOBIAN + 4] = z * u - x * w
    placed[-1, _JACOBIAN + 5] = x * v - y * u


@compiled
def _advance(
    columns: tuple[int, int],
    bodies: np.ndarray,
    basis: np.ndarray,
    x: np.ndarray,
    timestep: float,
) -> None:
    """Advance both bodies by a time step with accelerations by contact x (r,)."""
    first = 0
    for b in range(2):
        for i in range(6):
            value = bodies[b, _SMOOTH + i]
            for j in range(columns[b]):
                value += basis[b, i, j] * x[first + j]
            bodies[b, _TWIST + i] += timestep * value
        for i in range(3):
            bodies[b, _ORIGIN + i] += timestep * bodies[b, _TWIST + i]
        _rotate(b, bodies, timestep)
        first += columns[b]


@compiled
def _rotate(b: int, bodies: np.ndarray, timestep: float) -> None:
    """Rotate body b by its angular velocity for a time step."""
    u = timestep * bodies[b, _TWIST + 3]
    v = timestep * bodies[b, _TWIST + 4]
    w = timestep * bodies[b, _TWIST + 5]
    angle = np.sqrt(u * u + v * v + w * w)
    if angle == 0.0:
        return
    sine = 1.0 if angle < 1e-8 else np.sin(angle) / angle
    cosine = 0.5 if angle < 1e-8 else (1.0 - np.cos(angle)) / (angle * angle)
    for j in range(3):
        x = bodies[b, _ROTATION + j]
        y = bodies[b, _ROTATION + 3 + j]
        z = bodies[b, _ROTATION + 6 + j]
        p, q, r = v * z - w * y, w * x - u * z, u * y - v * x
        bodies[b, _ROTATION + j] = x + sine * p + cosine * (v * r - w * q)
        bodies[b, _ROTATION + 3 + j] = y + sine * q + cosine * (w * p - u * r)
        bodies[b, _ROTATION + 6 + j] = z + sine * r + cosine * (u * q - v * p)
