"""Where the features of an impact's surfaces are at present: gap, contact point and axes."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.body_rotation import carried, times, times_transposed
from clashsim.sim.contact.columns import (
    AGAINST,
    AT,
    AXES,
    CARRIER,
    DIRECTION,
    GAP,
    KIND,
    NORMAL,
    POINT,
    RADIUS,
    REACH,
    ROTATION,
    ROUNDING,
    TARGET,
    Vector,
)
from clashsim.sim.contact.compiled import compiled
from clashsim.sim.contact.problem import EDGE, RIM, RIM_RIGHT, VERTEX

_SINE_OF_A_THIRD = 0.8660254037844386  # of a turn, 120 degrees


@compiled
def place_feature(
    k: int, features: np.ndarray, kinds: np.ndarray, bodies: np.ndarray, placed: np.ndarray
) -> None:
    """Find the present gap of feature k and, where it touches, point and axes of its contact."""
    carrier, against = kinds[k, CARRIER], kinds[k, AGAINST]
    x, y, z = carried(
        carrier, bodies, features[k, POINT], features[k, POINT + 1], features[k, POINT + 2]
    )
    met = (features[k, TARGET], features[k, TARGET + 1], features[k, TARGET + 2])
    normal = (features[k, NORMAL], features[k, NORMAL + 1], features[k, NORMAL + 2])
    if against < 2:
        met = carried(against, bodies, met[0], met[1], met[2])
    kind = kinds[k, KIND]
    if kind in (VERTEX, EDGE):  # the normal is the direction from it
        normal = (x - met[0], y - met[1], z - met[2])
        if kind == EDGE:
            edge = (features[k, DIRECTION], features[k, DIRECTION + 1], features[k, DIRECTION + 2])
            if against < 2:
                edge = times(bodies, against, ROTATION, edge)
            along = edge[0] * normal[0] + edge[1] * normal[1] + edge[2] * normal[2]
            normal = (
                normal[0] - along * edge[0],
                normal[1] - along * edge[1],
                normal[2] - along * edge[2],
            )
        length = np.sqrt(normal[0] ** 2 + normal[1] ** 2 + normal[2] ** 2)
        normal = (normal[0] / length, normal[1] / length, normal[2] / length)
    elif against < 2:
        normal = times(bodies, against, ROTATION, normal)
    u, v, w = normal
    gap = u * (x - met[0]) + v * (y - met[1]) + w * (z - met[2]) - features[k, RADIUS]
    if kind >= RIM:
        local = times_transposed(bodies, carrier, ROTATION, normal)
        to_rim = times(bodies, carrier, ROTATION, _to_rim(k, kind, local, features))
        x, y, z = x + to_rim[0], y + to_rim[1], z + to_rim[2]
        gap += u * to_rim[0] + v * to_rim[1] + w * to_rim[2]
    elif features[k, ROUNDING] + features[k, ROUNDING + 4] + features[k, ROUNDING + 8] > 0.0:
        local = times_transposed(bodies, carrier, ROTATION, normal)
        low = times(features, k, ROUNDING, local)
        squared = low[0] * local[0] + low[1] * local[1] + low[2] * local[2]
        if squared > 1e-24:  # not a disc that lies flat
            radius = np.sqrt(squared)
            low = times(bodies, carrier, ROTATION, low)
            x, y, z = x - low[0] / radius, y - low[1] / radius, z - low[2] / radius
            gap -= radius
    placed[k, GAP] = gap
    if gap < 0.0:  # MuJoCo's contact point is midway between the two surfaces
        placed[k, AT] = x - 0.5 * gap * u
        placed[k, AT + 1] = y - 0.5 * gap * v
        placed[k, AT + 2] = z - 0.5 * gap * w
        _fill_axes(k, u, v, w, placed)


@compiled
def _to_rim(k: int, kind: int, normal: Vector, features: np.ndarray) -> Vector:
    """From the middle of disc k to the point of its rim that may touch a plane.

    Where three points of a rim touch, MuJoCo takes the lowest, and two that lie a third of the rim
    from there.

    Args:
        k: The feature.
        kind: `RIM`, `RIM_LEFT` or `RIM_RIGHT`.
        normal: Of the plane, in the axes of the features.
        features: The features.
    """
    low = times(features, k, ROUNDING, normal)
    squared = low[0] * normal[0] + low[1] * normal[1] + low[2] * normal[2]
    if squared > 1e-24:
        radius = np.sqrt(squared)
        x, y, z = -low[0] / radius, -low[1] / radius, -low[2] / radius
    else:  # it lies flat
        edge = (features[k, DIRECTION], features[k, DIRECTION + 1], features[k, DIRECTION + 2])
        low = times(features, k, ROUNDING, edge)
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
def is_beyond_reach(k: int, features: np.ndarray, kinds: np.ndarray, bodies: np.ndarray) -> bool:
    """Whether feature k has moved too far along the surface that it meets."""
    carrier, against = kinds[k, CARRIER], kinds[k, AGAINST]
    point = (features[k, POINT], features[k, POINT + 1], features[k, POINT + 2])
    target = (features[k, TARGET], features[k, TARGET + 1], features[k, TARGET + 2])
    x, y, z = carried(carrier, bodies, point[0], point[1], point[2])
    if against < 2:
        u, v, w = carried(against, bodies, target[0], target[1], target[2])
        x, y, z = times_transposed(bodies, against, ROTATION, (x - u, y - v, z - w))
    else:
        x, y, z = x - target[0], y - target[1], z - target[2]
    # By how much it has moved, seen from the body that it meets.
    x -= point[0] - target[0]
    y -= point[1] - target[1]
    z -= point[2] - target[2]
    along_normal = (
        x * features[k, NORMAL] + y * features[k, NORMAL + 1] + z * features[k, NORMAL + 2]
    )
    squared = x * x + y * y + z * z - along_normal * along_normal
    return squared > features[k, REACH] * features[k, REACH]


@compiled
def _fill_axes(k: int, u: float, v: float, w: float, placed: np.ndarray) -> None:
    """Fill the axes of contact k: its normal (u, v, w) and two tangents."""
    if abs(u) < 0.7:
        x, y, z = 1.0 - u * u, -u * v, -u * w
    else:
        x, y, z = -v * u, 1.0 - v * v, -v * w
    length = np.sqrt(x * x + y * y + z * z)
    x, y, z = x / length, y / length, z / length
    placed[k, AXES], placed[k, AXES + 1], placed[k, AXES + 2] = u, v, w
    placed[k, AXES + 3], placed[k, AXES + 4], placed[k, AXES + 5] = x, y, z
    placed[k, AXES + 6] = v * z - w * y
    placed[k, AXES + 7] = w * x - u * z
    placed[k, AXES + 8] = u * y - v * x
