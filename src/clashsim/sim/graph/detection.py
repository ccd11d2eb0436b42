"""Collision detection with Coal: all near pairs of faces of convex meshes, with nearest points.

Bodies of several meshes have one Coal model for each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.convex_mesh import ConvexMesh
from clashsim.core.errors import DataError
from clashsim.core.extras import needs

# m: size of a plane, a single triangle, so that no edge between triangles runs through it.
_PLANE_SIZE = 200.0
_PLANE_TRIANGLE = np.array([[-1, -0.6], [1, -0.6], [0, 1.2]])  # around the origin, in _PLANE_SIZE
_PARALLEL = 0.9  # cosine above which two directions are too close for a cross product
_MAX_CONTACTS = 10_000  # face pairs reported for one pair of bodies


@dataclass(frozen=True)
class DetectionConfig:
    """The planes, and when two faces count as near.

    Attributes:
        planes: Unit normal (3,), world axes, and height (m) along it, of each plane.
        skin: m, by which all faces are moved inwards, so that bodies in contact are still apart.
        max_distance: m, largest distance of two near faces, measured after both were moved inwards.
    """

    planes: Sequence[tuple[np.ndarray, float]]
    skin: float
    max_distance: float


class Detector:
    """Finds near faces of bodies in one or several scenes, all over the same planes.

    Attributes:
        owner: (P,), body of each mesh.
        radius: (P,), m, of a sphere around the body's centre of mass that holds the shrunk mesh.
        first_face: (P + 1,), index of each mesh's first face among those of all bodies.
    """

    def __init__(
        self, bodies: Sequence[Sequence[ConvexMesh]], scene: np.ndarray, *, config: DetectionConfig
    ) -> None:
        """Prepare the meshes of O bodies.

        Args:
            bodies: The meshes of each body, m, from its centre of mass, body axes.
            scene: (O,), index of each body's scene; only bodies of the same scene are compared.
            config: The planes, and when faces count as near.
        """
        with needs("coal", "graph"):
            import coal
        self._coal = coal
        self._max_distance = config.max_distance
        meshes = [mesh for body in bodies for mesh in body]
        for mesh in meshes:
            if mesh.inner_radius < config.skin:
                raise DataError(
                    f"a mesh has an inner radius of {mesh.inner_radius:.2g} m, too small for "
                    f"collision detection with a skin of {config.skin:.2g} m"
                )
        self.owner = np.repeat(np.arange(len(bodies)), [len(body) for body in bodies])
        self._corners = [mesh.shrunk(config.skin) for mesh in meshes]
        self.radius = np.array([np.linalg.norm(own, axis=1).max() for own in self._corners])
        self.first_face = np.concatenate([[0], np.cumsum([len(mesh.faces) for mesh in meshes])])
        self._shapes: dict[bytes, Any] = {}
        self._models = [
            self._model(own, mesh.faces) for own, mesh in zip(self._corners, meshes, strict=True)
        ]
        # The planes are moved inwards as well.
        self._planes = [(normal, height - config.skin) for normal, height in config.planes]
        self._plane_models = [
            self._model(_plane_corners(normal, height), np.array([[0, 1, 2]]))
            for normal, height in self._planes
        ]
        self._plane_pose = coal.Transform3s()
        self._request = coal.CollisionRequest()
        self._request.security_margin = config.max_distance
        self._request.num_max_contacts = _MAX_CONTACTS
        self._request.enable_contact = True
        first, second = np.triu_indices(len(meshes), 1)
        body_a, body_b = self.owner[first], self.owner[second]
        may_touch = (scene[body_a] == scene[body_b]) & (body_a != body_b)
        self._pairs = np.stack([first[may_touch], second[may_touch]], 1)

    def __call__(
        self, position: np.ndarray, orientation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find all near pairs of faces.

        Args:
            position: (O, 3), m, of the centres of mass.
            orientation: (O, 3, 3), rotation matrices.

        Returns:
            Face pairs (C, 2), as indices among the faces of all bodies, the second -1 - i for plane
            i; and their nearest points (C, 2, 3), m, world axes. Those with planes come first.
        """
        near_planes = self._near_planes(position, orientation)
        near_pairs = self._near_pairs(position)
        poses: dict[int, Any] = {}
        for mesh in {*(mesh for mesh, _ in near_planes), *itertools.chain(*near_pairs)}:
            body = self.owner[mesh]
            poses[mesh] = self._coal.Transform3s(
                np.ascontiguousarray(orientation[body]), np.ascontiguousarray(position[body])
            )
        faces: list[tuple[int, int]] = []
        points: list[tuple[np.ndarray, np.ndarray]] = []
        result = self._coal.CollisionResult()

        def collide(mesh: int, other: Any, other_pose: Any, first_face: int) -> None:
            """Append the near faces of a mesh and another Coal model; `first_face`: its first."""
            result.clear()
            self._coal.collide(
                self._models[mesh], poses[mesh], other, other_pose, self._request, result
            )
            own_first_face = int(self.first_face[mesh])
            for k in range(result.numContacts()):
                contact = result.getContact(k)
                faces.append((own_first_face + contact.b1, first_face + contact.b2))
                points.append((contact.getNearestPoint1(), contact.getNearestPoint2()))

        for mesh, plane in near_planes:
            collide(mesh, self._plane_models[plane], self._plane_pose, -1 - plane)
        for mesh, other in near_pairs:
            collide(mesh, self._models[other], poses[other], int(self.first_face[other]))
        return np.array(faces, int).reshape(-1, 2), np.array(points, float).reshape(-1, 2, 3)

    def _near_planes(self, position: np.ndarray, orientation: np.ndarray) -> list[tuple[int, int]]:
        """Meshes and planes where a corner is near the plane."""
        near = []
        for plane, (normal, plane_height) in enumerate(self._planes):
            height = (position @ normal - plane_height)[self.owner]
            for mesh in map(int, np.flatnonzero(height < self.radius + self._max_distance)):
                corners = self._corners[mesh] @ orientation[self.owner[mesh]].T
                if (height[mesh] + corners @ normal).min() < self._max_distance:
                    near.append((mesh, plane))
        return near

    def _near_pairs(self, position: np.ndarray) -> list[tuple[int, int]]:
        """Pairs of meshes whose bounding spheres are near each other."""
        first, second = self._pairs.T
        centre = position[self.owner]
        apart = np.linalg.norm(centre[first] - centre[second], axis=1)
        near = apart < self.radius[self._pairs].sum(1) + self._max_distance
        return [(int(a), int(b)) for a, b in self._pairs[near]]

    def _model(self, corners: np.ndarray, faces: np.ndarray) -> Any:
        """Coal's model of a mesh; equal meshes share one."""
        key = corners.tobytes() + faces.tobytes()
        if key not in self._shapes:
            points = self._coal.StdVec_Vec3s()
            for corner in corners:
                points.append(np.asarray(corner, float))
            triangles = self._coal.StdVec_Triangle()
            for face in faces:
                triangles.append(self._coal.Triangle(*map(int, face)))
            # A mesh, because Coal's primitives return no face numbers.
            model = self._coal.BVHModelOBBRSS()
            model.beginModel(len(faces), len(corners))
            model.addSubModel(points, triangles)
            model.endModel()
            self._shapes[key] = model
        return self._shapes[key]


def _plane_corners(normal: np.ndarray, height: float) -> np.ndarray:
    """Corners (3, 3), m, world axes, of the triangle that is a plane."""
    not_parallel = [1.0, 0, 0] if abs(normal[0]) < _PARALLEL else [0, 1.0, 0]
    side = np.cross(normal, not_parallel)
    side /= np.linalg.norm(side)
    axes = np.stack([side, np.cross(normal, side)])
    return _PLANE_SIZE * _PLANE_TRIANGLE @ axes + height * normal
