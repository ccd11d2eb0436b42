"""The support patch of a body: the part of its surface that stands on the plane.

Its outline gives the priors of a slide model (`clashsim.slides.value_priors`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from clashsim.core.contact_frame import inertia
from clashsim.core.errors import SceneError
from clashsim.core.scene import GROUND, Scene
from clashsim.slides.law import SlideModel

_GRID = 60  # points along a side of the patch's bounding box
_CYLINDER_POINTS = 48  # on a cylinder's rim
# Mean distance of the points of a uniform disc from its centre, in radii of gyration.
_DISC_MEAN_DISTANCE = 0.94
# Vertices up to these heights above the lowest one, as shares of the body's thickness.
_FEET_HEIGHT = 0.01
_OUTLINE_HEIGHT = 0.1
# Added to both heights against rounding, m.
_HEIGHT_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class SupportPatch:
    """A body as it stands on the plane; lengths in m, axes those of the body at yaw 0.

    Attributes:
        gyration: Radius of gyration about the plane's normal.
        centre: Mass centre (2,) from the body's origin.
        height: Height of the mass centre.
        mean_distance: Mean distance of a uniform pressure from the mass centre.
        moments: Second moments (2, 2) of a uniform pressure about the mass centre, m^2.
        corners: The lowest points (K, 2) from the mass centre, where MuJoCo puts its contacts.
    """

    gyration: float
    centre: tuple[float, float]
    height: float
    mean_distance: float
    moments: np.ndarray
    corners: np.ndarray


def uniform_support_patch(
    corners: np.ndarray, *, gyration: float, centre: tuple[float, float] = (0.0, 0.0), height: float
) -> SupportPatch:
    """The support patch of a convex outline under a uniform pressure.

    Args:
        corners: Corners (K, 2) of the outline from the mass centre, m.
        gyration: Radius of gyration about the plane's normal, m.
        centre: Mass centre from the body's origin, m.
        height: Height of the mass centre, m.

    Returns:
        The patch.
    """
    hull = ConvexHull(corners)
    low = corners.min(0)
    high = corners.max(0)
    fractions = (np.arange(_GRID) + 0.5) / _GRID
    x = low[0] + fractions * (high[0] - low[0])
    y = low[1] + fractions * (high[1] - low[1])
    points = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    # Signed distances from the sides of the outline, negative inside.
    distances = points @ hull.equations[:, :2].T + hull.equations[:, 2]
    inside = points[(distances <= 0).all(1)]
    return SupportPatch(
        gyration=gyration,
        centre=centre,
        height=height,
        mean_distance=float(np.linalg.norm(inside, axis=1).mean()),
        moments=inside.T @ inside / len(inside),
        corners=corners[hull.vertices],
    )


def support_patch(scene: Scene) -> SupportPatch:
    """The support patch of a planar scene's struck body.

    A geom without vertices (a ball, a capsule) gets the patch of a uniform disc.
    """
    assert scene.plane is not None
    body = inertia(scene, scene.struck_body)
    centre_offset = scene.struck_body.rotation @ np.array(body.centre)
    centre = scene.plane[:2] @ centre_offset
    corners = _corners(scene, scene.struck_body.position + centre_offset)
    lowest = corners[:, 2].min()
    thickness = np.ptp(corners[:, 2])
    # A body may stand on small feet. MuJoCo puts its contacts on them, but the pressure is assumed
    # to act under the whole outline above them.
    feet_top = lowest + _FEET_HEIGHT * thickness + _HEIGHT_TOLERANCE
    outline_top = lowest + _OUTLINE_HEIGHT * thickness + _HEIGHT_TOLERANCE
    feet = corners[corners[:, 2] <= feet_top, :2]
    outline = corners[corners[:, 2] <= outline_top, :2]
    position = (float(centre[0]), float(centre[1]))
    try:
        patch = uniform_support_patch(
            outline, gyration=body.gyration, centre=position, height=float(-lowest)
        )
        return replace(patch, corners=feet)
    except (QhullError, ValueError):  # fewer than three corners, or all on a line
        return SupportPatch(
            gyration=body.gyration,
            centre=position,
            height=float(-lowest),
            mean_distance=_DISC_MEAN_DISTANCE * body.gyration,
            moments=np.eye(2) * body.gyration**2 / 2,
            corners=feet,
        )


def _corners(scene: Scene, origin: np.ndarray) -> np.ndarray:
    """Vertices (K, 3) of the struck geom from a point, in the plane's axes (normal last), m."""
    assert scene.plane is not None
    model = scene.base  # the scene's MjModel
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    geom = model.geom(scene.struck).id
    rotation = data.geom_xmat[geom].reshape(3, 3)
    world = _vertices(model, geom) @ rotation.T + data.geom_xpos[geom]
    return (world - origin) @ scene.plane.T


def _vertices(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Vertices (K, 3) of a geom in its own axes, m; one point for a geom without vertices."""
    kind = int(model.geom_type[geom])
    size = model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        signs = np.array(list(itertools.product((-1, 1), repeat=3)), dtype=float)
        return signs * size
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        count = model.mesh_vertnum[mesh]
        return np.array(model.mesh_vert[first : first + count], dtype=float)
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        angle = np.linspace(0, 2 * np.pi, _CYLINDER_POINTS, endpoint=False)
        top = np.full(_CYLINDER_POINTS, size[1])
        rim = np.stack([size[0] * np.cos(angle), size[0] * np.sin(angle), top], 1)
        return np.concatenate([rim, rim * [1, 1, -1]])
    return np.array([[0.0, 0.0, -float(model.geom_rbound[geom])]])


def scene_slide_model(scene: Scene) -> SlideModel:
    """A slide model with the friction that the scene gives its ground; other values by default."""
    if scene.ground is None:
        raise SceneError(
            f"scene {scene.name!r} names no ground to slide on: without friction on a ground "
            "struck bodies do not come to rest"
        )
    patch = support_patch(scene)
    return SlideModel(
        {"friction": float(scene.base.pair(GROUND).friction[0])},
        gyration=patch.gyration,
        centre=patch.centre,
    )
