"""Surfaces of geoms as features: vertices, balls, ellipsoids and discs whose hull is the geom."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

_GEOM = mujoco.mjtGeom
GEOM_PLANE = int(_GEOM.mjGEOM_PLANE)
GEOM_SPHERE = int(_GEOM.mjGEOM_SPHERE)
GEOM_CAPSULE = int(_GEOM.mjGEOM_CAPSULE)
GEOM_CYLINDER = int(_GEOM.mjGEOM_CYLINDER)
GEOM_ELLIPSOID = int(_GEOM.mjGEOM_ELLIPSOID)
GEOM_BOX = int(_GEOM.mjGEOM_BOX)
GEOM_MESH = int(_GEOM.mjGEOM_MESH)
_SAME_FACE = 1e-6  # largest difference between the equations of two triangles of one face
BOX_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)


@dataclass(frozen=True, eq=False)
class GeomSurface:
    """The surface of a convex geom in its own frame.

    Attributes:
        points: (K, 3), vertices and centres of roundings, m.
        roundings: (K, 3, 3), semi-axes of each rounding, squared, m^2; zero for a vertex.
        face_normals: (F, 3), outward normals of the flat faces.
        face_offsets: (F,), distances of the faces from the origin along their normals, m.
    """

    points: np.ndarray
    roundings: np.ndarray
    face_normals: np.ndarray
    face_offsets: np.ndarray

    @property
    def is_polytope(self) -> bool:
        """Whether the surface consists of flat faces only."""
        return not self.roundings.any()


def surface_of(
    model: mujoco.MjModel, geom: int, size: np.ndarray | None = None
) -> GeomSurface | None:
    """Describe the surface of a geom.

    Args:
        model: The model.
        geom: Index of the geom.
        size: (3,), its size; by default the model's. Not used for meshes.

    Returns:
        The surface; None where it cannot be described by features.
    """
    kind = int(model.geom_type[geom])
    size = np.array(model.geom_size[geom] if size is None else size)
    ends = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    no_faces = (np.zeros((0, 3)), np.zeros(0))
    if kind == GEOM_SPHERE:
        return GeomSurface(np.zeros((1, 3)), size[0] ** 2 * np.eye(3)[None], *no_faces)
    if kind == GEOM_ELLIPSOID:
        return GeomSurface(np.zeros((1, 3)), np.diag(size**2)[None], *no_faces)
    if kind == GEOM_CAPSULE:
        balls = np.repeat(size[0] ** 2 * np.eye(3)[None], 2, 0)
        return GeomSurface(ends * size[1], balls, *no_faces)
    if kind == GEOM_CYLINDER:
        discs = np.repeat(size[0] ** 2 * np.diag([1.0, 1.0, 0.0])[None], 2, 0)
        return GeomSurface(ends * size[1], discs, ends, size[[1, 1]])
    if kind == GEOM_BOX:
        normals = np.concatenate([np.eye(3), -np.eye(3)])
        return GeomSurface(BOX_SIGNS * size, np.zeros((8, 3, 3)), normals, np.r_[size, size])
    if kind == GEOM_MESH:
        return _mesh_surface(model, int(model.geom_dataid[geom]))
    return None


def _mesh_vertices(model: mujoco.MjModel, mesh: int) -> np.ndarray:
    """Vertices (V, 3) of a mesh, m."""
    first = int(model.mesh_vertadr[mesh])
    return np.array(model.mesh_vert[first : first + int(model.mesh_vertnum[mesh])], float)


@lru_cache(maxsize=64)
def _mesh_surface(model: mujoco.MjModel, mesh: int) -> GeomSurface | None:
    """The surface of a mesh; finding its hull takes long, and it has no size to vary."""
    return _convex_hull(_mesh_vertices(model, mesh))


def _convex_hull(vertices: np.ndarray) -> GeomSurface | None:
    """The convex hull of a mesh, which is what MuJoCo collides; None for a flat mesh."""
    try:
        hull = ConvexHull(vertices)
    except QhullError:
        return None
    faces: list[np.ndarray] = []
    for equation in hull.equations:
        if not any(np.abs(equation - face).max() < _SAME_FACE for face in faces):
            faces.append(equation)
    equations = np.array(faces)
    corners = vertices[hull.vertices]
    roundings = np.zeros((len(corners), 3, 3))
    return GeomSurface(corners, roundings, equations[:, :3], -equations[:, 3])
