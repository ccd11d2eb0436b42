"""Copies one impact from the arrays of a contact problem into those that the solver steps."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.columns import (
    AGAINST,
    ARM,
    CARRIER,
    DAMPING,
    DIRECTION,
    INERTIA,
    INVERSE_WEIGHT,
    KIND,
    NORMAL,
    ORIGIN,
    OTHER,
    POINT,
    RADIUS,
    REACH,
    ROTATION,
    ROUNDING,
    SLIDING,
    SOLIMP,
    START,
    STIFFNESS,
    TARGET,
    TORSIONAL,
    TWIST,
    Arrays,
)
from clashsim.sim.contact.compiled import compiled


@compiled
def load_bodies(n: int, motion: Arrays, bodies: np.ndarray) -> None:
    """Put both bodies at the start of impact n."""
    origin, shift, arm = motion[1], motion[2], motion[3]
    inertia, twist, acceleration = motion[7], motion[8], motion[9]
    for b in range(2):
        for i in range(3):
            bodies[b, START + i] = origin[n, b, i]
            bodies[b, ORIGIN + i] = origin[n, b, i]
            if b == 0:
                bodies[b, ORIGIN + i] += shift[n, i]
            bodies[b, ARM + i] = arm[n, b, i]
        for i in range(6):
            bodies[b, TWIST + i] = twist[n, b, i]
            bodies[b, OTHER + i] = acceleration[n, b, i]
        for i in range(9):
            bodies[b, ROTATION + i] = 1.0 if i % 4 == 0 else 0.0
            bodies[b, INERTIA + i] = inertia[n, b, i // 3, i % 3]


@compiled
def load_features(row: int, geometry: Arrays, features: np.ndarray, kinds: np.ndarray) -> None:
    """Copy the features of a row of the geometry."""
    point, rounding, radius, carrier, against, normal, target, kind, edge, reach, _ = geometry
    for k in range(len(features)):
        for i in range(3):
            features[k, POINT + i] = point[row, k, i]
            features[k, NORMAL + i] = normal[row, k, i]
            features[k, TARGET + i] = target[row, k, i]
            features[k, DIRECTION + i] = edge[row, k, i]
            for j in range(3):
                features[k, ROUNDING + 3 * i + j] = rounding[row, k, i, j]
        features[k, RADIUS] = radius[row, k]
        features[k, REACH] = reach[row, k]
        kinds[k, CARRIER] = carrier[row, k]
        kinds[k, AGAINST] = against[row, k]
        kinds[k, KIND] = kind[row, k]


@compiled
def load_parameters(n: int, given: Arrays, parameters: np.ndarray) -> None:
    """Copy the contact parameters of impact n."""
    sliding, torsional, stiffness, damping, impedance, inverse_weight, _ = given
    for s in range(len(parameters)):
        parameters[s, SLIDING] = sliding[n, s]
        parameters[s, TORSIONAL] = torsional[n, s]
        parameters[s, STIFFNESS] = stiffness[n, s]
        parameters[s, DAMPING] = damping[n, s]
        parameters[s, INVERSE_WEIGHT] = inverse_weight[n, s]
        for i in range(5):
            parameters[s, SOLIMP + i] = impedance[n, s, i]
