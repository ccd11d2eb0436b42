"""What a body stands on: the outline of its sole, from which comes what is expected of its slides
before any was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from clashsim.core.contact_frame import inertia
from clashsim.core.errors import SceneError
from clashsim.core.scene import GROUND, Scene
from clashsim.slides.law import SlideModel

_GRID = 60  # points along a side of the sole's bounding box


@dataclass(frozen=True, eq=False)
class SupportPatch:
    """A body as it stands on the plane, lengths in m, axes those of the body at yaw 0.

    gyration: radius of gyration about the plane's normal; centre (2,): mass centre from the body's
    origin; height: of the mass centre;
    spin: mean distance of an even pressure from the mass centre; moments (2, 2): its second
    moments; corners (K, 2): the lowest points, from the mass centre, where MuJoCo puts its
    contacts.
    """

    gyration: float
    centre: tuple[float, float]
    height: float
    spin: float
    moments: np.ndarray
    corners: np.ndarray


def uniform_support_patch(
    corners: np.ndarray, *, gyration: float, centre: tuple[float, float] = (0.0, 0.0), height: float
) -> SupportPatch:
    """A sole from the corners (K, 2) of a convex outline about the mass centre, under an even
    pressure.
    """
    hull = ConvexHull(corners)
    low, high = corners.min(0), corners.max(0)
    x, y = (low[i] + (np.arange(_GRID) + 0.5) / _GRID * (high[i] - low[i]) for i in (0, 1))
    points = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    inside = points[(points @ hull.equations[:, :2].T + hull.equations[:, 2] <= 0).all(1)]
    return SupportPatch(
        gyration,
        centre,
        height,
        float(np.linalg.norm(inside, axis=1).mean()),
        inside.T @ inside / len(inside),
        corners[hull.vertices],
    )


def support_patch(scene: Scene) -> SupportPatch:
    """The sole of a planar scene's struck body; of a body whose outline is not known (a ball, a
    capsule) that of an even disc.
    """
    assert scene.plane is not None
    model, body = scene.base, inertia(scene, scene.struck_body)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    geom = model.geom(scene.struck).id
    middle = scene.struck_body.position + scene.struck_body.rotation @ np.array(body.centre)
    centre = scene.plane[:2] @ (scene.struck_body.rotation @ np.array(body.centre))
    corners = (
        _vertices(model, geom) @ data.geom_xmat[geom].reshape(3, 3).T
        + data.geom_xpos[geom]
        - middle
    ) @ scene.plane.T
    low, thick = corners[:, 2].min(), np.ptp(corners[:, 2])
    standing, whole = (
        corners[corners[:, 2] <= low + share * thick + 1e-9, :2] for share in (0.01, 0.1)
    )  # it may stand on small feet
    place = (float(centre[0]), float(centre[1]))
    try:
        return replace(
            uniform_support_patch(whole, gyration=body.gyration, centre=place, height=float(-low)),
            corners=standing,
        )
    except (QhullError, ValueError):  # fewer than three corners, or all in a line
        return SupportPatch(
            body.gyration,
            place,
            float(-low),
            0.94 * body.gyration,
            np.eye(2) * body.gyration**2 / 2,
            standing,
        )


def _vertices(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Vertices (K, 3) of a geom in its own frame."""
    kind, size = int(model.geom_type[geom]), model.geom_size[geom]
    signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], dtype=float)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return signs * size
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        first, count = (
            model.mesh_vertadr[model.geom_dataid[geom]],
            model.mesh_vertnum[model.geom_dataid[geom]],
        )
        return np.array(model.mesh_vert[first : first + count], dtype=float)
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        turn = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        rim = np.stack([size[0] * np.cos(turn), size[0] * np.sin(turn), np.full(48, size[1])], 1)
        return np.concatenate([rim, rim * [1, 1, -1]])
    return np.array([[0.0, 0.0, -float(model.geom_rbound[geom])]])


def scene_slide_model(scene: Scene) -> SlideModel:
    """Slides with the friction that the scene's author gave its ground."""
    if scene.ground is None:
        raise SceneError(
            f"scene {scene.name!r} names no ground to slide on: strikes need one to end"
        )
    stands = support_patch(scene)
    return SlideModel(
        {"friction": float(scene.base.pair(GROUND).friction[0])},
        gyration=stands.gyration,
        centre=stands.centre,
    )
