"""What the graph network reads about contacts, corner by corner.

On a plane a convex body touches with its corners, so that each corner near a plane is one contact.
Between bodies, and on fixed meshes, contacts are pairs of near faces, read at their corners.

All features are in the axes of the body that a corner belongs to, and velocities are relative, so
that rotating, shifting or uniformly moving a scene does the same to the motion that the network
predicts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

from clashsim.nets.rigid_bodies import (
    SKIN,
    RigidBodies,
    RigidBodyState,
    cross,
    gather_rows,
    rotate,
    rotate_columns_inverse,
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
        corner: (M,), index among the corners of all bodies.
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

    Each has two ends: the body that the corner belongs to, and the other body. Directions are in
    the axes of the first. In most arrays the corners are the last axis, because torch adds up the
    components of vectors many times faster so on a CPU.

    Attributes:
        ends: (2, K), the two bodies; body 0 stands in for a fixed surface.
        present: (2, K), 1 for bodies, 0 for fixed surfaces.
        features: (K, 34), inputs of the network.
        weight: (K,), 0 to 1, weight of the contact.
        scale: (K,), kg, mass that the network's outputs are multiplied by to give impulses.
        orientation: (3, 3, K), of the first body, from its axes to world axes.
        arm: (2, 3, K), m, world axes, from both centres of mass to where an impulse acts.
        slip: (3, K), velocity of the corner relative to the other body in free motion, in the unit
            of velocity.
        height: (K,), of the corner over the other surface, in the unit of length.
        normal: (3, K), direction of contact: away from the other surface.
        speed_unit: (K,), m/s, the unit of velocity.
        relative_step: (K,), the step over the usual one.
    """

    ends: Tensor
    present: Tensor
    features: Tensor
    weight: Tensor
    scale: Tensor
    orientation: Tensor
    arm: Tensor
    slip: Tensor
    height: Tensor
    normal: Tensor
    speed_unit: Tensor
    relative_step: Tensor


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

    @cached_property
    def relative_step(self) -> Tensor:
        """The step (O,) over the usual one for bodies of this unit of length."""
        return torch.sqrt(GRAVITY / self.bodies.length) * (self.dt / USUAL_STEP)

    @cached_property
    def inverse_inertia(self) -> Tensor:
        """Inverse of the moments of inertia (O, 3, 3), 1/(kg m^2), in world axes."""
        rotation = self.free.orientation
        return (rotation / self.bodies.inertia[:, None]) @ rotation.transpose(1, 2)


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
        sides.append(_on_faces(step, contacts))
    side = sides[0]
    if len(sides) > 1:
        side = _Side(*(torch.cat([getattr(part, f.name) for part in sides]) for f in fields(_Side)))
    return _corner_rows(step, side)


# Columns of `_Side.geometry`: position (m) of the corner; outward normal of the own face, opposite
# to a plane's; of the other face, or of the plane; direction of contact, away from the other
# surface; a point (m) of the plane across it that the other surface touches; distance (m) between
# the surfaces as they were compared; weight of the contact.
_GEOMETRY = (3, 3, 3, 3, 3, 1, 1)


@dataclass(frozen=True, eq=False)
class _Side:
    """Corners of contacts.

    Attributes:
        corner: (K,), index among the corners of all bodies.
        other: (K,), the other body, -1 for a fixed surface.
        geometry: (K, 17), world axes, the columns of `_GEOMETRY`.
    """

    corner: Tensor
    other: Tensor
    geometry: Tensor


def corner_positions(bodies: RigidBodies, state: RigidBodyState, corner: Tensor) -> Tensor:
    """Positions (..., 3), m, world axes, of corners (...)."""
    body = bodies.owner[corner]
    arm = rotate(gather_rows(state.orientation, body), gather_rows(bodies.corner, corner))
    return gather_rows(state.position, body) + arm


def _on_planes(step: FreeStep, planes: PlaneContacts) -> _Side:
    """The corners near planes; the nearest point of the plane is below the corner."""
    bodies = step.bodies
    position = corner_positions(bodies, step.now, planes.corner)
    normal = planes.normal.to(position)
    height = (position * normal).sum(1, keepdim=True) - planes.height.to(position)[:, None]
    length = gather_rows(bodies.length, bodies.owner[planes.corner])[:, None]
    nearness = (CONTACT_RANGE - height / length) / (_FADE * CONTACT_RANGE)
    weight = nearness.clamp(0, 1) * planes.used.to(position)[:, None]
    surface = position - height * normal
    return _Side(
        planes.corner,
        torch.full_like(planes.corner, -1),
        torch.cat([position, -normal, normal, normal, surface, height, weight], 1),
    )


def _on_faces(step: FreeStep, contacts: Contacts) -> _Side:
    """The corners of the first faces of all pairs, then of the second ones that are of bodies."""
    bodies, now = step.bodies, step.now

    def from_both_sides(values: Tensor) -> Tensor:
        """(C, 2, ...) with the two faces of a pair, then those of bodies with the two swapped."""
        return torch.cat([values, values[contacts.fixed :].flip(1)])

    face = from_both_sides(contacts.face)
    own_point, other_point = from_both_sides(contacts.point).unbind(1)
    facing = torch.cat([contacts.facing, contacts.facing[contacts.fixed :]])
    on_fixed = face[:, 1] < 0
    # For fixed meshes, face 0 and its body stand in, and what they give is replaced.
    face = face.clamp(min=0)
    body = gather_rows(bodies.face_owner, face)
    corner = gather_rows(bodies.face, face)
    shape = torch.cat(
        [gather_rows(bodies.corner, corner), gather_rows(bodies.normal, face)[:, :, None]], 2
    )
    in_world = shape @ gather_rows(now.orientation, body).transpose(2, 3)  # (S, 2, 4, 3)
    position = in_world[:, :, :3] + gather_rows(now.position, body)[:, :, None]
    own_normal, other_normal = in_world[:, :, 3].unbind(1)
    if contacts.fixed > 0:
        fixed_normal = torch.cat([contacts.normal, contacts.normal[contacts.fixed :]])
        other_normal = torch.where(on_fixed[:, None], fixed_normal.to(in_world), other_normal)
    separation = own_point - other_point
    distance = safe_distance(separation)
    normal = separation / distance[:, None]
    length = gather_rows(bodies.length, body[:, 0])
    weight = contact_weight(-normal, distance / length, own_normal, other_normal) * facing
    # Points are those of faces moved inwards; the unmoved face reaches farther along the normal.
    reach = position[:, 1] - other_point[:, None]
    farthest = (reach @ normal[:, :, None])[:, :, 0].amax(1)
    if contacts.fixed > 0:
        farthest = torch.where(on_fixed, SKIN * length, farthest)
    surface = other_point + farthest[:, None] * normal
    of_face = [own_normal, other_normal, normal, surface, distance[:, None], weight[:, None]]
    for_each_corner = torch.cat(of_face, 1).repeat_interleave(3, 0)
    return _Side(
        corner[:, 0].reshape(-1),
        torch.where(on_fixed, -1, body[:, 1]).repeat_interleave(3),
        torch.cat([position[:, 0].reshape(-1, 3), for_each_corner], 1),
    )


# Columns of what a contact reads of a body: position, velocity and angular velocity, principal
# moments, orientation, mass, length, rounding, the step over the usual one.
_OF_BODY = (3, 3, 3, 3, 9, 1, 1, 1, 1)


def _of_bodies(step: FreeStep, rows: Tensor) -> tuple[Tensor, ...]:
    """The quantities `_OF_BODY` (their size, ...) of bodies (...)."""
    bodies, now, free = step.bodies, step.now, step.free
    numbers = [bodies.mass, bodies.length, bodies.rounding, step.relative_step]
    vectors = [now.position, free.velocity, free.angular_velocity, bodies.inertia]
    table = torch.cat([*vectors, now.orientation.flatten(1), torch.stack(numbers, 1)], 1)
    gathered = table.index_select(0, rows.reshape(-1)).T.contiguous()
    return gathered.reshape(-1, *rows.shape).split(_OF_BODY)


def _corner_rows(step: FreeStep, side: _Side) -> CornerContacts:
    """What the network reads of corners of contacts, and where their impulses act."""
    on_fixed = side.other < 0
    ends = torch.stack([step.bodies.owner[side.corner], side.other.clamp(min=0)])
    geometry = side.geometry.T.contiguous().split(_GEOMETRY)
    position, own_normal, other_normal, normal, surface, distance, weight = geometry
    centre, velocity, angular_velocity, inertia, rotation, *numbers = _of_bodies(step, ends)
    masses, lengths, roundings, relative_steps = (values[0] for values in numbers)
    rotation = rotation.reshape(3, 3, *ends.shape)
    mass, unit, relative_step = masses[0], lengths[0], relative_steps[0]
    moves = (~on_fixed).to(position)
    present = torch.stack([torch.ones_like(moves), moves])
    # Share of an impulse's effect on the relative velocity that this body takes.
    mass_share = torch.where(on_fixed, 1.0, masses[1] / (masses[1] + mass))
    rounding = (roundings * present).sum(0)
    # Impulses act in the middle between the rounded surfaces, as in MuJoCo.
    place = position - 0.5 * rounding * normal
    arm = (place[:, None] - centre) * present
    # The corner moves as its body, and the other surface as the other body there.
    read_at = torch.stack([position, place], 1) - centre
    point_velocity = (velocity + cross(angular_velocity, read_at, dim=0)) * present
    # Lengths from here on are in the unit of length.
    offset = (position - surface) / unit
    shift = (point_velocity[:, 0] - point_velocity[:, 1]) * (step.dt / unit)  # in one step
    slip = shift / relative_step
    height = (offset * normal).sum(0) - rounding / unit
    closing = (shift * normal).sum(0)
    moment = rotate_columns_inverse(rotation, cross(arm, normal[:, None].expand_as(arm), dim=0))
    # Velocity along the normal that an impulse of 1 N s along it gives, 1/kg.
    inverse_mass = (((moment * moment / inertia).sum(0) + 1 / masses) * present).sum(0)
    scale = mass * mass_share
    own_rotation = rotation[:, :, 0]
    vectors = [arm[:, 1] / unit, offset, slip, normal, own_normal, other_normal]
    in_own_axes = rotate_columns_inverse(
        own_rotation[:, :, None], torch.stack(vectors, 1)
    )  # (3, 6, K)
    heights = torch.stack([height, height + closing])
    scalars = [
        height * _HEIGHT_SCALE,
        closing / relative_step * _HEIGHT_SCALE,
        heights[1] * _HEIGHT_SCALE,
        *torch.tanh(heights / _CLOSE),
        # About the part of the step after which the corner touches.
        torch.tanh(height / (closing.abs() + _MIN_CLOSING)),
        distance[0] / unit,
        mass_share,
        rounding / unit * _ROUNDING_SCALE,
        1 - moves,
        *torch.tanh(heights / _FINE),
        # Share of the mass that resists an impulse along the normal, 1 through the centre.
        1 / (scale * inverse_mass),
    ]
    corner = gather_rows(step.bodies.corner, side.corner).T / unit
    features = torch.cat([corner, in_own_axes.transpose(0, 1).flatten(0, 1), torch.stack(scalars)])
    return CornerContacts(
        ends=ends,
        present=present,
        features=features.T,
        weight=weight[0],
        scale=scale,
        orientation=own_rotation,
        arm=arm.transpose(0, 1),
        slip=in_own_axes[:, 2],
        height=height,
        normal=in_own_axes[:, 3],
        speed_unit=unit * relative_step / step.dt,
        relative_step=relative_step,
    )


# Numbers that describe a corner of a contact.
CONTACT_FEATURES = 34
# What a corner does after the impulses so far, in the axes of its body.
RESPONSE_FEATURES = 11


def response_features(corners: CornerContacts, velocity: Tensor) -> Tensor:
    """Features (K, 11) of the motion of corners under the impulses of earlier rounds.

    Args:
        corners: The corners.
        velocity: (2, 3, K), relative to the other body, in the axes of the own one, in the unit of
            velocity: after the step, and the mean over it.
    """
    after, mean = (velocity * corners.normal).sum(1)
    height = corners.height + mean * corners.relative_step
    heights = torch.stack([after, height])
    return torch.cat(
        [
            velocity.flatten(0, 1),
            heights * _HEIGHT_SCALE,
            torch.tanh(heights / _CLOSE),
            torch.tanh(height / _FINE)[None],
        ]
    ).T
