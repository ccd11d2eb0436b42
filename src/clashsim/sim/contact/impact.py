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
from clashsim.sim.contact.body_steps import (
    accelerate,
    advance,
    drift_on,
    drive_body,
    relax,
    rotate_inertia,
)
from clashsim.sim.contact.columns import (
    AGAINST,
    BODY_WIDTH,
    CARRIER,
    DAMPING,
    DIMS,
    FEATURE_WIDTH,
    GAP,
    GROUP,
    PARAMETER_WIDTH,
    PLACED_WIDTH,
    REACH,
    SOLIMP,
    TWIST,
    Arrays,
)
from clashsim.sim.contact.compiled import compiled, is_cached
from clashsim.sim.contact.cone_solver import (
    DIM,
    FIRST,
    LAST,
    LOCAL,
    REFERENCE,
    SCRATCH,
    SIDE,
    solve_contacts,
    solve_single_contact,
)
from clashsim.sim.contact.contact_limit import keep_four
from clashsim.sim.contact.contact_rows import fill_row, set_impedance
from clashsim.sim.contact.feature_gaps import is_beyond_reach, place_feature
from clashsim.sim.contact.load import load_bodies, load_features, load_parameters
from clashsim.sim.contact.problem import ContactProblem
from clashsim.sim.mujoco.impacts import HALF_STEP, SETTLED, SETTLING_TIME, ImpactEnd

_ROWS_PER_THREAD = 64  # impacts, below which another thread does not pay
_PARTED = int(ImpactEnd.PARTED)
_SETTLED = int(ImpactEnd.SETTLED)
_UNFINISHED = int(ImpactEnd.UNFINISHED)
# End of an impact in which a body came to a part of the other's surface that is not described.
BEYOND_REACH = 1 + max(int(end) for end in ImpactEnd)

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
    problem: tuple[Arrays, Arrays, Arrays],
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
    bodies = np.zeros((2, BODY_WIDTH))
    features = np.zeros((count, FEATURE_WIDTH))
    kinds = np.zeros((count, 4), np.int64)
    kinds[:, GROUP] = group
    parameters = np.zeros((len(dims), PARAMETER_WIDTH))
    parameters[:, DIMS] = dims
    for n in range(span[0], span[1]):
        load_bodies(n, motion, bodies)
        load_features(motion[0][n], geometry, features, kinds)
        load_parameters(n, given, parameters)
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
                twist_after[n, b, i] = bodies[b, TWIST + i]


@compiled
def _solve_one(
    moving: Arrays,
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
        both = kinds[k, AGAINST] < 2
        span[k, FIRST] = 0 if both or kinds[k, CARRIER] == 0 else columns[0]
        span[k, LAST] = size if both or kinds[k, CARRIER] == 1 else columns[0]
    x = np.zeros(size)
    strike_dim = int(parameters[0, DIMS])
    single = (
        np.zeros((1, 4, 4)),
        np.zeros((1, 4, SIDE)),
        np.array([[strike_dim, 0, strike_dim]]),
        np.zeros(strike_dim),
    )
    applied = np.zeros(size)
    scratch = np.zeros((SCRATCH + size, size))
    local = np.zeros((LOCAL, 4))
    placed = np.zeros((count + 1, PLACED_WIDTH))
    lag = np.zeros((3, 2, basis.shape[2]))
    # Half a time step after the touch, as contacts begin on average; see `HALF_STEP`.
    drift_on(bodies, HALF_STEP * options[0])
    approach = -1.0  # speed at the first touch; negative before it
    quiet_steps = 0
    for _ in range(limits[0]):
        for b in range(2):
            accelerate(b, bodies)
            if driven[b]:
                drive_body(b, columns[b], bodies, basis, (lag, damping, drift))
            if rotating[b] < columns[b]:
                rotate_inertia(b, (rotating[b], columns[b]), bodies, start_basis, basis)
        deepest = 1.0  # gap of the impact's deepest contact; positive where none touches
        closing = 0.0
        num_contacts = 0
        touching = 0  # the last feature that touches
        for k in range(count):
            place_feature(k, features, kinds, bodies, placed)
        for group in range(len(parameters)):
            keep_four(group, kinds, placed)
        for k in range(count):
            gap = placed[k, GAP]
            span[k, DIM] = 0
            if gap >= 0.0:
                continue
            num_contacts += 1
            touching = k
            if features[k, REACH] < np.inf and is_beyond_reach(k, features, kinds, bodies):
                return BEYOND_REACH
            group = kinds[k, GROUP]
            dim = int(parameters[group, DIMS])
            span[k, DIM] = dim
            set_impedance(k, gap, parameters, group, options[1], side)
            for q in range(dim):
                velocity = fill_row(
                    (k, q, kinds[k, CARRIER], kinds[k, AGAINST]),
                    columns,
                    bodies,
                    basis,
                    placed,
                    (rows, side),
                )
                damper = parameters[group, DAMPING] / parameters[group, SOLIMP + 1]
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
                relax(b, (columns[b], first), options[0], applied, (lag, relaxation))
            first += columns[b]
        advance(columns, bodies, basis, applied, options[0])
    return _UNFINISHED
