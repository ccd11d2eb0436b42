"""The surface of a ground: the plane on which a body lies, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
_BOX = int(mujoco.mjtGeom.mjGEOM_BOX)
_CYLINDER = int(mujoco.mjtGeom.mjGEOM_CYLINDER)
_HFIELD = int(mujoco.mjtGeom.mjGEOM_HFIELD)
# Geoms on which bodies can lie.
GROUND_GEOMS = frozenset((_PLANE, _BOX, _CYLINDER, _HFIELD))


@dataclass(frozen=True, eq=False)
class GroundSurface:
    """The upper side of a geom that stands still, world axes.

    Attributes:
        point: (3,), m, in the middle of the surface.
        normal: (3,), unit vector out of it.
        axes: (2, 3), unit vectors along the surface.
        half_sizes: (2,), m, how far it reaches along these axes; infinite for a plane.
        is_round: Whether the surface is a disc, whose radius the half sizes are.
        is_flat: Whether it is a part of a plane; a height field is not.
    """

    point: np.ndarray
    normal: np.ndarray
    axes: np.ndarray
    half_sizes: np.ndarray
    is_round: bool
    is_flat: bool

    @staticmethod
    def of(model: mujoco.MjModel, geom: str) -> GroundSurface:
        """Read the upper side of a geom of a model.

        That is the side of a plane or height field along its z axis; of a box the face, and of a
        cylinder the end, that points most against gravity (along z where there is none).
        """
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        index = int(model.geom(geom).id)
        kind = int(model.geom_type[index])
        size = model.geom_size[index]
        centre = data.geom_xpos[index].copy()
        rotation = data.geom_xmat[index].reshape(3, 3)
        column, sign = 2, 1.0
        against_gravity = -rotation.T @ model.opt.gravity
        if kind == _BOX and against_gravity.any():
            column = int(np.argmax(np.abs(against_gravity)))
        if kind in (_BOX, _CYLINDER) and against_gravity[column] < 0:
            sign = -1.0
        normal = sign * rotation[:, column]
        others = [(column + 1) % 3, (column + 2) % 3]
        half_sizes = np.full(2, np.inf)
        if kind == _BOX:
            half_sizes = size[others].copy()
            centre += size[column] * normal
        elif kind == _CYLINDER:
            half_sizes = np.full(2, float(size[0]))
            centre += size[1] * normal
        elif kind == _HFIELD:
            half_sizes = model.hfield_size[int(model.geom_dataid[index]), :2].copy()
        return GroundSurface(
            point=centre,
            normal=normal,
            axes=rotation[:, others].T.copy(),
            half_sizes=half_sizes,
            is_round=kind == _CYLINDER,
            is_flat=kind != _HFIELD,
        )

    def height(self, points: np.ndarray) -> np.ndarray:
        """Heights (...,), m, of points (..., 3) above the surface's plane."""
        above: np.ndarray = (points - self.point) @ self.normal
        return above

    def inset(self, points: np.ndarray) -> np.ndarray:
        """Distances (...,), m, of points (..., 3) from the rim of the surface, inwards.

        Negative beyond the rim, and infinite on a plane.
        """
        along = (points - self.point) @ self.axes.T
        if self.is_round:
            return self.half_sizes[0] - np.linalg.norm(along, axis=-1)
        inwards: np.ndarray = (self.half_sizes - np.abs(along)).min(-1)
        return inwards
