"""What the mesh graph network reads about contacts: face pairs that are near, corner by corner.

All features are in the axes of the body that a corner belongs to, and velocities are relative, so
that rotating, shifting or uniformly moving a scene does the same to the motion that the network
predicts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from clashsim.nets.rigid_bodies import (
    RigidBodies,
    RigidBodyState,
    cross,
    gather_rows,
    rotate,
    rotate_inverse,
)

LENGTH = 0.05  # m: unit of lengths for the network; velocities are in this unit per step
# m: faces are moved inwards by this much for collision detection, so that bodies in contact are
# still apart and their nearest points unique.
SKIN = 0.004
CONTACT_RANGE = 0.02  # m: a face pair this far from contact becomes an edge of the graph
DETECTION_RANGE = 2 * SKIN + CONTACT_RANGE  # m, between the faces that were moved inwards
_CLOSE = 0.003  # m: scale on which heights are resolved finely
_FADE = 0.25  # share of the detection range over which an edge fades in
# Cosine between a face's normal and the direction to the other face above which an edge has its
# full weight.
_FACING = 0.2
_HEIGHT_SCALE = 4.0  # heights and closing speeds are small, so their features are enlarged
_ROUNDING_SCALE = 10.0  # roundings are small too
_TINY_SQUARE = 1e-16  # m^2: under the root of a distance, whose gradient at zero is not finite
_MIN_CLOSING = 0.1 * _CLOSE  # m per step: added to closing speeds that heights are divided by


@dataclass(frozen=True, eq=False)
class Contacts:
    """C pairs of faces that are near each other.

    Attributes:
        face: (C, 2), indices of faces; the second is -1 for the floor.
        point: (C, 2, 3), nearest points of the faces moved inwards by `SKIN`, m, world axes.
        floors: Number of contacts with the floor, which come first.
    """

    face: Tensor
    point: Tensor
    floors: int


@dataclass(frozen=True, eq=False)
class Floor:
    """The floor as an object.

    Attributes:
        normal: (3,), unit vector, world axes.
        height: m, along the normal.
    """

    normal: Tensor
    height: float = 0.0


@dataclass(frozen=True, eq=False)
class CornerContacts:
    """The corners of all near faces, K rows: three corners for each side of a contact.

    Attributes:
        corner: (K,), mesh node.
        own_corners: (K, 3), mesh nodes of the face that the corner belongs to.
        other_corners: (K, 3), mesh nodes of the other face, -1 for the floor.
        other: (K,), the other body, -1 for the floor.
        contact: (K,), which contact the corner belongs to.
        features: (K, 25), inputs of the network.
        weight: (K,), 0 to 1, weight of the contact (`contact_weight`).
        scale: (K,), kg, mass that the network's outputs are multiplied by to give impulses.
        arm: (K, 3), m, world axes, from the centre of mass to where an impulse acts.
        slip: (K, 3), m per step, world axes, velocity of the corner relative to the other body in
            free motion.
    """

    corner: Tensor
    own_corners: Tensor
    other_corners: Tensor
    other: Tensor
    contact: Tensor
    features: Tensor
    weight: Tensor
    scale: Tensor
    arm: Tensor
    slip: Tensor


@dataclass(frozen=True, eq=False)
class FreeStep:
    """Bodies at the beginning of a step, and where they would be at its end without contact.

    Attributes:
        bodies: The bodies.
        now: Their state at the beginning.
        free: Their state at the end, in free motion.
        floor: The floor.
        dt: s, duration of the step.
    """

    bodies: RigidBodies
    now: RigidBodyState
    free: RigidBodyState
    floor: Floor
    dt: float


def contact_weight(
    direction: Tensor, distance: Tensor, own_normal: Tensor, other_normal: Tensor
) -> Tensor:
    """Weights (C,) of contacts, 0 to 1, by which their impulses are multiplied.

    They fall to zero towards the end of the detection range, and as one of the faces turns away.

    Args:
        direction: (C, 3), unit vectors from the own to the other nearest point.
        distance: (C,), m, between the nearest points.
        own_normal: (C, 3), outward normals of the own faces.
        other_normal: (C, 3), outward normals of the other faces.
    """
    own_facing = ((own_normal * direction).sum(1) / _FACING).clamp(0, 1)
    other_facing = (-(other_normal * direction).sum(1) / _FACING).clamp(0, 1)
    nearness = ((DETECTION_RANGE - distance) / (_FADE * DETECTION_RANGE)).clamp(0, 1)
    return nearness * (own_facing * other_facing)


def safe_distance(separation: Tensor) -> Tensor:
    """Lengths (C,) of vectors (C, 3), with a finite gradient at zero."""
    return torch.sqrt((separation * separation).sum(1) + _TINY_SQUARE)


def corner_contacts(step: FreeStep, contacts: Contacts) -> CornerContacts:
    """Features of the corners of every near face, each in the axes of its own body."""
    first = _corners_of_side(step, contacts, side=0)
    second = _corners_of_side(step, contacts, side=1)
    return CornerContacts(
        *(
            torch.cat([getattr(first, field.name), getattr(second, field.name)])
            for field in fields(CornerContacts)
        )
    )


def _corners_of_side(step: FreeStep, contacts: Contacts, *, side: int) -> CornerContacts:
    """The corners of the first (0) or second (1) face of all contacts; the floor has none."""
    bodies, now, free = step.bodies, step.now, step.free
    first_row = contacts.floors if side else 0
    rows = torch.arange(first_row, len(contacts.face), device=contacts.face.device)
    own_face = contacts.face[rows, side]
    other_face = contacts.face[rows, 1 - side]
    on_floor = other_face < 0
    # For contacts with the floor, face 0 and its body stand in, and what they give is replaced.
    some_face = other_face.clamp(min=0)
    body = bodies.face_owner[own_face]
    other_body = torch.where(on_floor, -1, bodies.face_owner[some_face])
    some_body = other_body.clamp(min=0)
    orientation = gather_rows(now.orientation, body)
    mass = gather_rows(bodies.mass, body)
    other_mass = gather_rows(bodies.mass, some_body)

    own_point = gather_rows(contacts.point[:, side], rows)
    other_point = gather_rows(contacts.point[:, 1 - side], rows)
    own_normal = rotate(orientation, bodies.normal[own_face])
    other_normal = torch.where(
        on_floor[:, None],
        step.floor.normal.to(own_point),
        rotate(gather_rows(now.orientation, some_body), bodies.normal[some_face]),
    )
    separation = other_point - own_point
    distance = safe_distance(separation)
    direction = separation / distance[:, None]
    weight = contact_weight(direction, distance, own_normal, other_normal)
    # Share of an impulse's effect on the relative velocity that this body takes.
    mass_share = torch.where(on_floor, torch.ones_like(distance), other_mass / (other_mass + mass))

    corners = bodies.face[own_face]  # (C, 3)
    arm = rotate(orientation[:, None], gather_rows(bodies.corner, corners))
    corner_position = gather_rows(now.position, body)[:, None] + arm
    corner_velocity = gather_rows(free.velocity, body)[:, None] + cross(
        gather_rows(free.angular_velocity, body)[:, None].expand_as(arm), arm
    )
    other_arm = other_point - gather_rows(now.position, some_body)
    moves = (~on_floor)[:, None].to(now.position.dtype)
    other_velocity = moves * (
        gather_rows(free.velocity, some_body)
        + cross(gather_rows(free.angular_velocity, some_body), other_arm)
    )
    offset = corner_position - other_point[:, None]
    slip = (corner_velocity - other_velocity[:, None]) * step.dt
    normal = other_normal[:, None].expand_as(offset)
    other_rounding = torch.where(on_floor, 0.0, gather_rows(bodies.rounding, some_body))
    rounding = gather_rows(bodies.rounding, body) + other_rounding
    height = (offset * normal).sum(-1, keepdim=True) - rounding[:, None, None]
    closing = (slip * normal).sum(-1, keepdim=True)

    axes = orientation[:, None]

    def for_each_corner(values: Tensor) -> Tensor:
        """(C,) as a feature (C, 3, 1) of all three corners."""
        return values[:, None, None].expand(*offset.shape[:2], 1)

    features = torch.cat(
        [
            rotate_inverse(axes, offset) / LENGTH,
            rotate_inverse(axes, slip) / LENGTH,
            rotate_inverse(axes, normal),
            rotate_inverse(axes, own_normal[:, None].expand_as(offset)),
            rotate_inverse(axes, separation[:, None].expand_as(offset)) / LENGTH,
            height / LENGTH * _HEIGHT_SCALE,
            closing / LENGTH * _HEIGHT_SCALE,
            (height + closing) / LENGTH * _HEIGHT_SCALE,
            torch.tanh(height / _CLOSE),
            torch.tanh((height + closing) / _CLOSE),
            # About the part of the step after which the corner touches.
            torch.tanh(height / (closing.abs() + _MIN_CLOSING)),
            for_each_corner(distance / LENGTH),
            for_each_corner(mass_share),
            for_each_corner(rounding / LENGTH * _ROUNDING_SCALE),
            for_each_corner(on_floor.to(offset.dtype)),
        ],
        -1,
    ).flatten(0, 1)
    # Impulses act in the middle between the rounded surfaces, as in MuJoCo.
    impulse_arm = arm - 0.5 * rounding[:, None, None] * normal
    row_of_corner = torch.arange(len(rows), device=rows.device).repeat_interleave(3)
    other_corners = torch.where(on_floor[:, None], -1, bodies.face[some_face])
    return CornerContacts(
        corner=corners.reshape(-1),
        own_corners=corners[row_of_corner],
        other_corners=other_corners[row_of_corner],
        other=other_body[row_of_corner],
        contact=rows[row_of_corner],
        features=features,
        weight=gather_rows(weight, row_of_corner),
        scale=(mass * mass_share).repeat_interleave(3),
        arm=impulse_arm.reshape(-1, 3),
        slip=slip.reshape(-1, 3),
    )
