"""Compiled collision detection on a CPU: the search of `clashsim.nets.face_search` in loops.

Both find the same. This one is many times faster on a CPU, where torch takes some microseconds for
each operation, and has no places of constant number.
"""

from __future__ import annotations

import numpy as np
import torch

from clashsim.nets.contact_features import (
    CONTACT_RANGE,
    DETECTION_RANGE,
    FACING,
    Contacts,
    PlaneContacts,
)
from clashsim.nets.face_search import DEEPEST, FacePairs, join_contacts
from clashsim.nets.fixed_surfaces import FixedSurfaces
from clashsim.nets.rigid_bodies import RigidBodies, RigidBodyState
from clashsim.sim.contact.compiled import compiled
from clashsim.sim.graph.triangles import (
    dot,
    minus,
    nearest_points,
    norm,
    scaled,
    triangles_may_be_near,
    vector,
)

Arrays = tuple[np.ndarray, ...]
# Rows of the arrays (..., 5, 3) that describe triangles: three corners, their mean, the normal.
_MIDDLE, _NORMAL = 3, 4


class Detector:
    """Finds the contacts of bodies with each other and with fixed surfaces.

    Attributes:
        bodies: The bodies; those of a scene are successive, and none of their places is unused.
        surfaces: What they touch but do not move, the same in all scenes.
    """

    def __init__(self, bodies: RigidBodies, surfaces: FixedSurfaces) -> None:
        self.bodies = bodies
        self.surfaces = surfaces
        length = bodies.length.numpy()
        owner = bodies.owner.numpy()
        inner = bodies.inner.numpy()
        self._corners = (bodies.corner.numpy(), owner, length)
        self._planes = (surfaces.plane_normal[0].numpy(), surfaces.plane_height[0].numpy())
        triangle = _described(inner[bodies.face.numpy()], bodies.normal.numpy())
        face_owner = bodies.face_owner.numpy()
        self._faces = (triangle, face_owner)
        self._face_sizes = (_radius(triangle), length[face_owner])
        reach = np.zeros(len(bodies))
        np.maximum.at(reach, owner, np.linalg.norm(inner, axis=1))
        self._spheres = (reach, length, bodies.scene.numpy(), bodies.first_face.numpy())
        fixed = _described(surfaces.triangle[0].numpy(), surfaces.triangle_normal[0].numpy())
        self._fixed = (fixed, _radius(fixed), surfaces.polygon[0].numpy())

    def __call__(self, state: RigidBodyState) -> Contacts:
        """Find the contacts, without gradients; those with fixed surfaces come first.

        Args:
            state: State of the bodies.
        """
        position = state.position.detach().numpy()
        orientation = np.ascontiguousarray(state.orientation.detach().numpy())
        ranges = (CONTACT_RANGE, DEEPEST)
        near = _near_planes(self._corners, self._planes, position, orientation, ranges)
        normal, height = self._planes
        corner, plane = np.divmod(near, max(len(height), 1))
        planes = PlaneContacts(
            *map(torch.from_numpy, (corner, normal[plane], height[plane], np.ones(len(near))))
        )
        triangle = _placed(*self._faces, position, orientation)
        on_fixed = _on_meshes(triangle, self._face_sizes, self._fixed, (DETECTION_RANGE, FACING))
        between = _between_bodies(
            triangle, self._face_sizes, self._spheres, position, DETECTION_RANGE
        )
        return join_contacts(
            planes,
            FacePairs(*map(torch.from_numpy, on_fixed)),
            FacePairs(*map(torch.from_numpy, between)),
        )


def _described(corner: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Triangles (n, 5, 3) of their corners (n, 3, 3) and normals (n, 3)."""
    return np.concatenate([corner, corner.mean(1, keepdims=True), normal[:, None]], 1)


def _radius(triangle: np.ndarray) -> np.ndarray:
    """Radius (n,), m, of spheres around the middles of triangles (n, 5, 3) that hold them."""
    arm = triangle[:, :_MIDDLE] - triangle[:, _MIDDLE, None]
    return np.asarray(np.linalg.norm(arm, axis=2).max(1))


@compiled
def _near_planes(
    corners: Arrays,
    planes: Arrays,
    position: np.ndarray,
    orientation: np.ndarray,
    ranges: tuple[float, float],
) -> np.ndarray:
    """Indices corner * planes + plane of corners that are near planes."""
    corner, owner, length = corners
    normal, plane_height = planes
    contact_range, deepest = ranges
    near = np.empty(len(corner) * len(normal), np.int64)
    count = 0
    for i in range(len(corner)):
        body = owner[i]
        rotation = orientation[body]
        for k in range(len(normal)):
            height = -plane_height[k]
            for row in range(3):
                place = position[body, row]
                for column in range(3):
                    place += rotation[row, column] * corner[i, column]
                height += place * normal[k, row]
            if -deepest * length[body] < height < contact_range * length[body]:
                near[count] = i * len(normal) + k
                count += 1
    return near[:count]


@compiled
def _placed(
    triangle: np.ndarray, owner: np.ndarray, position: np.ndarray, orientation: np.ndarray
) -> np.ndarray:
    """Triangles (F, 5, 3) of bodies in world axes."""
    placed = np.empty_like(triangle)
    for face in range(len(triangle)):
        body = owner[face]
        for i in range(5):
            for row in range(3):
                total = 0.0 if i == _NORMAL else position[body, row]
                for column in range(3):
                    total += orientation[body, row, column] * triangle[face, i, column]
                placed[face, i, row] = total
    return placed


@compiled
def _on_meshes(
    triangle: np.ndarray, sizes: Arrays, fixed: Arrays, limits: tuple[float, float]
) -> Arrays:
    """Contacts of faces with fixed meshes, as in `FacePairs`: one for each flat polygon."""
    radius, length = sizes
    fixed_triangle, fixed_radius, polygon = fixed
    detection_range, full_facing = limits
    nearest = np.empty(len(polygon), np.int64)  # triangle of each polygon
    least = np.empty(len(polygon))
    points = np.empty((len(polygon), 2, 3))
    found = []
    for face in range(len(triangle)):
        reach = detection_range * length[face]
        nearest[:] = -1
        least[:] = np.inf
        for k in range(len(polygon)):
            limits_of_pair = (radius[face], fixed_radius[k], reach)
            if not triangles_may_be_near(triangle[face], fixed_triangle[k], limits_of_pair):
                continue
            on_body, on_fixed = nearest_points(triangle[face], fixed_triangle[k])
            distance = norm(minus(on_fixed, on_body))
            # Of the triangles of a polygon the nearest counts, so that triangulation has no effect.
            if distance < least[polygon[k]]:
                least[polygon[k]] = distance
                nearest[polygon[k]] = k
                for axis in range(3):
                    points[polygon[k], 0, axis] = on_body[axis]
                    points[polygon[k], 1, axis] = on_fixed[axis]
        for k in range(len(polygon)):
            if nearest[polygon[k]] != k:
                continue
            distance = least[polygon[k]]
            on_body, on_fixed = vector(points[polygon[k]], 0), vector(points[polygon[k]], 1)
            normal = scaled(minus(on_body, on_fixed), 1 / distance)
            facing = dot(vector(fixed_triangle[k], _NORMAL), normal) / full_facing
            own_facing = -dot(vector(triangle[face], _NORMAL), normal)
            if facing > 0 and own_facing > 0 and distance < reach:
                found.append((face, on_body, on_fixed, normal, min(facing, 1.0)))
    pairs = np.full((len(found), 2), -1)
    point = np.empty((len(found), 2, 3))
    normals = np.empty((len(found), 3))
    facings = np.empty(len(found))
    for row, (face, on_body, on_fixed, normal, facing) in enumerate(found):
        pairs[row, 0] = face
        for axis in range(3):
            point[row, 0, axis] = on_body[axis]
            point[row, 1, axis] = on_fixed[axis]
            normals[row, axis] = normal[axis]
        facings[row] = facing
    return pairs, point, normals, facings


@compiled
def _between_bodies(
    triangle: np.ndarray,
    sizes: Arrays,
    spheres: Arrays,
    position: np.ndarray,
    detection_range: float,
) -> Arrays:
    """Contacts of faces of two bodies, as in `FacePairs`."""
    radius, face_length = sizes
    reach, length, scene, first_face = spheres
    found = []
    for first in range(len(reach)):
        for second in range(first + 1, len(reach)):
            if scene[second] != scene[first]:
                break
            between = minus(vector(position, first), vector(position, second))
            if norm(between) >= reach[first] + reach[second] + detection_range * length[first]:
                continue
            for own in range(first_face[first], first_face[first + 1]):
                limit = detection_range * face_length[own]
                for other in range(first_face[second], first_face[second + 1]):
                    limits = (radius[own], radius[other], limit)
                    if not triangles_may_be_near(triangle[own], triangle[other], limits):
                        continue
                    on_own, on_other = nearest_points(triangle[own], triangle[other])
                    separation = minus(on_other, on_own)
                    own_facing = dot(vector(triangle[own], _NORMAL), separation)
                    other_facing = -dot(vector(triangle[other], _NORMAL), separation)
                    if own_facing > 0 and other_facing > 0 and norm(separation) < limit:
                        found.append((own, other, on_own, on_other))
    pairs = np.empty((len(found), 2), np.int64)
    point = np.empty((len(found), 2, 3))
    for row, (own, other, on_own, on_other) in enumerate(found):
        pairs[row] = (own, other)
        for axis in range(3):
            point[row, 0, axis] = on_own[axis]
            point[row, 1, axis] = on_other[axis]
    return pairs, point, np.zeros((len(found), 3)), np.ones(len(found))
