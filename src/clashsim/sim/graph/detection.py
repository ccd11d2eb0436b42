"""Collision detection with Coal: all near pairs of faces of bodies, with nearest points.

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

_MAX_CONTACTS = 10_000  # face pairs reported for one pair of bodies


@dataclass(frozen=True)
class DetectionConfig:
    """When two faces count as near.

    Attributes:
        skin: m, by which all faces are moved inwards, so that bodies in contact are still apart.
        max_distance: m, largest distance of two near faces, measured after both were moved inwards.
    """

    skin: float
    max_distance: float


class Detector:
    """Finds near faces of bodies in one or several scenes.

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
            config: When faces count as near.
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
            Face pairs (C, 2), as indices among the faces of all bodies; and their nearest points
            (C, 2, 3), m, world axes.
        """
        near_pairs = self._near_pairs(position)
        poses: dict[int, Any] = {}
        for mesh in set(itertools.chain(*near_pairs)):
            body = self.owner[mesh]
            poses[mesh] = self._coal.Transform3s(
                np.ascontiguousarray(orientation[body]), np.ascontiguousarray(position[body])
            )
        faces: list[tuple[int, int]] = []
        points: list[tuple[np.ndarray, np.ndarray]] = []
        result = self._coal.CollisionResult()
        for first, second in near_pairs:
            result.clear()
            self._coal.collide(
                self._models[first],
                poses[first],
                self._models[second],
                poses[second],
                self._request,
                result,
            )
            first_face, second_face = (int(self.first_face[mesh]) for mesh in (first, second))
            for k in range(result.numContacts()):
                contact = result.getContact(k)
                faces.append((first_face + contact.b1, second_face + contact.b2))
                points.append((contact.getNearestPoint1(), contact.getNearestPoint2()))
        return np.array(faces, int).reshape(-1, 2), np.array(points, float).reshape(-1, 2, 3)

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
