"""Convex meshes of triangles, and rigid bodies made of one or several of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from clashsim.core.box import Box
from clashsim.core.errors import DataError

# Triangles of a box, as indices into `Box.corners`, counter-clockwise as seen from outside.
BOX_TRIANGLES = np.array(
    [
        [0, 1, 3],
        [0, 3, 2],
        [4, 6, 7],
        [4, 7, 5],
        [0, 4, 5],
        [0, 5, 1],
        [2, 3, 7],
        [2, 7, 6],
        [0, 2, 6],
        [0, 6, 4],
        [1, 5, 7],
        [1, 7, 3],
    ]
)
_COPLANAR = 1e-6  # of normals and of offsets over the mesh's size, below which planes are the same
_MAX_TIP_SHIFT = 3.0  # skins: the most that a sharp corner is moved inwards


@dataclass(frozen=True, eq=False)
class ConvexMesh:
    """A closed convex mesh of triangles.

    Attributes:
        corners: (c, 3), m.
        faces: (f, 3), indices of corners, counter-clockwise as seen from outside.
    """

    corners: np.ndarray
    faces: np.ndarray

    @staticmethod
    def hull(points: np.ndarray) -> ConvexMesh:
        """The convex hull of points (n, 3), m; raises a `DataError` if they lie in a plane."""
        try:
            hull = ConvexHull(points)
        except (QhullError, ValueError) as error:
            raise DataError("a mesh needs at least four points that are not in a plane") from error
        used, faces = np.unique(hull.simplices, return_inverse=True)
        faces = faces.reshape(-1, 3)
        corners = np.asarray(points, float)[used]
        inwards = (_cross_products(corners, faces) * hull.equations[:, :3]).sum(1) < 0
        faces[inwards] = faces[inwards][:, ::-1]
        return ConvexMesh(corners, faces)

    @staticmethod
    def box(half: Sequence[float] | np.ndarray) -> ConvexMesh:
        """A box of half sizes (3,), m."""
        signs = np.array(list(itertools.product((-1, 1), repeat=3)))
        return ConvexMesh(signs * np.asarray(half, float), BOX_TRIANGLES)

    @staticmethod
    def prism(radius: float, half_height: float, sides: int) -> ConvexMesh:
        """A regular prism along z, of the base area of a cylinder of `radius` (m)."""
        angle = 2 * np.pi * np.arange(sides) / sides
        # A polygon of circumradius r has the area sides / 2 * r^2 * sin(2 pi / sides).
        outer = radius * np.sqrt(2 * np.pi / sides / np.sin(2 * np.pi / sides))
        ring = np.stack([outer * np.cos(angle), outer * np.sin(angle)], 1)
        rings = [np.column_stack([ring, np.full(sides, z)]) for z in (-half_height, half_height)]
        return ConvexMesh.hull(np.concatenate(rings))

    def normals(self) -> np.ndarray:
        """Outward unit normals (f, 3) of the faces."""
        normals = _cross_products(self.corners, self.faces)
        return normals / np.linalg.norm(normals, axis=1, keepdims=True)

    def moved(self, rotation: np.ndarray, shift: np.ndarray) -> ConvexMesh:
        """The mesh rotated by a matrix (3, 3), then shifted by (3,), m."""
        return ConvexMesh(self.corners @ np.asarray(rotation).T + shift, self.faces)

    @property
    def volume(self) -> float:
        """Volume, m^3."""
        return _moments(self)[0]

    @property
    def inner_radius(self) -> float:
        """Distance of the nearest face from the mean of the corners, m."""
        middle = self.corners.mean(0)
        to_face = self.corners[self.faces[:, 0]] - middle
        return float((to_face * self.normals()).sum(1).min())

    def polygons(self) -> np.ndarray:
        """Index (f,) of the flat polygon that each triangle is part of."""
        normals = self.normals()
        offsets = (normals * self.corners[self.faces[:, 0]]).sum(1)
        scale = np.abs(self.corners - self.corners.mean(0)).max()
        planes = np.column_stack([normals, offsets / scale])
        same = np.abs(planes[:, None] - planes).max(2) < _COPLANAR
        return same.argmax(1)

    def shrunk(self, skin: float) -> np.ndarray:
        """Corners (c, 3), m, of the mesh whose faces are moved inwards.

        Where more than three faces meet in a corner, its shift is that of least squares. A sharp
        corner, which would move far, moves three times the distance at most.

        Args:
            skin: m, by which each face is moved along its normal.
        """
        normals = self.normals()
        polygon = self.polygons()
        inner = self.corners.copy()
        for i in range(len(inner)):
            # A polygon of two triangles counts once, so that its triangulation has no effect.
            _, first = np.unique(polygon[(self.faces == i).any(1)], return_index=True)
            own_normals = normals[(self.faces == i).any(1)][first]
            shift = np.linalg.lstsq(own_normals, np.full(len(first), -skin), rcond=None)[0]
            length = float(np.linalg.norm(shift))
            inner[i] += shift * min(1.0, _MAX_TIP_SHIFT * skin / max(length, 1e-300))
        return inner


@dataclass(frozen=True, eq=False)
class ConvexBody:
    """A rigid body of one or several convex meshes.

    Attributes:
        parts: The meshes, in the axes of the body's origin.
        mass: kg.
        inertia: (3,), kg m^2, principal moments.
        centre: (3,), m, centre of mass, axes of the body's origin.
        axes: (3, 3), rotation matrix from the principal axes to those of the body's origin.
        name: For messages.
    """

    parts: tuple[ConvexMesh, ...]
    mass: float
    inertia: np.ndarray
    centre: np.ndarray
    axes: np.ndarray
    name: str = "body"

    @staticmethod
    def of_box(box: Box) -> ConvexBody:
        """The body of a box."""
        mesh = ConvexMesh(box.corners, BOX_TRIANGLES)
        inertia = np.array(box.inertia, float)
        return ConvexBody((mesh,), box.mass, inertia, np.array(box.centre, float), np.eye(3))

    @staticmethod
    def even(parts: Sequence[ConvexMesh], mass: float, name: str = "body") -> ConvexBody:
        """A body of even density; where its meshes overlap, the density is that of both."""
        volume, centre, second = 0.0, np.zeros(3), np.zeros((3, 3))
        for part in parts:
            part_volume, first_moment, part_second = _moments(part)
            volume += part_volume
            centre += first_moment
            second += part_second
        centre /= volume
        second -= volume * np.outer(centre, centre)
        tensor = (np.trace(second) * np.eye(3) - second) * (mass / volume)
        inertia, axes = np.linalg.eigh(tensor)
        axes[:, 2] *= np.sign(np.linalg.det(axes))
        return ConvexBody(tuple(parts), mass, inertia, centre, axes, name)

    @property
    def size(self) -> float:
        """Half the side of the cube of the same volume, m."""
        volume = sum(part.volume for part in self.parts)
        return float(np.cbrt(volume)) / 2

    @property
    def aspect(self) -> float:
        """Ratio of the longest to the shortest side of a box with the same scatter of corners."""
        corners = np.concatenate([part.corners for part in self.parts])
        scatter = np.linalg.eigvalsh(np.cov(corners.T))
        return float(np.sqrt(scatter[-1] / max(scatter[0], 1e-300)))

    def principal_parts(self) -> tuple[ConvexMesh, ...]:
        """The meshes in principal axes, from the centre of mass."""
        shift = -self.axes.T @ self.centre
        return tuple(part.moved(self.axes.T, shift) for part in self.parts)


def _moments(mesh: ConvexMesh) -> tuple[float, np.ndarray, np.ndarray]:
    """Volume (m^3), first moments (3,) and second moments (3, 3) of a mesh about the origin."""
    triangles = mesh.corners[mesh.faces]  # each with the origin makes a tetrahedron
    volumes = np.linalg.det(triangles) / 6
    total = triangles.sum(1)
    first = (volumes[:, None] * total).sum(0) / 4
    products = np.einsum("fci,fcj->fij", triangles, triangles) + total[:, :, None] * total[:, None]
    second = (volumes[:, None, None] * products).sum(0) / 20
    return float(volumes.sum()), first, second


def _cross_products(corners: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Normals (f, 3) of faces, of twice their area's length."""
    a, b, c = (corners[faces[:, i]] for i in range(3))
    return np.cross(b - a, c - a)
