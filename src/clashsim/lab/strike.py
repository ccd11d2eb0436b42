"""A strike as the robot is told to do it, and where that puts its tip: the block's outline, first
touch and gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import StrikeDistribution

TIP_RADIUS = 0.01  # m, radius of the arm's tip, a sphere in the shipped scenes


@dataclass(frozen=True)
class Strike:
    """One strike in the terms of `clashsim.core.strike_distribution.StrikeDistribution`.

    speed: m/s, of the tip. point: rad, bearing of the tip at first touch, seen from the block's
    origin in the block's frame.
    deflection: rad, from the contact normal (into the block) to the tip's velocity, left positive.
    """

    speed: float
    point: float
    deflection: float = 0.0

    def __post_init__(self) -> None:
        if not np.isfinite([self.speed, self.point, self.deflection]).all():
            raise DataError(f"a strike needs finite numbers, got {self}")
        if not 0.05 <= self.speed <= 1.0:
            raise DataError(
                f"the arm strikes at 0.05 to 1 m/s, got a speed of {self.speed:.4g} m/s"
            )
        if abs(self.deflection) > 1.2:
            raise DataError(
                f"the deflection must be within 1.2 rad of the contact normal, got {self.deflection:.4g}"
            )

    @staticmethod
    def strikes(ranges: StrikeDistribution, rng: np.random.Generator) -> Strike:
        """A strike drawn uniformly from a scene's ranges."""
        return Strike(
            float(rng.uniform(*ranges.speed)),
            float(rng.uniform(*ranges.point)),
            float(rng.uniform(*ranges.deflection)),
        )


@dataclass(frozen=True, eq=False)
class Outline:
    """A convex upright block: corners (C, 2) of its footprint in its frame, counter-clockwise, and
    its height, in m.
    """

    corners: np.ndarray
    height: float

    def nearest(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Signed distance of a point (2,) from the footprint, negative inside, and the footprint's
        nearest point (2,).
        """
        a = self.corners
        edge = np.roll(a, -1, 0) - a
        along = np.clip(((point - a) * edge).sum(1) / (edge**2).sum(1), 0, 1)
        feet = a + along[:, None] * edge
        far = np.linalg.norm(point - feet, axis=1)
        i = int(far.argmin())
        inside = bool((edge[:, 0] * (point - a)[:, 1] - edge[:, 1] * (point - a)[:, 0] > 0).all())
        return (-float(far[i]) if inside else float(far[i])), feet[i]

    def gap(self, pose: np.ndarray, tip: np.ndarray) -> float:
        """Distance (m) between the block at pose (x, y, yaw) and the tip centred at (2,), negative
        where they overlap.
        """
        return self.nearest(turned(tip - pose[:2], -pose[2]))[0] - TIP_RADIUS

    def touch(self, strike: Strike) -> tuple[np.ndarray, np.ndarray]:
        """Centre of the tip (2,) at first touch and its unit velocity (2,), in the block's frame."""
        ray = np.array([np.cos(strike.point), np.sin(strike.point)])
        near, far = 0.0, 1.0
        for _ in range(50):  # the distance from a convex outline rises along a ray out of it
            middle = 0.5 * (near + far)
            near, far = (
                (middle, far) if self.nearest(middle * ray)[0] < TIP_RADIUS else (near, middle)
            )
        centre = far * ray
        normal = (self.nearest(centre)[1] - centre) / TIP_RADIUS
        return centre, turned(normal, strike.deflection)


def turned(vector: np.ndarray, angle: float) -> np.ndarray:
    """A vector (2,) turned to the left by an angle (rad)."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([c * vector[0] - s * vector[1], s * vector[0] + c * vector[1]])


@lru_cache(maxsize=8)
def block_outline(shape: str) -> Outline:
    """The outline of a shipped scene's block, so that the laboratory and its MuJoCo twin cannot
    drift apart.

    Feet and chamfers that the MuJoCo mesh needs to stand still are left out: the laboratory's block
    stands on its whole sole.
    """
    model = Scene.load(shape).base
    geom = model.geom("block")
    if int(geom.type[0]) == int(mujoco.mjtGeom.mjGEOM_BOX):
        corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * geom.size[:2] + geom.pos[:2]
        return Outline(corners, float(2 * geom.size[2]))
    mesh = int(geom.dataid[0])
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, geom.quat)
    vertices = (
        model.mesh_vert[first : first + count].astype(float) @ turn.reshape(3, 3).T + geom.pos
    )
    vertices = np.round(vertices, 6)  # single-precision meshes would give collinear corners
    return Outline(vertices[ConvexHull(vertices[:, :2]).vertices, :2], float(vertices[:, 2].max()))
