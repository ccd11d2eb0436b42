"""Compiled functions for pairs of triangles, as `clashsim.nets.nearest_points` has them in torch.

Vectors are tuples of three numbers. A triangle is an array (5, 3): three corners, their mean, and
the normal.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from clashsim.nets import nearest_points as in_torch
from clashsim.nets.nearest_points import PARALLEL, TIE, TINY
from clashsim.sim.contact.compiled import compiled, forget_stale

forget_stale(Path(__file__).parent, Path(in_torch.__file__))

Vector = tuple[float, float, float]


@compiled
def vector(rows: np.ndarray, i: int) -> Vector:
    """Row i of an array (n, 3) as a vector."""
    return rows[i, 0], rows[i, 1], rows[i, 2]


@compiled
def dot(a: Vector, b: Vector) -> float:
    """Scalar product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@compiled
def minus(a: Vector, b: Vector) -> Vector:
    """Difference a - b."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@compiled
def scaled(a: Vector, factor: float) -> Vector:
    """Product with a number."""
    return a[0] * factor, a[1] * factor, a[2] * factor


@compiled
def norm(a: Vector) -> float:
    """Length."""
    return math.sqrt(dot(a, a))


@compiled
def _along(point: Vector, direction: Vector, share: float) -> Vector:
    """The point plus a share of a direction."""
    return (
        point[0] + share * direction[0],
        point[1] + share * direction[1],
        point[2] + share * direction[2],
    )


@compiled
def _clamped(value: float) -> float:
    """The number in [0, 1] that is nearest to a number."""
    return min(max(value, 0.0), 1.0)


@compiled
def triangles_may_be_near(a: np.ndarray, b: np.ndarray, limits: tuple[float, ...]) -> bool:
    """Whether triangles may be in contact, by the spheres around them.

    Args:
        a: First triangle.
        b: Second triangle.
        limits: Radius of both spheres and largest distance of faces in contact, m.
    """
    radius_a, radius_b, reach = limits
    between = minus(vector(b, 3), vector(a, 3))
    limit = radius_a + radius_b + reach
    if dot(between, between) >= limit * limit:
        return False
    # Part of each sphere lies in front of the other face, and near its plane.
    over_a = dot(vector(a, 4), between)
    over_b = -dot(vector(b, 4), between)
    return -radius_b < over_a < radius_b + reach and -radius_a < over_b < radius_a + reach


@compiled
def nearest_points(a: np.ndarray, b: np.ndarray) -> tuple[Vector, Vector]:
    """Nearest points of triangles that do not intersect, on `a` and on `b`."""
    least = np.inf
    on_a, on_b = vector(a, 0), vector(b, 0)
    for i in range(3):
        for j in range(3):
            p, q = _of_segments(
                vector(a, i), vector(a, (i + 1) % 3), vector(b, j), vector(b, (j + 1) % 3)
            )
            distance = norm(minus(p, q)) * TIE
            if distance < least:
                least, on_a, on_b = distance, p, q
    for i in range(3):
        inside, foot = _projection(vector(a, i), b)
        distance = norm(minus(vector(a, i), foot))
        if inside and distance < least:
            least, on_a, on_b = distance, vector(a, i), foot
    for j in range(3):
        inside, foot = _projection(vector(b, j), a)
        distance = norm(minus(vector(b, j), foot))
        if inside and distance < least:
            least, on_a, on_b = distance, foot, vector(b, j)
    return on_a, on_b


@compiled
def _of_segments(p0: Vector, p1: Vector, q0: Vector, q1: Vector) -> tuple[Vector, Vector]:
    """Nearest points of segments p0 p1 and q0 q1 (Ericson 2005, 5.1.9, and its names)."""
    d1, d2, r = minus(p1, p0), minus(q1, q0), minus(p0, q0)
    a, e = max(dot(d1, d1), TINY), max(dot(d2, d2), TINY)
    b, c, f = dot(d1, d2), dot(d1, r), dot(d2, r)
    denominator = a * e - b * b
    s = 0.0
    if denominator > PARALLEL * a * e:
        s = _clamped((b * f - c * e) / max(denominator, TINY))
    t = (b * s + f) / e
    # Where t leaves the second segment, it is clamped and s follows.
    if t < 0:
        s = _clamped(-c / a)
    elif t > 1:
        s = _clamped((b - c) / a)
    return _along(p0, d1, s), _along(q0, d2, _clamped(t))


@compiled
def _projection(point: Vector, triangle: np.ndarray) -> tuple[bool, Vector]:
    """Whether a point lies over a triangle, and its projection onto the plane of it."""
    origin = vector(triangle, 0)
    u, v = minus(vector(triangle, 1), origin), minus(vector(triangle, 2), origin)
    w = minus(point, origin)
    uu, uv, vv = dot(u, u), dot(u, v), dot(v, v)
    wu, wv = dot(w, u), dot(w, v)
    determinant = max(uu * vv - uv * uv, TINY)
    s = (vv * wu - uv * wv) / determinant
    t = (uu * wv - uv * wu) / determinant
    inside = s >= 0 and t >= 0 and s + t <= 1
    return inside, _along(_along(origin, u, s), v, t)
