"""The batched search for contacts of any convex meshes, on any device.

Cheap bounds leave few of all pairs of faces; nearest points are computed for these alone. So the
cost beyond the bounds grows with the number of contacts. `clashsim.sim.graph.detection` finds the
same, compiled for a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from clashsim.nets.contact_features import (
    CONTACT_RANGE,
    DETECTION_RANGE,
    FACING,
    Contacts,
    PlaneContacts,
    contact_weight,
    safe_distance,
)
from clashsim.nets.fixed_surfaces import FixedSurfaces
from clashsim.nets.nearest_points import nearest_points_of_triangles
from clashsim.nets.rigid_bodies import RigidBodies, RigidBodyState, gather_rows, rotate

# Units of length: a corner farther behind a plane is beyond it, and not in contact.
DEEPEST = 1.0


@dataclass(frozen=True)
class SearchPlaces:
    """How many results each part of a search has places for, so that no shape depends on the state.

    Attributes:
        planes: Corners near planes.
        near_fixed: Pairs of a face and a triangle of a fixed mesh that may be near.
        fixed: Contacts with fixed meshes.
        body_pairs: Pairs of bodies that may be near.
        near_bodies: Pairs of faces of two bodies that may be near.
        bodies: Contacts between bodies.
    """

    planes: int
    near_fixed: int
    fixed: int
    body_pairs: int
    near_bodies: int
    bodies: int


@dataclass(frozen=True, eq=False)
class ContactSearch:
    """What a search compares.

    Attributes:
        surfaces: What bodies touch but do not move.
        pairs: (P, 2), bodies that may touch each other; None for no pair.
        places: Places for results; None for as many as there are.
        needed: (6,), whole numbers that are raised to the places that searches needed, in the order
            of `SearchPlaces`; None if nobody reads them. What has no place is left out.
        most_faces: Largest number of faces of a body, for a search with places.
    """

    surfaces: FixedSurfaces
    pairs: Tensor | None = None
    places: SearchPlaces | None = None
    needed: Tensor | None = None
    most_faces: int = 0

    def select(self, mask: Tensor, part: str) -> tuple[Tensor, Tensor]:
        """Rows where a mask (n,) is true, and which of them are used.

        With places for this part of the search the result has that many rows, and those left over
        are row 0. Nothing is read back from the device, so that a CUDA graph can hold it.
        """
        total = mask.sum()
        if self.needed is not None:
            index = _PARTS.index(part)
            self.needed[index] = torch.maximum(self.needed[index], total)
        if self.places is None:
            rows = torch.nonzero(mask)[:, 0]
            return rows, torch.ones_like(rows, dtype=torch.bool)
        places = getattr(self.places, part)
        position = torch.cumsum(mask, 0) - 1
        place = torch.where(mask & (position < places), position, places)
        rows = torch.zeros(places + 1, dtype=torch.long, device=mask.device)
        rows = rows.scatter(0, place, torch.arange(len(mask), device=mask.device))[:places]
        used = torch.arange(places, device=mask.device) < total
        return torch.where(used, rows, 0), used


_PARTS = [field.name for field in fields(SearchPlaces)]


@dataclass(frozen=True, eq=False)
class FacePairs:
    """Pairs of faces that may be near, as in `Contacts`."""

    face: Tensor
    point: Tensor
    normal: Tensor
    facing: Tensor

    @staticmethod
    def none(like: Tensor) -> FacePairs:
        """No pairs, on the device of a tensor."""
        points = like.new_zeros(0, 2, 3)
        face = torch.zeros(0, 2, dtype=torch.long, device=like.device)
        return FacePairs(face, points, points[:, 0], points[:, 0, 0])

    def with_weight(
        self, bodies: RigidBodies, state: RigidBodyState, search: ContactSearch, part: str
    ) -> FacePairs:
        """Only those pairs that have weight: near, and facing each other."""
        if len(self.face) == 0:
            return self
        rows, used = search.select(contact_weights(bodies, state, self) > 0, part)
        return FacePairs(
            self.face[rows],
            self.point[rows],
            self.normal[rows],
            self.facing[rows] * used.to(self.facing),
        )


@dataclass(frozen=True, eq=False)
class _Triangles:
    """The faces of all bodies, moved inwards, world axes.

    Attributes:
        corner: (F, 3, 3), m.
        normal: (F, 3), zero for places that are not used.
        middle: (F, 3), m.
        radius: (F,), m, of a sphere around the middle that holds the face.
        length: (F,), m, unit of length.
    """

    corner: Tensor
    normal: Tensor
    middle: Tensor
    radius: Tensor
    length: Tensor

    @staticmethod
    def of(corner: Tensor, normal: Tensor, length: Tensor) -> _Triangles:
        """Triangles (F, 3, 3) of bodies or of fixed meshes."""
        middle = corner.mean(1)
        radius = (corner - middle[:, None]).norm(dim=2).amax(1)
        return _Triangles(corner, normal, middle, radius, length)


@torch.no_grad()
def find_contacts(bodies: RigidBodies, state: RigidBodyState, search: ContactSearch) -> Contacts:
    """Find the pairs of faces that are near and face each other.

    Args:
        bodies: The bodies.
        state: Their state.
        search: What is compared.

    Returns:
        The contacts, without gradients; those with fixed surfaces come first. With constant shapes,
        places that are not used have a `facing` of zero.
    """
    planes = near_planes(bodies, state, search)
    if search.surfaces.polygon.shape[1] == 0 and search.pairs is None:
        none = FacePairs.none(state.position)
        return join_contacts(planes, none, none)
    triangles = _world_triangles(bodies, state)
    on_fixed = _on_meshes(bodies, triangles, search)
    between = _between_bodies(bodies, state, triangles, search)
    on_fixed = on_fixed.with_weight(bodies, state, search, "fixed")
    between = between.with_weight(bodies, state, search, "bodies")
    return join_contacts(planes, on_fixed, between)


def join_contacts(planes: PlaneContacts, on_fixed: FacePairs, between: FacePairs) -> Contacts:
    """Contacts with planes, with fixed meshes, and between bodies."""
    return Contacts(
        planes,
        torch.cat([on_fixed.face, between.face]),
        torch.cat([on_fixed.point, between.point]),
        torch.cat([on_fixed.normal, between.normal]),
        torch.cat([on_fixed.facing, between.facing]),
        len(on_fixed.face),
    )


def contact_weights(
    bodies: RigidBodies, state: RigidBodyState, contacts: Contacts | FacePairs
) -> Tensor:
    """Weights (C,) of face pairs in the network, as of `contact_weight`.

    They are 1 for faces that are near and face each other, 0 for those too far or turned away.
    """
    if len(contacts.face) == 0:
        return contacts.facing
    separation = contacts.point[:, 1] - contacts.point[:, 0]
    distance = safe_distance(separation)
    normals = []
    for side in (0, 1):
        face = contacts.face[:, side]
        some_face = face.clamp(min=0)  # face 0 stands in for a fixed surface, and is replaced below
        orientation = gather_rows(state.orientation, bodies.face_owner[some_face])
        body_normal = rotate(orientation, bodies.normal[some_face])
        on_body = (face >= 0)[:, None]
        normals.append(torch.where(on_body, body_normal, contacts.normal.to(body_normal)))
    length = bodies.length[bodies.face_owner[contacts.face[:, 0]]]
    direction = separation / distance[:, None]
    weight = contact_weight(direction, distance / length, normals[0], normals[1])
    return weight * contacts.facing


def _world_triangles(bodies: RigidBodies, state: RigidBodyState) -> _Triangles:
    """The faces of all bodies, moved inwards."""
    orientation = gather_rows(state.orientation, bodies.owner)
    corner = gather_rows(state.position, bodies.owner) + rotate(orientation, bodies.inner)
    normal = rotate(gather_rows(state.orientation, bodies.face_owner), bodies.normal)
    length = bodies.length[bodies.face_owner]
    return _Triangles.of(gather_rows(corner, bodies.face), normal, length)


def near_planes(bodies: RigidBodies, state: RigidBodyState, search: ContactSearch) -> PlaneContacts:
    """The corners that are near planes of their scenes."""
    surfaces = search.surfaces
    arm = rotate(gather_rows(state.orientation, bodies.owner), bodies.corner)
    position = gather_rows(state.position, bodies.owner) + arm
    row = surfaces.row(bodies.scene)[bodies.owner]
    normal = surfaces.plane_normal.to(position)[row]  # (V, W, 3)
    plane_height = surfaces.plane_height.to(position)[row]
    height = (position[:, None] * normal).sum(2) - plane_height
    length = bodies.length[bodies.owner][:, None]
    near = (height < CONTACT_RANGE * length) & (height > -DEEPEST * length)
    near = near & (bodies.real > 0)[:, None]
    rows, used = search.select(near.flatten(), "planes")
    corner = rows // max(normal.shape[1], 1)
    return PlaneContacts(
        corner,
        normal.flatten(0, 1)[rows],
        plane_height.flatten()[rows],
        used.to(position),
    )


def _on_meshes(bodies: RigidBodies, triangles: _Triangles, search: ContactSearch) -> FacePairs:
    """Contacts of faces with the fixed meshes of their scenes, one for each flat polygon."""
    surfaces = search.surfaces
    per_scene = surfaces.polygon.shape[1]
    if per_scene == 0:
        return FacePairs.none(triangles.middle)
    row = surfaces.row(bodies.scene)[bodies.face_owner]  # (F,)
    corner = surfaces.triangle.to(triangles.corner).flatten(0, 1)
    fixed_normal = surfaces.triangle_normal.to(corner).flatten(0, 1)
    fixed = _Triangles.of(corner, fixed_normal, corner.new_ones(len(corner)))
    triangle = per_scene * row[:, None] + torch.arange(per_scene, device=row.device)
    face = torch.arange(len(row), device=row.device)[:, None].expand_as(triangle)
    near = _may_be_near(triangles, fixed, face.flatten(), triangle.flatten())
    rows, used = search.select(near, "near_fixed")
    face, triangle = face.flatten()[rows], triangle.flatten()[rows]
    on_body, on_fixed = nearest_points_of_triangles(triangles.corner[face], corner[triangle])
    separation = on_fixed - on_body
    distance = safe_distance(separation)
    normal = -separation / distance[:, None]
    facing = ((fixed_normal[triangle] * normal).sum(1) / FACING).clamp(0, 1)
    # Of the triangles of a polygon the nearest counts, so that triangulation has no effect.
    polygon = surfaces.polygon.flatten()[triangle]
    best = _first_of_least(distance, face * per_scene + polygon, len(row) * per_scene, used)
    return FacePairs(
        torch.stack([face, torch.full_like(face, -1)], 1),
        torch.stack([on_body, on_fixed], 1),
        normal,
        facing * (used & best).to(facing),
    )


def _between_bodies(
    bodies: RigidBodies, state: RigidBodyState, triangles: _Triangles, search: ContactSearch
) -> FacePairs:
    """Pairs of faces of two bodies that may be near, with their nearest points."""
    pairs = search.pairs
    if pairs is None or len(pairs) == 0:
        return FacePairs.none(triangles.middle)
    reach = bodies.inner.norm(dim=1)
    radius = torch.zeros_like(bodies.mass).scatter_reduce(0, bodies.owner, reach, "amax")
    apart = (state.position[pairs[:, 0]] - state.position[pairs[:, 1]]).norm(dim=1)
    limit = radius[pairs].sum(1) + DETECTION_RANGE * bodies.length[pairs[:, 0]]
    rows, used = search.select(apart < limit, "body_pairs")
    face_pairs, is_pair = _face_pairs(bodies, pairs[rows], search.most_faces)
    near = _may_be_near(triangles, triangles, face_pairs[:, 0], face_pairs[:, 1])
    if search.places is not None:
        near = near & is_pair & used.repeat_interleave(search.most_faces**2)
    rows, used = search.select(near, "near_bodies")
    faces = face_pairs[rows]
    on_first, on_second = nearest_points_of_triangles(
        triangles.corner[faces[:, 0]], triangles.corner[faces[:, 1]]
    )
    point = torch.stack([on_first, on_second], 1)
    return FacePairs(faces, point, torch.zeros_like(on_first), used.to(point))


def _face_pairs(bodies: RigidBodies, pairs: Tensor, most_faces: int) -> tuple[Tensor, Tensor]:
    """All pairs (N, 2) of a face of the first and a face of the second body of pairs (P, 2).

    With `most_faces` every pair of bodies has places for its square; the second result says which
    are used.
    """
    first = bodies.first_face
    counts = (first[1:] - first[:-1])[pairs]  # (P, 2)
    if most_faces == 0:
        per_pair = counts[:, 0] * counts[:, 1]
        pair = torch.repeat_interleave(per_pair)
        before = torch.cumsum(per_pair, 0) - per_pair
        local = torch.arange(len(pair), device=pairs.device) - before[pair]
        count = counts[pair, 1]
        own, other = local // count, local % count
        used = torch.ones_like(own, dtype=torch.bool)
    else:
        pair = torch.arange(len(pairs), device=pairs.device).repeat_interleave(most_faces**2)
        local = torch.arange(most_faces**2, device=pairs.device).repeat(len(pairs))
        own, other = local // most_faces, local % most_faces
        used = (own < counts[pair, 0]) & (other < counts[pair, 1])
        own, other = own * used, other * used
    starts = first[pairs[pair]]
    return torch.stack([starts[:, 0] + own, starts[:, 1] + other], 1), used


def _may_be_near(a: _Triangles, b: _Triangles, rows_a: Tensor, rows_b: Tensor) -> Tensor:
    """Whether (n,) pairs of triangles may have weight, by the spheres around them."""
    between = b.middle[rows_b] - a.middle[rows_a]
    radius_a, radius_b = a.radius[rows_a], b.radius[rows_b]
    limit = radius_a + radius_b + DETECTION_RANGE * a.length[rows_a]
    near = (between * between).sum(1) < limit * limit
    # Part of each sphere lies in front of the other face, and near its plane.
    normal_a, normal_b = a.normal[rows_a], b.normal[rows_b]
    over_a = (normal_a * between).sum(1)
    over_b = -(normal_b * between).sum(1)
    reach = DETECTION_RANGE * a.length[rows_a]
    in_front_of_a = (over_a > -radius_b) & (over_a < radius_b + reach)
    in_front_of_b = (over_b > -radius_a) & (over_b < radius_a + reach)
    used = ((normal_a * normal_a).sum(1) > 0) & ((normal_b * normal_b).sum(1) > 0)
    return near & in_front_of_a & in_front_of_b & used


def _first_of_least(values: Tensor, group: Tensor, groups: int, used: Tensor) -> Tensor:
    """Which (n,) is the first of those with the least value in its group."""
    values = torch.where(used, values, torch.inf)
    least = values.new_full((groups,), torch.inf).scatter_reduce(0, group, values, "amin")
    is_least = used & (values <= least[group])
    index = torch.arange(len(values), device=values.device)
    candidate = torch.where(is_least, index, len(values))
    first = torch.full((groups,), len(values), device=values.device, dtype=torch.long)
    first = first.scatter_reduce(0, group, candidate, "amin")
    return is_least & (index == first[group])
