"""Nearest points of faces: their surrogate slopes (few-shot paper, Eqs. 5 to 7), and a batched
search for boxes where Coal cannot run (a GPU).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clashsim.nets.mesh_graph import REACH, SKIN, Contacts, Floor, weight
from clashsim.nets.rigid_bodies import RigidBodies, RigidBodyState, gather_rows, rotate


class NearestPoint(torch.autograd.Function):
    """Points (C, 3) that a collision detector found on bodies at place (C, 3) and turn (C, 3, 3),
    with the slopes of points that move along with them.

    With the set of face pairs held fixed, a nearest point moves as v + w x r (Eq. 5): a shift of
    the body shifts it, and a turn by w moves it by -[r]x w (Eq. 6); in the matrix of the turn that
    is the outer product of the slope with r in the body's axes.
    """

    @staticmethod
    def forward(ctx: Any, point: Tensor, place: Tensor, turn: Tensor) -> Tensor:
        ctx.save_for_backward(((point - place)[:, None] @ turn)[:, 0])  # r in the body's axes
        return point.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, Tensor, Tensor]:
        (local,) = ctx.saved_tensors
        (slope,) = slopes
        return None, slope, slope[:, :, None] * local[:, None]


def attach_point_gradients(
    bodies: RigidBodies, state: RigidBodyState, contacts: Contacts, floor: Floor
) -> Contacts:
    """Contacts whose points have slopes in the state; a nearest point on the floor, which has no
    end, slides along under the body's.
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
    step = points[0] - points[0].detach()
    under = contacts.point[:, 1].to(state.position) + step - (step @ normal)[:, None] * normal
    points[1] = torch.where((contacts.face[:, 1] >= 0)[:, None], points[1], under)
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
    """Face pairs of boxes within reach, with the floor and, for pairs (P, 2) of bodies, with each
    other: what `sim.collide` finds, on any device.

    With `kept`, shapes do not depend on the state: six faces of each body with the floor, and the
    `kept` of most weight for each pair of bodies.
    """
    count, size = len(bodies), bodies.corner.reshape(len(bodies), 8, 3)
    middle = size.mean(1, keepdim=True)
    inner = size - SKIN * torch.sign(size - middle)
    corner = state.position[:, None] + rotate(state.orientation[:, None], inner)
    triangle = corner.reshape(-1, 3).index_select(0, bodies.face.reshape(-1)).reshape(-1, 3, 3)
    normal = floor.normal.to(corner)
    height = triangle @ normal - (floor.height - SKIN)
    least, which = height.min(1)
    p = triangle.gather(1, which[:, None, None].expand(-1, 1, 3))[:, 0]
    rows = torch.arange(12 * count, device=corner.device)
    found = Contacts(
        torch.stack([rows, torch.full_like(rows, -1)], 1),
        torch.stack([p, p - least[:, None] * normal], 1),
        len(rows),
    )
    if kept is not None:  # no more than three sides of a box, two faces each, look at the floor
        down = weights(bodies, state, found, floor).reshape(-1, 12).topk(6, dim=1).indices
        down = (down + 12 * torch.arange(count, device=corner.device)[:, None]).reshape(-1)
        found = Contacts(
            found.face.index_select(0, down), found.point.index_select(0, down), len(down)
        )
    if pairs is None or len(pairs) == 0:
        return found if kept is not None else keep_facing(bodies, state, found, floor)
    if kept is None:
        radius = (inner - middle).norm(dim=2).amax(1)
        far = (state.position[pairs[:, 0]] - state.position[pairs[:, 1]]).norm(dim=1)
        pairs = pairs[far < radius[pairs].sum(1) + 2 * SKIN + REACH + 0.02]
    a, b = (12 * pairs[:, side, None] + torch.arange(12, device=pairs.device) for side in (0, 1))
    faces = torch.stack(torch.broadcast_tensors(a[:, :, None], b[:, None]), -1).reshape(-1, 2)
    pa, pb = nearest(*(triangle.index_select(0, faces[:, side]) for side in (0, 1)))
    between = Contacts(faces, torch.stack([pa, pb], 1), 0)
    if kept is not None:
        best = weights(bodies, state, between, floor).reshape(-1, 144).topk(kept, dim=1).indices
        best = (best + 144 * torch.arange(len(best), device=best.device)[:, None]).reshape(-1)
        between = Contacts(faces.index_select(0, best), between.point.index_select(0, best), 0)
    both = Contacts(
        torch.cat([found.face, between.face]), torch.cat([found.point, between.point]), found.floors
    )
    return both if kept is not None else keep_facing(bodies, state, both, floor)


def weights(bodies: RigidBodies, state: RigidBodyState, contacts: Contacts, floor: Floor) -> Tensor:
    """How much a contact counts in the network (C,): 1 for faces that are near and look at each
    other, 0 for those too far or turned away.
    """
    apart = contacts.point[:, 1] - contacts.point[:, 0]
    distance = torch.sqrt((apart * apart).sum(1) + 1e-16)
    normals = []
    for side in (0, 1):
        of = contacts.face[:, side]
        own = rotate(
            gather_rows(state.orientation, bodies.face_owner[of.clamp(min=0)]),
            bodies.normal[of.clamp(min=0)],
        )
        normals.append(torch.where((of >= 0)[:, None], own, floor.normal.to(own)))
    return weight(apart / distance[:, None], distance, normals[0], normals[1])


def keep_facing(
    bodies: RigidBodies, state: RigidBodyState, contacts: Contacts, floor: Floor
) -> Contacts:
    """Only those contacts that count."""
    if len(contacts.face) == 0:
        return contacts
    keep = weights(bodies, state, contacts, floor) > 0
    return Contacts(contacts.face[keep], contacts.point[keep], int(keep[: contacts.floors].sum()))


def nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest points (n, 3) of triangles a and b (n, 3 corners, 3) that do not cut each other: of
    two edges, or of a corner and a face.
    """
    p, q = segments(
        a.repeat_interleave(3, 1),
        a.roll(-1, 1).repeat_interleave(3, 1),
        b.repeat(1, 3, 1),
        b.roll(-1, 1).repeat(1, 3, 1),
    )
    below, on_b = _onto(a, b)
    above, on_a = _onto(b, a)
    first, second = torch.cat([p, a, above], 1), torch.cat([q, below, b], 1)
    far = (first - second).norm(dim=2)
    far = torch.cat(
        [
            far[:, :9],
            torch.where(on_b, far[:, 9:12], torch.inf),
            torch.where(on_a, far[:, 12:], torch.inf),
        ],
        1,
    )
    best = far.argmin(1)
    rows = torch.arange(len(a), device=a.device)
    return first[rows, best], second[rows, best]


def _onto(points: Tensor, triangle: Tensor) -> tuple[Tensor, Tensor]:
    """Points (n, k, 3) dropped onto the planes of triangles (n, 3, 3), and whether they lie inside."""
    o, u, v = triangle[:, 0], triangle[:, 1] - triangle[:, 0], triangle[:, 2] - triangle[:, 0]
    w = points - o[:, None]
    uu, uv, vv = (u * u).sum(1)[:, None], (u * v).sum(1)[:, None], (v * v).sum(1)[:, None]
    wu, wv = (w * u[:, None]).sum(2), (w * v[:, None]).sum(2)
    det = (uu * vv - uv * uv).clamp(min=1e-18)
    s, t = (vv * wu - uv * wv) / det, (uu * wv - uv * wu) / det
    return o[:, None] + s[..., None] * u[:, None] + t[..., None] * v[:, None], (s >= 0) & (
        t >= 0
    ) & (s + t <= 1)


def segments(p0: Tensor, p1: Tensor, q0: Tensor, q1: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest points of segments p0 p1 and q0 q1, (..., 3) (Ericson 2005, 5.1.9)."""
    d1, d2, r = p1 - p0, q1 - q0, p0 - q0
    a, e, f = (
        (d1 * d1).sum(-1).clamp(min=1e-18),
        (d2 * d2).sum(-1).clamp(min=1e-18),
        (d2 * r).sum(-1),
    )
    b, c = (d1 * d2).sum(-1), (d1 * r).sum(-1)
    denominator = a * e - b * b
    s = torch.where(
        denominator > 1e-12 * a * e,
        ((b * f - c * e) / denominator.clamp(min=1e-18)).clamp(0, 1),
        torch.zeros_like(a),
    )
    t = (b * s + f) / e
    s = torch.where(t < 0, (-c / a).clamp(0, 1), torch.where(t > 1, ((b - c) / a).clamp(0, 1), s))
    t = t.clamp(0, 1)
    return p0 + s[..., None] * d1, q0 + t[..., None] * d2
