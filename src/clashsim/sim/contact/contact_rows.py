"""The rows of a contact in the cone problem: its Jacobian, its reference and its weight."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.columns import (
    AT,
    AXES,
    DIMS,
    INVERSE_WEIGHT,
    JACOBIAN,
    ORIGIN,
    SLIDING,
    SMOOTH,
    SOLIMP,
    STIFFNESS,
    TORSIONAL,
    TWIST,
)
from clashsim.sim.contact.compiled import compiled
from clashsim.sim.contact.cone_solver import FRICTION, REFERENCE, WEIGHT

_MIN_REGULARISATION = 1e-15  # MuJoCo's mjMINVAL
_MIN_IMPEDANCE = 1e-4  # MuJoCo's mjMINIMP
_MAX_IMPEDANCE = 0.9999  # MuJoCo's mjMAXIMP


@compiled
def set_impedance(
    k: int,
    gap: float,
    parameters: np.ndarray,
    group: int,
    impratio: float,
    side: np.ndarray,
) -> None:
    """Fill weight, friction and the spring's reference of all rows of contact k."""
    impedance = _impedance(-gap, parameters, group)
    deep = parameters[group, SOLIMP + 1]
    regularisation = (1.0 - impedance) / impedance * parameters[group, INVERSE_WEIGHT]
    regularisation = max(regularisation, _MIN_REGULARISATION)
    sliding = parameters[group, SLIDING]
    side[k, 0, REFERENCE] = -parameters[group, STIFFNESS] / (deep * deep) * impedance * gap
    side[k, 0, WEIGHT] = 1.0 / regularisation
    side[k, 0, FRICTION] = sliding / np.sqrt(impratio)
    for q in range(1, int(parameters[group, DIMS])):
        friction = sliding if q < 3 else parameters[group, TORSIONAL]
        ratio = friction / sliding
        side[k, q, REFERENCE] = 0.0
        side[k, q, WEIGHT] = impratio * ratio * ratio / regularisation
        side[k, q, FRICTION] = friction


@compiled
def _impedance(depth: float, parameters: np.ndarray, group: int) -> float:
    """MuJoCo's impedance at a depth (m)."""
    lowest, highest = parameters[group, SOLIMP], parameters[group, SOLIMP + 1]
    midpoint, power = parameters[group, SOLIMP + 3], parameters[group, SOLIMP + 4]
    share = min(depth / parameters[group, SOLIMP + 2], 1.0)
    if share == 1.0 or power == 1.0:
        rise = share
    elif share <= midpoint:
        rise = share**power / midpoint ** (power - 1.0)
    else:
        rise = 1.0 - (1.0 - share) ** power / (1.0 - midpoint) ** (power - 1.0)
    return min(max(lowest + rise * (highest - lowest), _MIN_IMPEDANCE), _MAX_IMPEDANCE)


@compiled
def fill_row(
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
                jacobian = sign * placed[-1, JACOBIAN + i]
                velocity += jacobian * bodies[b, TWIST + i]
                side[k, q, REFERENCE] -= jacobian * bodies[b, SMOOTH + i]
            for j in range(columns[b]):
                value = 0.0
                for i in range(6):
                    value += placed[-1, JACOBIAN + i] * basis[b, i, j]
                rows[k, q, first + j] = sign * value
        first += columns[b]
    return velocity


@compiled
def _twist_jacobian(k: int, q: int, b: int, bodies: np.ndarray, placed: np.ndarray) -> None:
    """Fill the Jacobian (6,) of row q of contact k by the twist of body b."""
    if q == 3:  # rotation about the normal
        for i in range(3):
            placed[-1, JACOBIAN + i] = 0.0
            placed[-1, JACOBIAN + 3 + i] = placed[k, AXES + i]
        return
    first = AXES + 3 * q
    u, v, w = placed[k, first], placed[k, first + 1], placed[k, first + 2]
    x = placed[k, AT] - bodies[b, ORIGIN]
    y = placed[k, AT + 1] - bodies[b, ORIGIN + 1]
    z = placed[k, AT + 2] - bodies[b, ORIGIN + 2]
    placed[-1, JACOBIAN] = u
    placed[-1, JACOBIAN + 1] = v
    placed[-1, JACOBIAN + 2] = w
    placed[-1, JACOBIAN + 3] = y * w - z * v
    placed[-1, JACOBIAN + 4] = z * u - x * w
    placed[-1, JACOBIAN + 5] = x * v - y * u
