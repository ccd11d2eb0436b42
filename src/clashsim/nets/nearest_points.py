"""Nearest points of faces: their gradients, and a batched search for boxes.

The gradients are those of the few-shot paper (Eqs. 5 to 7). The search runs where Coal cannot, on a
GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clashsim.nets.contact_features import (
    DETECTION_RANGE,
    SKIN,
    Contacts,
    Floor,
    contact_weight,
    safe_distance,
)
from clashsim.nets.rigid_bodies import (
    CORNERS_PER_BOX,
    FACES_PER_BOX,
    RigidBodies,
    RigidBodyState,
    gather_rows,
    rotate,
)

_FLOOR_FACES = 6  # at most three sides of a box, two triangles each, face the floor
_SLACK = 0.02  # m: added to the distance within which the faces of two bodies are compared
_TINY = 1e-18  # keeps divisions by degenerate edges (m^2) and triangles (m^4) defined
_PARALLEL = 1e-12  # squared sine of the angle below which two segments count as parallel


class NearestPoint(torch.autograd.Function):
    """Points that a collision detector found, with gradients as if they were fixed to their bodies.

    With the set of face pairs held fixed, a nearest point moves as v + w x r (Eq. 5): a shift of
    the body shifts it, and a rotation by w moves it by -[r]x w (Eq. 6). In the entries of the
    rotation matrix that is the outer product of the gradient with r in the body's axes.
    """

    @staticmethod
    def forward(ctx: Any, point: Tensor, position: Tensor, orientation: Tensor) -> Tensor:
        """The points (C, 3), of bodies at positions (C, 3) and orientations (C, 3, 3)."""
        point_in_body = ((point - position)[:, None] @ orientation)[:, 0]
        ctx.save_for_backward(point_in_body)
        return point.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        """Gradients in the positions and orientations, none in the points."""
        (point_in_body,) = ctx.saved_tensors
        (gradient,) = gradients
        return None, gradient, gradient[:, :, None] * point_in_body[:, None]


def attach_point_gradients(
    bodies: RigidBodies, state: RigidBodyState, contacts: Contacts, floor: Floor
) -> Contacts:
    """The same contacts, with points through which gradients flow into the state.

    The nearest point on the floor follows the body's point along the floor, which has no edge.
    """
    points = []
    for side in (0, 1):
        found = contacts.point[:, side].to(state.position)
        owner = bodies.face_owner[contacts.face[:, side].clamp(min=0)]
        points.append(
            NearestPoint.apply(
                found, gather_rows(state.position, owner), gather_rows(state.orientation, owner)
            )
        )
    normal = floor.normal.to(state.position)
    shift = points[0] - points[0].detach()  # zero, with the gradient of the body's point
    shift_along_floor = shift - (shift @ normal)[:, None] * normal
    floor_point = contacts.point[:, 1].to(state.position) + shift_along_floor
    on_body = (contacts.face[:, 1] >= 0)[:, None]
    points[1] = torch.where(on_body, points[1], floor_point)
    return Contacts(contacts.face, torch.stack(points, 1), contacts.floors)


@torch.no_grad()
def find_box_contacts(
    bodies: RigidBodies,
    state: RigidBodyState,
    floor: Floor,
    pairs: Tensor | None = None,
    *,
    kept: int | None = None,
) -> Contacts:
    """Find the face pairs of boxes that are near, on any device.

    The result is that of `clashsim.sim.graph.detection`.

    Args:
        bodies: Boxes.
        state: Their state.
        floor: The floor.
        pairs: (P, 2), bodies that may touch each other.
        kept: If given, the shapes of the result do not depend on the state: six face pairs of each
            body with the floor, and `kept` face pairs of each pair of bodies, those of most weight.

    Returns:
        The contacts, without gradients; those with the floor come first.
    """
    corner_in_body = bodies.corner.reshape(len(bodies), CORNERS_PER_BOX, 3)
    middle = corner_in_body.mean(1, keepdim=True)
    # Faces moved inwards by SKIN: for a box every corner moves by SKIN along each axis.
    inner = corner_in_body - SKIN * torch.sign(corner_in_body - middle)
    corner = state.position[:, None] + rotate(state.orientation[:, None], inner)
    faces = bodies.face.reshape(-1)
    triangle = corner.reshape(-1, 3).index_select(0, faces).reshape(-1, 3, 3)

    contacts = _floor_contacts(triangle, floor)
    if kept is not None:
        weight = contact_weights(bodies, state, contacts, floor)
        contacts = _heaviest(contacts, weight, group=FACES_PER_BOX, count=_FLOOR_FACES)
    if pairs is not None and len(pairs) > 0:
        if kept is None:
            radius = (inner - middle).norm(dim=2).amax(1)
            apart = (state.position[pairs[:, 0]] - state.position[pairs[:, 1]]).norm(dim=1)
            pairs = pairs[apart < radius[pairs].sum(1) + DETECTION_RANGE + _SLACK]
        between = _body_contacts(triangle, pairs)
        if kept is not None:
            weight = contact_weights(bodies, state, between, floor)
            between = _heaviest(between, weight, group=FACES_PER_BOX**2, count=kept)
        contacts = Contacts(
            torch.cat([contacts.face, between.face]),
            torch.cat([contacts.point, between.point]),
            contacts.floors,
        )
    return contacts if kept is not None else keep_facing(bodies, state, contacts, floor)


def contact_weights(
    bodies: RigidBodies, state: RigidBodyState, contacts: Contacts, floor: Floor
) -> Tensor:
    """Weights (C,) of contacts in the network, as of `contact_weight`.

    They are 1 for faces that are near and face each other, 0 for those too far or turned away.
    """
    separation = contacts.point[:, 1] - contacts.point[:, 0]
    distance = safe_distance(separation)
    normals = []
    for side in (0, 1):
        face = contacts.face[:, side]
        some_face = face.clamp(min=0)  # face 0 stands in for the floor, and is replaced below
        orientation = gather_rows(state.orientation, bodies.face_owner[some_face])
        body_normal = rotate(orientation, bodies.normal[some_face])
        on_body = (face >= 0)[:, None]
        normals.append(torch.where(on_body, body_normal, floor.normal.to(body_normal)))
    return contact_weight(separation / distance[:, None], distance, normals[0], normals[1])


def keep_facing(
    bodies: RigidBodies, state: RigidBodyState, contacts: Contacts, floor: Floor
) -> Contacts:
    """Only those contacts that have weight: near, and with faces that face each other."""
    if len(contacts.face) == 0:
        return contacts
    keep = contact_weights(bodies, state, contacts, floor) > 0
    floors = int(keep[: contacts.floors].sum())
    return Contacts(contacts.face[keep], contacts.point[keep], floors)


def nearest_points_of_triangles(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Find the nearest points of pairs of triangles that do not intersect.

    The nearest points lie on two edges, or are a corner and a point inside the other triangle.

    Args:
        a: (n, 3, 3), corners of the first triangles, m.
        b: (n, 3, 3), corners of the second triangles, m.

    Returns:
        The points (n, 3) on `a` and (n, 3) on `b`, m.
    """
    a_next = a.roll(-1, 1)
    b_next = b.roll(-1, 1)
    # All nine pairs of an edge of `a` and an edge of `b`.
    on_edge_a, on_edge_b = nearest_points_of_segments(
        a.repeat_interleave(3, 1),
        a_next.repeat_interleave(3, 1),
        b.repeat(1, 3, 1),
        b_next.repeat(1, 3, 1),
    )
    a_on_plane_b, inside_b = _project_to_plane(a, b)
    b_on_plane_a, inside_a = _project_to_plane(b, a)
    # 15 candidates: nine pairs of edges, three corners of `a`, three corners of `b`.
    on_a = torch.cat([on_edge_a, a, b_on_plane_a], 1)
    on_b = torch.cat([on_edge_b, a_on_plane_b, b], 1)
    distance = (on_a - on_b).norm(dim=2)
    distance = torch.cat(
        [
            distance[:, :9],
            torch.where(inside_b, distance[:, 9:12], torch.inf),
            torch.where(inside_a, distance[:, 12:], torch.inf),
        ],
        1,
    )
    best = distance.argmin(1)
    rows = torch.arange(len(a), device=a.device)
    return on_a[rows, best], on_b[rows, best]


def nearest_points_of_segments(
    p0: Tensor, p1: Tensor, q0: Tensor, q1: Tensor
) -> tuple[Tensor, Tensor]:
    """Nearest points of segments p0 p1 and q0 q1, (..., 3) (Ericson 2005, 5.1.9, and its names)."""
    d1 = p1 - p0
    d2 = q1 - q0
    r = p0 - q0
    a = (d1 * d1).sum(-1).clamp(min=_TINY)
    e = (d2 * d2).sum(-1).clamp(min=_TINY)
    f = (d2 * r).sum(-1)
    b = (d1 * d2).sum(-1)
    c = (d1 * r).sum(-1)
    denominator = a * e - b * b
    not_parallel = denominator > _PARALLEL * a * e
    s = ((b * f - c * e) / denominator.clamp(min=_TINY)).clamp(0, 1)
    s = torch.where(not_parallel, s, torch.zeros_like(a))
    t = (b * s + f) / e
    # Where t leaves the second segment, it is clamped and s follows.
    s_at_q0 = (-c / a).clamp(0, 1)
    s_at_q1 = ((b - c) / a).clamp(0, 1)
    s = torch.where(t < 0, s_at_q0, torch.where(t > 1, s_at_q1, s))
    t = t.clamp(0, 1)
    return p0 + s[..., None] * d1, q0 + t[..., None] * d2


def _floor_contacts(triangle: Tensor, floor: Floor) -> Contacts:
    """Contacts of every face (F, 3, 3) with the floor, at the face's lowest corner."""
    normal = floor.normal.to(triangle)
    height = triangle @ normal - (floor.height - SKIN)
    lowest, corner = height.min(1)
    point = triangle.gather(1, corner[:, None, None].expand(-1, 1, 3))[:, 0]
    floor_point = point - lowest[:, None] * normal
    face = torch.arange(len(triangle), device=triangle.device)
    return Contacts(
        torch.stack([face, torch.full_like(face, -1)], 1),
        torch.stack([point, floor_point], 1),
        len(face),
    )


def _body_contacts(triangle: Tensor, pairs: Tensor) -> Contacts:
    """Contacts of all pairs of faces of P pairs of boxes.

    Args:
        triangle: (F, 3, 3), corners of all faces, m, world axes.
        pairs: (P, 2), indices of the boxes.
    """
    face_of_box = torch.arange(FACES_PER_BOX, device=pairs.device)
    first = FACES_PER_BOX * pairs[:, 0, None] + face_of_box
    second = FACES_PER_BOX * pairs[:, 1, None] + face_of_box
    both = torch.broadcast_tensors(first[:, :, None], second[:, None])
    faces = torch.stack(both, -1).reshape(-1, 2)
    on_first, on_second = nearest_points_of_triangles(
        triangle.index_select(0, faces[:, 0]), triangle.index_select(0, faces[:, 1])
    )
    return Contacts(faces, torch.stack([on_first, on_second], 1), floors=0)


def _heaviest(contacts: Contacts, weight: Tensor, *, group: int, count: int) -> Contacts:
    """The `count` contacts of most weight in each group of `group` successive ones."""
    best = weight.reshape(-1, group).topk(count, dim=1).indices
    first = group * torch.arange(len(best), device=best.device)
    rows = (best + first[:, None]).reshape(-1)
    floors = len(rows) if contacts.floors else 0
    return Contacts(
        contacts.face.index_select(0, rows), contacts.point.index_select(0, rows), floors
    )


def _project_to_plane(points: Tensor, triangle: Tensor) -> tuple[Tensor, Tensor]:
    """Projections (n, k, 3) of points (n, k, 3) onto the planes of triangles (n, 3, 3).

    Also returns whether they lie inside the triangles, (n, k).
    """
    origin = triangle[:, 0]
    u = triangle[:, 1] - origin
    v = triangle[:, 2] - origin
    w = points - origin[:, None]
    uu = (u * u).sum(1)[:, None]
    uv = (u * v).sum(1)[:, None]
    vv = (v * v).sum(1)[:, None]
    wu = (w * u[:, None]).sum(2)
    wv = (w * v[:, None]).sum(2)
    determinant = (uu * vv - uv * uv).clamp(min=_TINY)
    s = (vv * wu - uv * wv) / determinant
    t = (uu * wv - uv * wu) / determinant
    projected = origin[:, None] + s[..., None] * u[:, None] + t[..., None] * v[:, None]
    inside = (s >= 0) & (t >= 0) & (s + t <= 1)
    return projected, inside
