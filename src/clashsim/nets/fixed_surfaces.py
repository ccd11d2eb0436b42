"""What bodies touch but do not move: planes such as a floor and walls, and fixed meshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.convex_mesh import ConvexMesh
from clashsim.nets.rigid_bodies import SKIN


@dataclass(frozen=True, eq=False)
class FixedSurfaces:
    """The fixed surfaces of S scenes; S = 1 where all scenes have the same.

    Attributes:
        plane_normal: (S, W, 3), unit vectors towards the bodies, world axes.
        plane_height: (S, W), m, of the planes along their normals.
        triangle: (S, T, 3, 3), m, corners of the triangles of fixed meshes, moved inwards by the
            skin, world axes.
        triangle_normal: (S, T, 3), outward, world axes; zero for places that are not used.
        polygon: (S, T), index of the flat polygon that a triangle is part of, below T.
    """

    plane_normal: Tensor
    plane_height: Tensor
    triangle: Tensor
    triangle_normal: Tensor
    polygon: Tensor

    @staticmethod
    def of(
        planes: Sequence[tuple[np.ndarray, float]],
        meshes: Sequence[ConvexMesh] = (),
        *,
        length: float,
    ) -> FixedSurfaces:
        """The surfaces that all scenes share.

        Args:
            planes: Unit normal (3,) and height (m) of each plane.
            meshes: Fixed convex meshes, world axes.
            length: m, the network's unit of length.
        """
        normals = np.array([normal for normal, _ in planes], float).reshape(1, -1, 3)
        heights = np.array([height for _, height in planes], float).reshape(1, -1)
        triangles = np.zeros((0, 3, 3))
        triangle_normals = np.zeros((0, 3))
        polygons = np.zeros(0, int)
        for mesh in meshes:
            inner = mesh.shrunk(SKIN * length)
            polygons = np.concatenate([polygons, mesh.polygons() + len(triangles)])
            triangles = np.concatenate([triangles, inner[mesh.faces]])
            triangle_normals = np.concatenate([triangle_normals, mesh.normals()])
        return FixedSurfaces(
            torch.as_tensor(normals),
            torch.as_tensor(heights),
            torch.as_tensor(triangles[None]),
            torch.as_tensor(triangle_normals[None]),
            torch.as_tensor(polygons[None]),
        )

    def to(self, device: str | torch.device) -> FixedSurfaces:
        """The same surfaces on another device."""
        moved = {field.name: getattr(self, field.name).to(device) for field in fields(self)}
        return replace(self, **moved)

    def row(self, scene: Tensor) -> Tensor:
        """Row of the arrays for each scene (n,)."""
        return torch.zeros_like(scene) if len(self.plane_height) == 1 else scene
