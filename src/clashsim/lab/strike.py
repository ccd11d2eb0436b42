"""A commanded strike of the robot, and where on the block it makes the tip touch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from clashsim.core.angles import rotate_planar
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.core.strike_distribution import StrikeDistribution

TIP_RADIUS = 0.01  # m, of the arm's tip, a sphere in the shipped scenes
MIN_SPEED = 0.05  # m/s
MAX_SPEED = 1.0  # m/s
MAX_DEFLECTION = 1.2  # rad
_BISECTIONS = 50  # halve the interval in `Outline.touch` to below the precision of a float
_MAX_TIP_DISTANCE = 1.0  # m, from the block's origin; beyond any block
_ROUNDING_DIGITS = 6  # of coordinates in m


@dataclass(frozen=True)
class Strike:
    """One strike, in the terms of `clashsim.core.strike_distribution.StrikeDistribution`.

    Attributes:
        speed: m/s, of the tip.
        point: rad, bearing of the tip's centre from the block's origin at first contact, in the
            block's axes.
        deflection: rad, angle from the contact normal (into the block) to the tip's velocity,
            positive to the left.
    """

    speed: float
    point: float
    deflection: float = 0.0

    def __post_init__(self) -> None:
        if not np.isfinite([self.speed, self.point, self.deflection]).all():
            raise DataError(f"a strike needs finite numbers, got {self}")
        if not MIN_SPEED <= self.speed <= MAX_SPEED:
            raise DataError(
                f"the arm strikes at {MIN_SPEED:g} to {MAX_SPEED:g} m/s, "
                f"got a speed of {self.speed:.4g} m/s"
            )
        if abs(self.deflection) > MAX_DEFLECTION:
            raise DataError(
                f"the deflection must be within {MAX_DEFLECTION:g} rad of the contact normal, "
                f"got {self.deflection:.4g}"
            )

    @staticmethod
    def sample(ranges: StrikeDistribution, rng: np.random.Generator) -> Strike:
        """Draw a strike uniformly.

        Args:
            ranges: The ranges to draw from, such as `Scene.strikes`.
            rng: Source of the random numbers.

        Returns:
            The strike.
        """
        return Strike(
            speed=float(rng.uniform(*ranges.speed)),
            point=float(rng.uniform(*ranges.point)),
            deflection=float(rng.uniform(*ranges.deflection)),
        )


@dataclass(frozen=True, eq=False)
class Outline:
    """Outline and height of a convex upright block.

    Attributes:
        corners: (C, 2), m, of the block's footprint in the block's axes, counter-clockwise.
        height: m, of the block.
    """

    corners: np.ndarray
    height: float

    def nearest(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Find the point of the footprint's outline that is nearest to a given point.

        Args:
            point: (2,), m, in the block's axes.

        Returns:
            Signed distance (m) from the outline to the given point, negative inside; and the
            nearest point (2,), m, of the outline.
        """
        edges = np.roll(self.corners, -1, 0) - self.corners
        to_point = point - self.corners
        share = np.clip((to_point * edges).sum(1) / (edges**2).sum(1), 0, 1)
        on_edges = self.corners + share[:, None] * edges
        distances = np.linalg.norm(point - on_edges, axis=1)
        i = int(distances.argmin())
        left_of_edges = edges[:, 0] * to_point[:, 1] - edges[:, 1] * to_point[:, 0] > 0
        is_inside = bool(left_of_edges.all())
        distance = float(distances[i])
        return (-distance if is_inside else distance), on_edges[i]

    def gap(self, pose: np.ndarray, tip: np.ndarray) -> float:
        """Compute the distance between block and tip.

        Args:
            pose: (3,), x, y (m) and yaw (rad) of the block.
            tip: (2,), m, centre of the tip, world axes.

        Returns:
            m, negative where they overlap.
        """
        in_block = rotate_planar(tip - pose[:2], -pose[2])
        return self.nearest(in_block)[0] - TIP_RADIUS

    def touch(self, strike: Strike) -> tuple[np.ndarray, np.ndarray]:
        """Find the position and direction of the tip at first contact.

        Args:
            strike: The strike.

        Returns:
            Centre of the tip (2,), m, and direction (2,) of its velocity, in the block's axes.
        """
        ray = np.array([np.cos(strike.point), np.sin(strike.point)])
        # Bisection works since the distance from a convex outline grows along a ray from inside.
        near = 0.0
        far = _MAX_TIP_DISTANCE
        for _ in range(_BISECTIONS):
            middle = 0.5 * (near + far)
            if self.nearest(middle * ray)[0] < TIP_RADIUS:
                near = middle
            else:
                far = middle
        centre = far * ray
        normal = (self.nearest(centre)[1] - centre) / TIP_RADIUS  # into the block
        return centre, rotate_planar(normal, strike.deflection)


@lru_cache(maxsize=8)
def block_outline(shape: str) -> Outline:
    """Read the outline of a shipped scene's block, so that laboratory and MuJoCo scene agree.

    Feet and chamfers that the MuJoCo mesh needs in order to stand still are left out: the
    laboratory's block stands on its whole underside.

    Args:
        shape: Name of the shipped scene, such as "square".

    Returns:
        The outline of the geom `block`.
    """
    model = Scene.load(shape).base
    geom = model.geom("block")
    if int(geom.type[0]) == int(mujoco.mjtGeom.mjGEOM_BOX):
        corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * geom.size[:2] + geom.pos[:2]
        return Outline(corners, float(2 * geom.size[2]))
    mesh = int(geom.dataid[0])
    first = int(model.mesh_vertadr[mesh])
    count = int(model.mesh_vertnum[mesh])
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, geom.quat)
    own_vertices = model.mesh_vert[first : first + count].astype(float)
    vertices = own_vertices @ rotation.reshape(3, 3).T + geom.pos
    # Meshes are in single precision, which would give extra corners on straight edges.
    vertices = np.round(vertices, _ROUNDING_DIGITS)
    corners = vertices[ConvexHull(vertices[:, :2]).vertices, :2]
    return Outline(corners, float(vertices[:, 2].max()))
