"""Geoms of a scene as triangles, with the edges and the colour of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from clashsim.core.errors import SceneError
from clashsim.core.outline import surface_points

_CREASE_COSINE = np.cos(np.radians(25.0))  # edges at which faces bend by more than this are drawn
_MAX_SHOWN_GROUP = 2  # MuJoCo's convention: geoms in higher groups are for collisions only
_MAX_PLANE_HALF_SIZE = 1.0  # m: infinite and larger planes are drawn with this size
_MIN_DOUBLE_AREA = 1e-14  # m2, twice the area of a face: the normals of smaller ones are rounding
_SAME_POINT_DECIMALS = 7  # of m: vertices that agree to these decimals are the same point

Colour = tuple[float, float, float, float]  # red, green, blue, opacity: 0..1


@dataclass(frozen=True, eq=False)
class Shape:
    """A geom as it is drawn.

    Attributes:
        name: Name of the geom.
        body: Number of the body with which it moves, 0 for the world.
        moves: Whether that body moves.
        vertices: Points (V, 3) in the frame of that body, m.
        faces: Indices (F, 3) into `vertices` of each triangle.
        edges: Ends (E, 2, 3) of the edges that are drawn, m.
        colour: Red, green, blue and opacity, 0..1.
        is_plane: Whether it is a plane, which is seen from both sides.
    """

    name: str
    body: int
    moves: bool
    vertices: np.ndarray
    faces: np.ndarray
    edges: np.ndarray
    colour: Colour
    is_plane: bool = False


def scene_shapes(
    model: mujoco.MjModel, needed: Collection[str] = ()
) -> tuple[list[Shape], list[str]]:
    """Return all geoms that can be drawn, and a sentence for each that cannot.

    Args:
        model: MuJoCo model of the scene.
        needed: Names of geoms that are drawn whatever their group.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    shapes = []
    not_drawn = []
    for geom in range(model.ngeom):
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, geom) or f"geom {geom}"
        if int(model.geom_group[geom]) > _MAX_SHOWN_GROUP and name not in needed:
            continue
        is_plane = int(model.geom_type[geom]) == int(mujoco.mjtGeom.mjGEOM_PLANE)
        try:
            if is_plane:
                points, faces = _plane_triangles(model, geom)
            else:
                points, faces = _solid_triangles(model, geom)
        except SceneError:
            not_drawn.append(f"geom {name!r} is a {_type_name(model, geom)}, which is not drawn")
            continue
        body = int(model.body_weldid[model.geom_bodyid[geom]])  # welded bodies move as one
        in_world = points @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        vertices = (in_world - data.xpos[body]) @ data.xmat[body].reshape(3, 3)
        shapes.append(
            Shape(
                name=name,
                body=body,
                moves=body != 0,
                vertices=vertices,
                faces=faces,
                edges=visible_edges(vertices, faces),
                colour=_colour(model, geom),
                is_plane=is_plane,
            )
        )
    return shapes, not_drawn


def visible_edges(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return the ends (E, 2, 3) of the edges at which a surface bends or ends.

    Args:
        vertices: Points (V, 3), m.
        faces: Indices (F, 3) into `vertices` of each triangle.
    """
    normals = _face_normals(vertices, faces)
    double_areas = np.linalg.norm(normals, axis=1)
    has_direction = double_areas > _MIN_DOUBLE_AREA
    faces = faces[has_direction]
    normals = normals[has_direction] / double_areas[has_direction, None]
    # Vertices of adjacent faces may be different rows at the same point: number the points.
    _, first_row, point_of_row = np.unique(
        np.round(vertices, _SAME_POINT_DECIMALS), axis=0, return_index=True, return_inverse=True
    )
    faces_of_edge: dict[tuple[int, int], list[int]] = {}
    for face, (i, j, k) in enumerate(point_of_row[faces].tolist()):
        for a, b in ((i, j), (j, k), (k, i)):
            faces_of_edge.setdefault((min(a, b), max(a, b)), []).append(face)
    visible = []
    for edge, adjacent in faces_of_edge.items():
        cosines = normals[adjacent] @ normals[adjacent[0]]
        if len(adjacent) == 1 or cosines.min() < _CREASE_COSINE:
            visible.append(edge)
    return vertices[first_row[np.array(visible, int).reshape(-1, 2)]]


def _solid_triangles(model: mujoco.MjModel, geom: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points (V, 3) in the geom's frame and faces (F, 3): its mesh, or a convex hull."""
    points = surface_points(model, geom)
    if int(model.geom_type[geom]) == int(mujoco.mjtGeom.mjGEOM_MESH):
        mesh = int(model.geom_dataid[geom])
        first = int(model.mesh_faceadr[mesh])
        count = int(model.mesh_facenum[mesh])
        return points, model.mesh_face[first : first + count].astype(int)
    hull = ConvexHull(points)
    faces = hull.simplices.copy()
    outwards = hull.equations[:, :3]
    looks_inwards = np.einsum("fi,fi->f", _face_normals(points, faces), outwards) < 0
    faces[looks_inwards] = faces[looks_inwards][:, ::-1]
    return points, faces


def _plane_triangles(model: mujoco.MjModel, geom: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners (4, 3) of a plane in its own frame, and its two faces (2, 3)."""
    half_sizes = []
    for size in model.geom_size[geom, :2]:
        # In MuJoCo a plane of size zero is infinite.
        bounded = min(float(size), _MAX_PLANE_HALF_SIZE) if size > 0 else _MAX_PLANE_HALF_SIZE
        half_sizes.append(bounded)
    x, y = half_sizes
    corners = np.array([[-x, -y, 0.0], [x, -y, 0.0], [x, y, 0.0], [-x, y, 0.0]])
    return corners, np.array([[0, 1, 2], [0, 2, 3]])


def _face_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return the normals (F, 3) of faces; the length of a normal is twice the area of its face."""
    corners = vertices[faces]
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def _colour(model: mujoco.MjModel, geom: int) -> Colour:
    material = int(model.geom_matid[geom])
    rgba = model.geom_rgba[geom] if material < 0 else model.mat_rgba[material]
    red, green, blue, opacity = map(float, rgba)
    return red, green, blue, opacity


def _type_name(model: mujoco.MjModel, geom: int) -> str:
    return mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_").lower()
