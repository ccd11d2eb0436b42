"""Features of a posed pair: where its surfaces may touch, in world axes."""

from __future__ import annotations

import numpy as np

from clashsim.core.ground_surface import GroundSurface
from clashsim.sim.contact.ball_features import of_ball
from clashsim.sim.contact.manifold import MAX_POINTS, fill_manifolds
from clashsim.sim.contact.plane_features import LITTLE_HIGHER, against_plane
from clashsim.sim.contact.posed import FAR, ON_FACE, Features, PosedGeom, PosedPair
from clashsim.sim.contact.problem import RIM, STRIKER, STRUCK, WORLD
from clashsim.sim.contact.rod_features import ROUND_ALONG_AXIS, of_rod
from clashsim.sim.contact.surfaces import BOX_SIGNS, GEOM_BOX, GEOM_PLANE, GEOM_SPHERE

_RIM = 2e-3  # m: features this near to the rim of a ground may leave it during an impact
_FACE_COSINE = 0.9995  # between a contact's normal and a face's, above which the face is met


def near_features(pair: PosedPair) -> Features | None:
    """Features of a pair of geoms, where it is near enough to touch during an impact.

    Args:
        pair: One of several pairs of geoms of two bodies, of which another may touch first.

    Returns:
        The features, out of reach where the pair is too far apart to touch; None where no features
        describe such a pair and it may touch.
    """
    radius = pair.geoms[STRUCK].radius
    is_near = pair.distance < LITTLE_HIGHER * radius
    features = strike_features(pair)
    if features is None:
        if is_near.all():
            return None
        features = Features.blank(len(pair), 1, carrier=STRUCK, against=STRIKER)
        features.normal[:, 0] = pair.normal
        features.point[:, 0] = pair.points[STRUCK]
        features.target[:, 0] = pair.points[STRIKER]
        features.covered[:] = False
    if pair.geoms[STRIKER].kind != GEOM_PLANE:
        features.point[~is_near] += FAR * radius * features.normal[~is_near]
    features.covered[~is_near] = True
    return features


def strike_features(pair: PosedPair) -> Features | None:
    """Features of a pair of geoms; None where no features describe such a pair."""
    kinds = [geom.kind for geom in pair.geoms]
    if kinds[STRIKER] == GEOM_PLANE:
        plane = pair.geoms[STRIKER]
        return against_plane(
            pair.geoms[STRUCK], plane.rotation[:, :, 2], plane.position, against=STRIKER
        )
    if GEOM_SPHERE in kinds:
        return of_ball(pair, kinds.index(GEOM_SPHERE))
    for rod in (STRIKER, STRUCK):
        if kinds[rod] in ROUND_ALONG_AXIS:
            return of_rod(pair, rod)
    surfaces = [geom.surface for geom in pair.geoms]
    if any(surface is None or not surface.is_polytope for surface in surfaces):
        return None
    return _of_faces(pair)


def ground_features(struck: PosedGeom) -> Features | None:
    """Features of a struck geom that stand on the ground; None where that is not flat."""
    model = struck.scene.base
    assert struck.scene.ground is not None
    surface = GroundSurface.of(model, struck.scene.ground)
    if not surface.is_flat:
        return None
    n = len(struck.position)
    normal = np.tile(surface.normal, (n, 1))
    on_plane = np.tile(surface.point, (n, 1))
    features = against_plane(struck, normal, on_plane, against=WORLD)
    if features is None or np.isinf(surface.half_sizes).all():
        return features
    # Over the rim of a table a body is held by other points than these. A can stands on others too:
    # MuJoCo's general collision detection finds them, that of planes does not.
    inset = surface.inset(features.point)
    features.reach[:] = np.maximum(inset, 0.0)
    squared = np.einsum("i,nkij,j->nk", surface.normal, features.rounding, surface.normal)
    height = surface.height(features.point) - np.sqrt(np.maximum(squared, 0.0))
    low = height < LITTLE_HIGHER * struck.radius
    leaves = (inset < _RIM) | (features.kind >= RIM)
    features.covered[:] &= ~(low & leaves).any(1)
    return features


def _of_faces(pair: PosedPair) -> Features:
    """Features of two polytopes: the corners of the part of one face that lies over the other."""
    n = len(pair)
    features = Features.blank(n, MAX_POINTS, carrier=STRUCK, against=STRIKER)
    bodies = []
    for body in (STRUCK, STRIKER):
        geom = pair.geoms[body]
        vertices, normals, offsets = _polytopes(geom)
        rotation = np.ascontiguousarray(geom.rotation)
        placed = geom.position[:, None] + np.einsum("nij,nkj->nki", rotation, vertices)
        rotated = np.einsum("nij,fj->nfi", rotation, normals)
        moved = offsets + np.einsum("nfi,ni->nf", rotated, geom.position)
        bodies.append((placed, rotated, np.ascontiguousarray(moved)))
    far = float(pair.geoms[STRUCK].scene.base.stat.extent)
    reference, cosine = fill_manifolds(
        bodies[STRUCK],
        bodies[STRIKER],
        np.ascontiguousarray(pair.normal),
        (features.point, features.normal, features.target),
        far,
    )
    features.carrier[:] = 1 - reference[:, None]
    features.against[:] = reference[:, None]
    gap = np.einsum("ni,ni->n", features.normal[:, 0], features.point[:, 0] - features.target[:, 0])
    features.covered[:] = (np.abs(gap - pair.distance) < ON_FACE) & (cosine > _FACE_COSINE)
    return features


def _polytopes(geom: PosedGeom) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices (N, V, 3), face normals (F, 3) and offsets (N, F) of a geom in N impacts."""
    n = len(geom.position)
    surface = geom.surface
    assert surface is not None
    if geom.kind != GEOM_BOX:
        vertices = np.broadcast_to(surface.points, (n, *surface.points.shape))
        offsets = np.broadcast_to(surface.face_offsets, (n, len(surface.face_offsets)))
        return vertices, surface.face_normals, offsets
    size = np.broadcast_to(geom.sizes, (n, 3))
    return BOX_SIGNS * size[:, None], surface.face_normals, np.concatenate([size, size], 1)
