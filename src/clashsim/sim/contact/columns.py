"""Columns of the arrays that the solver of one impact steps.

Compiled functions take plain arrays, for the reason given in `clashsim.sim.contact.compiled`.
"""

from __future__ import annotations

import numpy as np

Arrays = tuple[np.ndarray, ...]
Vector = tuple[float, float, float]

# Columns of `bodies` (2, BODY_WIDTH), the state of both bodies.
ORIGIN = 0  # m
START = 3  # m, the origin where the geometry has it
TWIST = 6  # m/s and rad/s
SMOOTH = 12  # accelerations by everything but contact
OTHER = 18  # accelerations by everything but contact, servos and the body's own rotation
ROTATION = 24  # since the start, row by row
INERTIA = 33  # of a free body at its orientation at the start, row by row
ARM = 42  # m, from the origin to the mass centre, at the start
BODY_WIDTH = 45
# Columns of `features` (K, FEATURE_WIDTH), where an impact's surfaces may touch.
POINT = 0
NORMAL = 3
TARGET = 6
DIRECTION = 9  # of an edge, or from the middle of a disc to its lowest point
ROUNDING = 12
RADIUS = 21
REACH = 22
FEATURE_WIDTH = 23
# Columns of `kinds` (K, 4).
CARRIER = 0
AGAINST = 1
KIND = 2
GROUP = 3
# Columns of `placed` (K + 1, PLACED_WIDTH): where features are, the last row for the contact that
# is being stated.
GAP = 0  # m
AT = 1  # point, m
AXES = 4  # normal and two tangents
JACOBIAN = 13  # of a row, by the twist of a body
PLACED_WIDTH = 19
# Columns of `parameters` (S, PARAMETER_WIDTH), of each kind of contact.
SLIDING = 0
TORSIONAL = 1
STIFFNESS = 2
DAMPING = 3
INVERSE_WEIGHT = 4
DIMS = 5
SOLIMP = 6
PARAMETER_WIDTH = 11
