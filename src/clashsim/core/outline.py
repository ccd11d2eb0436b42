"""Bodies seen from above: the convex outline of a geom in the plane in which bodies move."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import SceneError
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene

_CIRCLE_POINTS = 48  # corners of the polygon that approximates a circle
_ROUNDING_DIGITS = 6  # of coordinates in m


def outline(scene: Scene, geom: str, body: Mobility) -> np.ndarray:
    """Compute the convex outline of a geom.

    Args:
        scene: A planar scene.
        geom: Name of the geom.
        body: The body that carries the geom.

    Returns:
        Corners (C, 2), m, counter-clockwise, in the body's axes at yaw zero.
    """
    if scene.plane is None:
        raise SceneError(
            f"the bodies of scene {scene.name!r} move in space: they have no outline in a plane"
        )
    model = scene.base
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    index = int(model.geom(geom).id)
    rotation = data.geom_xmat[index].reshape(3, 3)
    points = data.geom_xpos[index] + surface_points(model, index) @ rotation.T
    # Rounded, because meshes are in single precision, which would give extra corners on straight
    # edges.
    in_plane = np.round((points - body.position) @ scene.plane[:2].T, _ROUNDING_DIGITS)
    return in_plane[ConvexHull(in_plane).vertices]


def at_corner(
    corners: np.ndarray, point: np.ndarray, *, near: float = 0.0015, sharp: float = 0.45
) -> bool:
    """Whether the point of an outline that is nearest to a given point lies at a corner.

    Args:
        corners: (C, 2), m, of the outline, counter-clockwise.
        point: (2,), m, in the axes of the corners.
        near: m, largest distance from a corner at which a point is taken to be at it.
        sharp: rad, change of direction above which the meeting of two edges is a corner.

    Returns:
        True where the nearest point of the outline is within `near` of a corner.
    """
    edges = np.roll(corners, -1, 0) - corners
    share = ((point - corners) * edges).sum(1) / (edges * edges).sum(1)
    on_edges = corners + np.clip(share, 0, 1)[:, None] * edges
    nearest = on_edges[np.linalg.norm(on_edges - point, axis=1).argmin()]
    headings = np.arctan2(edges[:, 1], edges[:, 0])
    changes = np.abs(wrap_angle(headings - np.roll(headings, 1)))
    sharp_corners = corners[changes > sharp]
    return bool((np.linalg.norm(sharp_corners - nearest, axis=1) < near).any())


def surface_points(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Sample points of a geom's surface, whose convex hull approximates that of the geom.

    Args:
        model: The model.
        geom: Index of the geom.

    Returns:
        Points (P, 3), m, in the geom's own axes.
    """
    kind = mujoco.mjtGeom(int(model.geom_type[geom]))
    size = model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        first = int(model.mesh_vertadr[mesh])
        count = int(model.mesh_vertnum[mesh])
        return model.mesh_vert[first : first + count].astype(float)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return np.array(list(itertools.product((-1, 1), repeat=3))) * size
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        circle = size[0] * _unit_circle()
        bottom = np.column_stack([circle, np.full(len(circle), -size[1])])
        top = np.column_stack([circle, np.full(len(circle), size[1])])
        return np.vstack([bottom, top])
    ball = _unit_ball()
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return ball * size[0]
    if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        return ball * size
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        half_length = np.array([0, 0, size[1]])
        return np.vstack([ball * size[0] - half_length, ball * size[0] + half_length])
    shape = kind.name.removeprefix("mjGEOM_").lower()
    raise SceneError(f"geom {model.geom(geom).name!r} is a {shape}, which has no outline")


def _unit_circle() -> np.ndarray:
    """Points (P, 2) of a circle of radius 1."""
    angles = np.linspace(0, 2 * np.pi, _CIRCLE_POINTS, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def _unit_ball() -> np.ndarray:
    """Points (P, 3) of a sphere of radius 1, on circles of latitude."""
    circle = _unit_circle()
    circles = []
    for polar in np.linspace(0, np.pi, _CIRCLE_POINTS // 2 + 1):
        height = np.full(len(circle), np.cos(polar))
        circles.append(np.column_stack([np.sin(polar) * circle, height]))
    return np.vstack(circles)
