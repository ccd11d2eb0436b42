"""Features of a geom near a plane: the points of its surface that are nearest."""

from __future__ import annotations

import numpy as np

from clashsim.sim.contact.posed import FAR, ON_FACE, Features, PosedGeom
from clashsim.sim.contact.problem import RIM, RIM_LEFT, RIM_RIGHT, STRUCK
from clashsim.sim.contact.surfaces import GEOM_CYLINDER, GeomSurface

# Features of a surface against a plane at most: on a face that lies flat on it, and higher ones.
_MAX_ON_FACE = 8
_MAX_ABOVE = 8
# Heights above the lowest feature, in bounding radii: of features that may touch during an impact,
# and of those that touch almost at once.
LITTLE_HIGHER = 0.1
_NEARLY_TOUCHING = 0.05
_SAME_LEVEL = 1e-4  # bounding radii by which points on one level differ in height at most
_MAX_LEVELS = 3  # above the lowest: with more of them a body is rounded
_SAME_DIRECTION = 1e-9  # largest difference of unit vectors that are taken to be equal


def against_plane(
    struck: PosedGeom, normal: np.ndarray, on_plane: np.ndarray, *, against: int
) -> Features | None:
    """Features of a struck geom that are nearest to a plane.

    Args:
        struck: The geom.
        normal: (N, 3), of the plane.
        on_plane: (N, 3), m, a point of the plane.
        against: The body that carries the plane.
    """
    surface = struck.surface
    if surface is None:
        return None
    radius = struck.radius
    to_plane = np.einsum("nji,nj->ni", struck.rotation, normal)  # the normal in the geom's axes
    # Bodies that move in a plane all stand on it with the same side: choose once for all.
    same_side = np.abs(to_plane - to_plane[:1]).max() < _SAME_DIRECTION
    chosen, covered = _choose_features(surface, to_plane[:1] if same_side else to_plane, radius)
    repeated = _repeated(chosen)
    if struck.kind == GEOM_CYLINDER:  # three points of the lower rim
        chosen = np.concatenate([chosen, chosen[:, :1], chosen[:, :1]], 1)
        repeated = np.zeros(chosen.shape, bool)
    n, count = len(normal), chosen.shape[1]
    features = Features.blank(n, count, carrier=STRUCK, against=against)
    features.point[:] = struck.position[:, None] + np.einsum(
        "nij,nkj->nki", struck.rotation, np.broadcast_to(surface.points[chosen], (n, count, 3))
    )
    if surface.roundings.any():
        roundings = np.broadcast_to(surface.roundings[chosen], (n, count, 3, 3))
        features.rounding[:] = np.einsum(
            "nij,nkjl,nml->nkim", struck.rotation, roundings, struck.rotation, optimize=True
        )
    features.normal[:] = normal[:, None]
    features.target[:] = on_plane[:, None]
    features.covered[:] = covered
    # A point that was chosen several times counts once: the others are put where none can touch.
    features.point[:] += repeated[..., None] * FAR * radius * normal[:, None]
    if struck.kind == GEOM_CYLINDER:
        features.kind[:] = [RIM, RIM, RIM_LEFT, RIM_RIGHT]
        features.edge[:] = struck.rotation[:, None, :, 0]
    return features


def _choose_features(
    surface: GeomSurface, normal: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the features that take part in an impact with a plane.

    A few points that are spread over a flat face stand for all of it, and a few for all that are
    a little higher.

    Args:
        surface: The surface of the body, with K points.
        normal: (N, 3), of the plane, in the axes of the geom.
        radius: m, bounding radius of the body.

    Returns:
        Indices (N, k) of the chosen points, and whether they describe the contact, (N,): not where
        a body is rounded, so that one of many points touches after the other.
    """
    squared_radii = np.einsum("ni,kij,nj->nk", normal, surface.roundings, normal, optimize=True)
    heights = normal @ surface.points.T - np.sqrt(np.maximum(squared_radii, 0.0))
    n, total = heights.shape
    if total <= _MAX_ON_FACE + _MAX_ABOVE:
        return np.argsort(heights, axis=1, kind="stable"), np.ones(n, bool)
    above = heights - heights.min(1, keepdims=True)
    on_face = above < ON_FACE
    on_face_points = _farthest_points(
        surface.points, on_face, np.argmin(above, axis=1), _MAX_ON_FACE
    )
    next_lowest = np.argmin(np.where(on_face, np.inf, above), axis=1)
    little_higher = ~on_face & (above < LITTLE_HIGHER * radius)
    higher_points = _farthest_points(surface.points, little_higher, next_lowest, _MAX_ABOVE)
    ranked = np.sort(above, axis=1) / radius
    new_level = np.diff(ranked, axis=1) > _SAME_LEVEL
    levels = (new_level & (ranked[:, 1:] < _NEARLY_TOUCHING)).sum(1)
    return np.concatenate([on_face_points, higher_points], 1), levels <= _MAX_LEVELS


def _farthest_points(
    points: np.ndarray, among: np.ndarray, first: np.ndarray, count: int
) -> np.ndarray:
    """Choose some of the points (K, 3) by farthest-point sampling, beginning with `first` (N,).

    Returns indices (N, count) of those of `among` (N, K); where there are fewer, some of them
    several times.
    """
    chosen = [first]
    distance = np.where(among, np.inf, -1.0)
    for _ in range(count - 1):
        squared = ((points - points[chosen[-1]][:, None]) ** 2).sum(2)
        distance = np.where(among, np.minimum(distance, squared), -1.0)
        chosen.append(np.argmax(distance, axis=1))
    return np.stack(chosen, 1)


def _repeated(indices: np.ndarray) -> np.ndarray:
    """Whether each of the indices (N, k) stands already further left in its row."""
    equal = indices[:, :, None] == indices[:, None, :]
    return np.tril(equal, -1).any(2)
