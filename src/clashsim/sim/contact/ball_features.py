"""The feature of a ball against another geom, and what a contact point on a polytope lies on."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.posed import ON_FACE, Features, PosedPair
from clashsim.sim.contact.problem import EDGE, PLANE, STRUCK, VERTEX
from clashsim.sim.contact.surfaces import (
    GEOM_CAPSULE,
    GEOM_CYLINDER,
    GEOM_SPHERE,
    GeomSurface,
)

_SMOOTH_COSINE = 0.97  # between normals of faces that make up a rounded surface
_MIN_RATE = 1e-9  # so that nothing is divided by zero


def of_ball(pair: PosedPair, ball: int) -> Features | None:
    """The one feature of a ball against the other geom, whose nearest point is known."""
    other = 1 - ball
    met = pair.geoms[other]
    size = met.size
    features = Features.blank(len(pair), 1, carrier=ball, against=other)
    features.point[:, 0] = pair.geoms[ball].position
    # The contact's normal points into the struck body; a feature's points towards the ball.
    features.normal[:, 0] = pair.normal if ball == STRUCK else -pair.normal
    local = met.to_local(pair.points[other])
    axis = met.rotation[:, :, 2]
    if met.kind == GEOM_SPHERE:
        features.radius[:] = size[0]
        features.kind[:] = VERTEX
        features.target[:, 0] = met.position
    elif met.kind in (GEOM_CAPSULE, GEOM_CYLINDER):
        along = local[:, 2]
        on_side = np.abs(along) < size[1] - ON_FACE
        across = np.linalg.norm(local[:, :2], axis=1)
        end = np.clip(along, -size[1], size[1])
        features.target[:, 0] = met.position + end[:, None] * axis
        features.edge[:, 0] = axis
        features.reach[:, 0] = np.abs(np.abs(along) - size[1])
        if met.kind == GEOM_CAPSULE:
            features.radius[:] = size[0]
            features.kind[:, 0] = np.where(on_side, EDGE, VERTEX)
            beyond_end = np.abs(met.to_local(pair.geoms[ball].position)[:, 2]) - size[1]
            features.reach[~on_side, 0] = beyond_end[~on_side]
        else:
            on_cap = ~on_side & (across < size[0] - ON_FACE)
            features.radius[:, 0] = np.where(on_cap, 0.0, size[0])
            features.kind[:, 0] = np.where(on_cap, PLANE, EDGE)
            features.covered[:] = on_side | on_cap
            features.reach[on_cap, 0] = size[0] - across[on_cap]
    else:
        surface = met.surface
        if surface is None or not surface.is_polytope:
            return None
        features.target[:, 0] = pair.points[other]
        set_polytope_kind(features, surface, met.rotation, local)
        direction = np.einsum("nji,nj->ni", met.rotation, features.normal[:, 0])
        ball_radius = float(pair.geoms[ball].size[0])
        features.reach[:, 0] = reach_on_polytope(surface, local, direction, ball_radius)
    features.rounding[:, 0] = pair.geoms[ball].size[0] ** 2 * np.eye(3)
    return features


def set_polytope_kind(
    features: Features, surface: GeomSurface, rotation: np.ndarray, local: np.ndarray
) -> None:
    """Decide whether contact points (N, 3), in the geom's frame, lie on a face, edge or vertex.

    The geom's orientations are `rotation` (N, 3, 3).
    """
    gaps = np.abs(local @ surface.face_normals.T - surface.face_offsets)
    on_face = gaps < ON_FACE
    count = on_face.sum(1)
    features.kind[:, 0] = np.where(count >= 3, VERTEX, np.where(count == 2, EDGE, PLANE))
    features.covered[:] = count >= 1
    rows = np.flatnonzero(count == 2)
    if len(rows):
        pairs = np.argsort(~on_face[rows], axis=1, kind="stable")[:, :2]
        edge = np.cross(surface.face_normals[pairs[:, 0]], surface.face_normals[pairs[:, 1]])
        edge /= np.linalg.norm(edge, axis=1, keepdims=True)
        features.edge[rows, 0] = np.einsum("nij,nj->ni", rotation[rows], edge)


def reach_on_polytope(
    surface: GeomSurface,
    local: np.ndarray,
    direction: np.ndarray,
    radius: float,
    *,
    axis: np.ndarray | None = None,
) -> np.ndarray:
    """How far a ball may move along a polytope before another face, edge or vertex is nearest.

    Args:
        surface: The polytope.
        local: (N, 3), m, the points where it is touched, in its frame.
        direction: (N, 3), unit vectors from there to the ball's centre.
        radius: m, of the ball.
        axis: (N, 3), of a rod that touches it with its side; faces at the rod's ends do not count.

    Returns:
        (N,), m.
    """
    normals = surface.face_normals
    gaps = surface.face_offsets - local @ normals.T
    on_face = np.abs(gaps) < ON_FACE
    count = on_face.sum(1)
    # The first two faces that are touched; the same one twice on a face.
    ranked = np.argsort(~on_face, axis=1, kind="stable")
    first = normals[ranked[:, 0]]
    second = np.where((count > 1)[:, None], normals[ranked[:, 1]], first)
    edge = np.cross(first, second)
    edge /= np.maximum(np.linalg.norm(edge, axis=1, keepdims=True), _MIN_RATE)
    # How fast the other faces are neared, within the face or along the edge that is touched.
    cosine = first @ normals.T
    within_face = np.sqrt(np.maximum(1 - cosine**2, 0.0))
    along_edge = np.abs(edge @ normals.T)
    rates = np.where((count == 1)[:, None], within_face, along_edge)
    # A face that continues the one that is touched, as on a rounded mesh, makes no difference.
    continues = (count == 1)[:, None] & (cosine > _SMOOTH_COSINE)
    distance = np.where(on_face | continues, np.inf, gaps / np.maximum(rates, _MIN_RATE))
    if axis is not None:
        distance = np.where(np.abs(axis @ normals.T) > _SMOOTH_COSINE, np.inf, distance)
    reach = np.where(count > 2, np.inf, distance.min(1, initial=np.inf))
    # From an edge onto one of its faces; from a vertex onto one of the edges between its faces.
    for row in np.flatnonzero(count > 1):
        angle = _angle_to_next_feature(normals[on_face[row]], direction[row])
        reach[row] = min(reach[row], radius * angle)
    return reach


def _angle_to_next_feature(faces: np.ndarray, direction: np.ndarray) -> float:
    """Angle (rad) by which a ball at an edge or vertex may turn about it before it leaves it.

    Args:
        faces: (2 or more, 3), normals of the faces that meet there.
        direction: (3,), unit vector to the ball's centre.
    """
    if (faces @ faces.T).min() > _SMOOTH_COSINE:
        return np.inf
    if len(faces) == 2:
        return float(np.arccos(np.clip(faces @ direction, -1, 1)).min())
    first, second = np.triu_indices(len(faces), 1)
    between = np.cross(faces[first], faces[second])
    between /= np.maximum(np.linalg.norm(between, axis=1, keepdims=True), _MIN_RATE)
    return float(np.arcsin(np.clip(np.abs(between @ direction), 0, 1)).min())
