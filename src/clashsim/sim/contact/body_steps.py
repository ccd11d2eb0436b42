"""How the bodies of an impact move in a time step: servos, own rotation, contact."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.body_rotation import times, times_transposed
from clashsim.sim.contact.columns import ARM, INERTIA, ORIGIN, OTHER, ROTATION, SMOOTH, TWIST
from clashsim.sim.contact.compiled import compiled


@compiled
def accelerate(b: int, bodies: np.ndarray) -> None:
    """Fill the accelerations of body b by everything but contact, servos and its own rotation."""
    for i in range(6):
        bodies[b, SMOOTH + i] = bodies[b, OTHER + i]


@compiled
def drive_body(
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
            bodies[b, SMOOTH + i] += basis[b, i, j] * braking


@compiled
def relax(
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
        drive: Lag as for `drive_body`, changed in place; and relaxation (2, D, D).
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
def rotate_inertia(
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
        basis[b, 0, j], basis[b, 1, j], basis[b, 2, j] = times(bodies, b, ROTATION, column)
        column = (start_basis[b, 3, j], start_basis[b, 4, j], start_basis[b, 5, j])
        basis[b, 3, j], basis[b, 4, j], basis[b, 5, j] = times(bodies, b, ROTATION, column)
    u, v, w = bodies[b, TWIST + 3], bodies[b, TWIST + 4], bodies[b, TWIST + 5]
    # The mass centre moves on straight ahead, so the origin is accelerated towards it.
    arm = (bodies[b, ARM], bodies[b, ARM + 1], bodies[b, ARM + 2])
    x, y, z = times(bodies, b, ROTATION, arm)
    along = u * x + v * y + w * z
    squared = u * u + v * v + w * w
    bodies[b, SMOOTH] += squared * x - along * u
    bodies[b, SMOOTH + 1] += squared * y - along * v
    bodies[b, SMOOTH + 2] += squared * z - along * w
    # Euler's equation: the torque by which angular momentum would have to be kept from rotating.
    momentum = times_transposed(bodies, b, ROTATION, (u, v, w))
    momentum = times(bodies, b, INERTIA, momentum)
    p, q, r = times(bodies, b, ROTATION, momentum)
    torque_x, torque_y, torque_z = q * w - r * v, r * u - p * w, p * v - q * u
    for j in range(span[0], span[1]):
        along = basis[b, 3, j] * torque_x + basis[b, 4, j] * torque_y + basis[b, 5, j] * torque_z
        for i in range(6):
            bodies[b, SMOOTH + i] += basis[b, i, j] * along


@compiled
def advance(
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
            value = bodies[b, SMOOTH + i]
            for j in range(columns[b]):
                value += basis[b, i, j] * x[first + j]
            bodies[b, TWIST + i] += timestep * value
        for i in range(3):
            bodies[b, ORIGIN + i] += timestep * bodies[b, TWIST + i]
        _rotate(b, bodies, timestep)
        first += columns[b]


@compiled
def drift_on(bodies: np.ndarray, time: float) -> None:
    """Let both bodies move on for a time (s) with the velocities that they have."""
    for b in range(2):
        for i in range(3):
            bodies[b, ORIGIN + i] += time * bodies[b, TWIST + i]
        _rotate(b, bodies, time)


@compiled
def _rotate(b: int, bodies: np.ndarray, timestep: float) -> None:
    """Rotate body b by its angular velocity for a time step."""
    u = timestep * bodies[b, TWIST + 3]
    v = timestep * bodies[b, TWIST + 4]
    w = timestep * bodies[b, TWIST + 5]
    angle = np.sqrt(u * u + v * v + w * w)
    if angle == 0.0:
        return
    sine = 1.0 if angle < 1e-8 else np.sin(angle) / angle
    cosine = 0.5 if angle < 1e-8 else (1.0 - np.cos(angle)) / (angle * angle)
    for j in range(3):
        x = bodies[b, ROTATION + j]
        y = bodies[b, ROTATION + 3 + j]
        z = bodies[b, ROTATION + 6 + j]
        p, q, r = v * z - w * y, w * x - u * z, u * y - v * x
        bodies[b, ROTATION + j] = x + sine * p + cosine * (v * r - w * q)
        bodies[b, ROTATION + 3 + j] = y + sine * q + cosine * (w * p - u * r)
        bodies[b, ROTATION + 6 + j] = z + sine * r + cosine * (u * q - v * p)
