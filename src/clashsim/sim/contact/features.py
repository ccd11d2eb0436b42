"""Features of a posed pair: where its surfaces may touch, in world axes."""

from __future__ import annotations

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
_SMOOTH_COSINE = 0.97  # between normals of faces that make up a rounded surface
_MIN_RATE = 1e-9  # so that nothing is divided by zero
_MIN_LENGTH = 1e-12  # m: nearest points closer than this give no normal
_ON_FACE = 2e-5  # m: a contact point this close to a face lies on it
_FLAT_COSINE = 0.995  # between a cylinder's axis and a plane's normal, above which a cap lies flat
_FACE_COSINE = 0.9995  # between a contact's normal and a face's, above which the face is met


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
        reach: (N, K), m.
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
    reach: np.ndarray
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
            reach=np.full((n, k), np.inf),
            covered=np.ones(n, bool),
        )


@dataclass(frozen=True, eq=False)
class PosedGeom:
    """A geom in N impacts.

    Attributes:
        scene: The scene.
        geom: Index of the geom.
        position: (N, 3), m, world axes.
        rotation: (N, 3, 3).
        sizes: (1 or N, 3), its size, one for all impacts or one for each.
    """

    scene: Scene
    geom: int
    position: np.ndarray
    rotation: np.ndarray
    sizes: np.ndarray

    @property
    def kind(self) -> int:
        """MuJoCo's type of the geom."""
        return int(self.scene.base.geom_type[self.geom])

    @property
    def radius(self) -> float:
        """Bounding radius, m."""
        return float(self.scene.base.geom_rbound[self.geom])

    @property
    def size(self) -> np.ndarray:
        """(3,), its size where that is the same in all impacts."""
        return self.sizes[0]

    @property
    def surface(self) -> GeomSurface | None:
        """Its surface, where the size is the same in all impacts."""
        return surface_of(self.scene.base, self.geom, self.size)

    def to_local(self, points: np.ndarray) -> np.ndarray:
        """Points (N, 3), m, of the world in the geom's frame."""
        return np.einsum("nji,nj->ni", self.rotation, points - self.position)


@dataclass(frozen=True, eq=False)
class PosedPair:
    """N posed pairs of a geom of the struck body and one of the striker.

    Attributes:
        geoms: The two geoms.
        points: (N, 3) each, m, nearest points of the two geoms.
        distance: (N,), m, of these; about zero where the pair touches.
    """

    geoms: tuple[PosedGeom, PosedGeom]
    points: tuple[np.ndarray, np.ndarray]
    distance: np.ndarray

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def normal(self) -> np.ndarray:
        """(N, 3), out of the striker into the struck body."""
        return unit_vectors(self.points[STRUCK] - self.points[STRIKER])


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N, 3) divided by their lengths; those of hardly any length stay short."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(length, _MIN_LENGTH)


def near_features(pair: PosedPair) -> Features | None:
    """Features of a pair of geoms, where it is near enough to touch during an impact.

    Args:
        pair: One of several pairs of geoms of two bodies, of which another may touch first.

    Returns:
        The features, out of reach where the pair is too far apart to touch; None where no features
        describe such a pair and it may touch.
    """
    radius = pair.geoms[STRUCK].radius
    is_near = pair.distance < _LITTLE_HIGHER * radius
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
        features.point[~is_near] += _FAR * radius * features.normal[~is_near]
    features.covered[~is_near] = True
    return features


def strike_features(pair: PosedPair) -> Features | None:
    """Features of a pair of geoms; None where no features describe such a pair."""
    kinds = [geom.kind for geom in pair.geoms]
    if kinds[STRIKER] == GEOM_PLANE:
        plane = pair.geoms[STRIKER]
        return _against_plane(
            pair.geoms[STRUCK], plane.rotation[:, :, 2], plane.position, against=STRIKER
        )
    if GEOM_SPHERE in kinds:
        return _of_ball(pair, kinds.index(GEOM_SPHERE))
    surfaces = [geom.surface for geom in pair.geoms]
    if any(surface is None or not surface.is_polytope for surface in surfaces):
        return None
    return _of_faces(pair)


def ground_features(struck: PosedGeom) -> Features | None:
    """Features of a struck geom that stand on the ground; None where it is not a plane."""
    model = struck.scene.base
    ground = model.geom(struck.scene.ground)
    if int(ground.type[0]) != GEOM_PLANE:
        return None
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    n = len(struck.position)
    normal = np.tile(data.geom_xmat[ground.id].reshape(3, 3)[:, 2], (n, 1))
    on_plane = np.tile(data.geom_xpos[ground.id], (n, 1))
    return _against_plane(struck, normal, on_plane, against=WORLD)


def _against_plane(
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
    features.point[:] += _repeated(chosen)[..., None] * _FAR * radius * normal[:, None]
    if struck.kind == GEOM_CYLINDER:
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
        on_side = np.abs(along) < size[1] - _ON_FACE
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
            on_cap = ~on_side & (across < size[0] - _ON_FACE)
            features.radius[:, 0] = np.where(on_cap, 0.0, size[0])
            features.kind[:, 0] = np.where(on_cap, PLANE, EDGE)
            features.covered[:] = on_side | on_cap
            features.reach[on_cap, 0] = size[0] - across[on_cap]
    else:
        surface = met.surface
        if surface is None or not surface.is_polytope:
            return None
        features.target[:, 0] = pair.points[other]
        _set_polytope_kind(features, surface, met.rotation, local)
        direction = np.einsum("nji,nj->ni", met.rotation, features.normal[:, 0])
        ball_radius = float(pair.geoms[ball].size[0])
        features.reach[:, 0] = _reach_on_polytope(surface, local, direction, ball_radius)
    features.rounding[:, 0] = pair.geoms[ball].size[0] ** 2 * np.eye(3)
    return features


def _set_polytope_kind(
    features: Features, surface: GeomSurface, rotation: np.ndarray, local: np.ndarray
) -> None:
    """Decide whether contact points (N, 3), in the geom's frame, lie on a face, edge or vertex.

    The geom's orientations are `rotation` (N, 3, 3).
    """
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
        features.edge[rows, 0] = np.einsum("nij,nj->ni", rotation[rows], edge)


def _reach_on_polytope(
    surface: GeomSurface, local: np.ndarray, direction: np.ndarray, radius: float
) -> np.ndarray:
    """How far a ball may move along a polytope before another face, edge or vertex is nearest.

    Args:
        surface: The polytope.
        local: (N, 3), m, the points where it is touched, in its frame.
        direction: (N, 3), unit vectors from there to the ball's centre.
        radius: m, of the ball.

    Returns:
        (N,), m.
    """
    normals = surface.face_normals
    gaps = surface.face_offsets - local @ normals.T
    on_face = np.abs(gaps) < _ON_FACE
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
    features.covered[:] = (np.abs(gap - pair.distance) < _ON_FACE) & (cosine > _FACE_COSINE)
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
