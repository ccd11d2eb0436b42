"""Posed geoms of a pair, and where their surfaces may touch: types that all features share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.scene import Scene
from clashsim.sim.contact.problem import PLANE, STRIKER, STRUCK
from clashsim.sim.contact.surfaces import GeomSurface, surface_of

ON_FACE = 2e-5  # m: a contact point this close to a face lies on it
FAR = 10.0  # bounding radii: where features are put that cannot touch
_MIN_LENGTH = 1e-12  # m: nearest points closer than this give no normal


@dataclass(frozen=True, eq=False)
class Features:
    """K features of N pairs, as in `ContactGeometry`, but in world axes.

    Attributes:
        carrier: (N, K).
        against: (N, K).
        point: (N, K, 3), m.
        rounding: (N, K, 3, 3), m^2.
        radius: (N, K), m.
        normal: (N, K, 3).
        target: (N, K, 3), m.
        kind: (N, K).
        edge: (N, K, 3).
        reach: (N, K), m.
        covered: (N,), whether the features describe the contact.
    """

    carrier: np.ndarray
    against: np.ndarray
    point: np.ndarray
    rounding: np.ndarray
    radius: np.ndarray
    normal: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    edge: np.ndarray
    reach: np.ndarray
    covered: np.ndarray

    @staticmethod
    def blank(n: int, k: int, *, carrier: int, against: int) -> Features:
        """K features of n pairs at the origin that meet planes."""
        return Features(
            carrier=np.full((n, k), carrier),
            against=np.full((n, k), against),
            point=np.zeros((n, k, 3)),
            rounding=np.zeros((n, k, 3, 3)),
            radius=np.zeros((n, k)),
            normal=np.zeros((n, k, 3)),
            target=np.zeros((n, k, 3)),
            kind=np.full((n, k), PLANE),
            edge=np.zeros((n, k, 3)),
            reach=np.full((n, k), np.inf),
            covered=np.ones(n, bool),
        )


@dataclass(frozen=True, eq=False)
class PosedGeom:
    """A geom in N impacts.

    Attributes:
        scene: The scene.
        geom: Index of the geom.
        position: (N, 3), m, world axes.
        rotation: (N, 3, 3).
        sizes: (1 or N, 3), its size, one for all impacts or one for each.
    """

    scene: Scene
    geom: int
    position: np.ndarray
    rotation: np.ndarray
    sizes: np.ndarray

    @property
    def kind(self) -> int:
        """MuJoCo's type of the geom."""
        return int(self.scene.base.geom_type[self.geom])

    @property
    def radius(self) -> float:
        """Bounding radius, m."""
        return float(self.scene.base.geom_rbound[self.geom])

    @property
    def size(self) -> np.ndarray:
        """(3,), its size where that is the same in all impacts."""
        return self.sizes[0]

    @property
    def surface(self) -> GeomSurface | None:
        """Its surface, where the size is the same in all impacts."""
        return surface_of(self.scene.base, self.geom, self.size)

    def to_local(self, points: np.ndarray) -> np.ndarray:
        """Points (N, 3), m, of the world in the geom's frame."""
        return np.einsum("nji,nj->ni", self.rotation, points - self.position)


@dataclass(frozen=True, eq=False)
class PosedPair:
    """N posed pairs of a geom of the struck body and one of the striker.

    Attributes:
        geoms: The two geoms.
        points: (N, 3) each, m, nearest points of the two geoms.
        distance: (N,), m, of these; about zero where the pair touches.
    """

    geoms: tuple[PosedGeom, PosedGeom]
    points: tuple[np.ndarray, np.ndarray]
    distance: np.ndarray

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def normal(self) -> np.ndarray:
        """(N, 3), out of the striker into the struck body."""
        return unit_vectors(self.points[STRUCK] - self.points[STRIKER])


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N, 3) divided by their lengths; those of hardly any length stay short."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(length, _MIN_LENGTH)
