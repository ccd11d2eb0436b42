"""What bodies look like from above: the convex outline of a geom in the plane that bodies move in."""

from __future__ import annotations

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import SceneError
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene

_ROUND = 48  # corners of what is round


def outline(scene: Scene, geom: str, body: Mobility) -> np.ndarray:
    """Corners (C, 2) of a geom, counter-clockwise, in its body's axes at yaw zero."""
    if scene.plane is None:
        raise SceneError(
            f"the bodies of scene {scene.name!r} move in space: they have no outline in a plane"
        )
    model = scene.base
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    i = int(model.geom(geom).id)
    points = data.geom_xpos[i] + surface_points(model, i) @ data.geom_xmat[i].reshape(3, 3).T
    # Rounded, because meshes are in single precision and would give corners on straight edges.
    flat = np.round((points - body.position) @ scene.plane[:2].T, 6)
    return flat[ConvexHull(flat).vertices]


def at_corner(
    corners: np.ndarray, point: np.ndarray, *, near: float = 0.0015, sharp: float = 0.45
) -> bool:
    """Whether what is nearest to a point (2,) of an outline (C, 2) lies within `near` (m) of a
    corner that turns by more than `sharp` (rad).
    """
    edge = np.roll(corners, -1, 0) - corners
    along = np.clip(((point - corners) * edge).sum(1) / (edge * edge).sum(1), 0, 1)
    nearest = corners + along[:, None] * edge
    place = nearest[np.linalg.norm(nearest - point, axis=1).argmin()]
    heading = np.arctan2(edge[:, 1], edge[:, 0])
    turns = np.abs(wrap_angle(heading - np.roll(heading, 1)))
    return bool((np.linalg.norm(corners[turns > sharp] - place, axis=1) < near).any())


def surface_points(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Points (P, 3) of a geom's surface in its own axes whose hull has its outline from all sides."""
    kind, size = mujoco.mjtGeom(int(model.geom_type[geom])), model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
        return model.mesh_vert[first : first + count].astype(float)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * size
    turn = np.linspace(0, 2 * np.pi, _ROUND, endpoint=False)
    ring = np.stack([np.cos(turn), np.sin(turn)], 1)
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return np.vstack(
            [np.column_stack([size[0] * ring, np.full(_ROUND, z)]) for z in (-size[1], size[1])]
        )
    ball = np.vstack(
        [
            np.column_stack([np.sin(a) * ring, np.full(_ROUND, np.cos(a))])
            for a in np.linspace(0, np.pi, _ROUND // 2 + 1)
        ]
    )
    if kind in (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_ELLIPSOID):
        return ball * (size if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID else size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return np.vstack([ball * size[0] + [0, 0, z] for z in (-size[1], size[1])])
    raise SceneError(
        f"geom {model.geom(geom).name!r} is a {kind.name.removeprefix('mjGEOM_').lower()}, which has no outline"
    )
