"""The batched search for faces that are near each other, for any convex meshes on any device.

Cheap bounds leave few of all pairs of faces; nearest points are computed for these alone. So the
cost beyond the bounds grows with the number of contacts. The result is that of Coal
(`clashsim.sim.graph.detection`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from clashsim.nets.contact_features import (
    DETECTION_RANGE,
    FACING,
    Contacts,
    contact_weight,
    safe_distance,
)
from clashsim.nets.fixed_surfaces import FixedSurfaces
from clashsim.nets.nearest_points import nearest_points_of_triangles
from clashsim.nets.rigid_bodies import SKIN, RigidBodies, RigidBodyState, gather_rows, rotate


@dataclass(frozen=True)
class SearchPlaces:
    """How many results each part of a search has places for, so that no shape depends on the state.

    Attributes:
        planes: Contacts with planes.
        near_fixed: Pairs of a face and a triangle of a fixed mesh that may be near.
        near_bodies: Pairs of faces of two bodies that may be near.
        bodies: Contacts between bodies.
    """

    planes: int
    near_fixed: int
    near_bodies: int
    bodies: int

    @staticmethod
    def largest(counts: list[SearchPlaces], margin: float) -> SearchPlaces:
        """The largest of several searches, times a margin."""
        names = [field.name for field in fields(SearchPlaces)]
        most = {name: max(getattr(count, name) for count in counts) for name in names}
        return SearchPlaces(**{name: int(margin * count) + 1 for name, count in most.items()})


@dataclass(frozen=True, eq=False)
class ContactSearch:
    """What a search compares.

    Attributes:
        surfaces: What bodies touch but do not move.
        pairs: (P, 2), bodies that may touch each other; None for no pair.
        face_pairs: (N, 2), all faces of these pairs, for a search of constant shapes.
        places: Places for results; None for as many as there are.
    """

    surfaces: FixedSurfaces
    pairs: Tensor | None = None
    face_pairs: Tensor | None = None
    places: SearchPlaces | None = None


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
    triangles = _world_triangles(bodies, state)
    places = search.places
    on_fixed = _on_planes(bodies, triangles, search.surfaces, places)
    if search.surfaces.polygon.shape[1] > 0:
        on_meshes, _ = _on_meshes(bodies, triangles, search.surfaces, places)
        on_fixed = Contacts.join(on_fixed, on_meshes)
    between, _ = _between_bodies(bodies, state, triangles, search)
    found = on_fixed if between is None else Contacts.join(on_fixed, between)
    return found if places is not None else keep_facing(bodies, state, found)


@torch.no_grad()
def fixed_mesh_contacts(
    bodies: RigidBodies, state: RigidBodyState, surfaces: FixedSurfaces
) -> Contacts:
    """The contacts with fixed meshes alone."""
    return _on_meshes(bodies, _world_triangles(bodies, state), surfaces, None)[0]


@torch.no_grad()
def count_places(bodies: RigidBodies, state: RigidBodyState, search: ContactSearch) -> SearchPlaces:
    """The places that a search of these bodies needs."""
    triangles = _world_triangles(bodies, state)
    planes = len(_on_planes(bodies, triangles, search.surfaces, None).face)
    near_fixed = 0
    if search.surfaces.polygon.shape[1] > 0:
        near_fixed = _on_meshes(bodies, triangles, search.surfaces, None)[1]
    free_search = ContactSearch(search.surfaces, search.pairs)
    between, near_bodies = _between_bodies(bodies, state, triangles, free_search)
    found = 0 if between is None else len(keep_facing(bodies, state, between).face)
    return SearchPlaces(planes, near_fixed, near_bodies, found)


def contact_weights(bodies: RigidBodies, state: RigidBodyState, contacts: Contacts) -> Tensor:
    """Weights (C,) of contacts in the network, as of `contact_weight`.

    They are 1 for faces that are near and face each other, 0 for those too far or turned away.
    """
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


def keep_facing(bodies: RigidBodies, state: RigidBodyState, contacts: Contacts) -> Contacts:
    """Only those contacts that have weight: near, and with faces that face each other."""
    if len(contacts.face) == 0:
        return contacts
    keep = contact_weights(bodies, state, contacts) > 0
    fixed = int(keep[: contacts.fixed].sum())
    return contacts.rows(torch.nonzero(keep)[:, 0], fixed)


def all_face_pairs(bodies: RigidBodies, pairs: Tensor) -> Tensor:
    """All pairs (N, 2) of a face of the first and a face of the second body of pairs (P, 2)."""
    first = bodies.first_face
    counts = first[1:] - first[:-1]
    count_b = counts[pairs[:, 1]]
    per_pair = counts[pairs[:, 0]] * count_b
    pair = torch.repeat_interleave(per_pair)
    before = torch.cumsum(per_pair, 0) - per_pair
    local = torch.arange(len(pair), device=pairs.device) - before[pair]
    face_a = first[pairs[pair, 0]] + local // count_b[pair]
    face_b = first[pairs[pair, 1]] + local % count_b[pair]
    return torch.stack([face_a, face_b], 1)


def _world_triangles(bodies: RigidBodies, state: RigidBodyState) -> _Triangles:
    """The faces of all bodies, moved inwards."""
    orientation = gather_rows(state.orientation, bodies.owner)
    corner = gather_rows(state.position, bodies.owner) + rotate(orientation, bodies.inner)
    normal = rotate(gather_rows(state.orientation, bodies.face_owner), bodies.normal)
    length = bodies.length[bodies.face_owner]
    return _Triangles.of(gather_rows(corner, bodies.face), normal, length)


def _on_planes(
    bodies: RigidBodies,
    triangles: _Triangles,
    surfaces: FixedSurfaces,
    places: SearchPlaces | None,
) -> Contacts:
    """Contacts of faces with the planes of their scenes, at the corner that is nearest."""
    row = surfaces.row(bodies.scene)[bodies.face_owner]
    normal = surfaces.plane_normal.to(triangles.corner)[row]  # (F, W, 3)
    skin = SKIN * triangles.length[:, None]
    offset = surfaces.plane_height.to(skin)[row] - skin
    height = (triangles.corner[:, None] * normal[:, :, None]).sum(3) - offset[..., None]
    lowest, corner = height.min(2)  # (F, W)
    facing = -(triangles.normal[:, None] * normal).sum(2)
    near = (lowest > 0) & (lowest < DETECTION_RANGE * triangles.length[:, None]) & (facing > 0)
    rows, used = _select(near.flatten(), None if places is None else places.planes)
    planes = max(normal.shape[1], 1)
    face = rows // planes
    point = triangles.corner[face, corner.flatten()[rows]]
    plane_normal = normal.flatten(0, 1)[rows]
    plane_point = point - lowest.flatten()[rows][:, None] * plane_normal
    return Contacts(
        torch.stack([face, torch.full_like(face, -1)], 1),
        torch.stack([point, plane_point], 1),
        plane_normal,
        used.to(point),
        len(face),
    )


def _on_meshes(
    bodies: RigidBodies,
    triangles: _Triangles,
    surfaces: FixedSurfaces,
    places: SearchPlaces | None,
) -> tuple[Contacts, int]:
    """Contacts of faces with the fixed meshes of their scenes, one for each flat polygon.

    Also returns how many pairs of triangles may be near.
    """
    per_scene = surfaces.polygon.shape[1]
    row = surfaces.row(bodies.scene)[bodies.face_owner]  # (F,)
    corner = surfaces.triangle.to(triangles.corner).flatten(0, 1)
    fixed_normal = surfaces.triangle_normal.to(corner).flatten(0, 1)
    fixed = _Triangles.of(corner, fixed_normal, corner.new_ones(len(corner)))
    triangle = per_scene * row[:, None] + torch.arange(per_scene, device=row.device)
    face = torch.arange(len(row), device=row.device)[:, None].expand_as(triangle)
    near = _may_be_near(triangles, fixed, face.flatten(), triangle.flatten())
    rows, used = _select(near, None if places is None else places.near_fixed)
    face, triangle = face.flatten()[rows], triangle.flatten()[rows]
    on_body, on_fixed = nearest_points_of_triangles(triangles.corner[face], corner[triangle])
    separation = on_fixed - on_body
    distance = safe_distance(separation)
    normal = -separation / distance[:, None]
    facing = ((fixed_normal[triangle] * normal).sum(1) / FACING).clamp(0, 1)
    # Of the triangles of a polygon the nearest counts, so that triangulation has no effect.
    polygon = surfaces.polygon.flatten()[triangle]
    best = _first_of_least(distance, face * per_scene + polygon, len(row) * per_scene, used)
    contacts = Contacts(
        torch.stack([face, torch.full_like(face, -1)], 1),
        torch.stack([on_body, on_fixed], 1),
        normal,
        facing * (used & best).to(facing),
        len(face),
    )
    return contacts, len(rows)


def _between_bodies(
    bodies: RigidBodies, state: RigidBodyState, triangles: _Triangles, search: ContactSearch
) -> tuple[Contacts | None, int]:
    """Contacts between bodies, and how many pairs of faces may be near."""
    pairs, places = search.pairs, search.places
    if pairs is None or len(pairs) == 0:
        return None, 0
    face_pairs = search.face_pairs
    if face_pairs is None:
        reach = bodies.inner.norm(dim=1)
        radius = torch.zeros_like(bodies.mass).scatter_reduce(0, bodies.owner, reach, "amax")
        apart = (state.position[pairs[:, 0]] - state.position[pairs[:, 1]]).norm(dim=1)
        limit = radius[pairs].sum(1) + DETECTION_RANGE * bodies.length[pairs[:, 0]]
        face_pairs = all_face_pairs(bodies, pairs[apart < limit])
    near = _may_be_near(triangles, triangles, face_pairs[:, 0], face_pairs[:, 1])
    rows, used = _select(near, None if places is None else places.near_bodies)
    faces = face_pairs[rows]
    on_first, on_second = nearest_points_of_triangles(
        triangles.corner[faces[:, 0]], triangles.corner[faces[:, 1]]
    )
    point = torch.stack([on_first, on_second], 1)
    found = Contacts(faces, point, torch.zeros_like(on_first), used.to(point), 0)
    if places is not None:
        keep = contact_weights(bodies, state, found) > 0
        kept, kept_used = _select(keep, places.bodies)
        found = found.rows(kept, 0)
        found = Contacts(
            found.face, found.point, found.normal, found.facing * kept_used.to(point), 0
        )
    return found, len(rows)


def _may_be_near(a: _Triangles, b: _Triangles, rows_a: Tensor, rows_b: Tensor) -> Tensor:
    """Whether (n,) pairs of triangles may have weight, by the spheres around them."""
    between = b.middle[rows_b] - a.middle[rows_a]
    radius_a, radius_b = a.radius[rows_a], b.radius[rows_b]
    limit = radius_a + radius_b + DETECTION_RANGE * a.length[rows_a]
    near = (between * between).sum(1) < limit * limit
    # Part of each sphere lies in front of the other face.
    normal_a, normal_b = a.normal[rows_a], b.normal[rows_b]
    in_front_of_a = (normal_a * between).sum(1) + radius_b > 0
    in_front_of_b = -(normal_b * between).sum(1) + radius_a > 0
    used = ((normal_a * normal_a).sum(1) > 0) & ((normal_b * normal_b).sum(1) > 0)
    return near & in_front_of_a & in_front_of_b & used


def _select(mask: Tensor, places: int | None) -> tuple[Tensor, Tensor]:
    """Rows where a mask (n,) is true, and which of them are used.

    With a number of places the result has that many rows, and those left over are row 0. Nothing is
    read back from the device, so that a CUDA graph can hold it.
    """
    if places is None:
        rows = torch.nonzero(mask)[:, 0]
        return rows, torch.ones_like(rows, dtype=torch.bool)
    position = torch.cumsum(mask, 0) - 1
    place = torch.where(mask & (position < places), position, places)
    rows = torch.zeros(places + 1, dtype=torch.long, device=mask.device)
    rows = rows.scatter(0, place, torch.arange(len(mask), device=mask.device))[:places]
    used = torch.arange(places, device=mask.device) < mask.sum()
    return torch.where(used, rows, 0), used


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
