"""Nearest points of faces: of pairs of triangles, and their gradients.

The gradients are those of the few-shot paper (Eqs. 5 to 7).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clashsim.nets.contact_features import Contacts
from clashsim.nets.rigid_bodies import RigidBodies, RigidBodyState, gather_rows

TINY = 1e-18  # keeps divisions by degenerate edges (m^2) and triangles (m^4) defined
PARALLEL = 1e-12  # squared sine of the angle below which two segments count as parallel
TIE = 1 + 1e-7  # factor of the distance of edges, so that a corner over a parallel face is taken


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
    bodies: RigidBodies, state: RigidBodyState, contacts: Contacts
) -> Contacts:
    """The same contacts, with points through which gradients flow into the state.

    The nearest point on a fixed surface follows the body's point along the surface.
    """
    if len(contacts.face) == 0 or not torch.is_grad_enabled():
        return contacts
    points = []
    for side in (0, 1):
        found = contacts.point[:, side].to(state.position)
        owner = bodies.face_owner[contacts.face[:, side].clamp(min=0)]
        points.append(
            NearestPoint.apply(
                found, gather_rows(state.position, owner), gather_rows(state.orientation, owner)
            )
        )
    normal = contacts.normal.to(state.position)
    shift = points[0] - points[0].detach()  # zero, with the gradient of the body's point
    shift_along = shift - (shift * normal).sum(1, keepdim=True) * normal
    fixed_point = contacts.point[:, 1].to(state.position) + shift_along
    on_body = (contacts.face[:, 1] >= 0)[:, None]
    points[1] = torch.where(on_body, points[1], fixed_point)
    return replace(contacts, point=torch.stack(points, 1))


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
            distance[:, :9] * TIE,
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
    a = (d1 * d1).sum(-1).clamp(min=TINY)
    e = (d2 * d2).sum(-1).clamp(min=TINY)
    f = (d2 * r).sum(-1)
    b = (d1 * d2).sum(-1)
    c = (d1 * r).sum(-1)
    denominator = a * e - b * b
    not_parallel = denominator > PARALLEL * a * e
    s = ((b * f - c * e) / denominator.clamp(min=TINY)).clamp(0, 1)
    s = torch.where(not_parallel, s, torch.zeros_like(a))
    t = (b * s + f) / e
    # Where t leaves the second segment, it is clamped and s follows.
    s_at_q0 = (-c / a).clamp(0, 1)
    s_at_q1 = ((b - c) / a).clamp(0, 1)
    s = torch.where(t < 0, s_at_q0, torch.where(t > 1, s_at_q1, s))
    t = t.clamp(0, 1)
    return p0 + s[..., None] * d1, q0 + t[..., None] * d2


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
    determinant = (uu * vv - uv * uv).clamp(min=TINY)
    s = (vv * wu - uv * wv) / determinant
    t = (uu * wv - uv * wu) / determinant
    projected = origin[:, None] + s[..., None] * u[:, None] + t[..., None] * v[:, None]
    inside = (s >= 0) & (t >= 0) & (s + t <= 1)
    return projected, inside
