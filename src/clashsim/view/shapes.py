"""What a scene looks like: its geoms as triangles, with the edges and the colour of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from clashsim.core.errors import SceneError
from clashsim.core.outline import surface_points

_CREASE = np.cos(np.radians(25.0))  # edges at which faces turn by more than this are drawn
_SHOWN = 2  # geom groups above this are by custom for collisions only, and not drawn
_PLANE = 1.0  # m: half size at which a plane without an end is drawn


@dataclass(frozen=True, eq=False)
class Shape:
    """A geom as drawn: vertices (V, 3) in the axes of the body that carries it (m), the world's if
    nothing does; faces (F, 3), edges (E, 2, 3), colour 0..1 with opacity (4,).
    """

    name: str
    body: int
    moves: bool
    vertices: np.ndarray
    faces: np.ndarray
    edges: np.ndarray
    colour: tuple[float, float, float, float]
    flat: bool = False  # a plane: seen from both sides


def shapes(model: mujoco.MjModel, needed: Collection[str] = ()) -> tuple[list[Shape], list[str]]:
    """All geoms that can be drawn, and a sentence for each that cannot; `needed`: names of geoms
    that are drawn whatever their group.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    out, left = [], []
    for g in range(model.ngeom):
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, g) or f"geom {g}"
        if int(model.geom_group[g]) > _SHOWN and name not in needed:
            continue
        flat = int(model.geom_type[g]) == int(mujoco.mjtGeom.mjGEOM_PLANE)
        try:
            points, faces = _plane(model, g) if flat else _solid(model, g)
        except SceneError:
            kind = mujoco.mjtGeom(int(model.geom_type[g])).name.removeprefix("mjGEOM_").lower()
            left.append(f"geom {name!r} is a {kind}, which is not drawn")
            continue
        body = int(model.body_weldid[model.geom_bodyid[g]])  # what is welded together moves as one
        world = points @ data.geom_xmat[g].reshape(3, 3).T + data.geom_xpos[g]
        vertices = (world - data.xpos[body]) @ data.xmat[body].reshape(3, 3)
        material = int(model.geom_matid[g])
        r, g_, b, a = map(float, model.geom_rgba[g] if material < 0 else model.mat_rgba[material])
        out.append(
            Shape(
                name, body, body != 0, vertices, faces, edges(vertices, faces), (r, g_, b, a), flat
            )
        )
    return out, left


def edges(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Ends (E, 2, 3) of the edges at which a surface bends or ends."""
    corner = vertices[faces]
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    length = np.linalg.norm(normal, axis=1)
    whole = length > 1e-14  # slivers have no direction
    faces, normal = faces[whole], normal[whole] / length[whole, None]
    _, first, same = np.unique(
        np.round(vertices, 7), axis=0, return_index=True, return_inverse=True
    )
    beside: dict[tuple[int, int], list[int]] = {}
    for f, (i, j, k) in enumerate(same[faces].tolist()):  # vertices at one place are one
        for a, b in ((i, j), (j, k), (k, i)):
            beside.setdefault((min(a, b), max(a, b)), []).append(f)
    kept = [
        pair
        for pair, found in beside.items()
        if len(found) == 1 or min(float(normal[f] @ normal[found[0]]) for f in found) < _CREASE
    ]
    return vertices[first[np.array(kept, int).reshape(-1, 2)]]


def _solid(model: mujoco.MjModel, g: int) -> tuple[np.ndarray, np.ndarray]:
    if int(model.geom_type[g]) == int(mujoco.mjtGeom.mjGEOM_MESH):
        mesh = int(model.geom_dataid[g])
        first, count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
        return surface_points(model, g), model.mesh_face[first : first + count].astype(int)
    points = surface_points(model, g)
    hull = ConvexHull(points)
    faces = hull.simplices.copy()
    corner = points[faces]
    inwards = (
        np.einsum(
            "fi,fi->f",
            np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]),
            hull.equations[:, :3],
        )
        < 0
    )
    faces[inwards] = faces[inwards][:, ::-1]
    return points, faces


def _plane(model: mujoco.MjModel, g: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = (min(float(s), _PLANE) if s > 0 else _PLANE for s in model.geom_size[g, :2])
    return np.array([[-x, -y, 0.0], [x, -y, 0.0], [x, y, 0.0], [-x, y, 0.0]]), np.array(
        [[0, 1, 2], [0, 2, 3]]
    )
