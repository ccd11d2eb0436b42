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
    SKIN,
    RigidBodies,
    RigidBodyState,
    cross,
    gather_rows,
    rotate,
    rotate_inverse,
)

# All lengths here are shares of the network's unit of length in a scene, `RigidBodies.length`.
CONTACT_RANGE = 0.4  # a face pair this far from contact becomes an edge of the graph
DETECTION_RANGE = 2 * SKIN + CONTACT_RANGE  # between the faces that were moved inwards
GRAVITY = 9.81  # m/s^2: with the unit of length it makes the unit of velocity
# sqrt(GRAVITY / length) dt of cubes of 100 mm at 148 Hz. There the unit of velocity is the unit of
# length per step.
USUAL_STEP = (9.81 / 0.05) ** 0.5 / 148
_CLOSE = 0.06  # scale on which heights are resolved finely
_FINE = 0.01  # scale on which they are resolved more finely
_FADE = 0.25  # share of the detection range over which an edge fades in
# Cosine between a face's normal and the direction to the other face above which an edge has its
# full weight.
FACING = 0.2
_HEIGHT_SCALE = 4.0  # heights and closing speeds are small, so their features are enlarged
_ROUNDING_SCALE = 10.0  # roundings are small too
_TINY_SQUARE = 1e-16  # m^2: under the root of a distance, whose gradient at zero is not finite
_MIN_CLOSING = 0.1 * _CLOSE  # per step: added to closing speeds that heights are divided by


@dataclass(frozen=True, eq=False)
class Contacts:
    """C pairs of faces that are near each other; the second one may be that of a fixed surface.

    Attributes:
        face: (C, 2), indices of faces; the second is -1 for a fixed surface.
        point: (C, 2, 3), nearest points of the faces moved inwards by `SKIN`, m, world axes.
        normal: (C, 3), of the fixed surface, unit vectors, world axes; zero between two bodies.
        facing: (C,), 0 to 1, how far the fixed surface's face is turned to the body; 1 for planes.
        fixed: Number of contacts with fixed surfaces, which come first.
    """

    face: Tensor
    point: Tensor
    normal: Tensor
    facing: Tensor
    fixed: int

    @staticmethod
    def join(on_fixed: Contacts, others: Contacts) -> Contacts:
        """Contacts with fixed surfaces alone, then others."""
        return Contacts(
            torch.cat([on_fixed.face, others.face]),
            torch.cat([on_fixed.point, others.point]),
            torch.cat([on_fixed.normal, others.normal]),
            torch.cat([on_fixed.facing, others.facing]),
            on_fixed.fixed + others.fixed,
        )

    def rows(self, rows: Tensor, fixed: int) -> Contacts:
        """Some of the contacts, of which the first `fixed` are with fixed surfaces."""
        return Contacts(
            self.face.index_select(0, rows),
            self.point.index_select(0, rows),
            self.normal.index_select(0, rows),
            self.facing.index_select(0, rows),
            fixed,
        )


@dataclass(frozen=True, eq=False)
class CornerContacts:
    """The corners of all near faces, K rows: three corners for each side of a contact.

    Attributes:
        corner: (K,), mesh node.
        own_corners: (K, 3), mesh nodes of the face that the corner belongs to.
        other_corners: (K, 3), mesh nodes of the other face, -1 for a fixed surface.
        other: (K,), the other body, -1 for a fixed surface.
        contact: (K,), which contact the corner belongs to.
        features: (K, 27), inputs of the network.
        weight: (K,), 0 to 1, weight of the contact (`contact_weight`).
        scale: (K,), kg, mass that the network's outputs are multiplied by to give impulses.
        arm: (K, 3), m, world axes, from the centre of mass to where an impulse acts.
        slip: (K, 3), world axes, velocity of the corner relative to the other body in free motion,
            in the unit of velocity.
        normal: (K, 3), of the fixed surface, world axes; zero between two bodies.
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
    normal: Tensor


@dataclass(frozen=True, eq=False)
class FreeStep:
    """Bodies at the beginning of a step, and where they would be at its end without contact.

    Attributes:
        bodies: The bodies.
        now: Their state at the beginning.
        free: Their state at the end, in free motion.
        gravity: (3,) or (O, 3), m/s^2, world axes.
        dt: s, duration of the step.
    """

    bodies: RigidBodies
    now: RigidBodyState
    free: RigidBodyState
    gravity: Tensor
    dt: float

    @property
    def relative_step(self) -> Tensor:
        """The step (O,) over the usual one for bodies of this unit of length."""
        return torch.sqrt(GRAVITY / self.bodies.length) * (self.dt / USUAL_STEP)

    @property
    def travel(self) -> Tensor:
        """How far (O,), m, the unit of velocity goes in a step."""
        return self.bodies.length * self.relative_step


def contact_weight(
    direction: Tensor, distance: Tensor, own_normal: Tensor, other_normal: Tensor
) -> Tensor:
    """Weights (C,) of contacts, 0 to 1, by which their impulses are multiplied.

    They fall to zero towards the end of the detection range, and as one of the faces turns away.

    Args:
        direction: (C, 3), unit vectors from the own to the other nearest point.
        distance: (C,), between the nearest points, in the unit of length.
        own_normal: (C, 3), outward normals of the own faces.
        other_normal: (C, 3), outward normals of the other faces.
    """
    own_facing = ((own_normal * direction).sum(1) / FACING).clamp(0, 1)
    other_facing = (-(other_normal * direction).sum(1) / FACING).clamp(0, 1)
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
    """The corners of the first (0) or second (1) face of all contacts; fixed surfaces have none."""
    bodies, now, free = step.bodies, step.now, step.free
    first_row = contacts.fixed if side else 0
    rows = torch.arange(first_row, len(contacts.face), device=contacts.face.device)
    own_face = contacts.face[rows, side]
    other_face = contacts.face[rows, 1 - side]
    on_fixed = other_face < 0
    # For fixed surfaces, face 0 and its body stand in, and what they give is replaced.
    some_face = other_face.clamp(min=0)
    body = bodies.face_owner[own_face]
    other_body = torch.where(on_fixed, -1, bodies.face_owner[some_face])
    some_body = other_body.clamp(min=0)
    orientation = gather_rows(now.orientation, body)
    mass = gather_rows(bodies.mass, body)
    other_mass = gather_rows(bodies.mass, some_body)
    length = gather_rows(bodies.length, body)
    travel = gather_rows(step.travel, body)

    own_point = gather_rows(contacts.point[:, side], rows)
    other_point = gather_rows(contacts.point[:, 1 - side], rows)
    own_normal = rotate(orientation, bodies.normal[own_face])
    fixed_normal = gather_rows(contacts.normal, rows).to(own_point)
    other_normal = torch.where(
        on_fixed[:, None],
        fixed_normal,
        rotate(gather_rows(now.orientation, some_body), bodies.normal[some_face]),
    )
    separation = other_point - own_point
    distance = safe_distance(separation)
    direction = separation / distance[:, None]
    weight = contact_weight(direction, distance / length, own_normal, other_normal)
    weight = weight * gather_rows(contacts.facing, rows)
    # Share of an impulse's effect on the relative velocity that this body takes.
    mass_share = torch.where(on_fixed, torch.ones_like(distance), other_mass / (other_mass + mass))

    corners = bodies.face[own_face]  # (C, 3)
    arm = rotate(orientation[:, None], gather_rows(bodies.corner, corners))
    corner_position = gather_rows(now.position, body)[:, None] + arm
    corner_velocity = gather_rows(free.velocity, body)[:, None] + cross(
        gather_rows(free.angular_velocity, body)[:, None].expand_as(arm), arm
    )
    other_arm = other_point - gather_rows(now.position, some_body)
    moves = (~on_fixed)[:, None].to(now.position.dtype)
    other_velocity = moves * (
        gather_rows(free.velocity, some_body)
        + cross(gather_rows(free.angular_velocity, some_body), other_arm)
    )
    # Lengths from here on are in the unit of length.
    unit = length[:, None, None]
    offset = (corner_position - other_point[:, None]) / unit
    shift = (corner_velocity - other_velocity[:, None]) * step.dt / unit  # in one step
    slip = shift * (length / travel)[:, None, None]
    normal = other_normal[:, None].expand_as(offset)
    other_rounding = torch.where(on_fixed, 0.0, gather_rows(bodies.rounding, some_body))
    rounding = gather_rows(bodies.rounding, body) + other_rounding
    height = (offset * normal).sum(-1, keepdim=True) - rounding[:, None, None] / unit
    closing = (shift * normal).sum(-1, keepdim=True)

    axes = orientation[:, None]

    def for_each_corner(values: Tensor) -> Tensor:
        """(C,) as a feature (C, 3, 1) of all three corners."""
        return values[:, None, None].expand(*offset.shape[:2], 1)

    features = torch.cat(
        [
            rotate_inverse(axes, offset),
            rotate_inverse(axes, slip),
            rotate_inverse(axes, normal),
            rotate_inverse(axes, own_normal[:, None].expand_as(offset)),
            rotate_inverse(axes, separation[:, None].expand_as(offset) / unit),
            height * _HEIGHT_SCALE,
            (slip * normal).sum(-1, keepdim=True) * _HEIGHT_SCALE,
            (height + closing) * _HEIGHT_SCALE,
            torch.tanh(height / _CLOSE),
            torch.tanh((height + closing) / _CLOSE),
            # About the part of the step after which the corner touches.
            torch.tanh(height / (closing.abs() + _MIN_CLOSING)),
            for_each_corner(distance / length),
            for_each_corner(mass_share),
            for_each_corner(rounding / length * _ROUNDING_SCALE),
            for_each_corner(on_fixed.to(offset.dtype)),
            torch.tanh(height / _FINE),
            torch.tanh((height + closing) / _FINE),
        ],
        -1,
    ).flatten(0, 1)
    # Impulses act in the middle between the rounded surfaces, as in MuJoCo.
    impulse_arm = arm - 0.5 * rounding[:, None, None] * normal
    row_of_corner = torch.arange(len(rows), device=rows.device).repeat_interleave(3)
    other_corners = torch.where(on_fixed[:, None], -1, bodies.face[some_face])
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
        normal=gather_rows(fixed_normal, row_of_corner),
    )
