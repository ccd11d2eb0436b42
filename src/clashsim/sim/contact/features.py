"""Features of a posed pair: where its surfaces may touch, in world axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.scene import Scene
from clashsim.sim.contact.manifold import MAX_POINTS, fill_manifolds
from clashsim.sim.contact.problem import EDGE, PLANE, STRIKER, STRUCK, VERTEX, WORLD
from clashsim.sim.contact.surfaces import (
    BOX_SIGNS,
    GEOM_BOX,
    GEOM_CAPSULE,
    GEOM_CYLINDER,
    GEOM_PLANE,
    GEOM_SPHERE,
    GeomSurface,
    surface_of,
)

# Features of a surface against a plane at most: on a face that lies flat on it, and higher ones.
_MAX_ON_FACE = 8
_MAX_ABOVE = 8
# Heights above the lowest feature, in bounding radii: of features that may touch during an impact,
# and of those that touch almost at once.
_LITTLE_HIGHER = 0.1
_NEARLY_TOUCHING = 0.05
_SAME_LEVEL = 1e-4  # bounding radii by which points on one level differ in height at most
_MAX_LEVELS = 3  # above the lowest: with more of them a body is rounded
_SAME_DIRECTION = 1e-9  # largest difference of unit vectors that are taken to be equal
_FAR = 10.0  # bounding radii
_ON_FACE = 2e-5  # m: a contact point this close to a face lies on it
_FLAT_COSINE = 0.995  # between a cylinder's axis and a plane's normal, above which a cap lies flat
_FACE_COSINE = 0.9995  # between a contact's normal and a face's, above which the face is met


@dataclass(frozen=True, eq=False)
class GeomPose:
    """Positions (N, 3), m, and orientations (N, 3, 3) of a geom in N impacts, world axes."""

    position: np.ndarray
    rotation: np.ndarray


@dataclass(frozen=True, eq=False)
class Features:
    """K features of N pairs, as in `ContactGeometry`, but in world axes.

    Attributes:
        carrier: (N, K).
        against: (N, K).
        point: (N, K, 3), m.
        rounding: (N, K, 3, 3), m^2.
        radius: (N, K), m.
        normal: (N, K, 3).
        target: (N, K, 3), m.
        kind: (N, K).
        edge: (N, K, 3).
        covered: (N,), whether the features describe the contact.
    """

    carrier: np.ndarray
    against: np.ndarray
    point: np.ndarray
    rounding: np.ndarray
    radius: np.ndarray
    normal: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    edge: np.ndarray
    covered: np.ndarray

    @staticmethod
    def blank(n: int, k: int, *, carrier: int, against: int) -> Features:
        """K features of n pairs at the origin that meet planes."""
        return Features(
            carrier=np.full((n, k), carrier),
            against=np.full((n, k), against),
            point=np.zeros((n, k, 3)),
            rounding=np.zeros((n, k, 3, 3)),
            radius=np.zeros((n, k)),
            normal=np.zeros((n, k, 3)),
            target=np.zeros((n, k, 3)),
            kind=np.full((n, k), PLANE),
            edge=np.zeros((n, k, 3)),
            covered=np.ones(n, bool),
        )


# The size of each geom, (3,) for all impacts or (N, 3), by its index.
Sizes = Callable[[int], np.ndarray]


@dataclass(frozen=True, eq=False)
class PosedPair:
    """N touching pairs of a scene.

    Attributes:
        scene: The scene.
        poses: Of the struck geom and the striker's.
        point: (N, 3), m, where the surfaces touch.
        normal: (N, 3), out of the striker into the struck body.
        sizes: Sizes of geoms.
    """

    scene: Scene
    poses: tuple[GeomPose, GeomPose]
    point: np.ndarray
    normal: np.ndarray
    sizes: Sizes

    @property
    def geoms(self) -> tuple[int, int]:
        """Indices of the struck geom and the striker's."""
        model = self.scene.base
        return int(model.geom(self.scene.struck).id), int(model.geom(self.scene.striker).id)

    def surface(self, body: int) -> GeomSurface | None:
        """Surface of a body's geom at a size that is the same in all impacts."""
        geom = self.geoms[body]
        return surface_of(self.scene.base, geom, np.atleast_2d(self.sizes(geom))[0])


def strike_features(pair: PosedPair) -> Features | None:
    """Features of the pair itself; None where no features describe such a pair."""
    model = pair.scene.base
    kinds = [int(model.geom_type[geom]) for geom in pair.geoms]
    if kinds[STRIKER] == GEOM_PLANE:
        pose = pair.poses[STRIKER]
        return _against_plane(pair, pose.rotation[:, :, 2], pose.position, STRIKER)
    if GEOM_SPHERE in kinds:
        return _of_ball(pair, kinds.index(GEOM_SPHERE))
    surfaces = [pair.surface(body) for body in (STRUCK, STRIKER)]
    if any(surface is None or not surface.is_polytope for surface in surfaces):
        return None
    return _of_faces(pair)


def ground_features(pair: PosedPair) -> Features | None:
    """Features of the struck geom that stand on the ground; None where it is not a plane."""
    model = pair.scene.base
    ground = model.geom(pair.scene.ground)
    if int(ground.type[0]) != GEOM_PLANE:
        return None
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    n = len(pair.point)
    normal = np.tile(data.geom_xmat[ground.id].reshape(3, 3)[:, 2], (n, 1))
    return _against_plane(pair, normal, np.tile(data.geom_xpos[ground.id], (n, 1)), WORLD)


def _against_plane(
    pair: PosedPair, normal: np.ndarray, on_plane: np.ndarray, against: int
) -> Features | None:
    """Features of the struck geom that are nearest to a plane.

    Args:
        pair: The pairs.
        normal: (N, 3), of the plane.
        on_plane: (N, 3), m, a point of the plane.
        against: The body that carries the plane.
    """
    surface = pair.surface(STRUCK)
    if surface is None:
        return None
    pose = pair.poses[STRUCK]
    geom = pair.geoms[STRUCK]
    radius = float(pair.scene.base.geom_rbound[geom])
    to_plane = np.einsum("nji,nj->ni", pose.rotation, normal)  # the normal in the geom's axes
    # Bodies that move in a plane all stand on it with the same side: choose once for all.
    same_side = np.abs(to_plane - to_plane[:1]).max() < _SAME_DIRECTION
    chosen, covered = _choose_features(surface, to_plane[:1] if same_side else to_plane, radius)
    n, count = len(normal), chosen.shape[1]
    features = Features.blank(n, count, carrier=STRUCK, against=against)
    features.point[:] = pose.position[:, None] + np.einsum(
        "nij,nkj->nki", pose.rotation, np.broadcast_to(surface.points[chosen], (n, count, 3))
    )
    if surface.roundings.any():
        roundings = np.broadcast_to(surface.roundings[chosen], (n, count, 3, 3))
        features.rounding[:] = np.einsum(
            "nij,nkjl,nml->nkim", pose.rotation, roundings, pose.rotation, optimize=True
        )
    features.normal[:] = normal[:, None]
    features.target[:] = on_plane[:, None]
    features.covered[:] = covered
    # A point that was chosen several times counts once: the others are put where none can touch.
    features.point[:] += _repeated(chosen)[..., None] * _FAR * radius * normal[:, None]
    if int(pair.scene.base.geom_type[geom]) == GEOM_CYLINDER:
        features.covered[:] &= np.abs(to_plane[:, 2]) < _FLAT_COSINE
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
    on_face = above < _ON_FACE
    on_face_points = _farthest_points(
        surface.points, on_face, np.argmin(above, axis=1), _MAX_ON_FACE
    )
    next_lowest = np.argmin(np.where(on_face, np.inf, above), axis=1)
    little_higher = ~on_face & (above < _LITTLE_HIGHER * radius)
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


def _of_ball(pair: PosedPair, ball: int) -> Features | None:
    """The one feature of a ball against the other geom, whose nearest point is known."""
    other = 1 - ball
    model = pair.scene.base
    geom = pair.geoms[other]
    kind_of_other = int(model.geom_type[geom])
    size = np.atleast_2d(pair.sizes(geom))[0]
    pose = pair.poses[other]
    radius = float(np.atleast_2d(pair.sizes(pair.geoms[ball]))[0, 0])
    features = Features.blank(len(pair.point), 1, carrier=ball, against=other)
    features.point[:, 0] = pair.poses[ball].position
    # The contact's normal points into the struck body; a feature's points towards the ball.
    features.normal[:, 0] = pair.normal if ball == STRUCK else -pair.normal
    local = np.einsum("nji,nj->ni", pose.rotation, pair.point - pose.position)
    axis = pose.rotation[:, :, 2]
    if kind_of_other == GEOM_SPHERE:
        features.radius[:] = size[0]
        features.kind[:] = VERTEX
        features.target[:, 0] = pose.position
    elif kind_of_other in (GEOM_CAPSULE, GEOM_CYLINDER):
        along = local[:, 2]
        on_side = np.abs(along) < size[1] - _ON_FACE
        across = np.linalg.norm(local[:, :2], axis=1)
        end = np.clip(along, -size[1], size[1])
        features.target[:, 0] = pose.position + end[:, None] * axis
        features.edge[:, 0] = axis
        if kind_of_other == GEOM_CAPSULE:
            features.radius[:] = size[0]
            features.kind[:, 0] = np.where(on_side, EDGE, VERTEX)
        else:
            on_cap = ~on_side & (across < size[0] - _ON_FACE)
            features.radius[:, 0] = np.where(on_cap, 0.0, size[0])
            features.kind[:, 0] = np.where(on_cap, PLANE, EDGE)
            features.covered[:] = on_side | on_cap
    else:
        surface = pair.surface(other)
        if surface is None or not surface.is_polytope:
            return None
        features.target[:, 0] = pair.point
        _set_polytope_kind(features, surface, pose, local)
    features.rounding[:, 0] = radius**2 * np.eye(3)
    return features


def _set_polytope_kind(
    features: Features, surface: GeomSurface, pose: GeomPose, local: np.ndarray
) -> None:
    """Decide whether contact points (N, 3), in the geom's frame, lie on a face, edge or vertex."""
    gaps = np.abs(local @ surface.face_normals.T - surface.face_offsets)
    on_face = gaps < _ON_FACE
    count = on_face.sum(1)
    features.kind[:, 0] = np.where(count >= 3, VERTEX, np.where(count == 2, EDGE, PLANE))
    features.covered[:] = count >= 1
    rows = np.flatnonzero(count == 2)
    if len(rows):
        pairs = np.argsort(~on_face[rows], axis=1, kind="stable")[:, :2]
        edge = np.cross(surface.face_normals[pairs[:, 0]], surface.face_normals[pairs[:, 1]])
        edge /= np.linalg.norm(edge, axis=1, keepdims=True)
        features.edge[rows, 0] = np.einsum("nij,nj->ni", pose.rotation[rows], edge)


def _of_faces(pair: PosedPair) -> Features:
    """Features of two polytopes: the corners of the part of one face that lies over the other."""
    n = len(pair.point)
    features = Features.blank(n, MAX_POINTS, carrier=STRUCK, against=STRIKER)
    bodies = []
    for body in (STRUCK, STRIKER):
        vertices, normals, offsets = _polytopes(pair, body)
        pose = pair.poses[body]
        rotation = np.ascontiguousarray(pose.rotation)
        placed = pose.position[:, None] + np.einsum("nij,nkj->nki", rotation, vertices)
        rotated = np.einsum("nij,fj->nfi", rotation, normals)
        moved = offsets + np.einsum("nfi,ni->nf", rotated, pose.position)
        bodies.append((placed, rotated, np.ascontiguousarray(moved)))
    far = float(pair.scene.base.stat.extent)
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
    features.covered[:] = (np.abs(gap) < _ON_FACE) & (cosine > _FACE_COSINE)
    return features


def _polytopes(pair: PosedPair, body: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices (N, V, 3), face normals (F, 3) and offsets (N, F) of a body in N impacts."""
    n = len(pair.point)
    surface = pair.surface(body)
    assert surface is not None
    geom = pair.geoms[body]
    if int(pair.scene.base.geom_type[geom]) != GEOM_BOX:
        vertices = np.broadcast_to(surface.points, (n, *surface.points.shape))
        offsets = np.broadcast_to(surface.face_offsets, (n, len(surface.face_offsets)))
        return vertices, surface.face_normals, offsets
    size = np.broadcast_to(pair.sizes(geom), (n, 3))
    return BOX_SIGNS * size[:, None], surface.face_normals, np.concatenate([size, size], 1)
