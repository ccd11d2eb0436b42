"""What the mesh graph network reads about contacts: face pairs that are near, corner by corner.

On a plane a convex body touches with its corners, so that each corner near a plane is one contact.
Between bodies, and on fixed meshes, contacts are pairs of near faces, read at their corners.

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
class PlaneContacts:
    """M corners that are near a plane.

    Attributes:
        corner: (M,), mesh node.
        normal: (M, 3), of the plane, unit vectors, world axes.
        height: (M,), m, of the plane along its normal.
        used: (M,), 1 for contacts, 0 for places that are not used.
    """

    corner: Tensor
    normal: Tensor
    height: Tensor
    used: Tensor

    def __len__(self) -> int:
        return len(self.corner)


@dataclass(frozen=True, eq=False)
class Contacts:
    """Corners near planes, and C pairs of near faces; the second may be that of a fixed mesh.

    Attributes:
        planes: Contacts of corners with planes.
        face: (C, 2), indices of faces; the second is -1 for a fixed mesh.
        point: (C, 2, 3), nearest points of the faces moved inwards by `SKIN`, m, world axes.
        normal: (C, 3), of the fixed mesh, unit vectors, world axes; zero between two bodies.
        facing: (C,), 0 to 1, how far the fixed mesh's face is turned to the body.
        fixed: Number of face pairs with fixed meshes, which come first.
    """

    planes: PlaneContacts
    face: Tensor
    point: Tensor
    normal: Tensor
    facing: Tensor
    fixed: int

    def __len__(self) -> int:
        return len(self.planes) + len(self.face)


@dataclass(frozen=True, eq=False)
class CornerContacts:
    """K rows: corners near planes, then three corners for each side of a pair of near faces.

    Attributes:
        corner: (K,), mesh node.
        body: (K,), body that the corner belongs to.
        other: (K,), the other body, -1 for a fixed surface.
        features: (K, 34), inputs of the network.
        weight: (K,), 0 to 1, weight of the contact.
        scale: (K,), kg, mass that the network's outputs are multiplied by to give impulses.
        arm: (K, 3), m, world axes, from the centre of mass to where an impulse acts.
        other_arm: (K, 3), m, world axes, from the other body's centre of mass to the same place;
            zero for fixed surfaces.
        slip: (K, 3), world axes, velocity of the corner relative to the other body in free motion,
            in the unit of velocity.
        height: (K,), of the corner over the other surface, in the unit of length.
        normal: (K, 3), world axes, direction of contact: away from the other surface.
        on_fixed: (K,), whether the other surface is fixed.
        all_fixed: Whether that is so for all of them, and no bodies touch each other.
    """

    corner: Tensor
    body: Tensor
    other: Tensor
    features: Tensor
    weight: Tensor
    scale: Tensor
    arm: Tensor
    other_arm: Tensor
    slip: Tensor
    height: Tensor
    normal: Tensor
    on_fixed: Tensor
    all_fixed: bool


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
    """Features of the corners of all contacts, each in the axes of its own body."""
    sides = [_on_planes(step, contacts.planes)]
    if len(contacts.face) > 0:
        sides.append(_on_side(step, contacts, side=0))
    if contacts.fixed < len(contacts.face):
        sides.append(_on_side(step, contacts, side=1))
    side = _Side(*(torch.cat([getattr(part, f.name) for part in sides]) for f in fields(_Side)))
    return _corner_rows(step, side, all_fixed=contacts.fixed == len(contacts.face))


@dataclass(frozen=True, eq=False)
class _Side:
    """Corners of one side of contacts, (K, ...), world axes, SI units.

    Attributes:
        corner: Mesh node.
        other: The other body, -1 for a fixed surface.
        position: (K, 3), m, of the corner.
        own_normal: (K, 3), outward normal of the own face; opposite to a plane's.
        other_normal: (K, 3), outward normal of the other face, or of the plane.
        normal: (K, 3), direction of contact, away from the other surface.
        surface: (K, 3), m, a point of the plane across `normal` that the other surface touches.
        distance: (K,), m, between the surfaces as they were compared.
        weight: (K,), weight of the contact.
    """

    corner: Tensor
    other: Tensor
    position: Tensor
    own_normal: Tensor
    other_normal: Tensor
    normal: Tensor
    surface: Tensor
    distance: Tensor
    weight: Tensor


def corner_positions(bodies: RigidBodies, state: RigidBodyState, corner: Tensor) -> Tensor:
    """Positions (..., 3), m, world axes, of mesh nodes (...)."""
    body = bodies.owner[corner]
    arm = rotate(gather_rows(state.orientation, body), gather_rows(bodies.corner, corner))
    return gather_rows(state.position, body) + arm


def _on_planes(step: FreeStep, planes: PlaneContacts) -> _Side:
    """The corners near planes; the nearest point of the plane is below the corner."""
    bodies = step.bodies
    position = corner_positions(bodies, step.now, planes.corner)
    normal = planes.normal.to(position)
    height = (position * normal).sum(1) - planes.height.to(position)
    length = gather_rows(bodies.length, bodies.owner[planes.corner])
    nearness = (CONTACT_RANGE - height / length) / (_FADE * CONTACT_RANGE)
    fixed = torch.full_like(planes.corner, -1)
    return _Side(
        corner=planes.corner,
        other=fixed,
        position=position,
        own_normal=-normal,
        other_normal=normal,
        normal=normal,
        surface=position - height[:, None] * normal,
        distance=height,
        weight=nearness.clamp(0, 1) * planes.used.to(position),
    )


def _on_side(step: FreeStep, contacts: Contacts, *, side: int) -> _Side:
    """The corners of the first (0) or second (1) face of all pairs; fixed meshes have none."""
    bodies, now = step.bodies, step.now
    first_row = contacts.fixed if side else 0
    rows = torch.arange(first_row, len(contacts.face), device=contacts.face.device)
    own_face = contacts.face[rows, side]
    other_face = contacts.face[rows, 1 - side]
    on_fixed = other_face < 0
    # For fixed meshes, face 0 and its body stand in, and what they give is replaced.
    some_face = other_face.clamp(min=0)
    body = bodies.face_owner[own_face]
    some_body = bodies.face_owner[some_face]
    own_normal = rotate(gather_rows(now.orientation, body), bodies.normal[own_face])
    other_normal = torch.where(
        on_fixed[:, None],
        gather_rows(contacts.normal, rows).to(own_normal),
        rotate(gather_rows(now.orientation, some_body), bodies.normal[some_face]),
    )
    own_point = gather_rows(contacts.point[:, side], rows)
    other_point = gather_rows(contacts.point[:, 1 - side], rows)
    separation = own_point - other_point
    distance = safe_distance(separation)
    normal = separation / distance[:, None]
    length = gather_rows(bodies.length, body)
    weight = contact_weight(-normal, distance / length, own_normal, other_normal)
    weight = weight * gather_rows(contacts.facing, rows)
    # Points are those of faces moved inwards; the unmoved face reaches farther along the normal.
    other_face = bodies.face[some_face]
    reach = corner_positions(bodies, now, other_face) - other_point[:, None]
    farthest = (reach * normal[:, None]).sum(2).amax(1)
    farthest = torch.where(on_fixed, SKIN * length, farthest)
    surface = other_point + farthest[:, None] * normal

    def for_each_corner(values: Tensor) -> Tensor:
        """(C, ...) repeated for the three corners of each face."""
        return values.repeat_interleave(3, 0)

    corner = bodies.face[own_face].reshape(-1)
    return _Side(
        corner=corner,
        other=for_each_corner(torch.where(on_fixed, -1, some_body)),
        position=corner_positions(bodies, now, corner),
        own_normal=for_each_corner(own_normal),
        other_normal=for_each_corner(other_normal),
        normal=for_each_corner(normal),
        surface=for_each_corner(surface),
        distance=for_each_corner(distance),
        weight=for_each_corner(weight),
    )


def _corner_rows(step: FreeStep, side: _Side, *, all_fixed: bool) -> CornerContacts:
    """What the network reads of corners of contacts, and where their impulses act."""
    bodies, now, free = step.bodies, step.now, step.free
    body = bodies.owner[side.corner]
    on_fixed = side.other < 0
    some_body = side.other.clamp(min=0)
    orientation = gather_rows(now.orientation, body)
    mass = gather_rows(bodies.mass, body)
    other_mass = gather_rows(bodies.mass, some_body)
    # Share of an impulse's effect on the relative velocity that this body takes.
    mass_share = torch.where(on_fixed, torch.ones_like(mass), other_mass / (other_mass + mass))
    length = gather_rows(bodies.length, body)
    unit = length[:, None]
    moves = (~on_fixed)[:, None].to(side.position)
    normal = side.normal
    other_rounding = torch.where(on_fixed, 0.0, gather_rows(bodies.rounding, some_body))
    rounding = (gather_rows(bodies.rounding, body) + other_rounding)[:, None]
    # Impulses act in the middle between the rounded surfaces, as in MuJoCo.
    place = side.position - 0.5 * rounding * normal
    impulse_arm = place - gather_rows(now.position, body)
    other_arm = moves * (place - gather_rows(now.position, some_body))
    arm = side.position - gather_rows(now.position, body)
    corner_velocity = gather_rows(free.velocity, body) + cross(
        gather_rows(free.angular_velocity, body), arm
    )
    other_velocity = moves * gather_rows(free.velocity, some_body) + cross(
        gather_rows(free.angular_velocity, some_body), other_arm
    )
    # Lengths from here on are in the unit of length.
    offset = (side.position - side.surface) / unit
    shift = (corner_velocity - other_velocity) * step.dt / unit  # in one step
    slip = shift / gather_rows(step.relative_step, body)[:, None]
    height = (offset * normal).sum(1, keepdim=True) - rounding / unit
    closing = (shift * normal).sum(1, keepdim=True)
    inverse_mass = _inverse_effective_mass(bodies, now, body, arm=impulse_arm, normal=normal)
    inverse_mass = inverse_mass + moves[:, 0] * _inverse_effective_mass(
        bodies, now, some_body, arm=other_arm, normal=normal
    )
    scale = mass * mass_share
    features = torch.cat(
        [
            gather_rows(bodies.corner, side.corner) / unit,
            rotate_inverse(orientation, other_arm) / unit,
            rotate_inverse(orientation, offset),
            rotate_inverse(orientation, slip),
            rotate_inverse(orientation, normal),
            rotate_inverse(orientation, side.own_normal),
            rotate_inverse(orientation, side.other_normal),
            height * _HEIGHT_SCALE,
            (slip * normal).sum(1, keepdim=True) * _HEIGHT_SCALE,
            (height + closing) * _HEIGHT_SCALE,
            torch.tanh(height / _CLOSE),
            torch.tanh((height + closing) / _CLOSE),
            # About the part of the step after which the corner touches.
            torch.tanh(height / (closing.abs() + _MIN_CLOSING)),
            side.distance[:, None] / unit,
            mass_share[:, None],
            rounding / unit * _ROUNDING_SCALE,
            on_fixed[:, None].to(offset),
            torch.tanh(height / _FINE),
            torch.tanh((height + closing) / _FINE),
            # Share of the mass that resists an impulse along the normal, 1 through the centre.
            1 / (scale * inverse_mass)[:, None],
        ],
        1,
    )
    return CornerContacts(
        corner=side.corner,
        body=body,
        other=side.other,
        features=features,
        weight=side.weight,
        scale=scale,
        arm=impulse_arm,
        other_arm=other_arm,
        slip=slip,
        height=height[:, 0],
        normal=normal,
        on_fixed=on_fixed,
        all_fixed=all_fixed,
    )


def _inverse_effective_mass(
    bodies: RigidBodies, state: RigidBodyState, body: Tensor, *, arm: Tensor, normal: Tensor
) -> Tensor:
    """Velocity (K,) along a normal that an impulse of 1 N s along it gives to a point, 1/kg."""
    moment = rotate_inverse(gather_rows(state.orientation, body), cross(arm, normal))
    turning = (moment * moment / gather_rows(bodies.inertia, body)).sum(1)
    return 1 / gather_rows(bodies.mass, body) + turning


# Numbers that describe a corner of a contact.
CONTACT_FEATURES = 34
# What a corner does after the impulses so far, in the axes of its body.
RESPONSE_FEATURES = 11


def response_features(
    step: FreeStep, corners: CornerContacts, velocity: Tensor, mean_velocity: Tensor
) -> Tensor:
    """Features (K, 11) of the motion of corners under the impulses of earlier rounds.

    Args:
        step: The bodies in free motion.
        corners: The corners.
        velocity: (K, 3), relative to the other body after the step, in the unit of velocity.
        mean_velocity: (K, 3), the mean over the step, likewise.
    """
    orientation = gather_rows(step.now.orientation, corners.body)
    relative_step = gather_rows(step.relative_step, corners.body)
    normal_velocity = (velocity * corners.normal).sum(1)
    height = corners.height + (mean_velocity * corners.normal).sum(1) * relative_step
    scalars = [
        normal_velocity * _HEIGHT_SCALE,
        height * _HEIGHT_SCALE,
        torch.tanh(normal_velocity / _CLOSE),
        torch.tanh(height / _CLOSE),
        torch.tanh(height / _FINE),
    ]
    return torch.cat(
        [
            rotate_inverse(orientation, velocity),
            rotate_inverse(orientation, mean_velocity),
            torch.stack(scalars, 1),
        ],
        1,
    )
