"""Collision detection with Coal: all near pairs of faces of convex meshes, with nearest points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.extras import needs

# m: size of the floor, a single triangle, so that no edge between triangles runs through it.
_FLOOR_SIZE = 200.0
_FLOOR_TRIANGLE = np.array([[-1, -0.6], [1, -0.6], [0, 1.2]])  # around the origin, in _FLOOR_SIZE
_PARALLEL = 0.9  # cosine above which two directions are too close for a cross product
_MAX_CONTACTS = 10_000  # face pairs reported for one pair of bodies


@dataclass(frozen=True)
class DetectionConfig:
    """The floor, and when two faces count as near.

    Attributes:
        normal: (3,), of the floor, unit vector, world axes.
        height: m, of the floor along its normal.
        skin: m, by which all faces are moved inwards, so that bodies in contact are still apart.
        max_distance: m, largest distance of two near faces, measured after both were moved inwards.
    """

    normal: np.ndarray
    height: float
    skin: float
    max_distance: float


def shrink_mesh(corners: np.ndarray, faces: np.ndarray, skin: float) -> np.ndarray:
    """Move the faces of a convex mesh inwards.

    Args:
        corners: (c, 3), m.
        faces: (f, 3), indices of corners, counter-clockwise as seen from outside.
        skin: m, by which each face is moved along its normal.

    Returns:
        The corners (c, 3), m, of the smaller mesh.
    """
    a, b, c = (corners[faces[:, i]] for i in range(3))
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    shrunk = corners.copy()
    for i in range(len(corners)):
        # The shift of a corner that moves all faces around it by -skin along their normals.
        own_normals = normals[(faces == i).any(1)]
        inwards = np.full(len(own_normals), -skin)
        shrunk[i] += np.linalg.lstsq(own_normals, inwards, rcond=None)[0]
    return shrunk


class Detector:
    """Finds near faces of bodies in one or several scenes, all over the same floor.

    Attributes:
        radius: (O,), m, of a sphere around each body's centre of mass that holds its shrunk mesh.
        first_face: (O + 1,), index of each body's first face among those of all bodies.
    """

    def __init__(
        self,
        corners: Sequence[np.ndarray],
        faces: Sequence[np.ndarray],
        scene: np.ndarray,
        *,
        config: DetectionConfig,
    ) -> None:
        """Prepare the meshes of O bodies.

        Args:
            corners: (c, 3) of each body, m, from its centre of mass, body axes.
            faces: (f, 3) of each body, indices of its corners.
            scene: (O,), index of each body's scene; only bodies of the same scene are compared.
            config: The floor, and when faces count as near.
        """
        with needs("coal", "graph"):
            import coal
        self._coal = coal
        self._normal = config.normal
        self._max_distance = config.max_distance
        self._floor_height = config.height - config.skin  # the floor is moved inwards as well
        # The largest distance of a corner from the centre of mass along one body axis, which for a
        # box with a central centre of mass is half its longest side.
        smallest_reach = 2 * config.skin
        if any(np.abs(own).max() < smallest_reach for own in corners):
            raise DataError(
                f"a body reaches less than {smallest_reach} m from its centre of mass along each "
                f"of its axes, too small for collision detection with a skin of {config.skin} m"
            )
        self._corners = [
            shrink_mesh(own, own_faces, config.skin)
            for own, own_faces in zip(corners, faces, strict=True)
        ]
        self.radius = np.array([np.linalg.norm(own, axis=1).max() for own in self._corners])
        self.first_face = np.concatenate([[0], np.cumsum([len(own) for own in faces])])
        self._shapes: dict[bytes, Any] = {}
        self._models = [
            self._model(own, own_faces) for own, own_faces in zip(self._corners, faces, strict=True)
        ]
        self._floor = self._model(self._floor_corners(), np.array([[0, 1, 2]]))
        self._floor_pose = coal.Transform3s()
        self._request = coal.CollisionRequest()
        self._request.security_margin = config.max_distance
        self._request.num_max_contacts = _MAX_CONTACTS
        self._request.enable_contact = True
        first, second = np.triu_indices(len(scene), 1)
        same_scene = scene[first] == scene[second]
        self._pairs = np.stack([first[same_scene], second[same_scene]], 1)

    def __call__(
        self, position: np.ndarray, orientation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find all near pairs of faces.

        Args:
            position: (O, 3), m, of the centres of mass.
            orientation: (O, 3, 3), rotation matrices.

        Returns:
            Face pairs (C, 2), as indices among the faces of all bodies, the second -1 for the
            floor; and their nearest points (C, 2, 3), m, world axes.
        """
        near_floor = self._near_floor(position, orientation)
        near_pairs = self._near_pairs(position)
        poses: dict[int, Any] = {}
        for body in {*near_floor, *itertools.chain(*near_pairs)}:
            poses[body] = self._coal.Transform3s(
                np.ascontiguousarray(orientation[body]), np.ascontiguousarray(position[body])
            )
        faces: list[tuple[int, int]] = []
        points: list[tuple[np.ndarray, np.ndarray]] = []
        result = self._coal.CollisionResult()

        def collide(body: int, other: Any, other_pose: Any, other_first_face: int | None) -> None:
            """Append the near faces of a body and another Coal model; None stands for the floor."""
            result.clear()
            self._coal.collide(
                self._models[body], poses[body], other, other_pose, self._request, result
            )
            own_first_face = int(self.first_face[body])
            for k in range(result.numContacts()):
                contact = result.getContact(k)
                other_face = -1 if other_first_face is None else other_first_face + contact.b2
                faces.append((own_first_face + contact.b1, other_face))
                points.append((contact.getNearestPoint1(), contact.getNearestPoint2()))

        for body in near_floor:
            collide(body, self._floor, self._floor_pose, None)
        for body, other in near_pairs:
            collide(body, self._models[other], poses[other], int(self.first_face[other]))
        return np.array(faces, int).reshape(-1, 2), np.array(points, float).reshape(-1, 2, 3)

    def _near_floor(self, position: np.ndarray, orientation: np.ndarray) -> list[int]:
        """Bodies with a corner near the floor."""
        height = position @ self._normal - self._floor_height
        candidates = np.flatnonzero(height < self.radius + self._max_distance)
        near = []
        for body in map(int, candidates):
            corner_heights = (self._corners[body] @ orientation[body].T) @ self._normal
            if (height[body] + corner_heights).min() < self._max_distance:
                near.append(body)
        return near

    def _near_pairs(self, position: np.ndarray) -> list[tuple[int, int]]:
        """Pairs of bodies whose bounding spheres are near each other."""
        first, second = self._pairs.T
        apart = np.linalg.norm(position[first] - position[second], axis=1)
        near = apart < self.radius[self._pairs].sum(1) + self._max_distance
        return [(int(a), int(b)) for a, b in self._pairs[near]]

    def _floor_corners(self) -> np.ndarray:
        """Corners (3, 3), m, world axes, of the triangle that is the floor."""
        not_parallel = [1.0, 0, 0] if abs(self._normal[0]) < _PARALLEL else [0, 1.0, 0]
        side = np.cross(self._normal, not_parallel)
        side /= np.linalg.norm(side)
        axes = np.stack([side, np.cross(self._normal, side)])
        return _FLOOR_SIZE * _FLOOR_TRIANGLE @ axes + self._floor_height * self._normal

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
