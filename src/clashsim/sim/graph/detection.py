"""Collision detection with Coal: all pairs of faces of convex meshes that are within reach, with
their nearest points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.extras import needs

_FLOOR = (
    200.0  # m: side of the one triangle that is the floor; one, so that no seam runs through it
)


def drawn_in(corners: np.ndarray, faces: np.ndarray, skin: float) -> np.ndarray:
    """Corners (c, 3) of a convex mesh whose faces (f, 3) are moved inwards by `skin`."""
    a, b, c = (corners[faces[:, i]] for i in range(3))
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    out = corners.copy()
    for i in range(len(corners)):
        own = normals[(faces == i).any(1)]
        out[i] += np.linalg.lstsq(own, np.full(len(own), -skin), rcond=None)[0]
    return out


class Detector:
    """Bodies with corners (c, 3) and faces (f, 3) each, all in one or several scenes, over a floor
    with normal (3,) and height.

    Called with places (O, 3) and turns (O, 3, 3) it gives face pairs (C, 2), counted over all
    bodies, -1 for the floor, and nearest points (C, 2, 3).
    """

    def __init__(
        self,
        corners: Sequence[np.ndarray],
        faces: Sequence[np.ndarray],
        scene: np.ndarray,
        *,
        normal: np.ndarray,
        height: float,
        skin: float,
        reach: float,
    ) -> None:
        with needs("coal", "graph"):
            import coal
        self._coal = coal
        self.reach, self.normal, self.level = reach, normal, height - skin
        inner = [drawn_in(c, f, skin) for c, f in zip(corners, faces, strict=True)]
        if any(np.abs(c).max() < 2 * skin for c in corners):
            raise DataError(
                f"a body is smaller than {2 * skin} m, which is too small for collision detection with a skin of {skin} m"
            )
        self._inner = inner
        self.radius = np.array([np.linalg.norm(c, axis=1).max() for c in inner])
        self.first = np.concatenate([[0], np.cumsum([len(f) for f in faces])])
        self._shapes: dict[bytes, Any] = {}
        self._models = [self._model(c, f) for c, f in zip(inner, faces, strict=True)]
        side = np.cross(normal, [1.0, 0, 0] if abs(normal[0]) < 0.9 else [0, 1.0, 0])
        side /= np.linalg.norm(side)
        axes = np.stack([side, np.cross(normal, side)])
        flat = _FLOOR * np.array([[-1, -0.6], [1, -0.6], [0, 1.2]]) @ axes + self.level * normal
        self._floor = self._model(flat, np.array([[0, 1, 2]]))
        self._rest = coal.Transform3s()
        self._request = coal.CollisionRequest()
        (
            self._request.security_margin,
            self._request.num_max_contacts,
            self._request.enable_contact,
        ) = reach, 10_000, True
        i, j = np.triu_indices(len(scene), 1)
        same = scene[i] == scene[j]
        self._pairs = np.stack([i[same], j[same]], 1)

    def _model(self, corners: np.ndarray, faces: np.ndarray) -> Any:
        key = corners.tobytes() + faces.tobytes()
        if key not in self._shapes:
            points, triangles = self._coal.StdVec_Vec3s(), self._coal.StdVec_Triangle()
            for corner in corners:
                points.append(np.asarray(corner, float))
            for face in faces:
                triangles.append(self._coal.Triangle(*map(int, face)))
            model = self._coal.BVHModelOBBRSS()  # primitives return no face numbers
            model.beginModel(len(faces), len(corners))
            model.addSubModel(points, triangles)
            model.endModel()
            self._shapes[key] = model
        return self._shapes[key]

    def __call__(self, place: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Face pairs (C, 2) and nearest points (C, 2, 3)."""
        faces: list[tuple[int, int]] = []
        points: list[tuple[np.ndarray, np.ndarray]] = []
        high = place @ self.normal - self.level
        maybe = np.flatnonzero(high < self.radius + self.reach)
        low = [
            int(i)
            for i in maybe
            if (high[i] + (self._inner[i] @ turn[i].T) @ self.normal).min() < self.reach
        ]
        apart = np.linalg.norm(place[self._pairs[:, 0]] - place[self._pairs[:, 1]], axis=1)
        close = self._pairs[apart < self.radius[self._pairs].sum(1) + self.reach]
        at: dict[int, Any] = {}

        def pose(i: int) -> Any:
            if i not in at:
                at[i] = self._coal.Transform3s(
                    np.ascontiguousarray(turn[i]), np.ascontiguousarray(place[i])
                )
            return at[i]

        result = self._coal.CollisionResult()
        for i, j in [*((i, -1) for i in low), *((int(i), int(j)) for i, j in close)]:
            result.clear()
            other, where = (self._floor, self._rest) if j < 0 else (self._models[j], pose(j))
            self._coal.collide(self._models[i], pose(i), other, where, self._request, result)
            for k in range(result.numContacts()):
                contact = result.getContact(k)
                faces.append(
                    (
                        int(self.first[i]) + contact.b1,
                        -1 if j < 0 else int(self.first[j]) + contact.b2,
                    )
                )
                points.append((contact.getNearestPoint1(), contact.getNearestPoint2()))
        return np.array(faces, int).reshape(-1, 2), np.array(points, float).reshape(-1, 2, 3)
