"""Contact points of two flat faces that meet: the part of one face that lies over the other."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.compiled import compiled

MAX_POINTS = 8  # of a manifold; those nearest to the other face are kept
_MAX_CORNERS = 64  # of a polygon while it is clipped
_ON_FACE = 1e-6  # share of a body's size within which a vertex lies on a face


@compiled
def _facing(normals: np.ndarray, direction: np.ndarray) -> int:
    """Index of the normal (F, 3) that is most along a direction (3,)."""
    best = 0
    largest = -np.inf
    for f in range(len(normals)):
        value = 0.0
        for i in range(3):
            value += normals[f, i] * direction[i]
        if value > largest:
            best, largest = f, value
    return best


@compiled
def _face_corners(points: np.ndarray, normal: np.ndarray, offset: float) -> np.ndarray:
    """Those of the points (V, 3) that lie on a face, in order around it, (m, 3)."""
    tolerance = _ON_FACE * np.abs(points).max()
    count = 0
    corners = np.empty((len(points), 3))
    for v in range(len(points)):
        if abs(np.dot(points[v], normal) - offset) < tolerance:
            corners[count] = points[v]
            count += 1
    corners = corners[:count]
    middle = np.zeros(3)
    for v in range(count):
        middle += corners[v] / count
    first = corners[0] - middle
    second = np.cross(normal, first)
    angles = np.empty(count)
    for v in range(count):
        angles[v] = np.arctan2(
            np.dot(corners[v] - middle, second), np.dot(corners[v] - middle, first)
        )
    return corners[np.argsort(angles)]


@compiled
def clip_polygon(polygon: np.ndarray, face: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """The part of a polygon (m, 3) that lies over a convex face (f, 3) with a normal (3,).

    Sutherland and Hodgman's algorithm, against the planes through the edges of the face.
    """
    current = np.empty((_MAX_CORNERS, 3))
    clipped = np.empty((_MAX_CORNERS, 3))
    count = len(polygon)
    current[:count] = polygon
    for e in range(len(face)):
        start = face[e]
        inward = np.cross(normal, face[(e + 1) % len(face)] - start)
        kept = 0
        for i in range(count):
            corner = current[i]
            next_corner = current[(i + 1) % count]
            inside_corner = np.dot(corner - start, inward)
            inside_next = np.dot(next_corner - start, inward)
            if inside_corner >= 0.0 and kept < _MAX_CORNERS:
                clipped[kept] = corner
                kept += 1
            if (inside_corner >= 0.0) != (inside_next >= 0.0) and kept < _MAX_CORNERS:
                share = inside_corner / (inside_corner - inside_next)
                clipped[kept] = corner + share * (next_corner - corner)
                kept += 1
        current, clipped = clipped, current
        count = kept
    return current[:count].copy()


@compiled
def fill_manifolds(
    first: tuple[np.ndarray, np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray, np.ndarray],
    normal: np.ndarray,
    out: tuple[np.ndarray, np.ndarray, np.ndarray],
    far: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Find where N pairs of polytopes touch.

    Args:
        first: Vertices (N, V, 3), face normals (N, F, 3) and offsets (N, F) of one body.
        second: The same of the other body.
        normal: (N, 3), contact normals, out of the second body into the first.
        out: Filled with the points (N, MAX_POINTS, 3) of one body over a face of the other, the
            lowest first; with the face's normal, and with a point of it, likewise.
        far: m, how far above the face points are put that are not needed.

    Returns:
        Which body carries the face, 0 or 1, (N,), and the cosine (N,) of the angle between its
        normal and the contact's.
    """
    n = len(normal)
    points, normals, targets = out
    reference = np.zeros(n, np.int64)
    cosine = np.zeros(n)
    for i in range(n):
        face_of_first = _facing(first[1][i], -normal[i])
        face_of_second = _facing(second[1][i], normal[i])
        cosine_of_first = -np.dot(first[1][i, face_of_first], normal[i])
        cosine_of_second = np.dot(second[1][i, face_of_second], normal[i])
        met, other = first, second
        met_face, other_face = face_of_first, face_of_second
        cosine[i] = cosine_of_first
        if cosine_of_second >= cosine_of_first:
            met, other = second, first
            met_face, other_face = face_of_second, face_of_first
            cosine[i] = cosine_of_second
            reference[i] = 1
        face_normal = met[1][i, met_face]
        corners = _face_corners(met[0][i], face_normal, met[2][i, met_face])
        polygon = _face_corners(other[0][i], other[1][i, other_face], other[2][i, other_face])
        if len(polygon) + len(corners) > _MAX_CORNERS:
            cosine[i] = 0.0  # too many to be clipped
            continue
        clipped = clip_polygon(polygon, corners, face_normal)
        heights = np.zeros(len(clipped))
        for k in range(len(clipped)):
            heights[k] = np.dot(clipped[k] - corners[0], face_normal)
        order = np.argsort(heights)
        for k in range(MAX_POINTS):
            normals[i, k] = face_normal
            targets[i, k] = corners[0]
            if k < len(clipped):
                points[i, k] = clipped[order[k]]
            else:
                points[i, k] = corners[0] + far * face_normal
    return reference, cosine
