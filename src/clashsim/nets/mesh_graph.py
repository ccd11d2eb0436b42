"""A mesh graph network for rigid contact, after FIGNet (Allen et al. 2023) and the few-shot paper
(Eqs. 2 to 4).

Mesh nodes are the corners of bodies, object nodes the bodies; edges are mesh-mesh, object-mesh and
face-face. Every vector that the network sees or says is in the axes of the body whose node it is
about, and velocities are relative ones, so turning, shifting or uniformly moving a scene does the
same to the answer. What a face-face edge says are impulses on the corners of its faces; between two
bodies they sum to zero, on the floor they lie in Coulomb's cone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clashsim.core.floor_scenes import box_contact_params
from clashsim.nets.rigid_bodies import (
    RigidBodies,
    RigidBodyState,
    cross,
    gather_rows,
    match_shape,
    rotate,
    rotate_inverse,
)

LENGTH = 0.05  # m: lengths are told to the network in this unit, velocities in it a step
# M: faces are drawn in by this much for collision detection, so that bodies in contact are still
# apart and nearest points unique
SKIN = 0.004
REACH = 0.02  # m: a face pair this far from contact is an edge
_SHARP, _PUSH = (
    400.0,
    0.05,
)  # how sharply a push ends at zero, and the size of one, in LENGTH a step
# What a network says across the floor counts so many edges of the cone, and slip itself has a small
# say; at _SLOW (m/s) half of it. The shipped network was trained with
# 1 and 0: sliding corners then said 1 to 1.5, in directions that were a little apart. These were
# chosen against MuJoCo.
_GRIP, _AGAINST, _SLOW = 2.0, 0.3, 0.5
_FRICTION = next((p.low, p.high) for p in box_contact_params() if p.name == "friction")
# M: heights are also told on this scale, and as the part of the step after which a corner touches
_CLOSE = 0.003
_FADE = 0.25  # share of the reach over which an edge fades in


@dataclass(frozen=True, eq=False)
class Contacts:
    """C pairs of faces that are near: face (C, 2), the second -1 for the floor; point (C, 2, 3)
    nearest points of the drawn-in faces, world.

    The first `floors` of them are with the floor, the others between two bodies.
    """

    face: Tensor
    point: Tensor
    floors: int


@dataclass(frozen=True, eq=False)
class Floor:
    """The floor as an object: unit normal (3,) and its height (m) along it."""

    normal: Tensor
    height: float = 0.0


def _mlp(inputs: int, hidden: int, outputs: int, *, norm: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs)]
    return nn.Sequential(*layers, *([nn.LayerNorm(outputs)] if norm else []))


class _Joint(nn.Module):
    """An MLP of several inputs side by side; those of nodes are multiplied once a node, not once an
    edge, and only then gathered.
    """

    def __init__(self, parts: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(hidden, hidden)
        self.parts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(parts - 1))
        self.rest = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.LayerNorm(hidden))

    def forward(self, own: Tensor, *parts: Tensor) -> Tensor:
        """own (n, hidden); parts (n, hidden) already multiplied by `part`."""
        total = self.enter(own)
        for p in parts:
            total = total + p
        return self.rest(total)


class _Layer(nn.Module):
    """One round of messages: mesh edges, face-face edges, mesh nodes, object nodes."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mesh, self.near = _Joint(3, hidden), _Joint(4, hidden)
        self.node, self.body = _mlp(4 * hidden, hidden, hidden), _mlp(2 * hidden, hidden, hidden)


class GraphNet(nn.Module):
    """Impulses of contact from bodies in free motion and the face pairs that are near."""

    def __init__(self, contact: int, hidden: int = 64, layers: int = 5) -> None:
        super().__init__()
        self.shape = {"contact": contact, "hidden": hidden, "layers": layers}
        self.node, self.body, self.mesh, self.near = (
            _mlp(6, hidden, hidden),
            _mlp(6 + contact, hidden, hidden),
            _mlp(4, hidden, hidden),
            _mlp(25, hidden, hidden),
        )
        self.layers = nn.ModuleList(_Layer(hidden) for _ in range(layers))
        self.out = _mlp(hidden, hidden, 6, norm=False)
        self.floor = nn.Parameter(
            torch.zeros(hidden)
        )  # the floor's object node: it has no state, so it is the same everywhere
        last = self.out[2]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def _layers(self) -> Iterator[_Layer]:
        for layer in self.layers:
            assert isinstance(layer, _Layer)
            yield layer

    def forward(
        self,
        bodies: RigidBodies,
        now: RigidBodyState,
        free: RigidBodyState,
        contacts: Contacts,
        *,
        floor: Floor,
        dt: float,
    ) -> tuple[Tensor, Tensor]:
        """Linear and angular impulse (O, 2, 3) each on every body, world axes, N s and N m s: what
        changes velocities over the step, and what changes displacements / dt.
        """
        kind = self.floor.dtype
        near = _near(bodies, now, free, contacts, floor, dt)
        unit = dt / LENGTH
        swing = cross(
            gather_rows(rotate_inverse(free.orientation, free.angular_velocity), bodies.owner),
            bodies.corner,
        )
        ratio = bodies.inertia / (bodies.mass[:, None] * LENGTH**2)
        v = self.node(torch.cat([bodies.corner / LENGTH, swing * unit], 1).to(kind))
        o = self.body(
            torch.cat(
                [
                    rotate_inverse(free.orientation, free.angular_velocity) * dt,
                    ratio,
                    bodies.contact,
                ],
                1,
            ).to(kind)
        )
        source, target = bodies.edge
        along = (gather_rows(bodies.corner, source) - gather_rows(bodies.corner, target)) / LENGTH
        e = self.mesh(torch.cat([along, along.norm(dim=1, keepdim=True)], 1).to(kind))
        c = self.near(near.features.to(kind))
        counts = near.weight.to(kind)[:, None]
        fixed = near.other < 0
        for layer in self._layers():
            leave, arrive = (part(v) for part in layer.mesh.parts)
            e = e + layer.mesh(e, gather_rows(leave, source), gather_rows(arrive, target))
            at, own, others = (part(v) for part in layer.near.parts)
            other = torch.where(
                fixed[:, None],
                layer.near.parts[2](self.floor),
                gather_rows(others, near.other_corners.clamp(min=0)).mean(1),
            )
            c = c + layer.near(
                c, gather_rows(at, near.corner), gather_rows(own, near.own_corners).mean(1), other
            )
            from_mesh = torch.zeros_like(v).index_add(0, target, e)
            from_near = torch.zeros_like(v).index_add(0, near.corner, counts * c)
            v = v + layer.node(
                torch.cat([v, from_mesh, from_near, gather_rows(o, bodies.owner)], 1)
            )
            o = o + layer.body(torch.cat([o, torch.zeros_like(o).index_add(0, bodies.owner, v)], 1))
        said = rotate(
            gather_rows(now.orientation, bodies.owner[near.corner])[:, None],
            self.out(c).to(now.position.dtype).reshape(-1, 2, 3),
        )
        friction = gather_rows(friction_of(bodies.contact[:, 0]), bodies.owner[near.corner])
        said = torch.where(
            fixed[:, None, None],
            _in_cone(said, near.slip / dt, floor.normal.to(said), friction),
            said,
        )
        impulse = _balanced(
            near, said * (near.weight * near.scale * LENGTH / dt)[:, None, None], len(contacts.face)
        )
        zero, body = (
            torch.zeros(len(bodies), 2, 3, dtype=impulse.dtype, device=impulse.device),
            bodies.owner[near.corner],
        )
        twist = cross(near.arm[:, None].expand_as(impulse), impulse) - _couple(
            near, now, body, impulse, len(contacts.face)
        )
        return zero.index_add(0, body, impulse), zero.index_add(0, body, twist)


@dataclass(frozen=True, eq=False)
class _Near:
    """Corners of near faces: K = 3 a side. corner (K,) node; own_corners, other_corners (K, 3)
    nodes of both faces, -1 for the floor; other (K,) other body; contact (K,) which contact;
    features (K, f); weight (K,) 0 to 1; scale (K,) kg; arm (K, 3) m, where an impulse acts, from
    the centre of mass; slip (K, 3) m a step, against the other body in free motion.
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


def weight(towards: Tensor, distance: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """How much contacts count (C,): they fade out towards the end of the reach, and as one of the
    faces, with normals (C, 3), turns away.
    """
    reach = 2 * SKIN + REACH
    facing = ((own * towards).sum(1) / 0.2).clamp(0, 1) * (-(other * towards).sum(1) / 0.2).clamp(
        0, 1
    )
    return ((reach - distance) / (_FADE * reach)).clamp(0, 1) * facing


def _near(
    bodies: RigidBodies,
    now: RigidBodyState,
    free: RigidBodyState,
    contacts: Contacts,
    floor: Floor,
    dt: float,
) -> _Near:
    """Features of the corners of every near face, from its own side: in the axes of its own body."""
    parts = [_side(bodies, now, free, contacts, floor, dt, side) for side in (0, 1)]
    return _Near(*(torch.cat([getattr(p, k) for p in parts]) for k in _Near.__dataclass_fields__))


def _side(
    bodies: RigidBodies,
    now: RigidBodyState,
    free: RigidBodyState,
    contacts: Contacts,
    floor: Floor,
    dt: float,
    side: int,
) -> _Near:
    rows = torch.arange(
        contacts.floors if side else 0, len(contacts.face), device=contacts.face.device
    )
    own, other = contacts.face[rows, side], contacts.face[rows, 1 - side]
    body = bodies.face_owner[own]
    fixed = other < 0
    other_body = torch.where(fixed, -1, bodies.face_owner[other.clamp(min=0)])
    at = other_body.clamp(min=0)
    moving = (~fixed)[:, None].to(now.position.dtype)
    p_own, p_other = (
        gather_rows(contacts.point[:, side], rows),
        gather_rows(contacts.point[:, 1 - side], rows),
    )
    n_own = rotate(gather_rows(now.orientation, body), bodies.normal[own])
    n_other = torch.where(
        fixed[:, None],
        floor.normal.to(p_own),
        rotate(gather_rows(now.orientation, at), bodies.normal[other.clamp(min=0)]),
    )
    apart = p_other - p_own
    distance = torch.sqrt((apart * apart).sum(1) + 1e-16)
    towards = apart / distance[:, None]
    share = torch.where(
        fixed,
        torch.ones_like(distance),
        gather_rows(bodies.mass, at)
        / (gather_rows(bodies.mass, at) + gather_rows(bodies.mass, body)),
    )
    counts = weight(towards, distance, n_own, n_other)
    k = bodies.face[own]  # (C, 3) corners
    arm = rotate(gather_rows(now.orientation, body)[:, None], gather_rows(bodies.corner, k))
    spot = gather_rows(now.position, body)[:, None] + arm
    speed = gather_rows(free.velocity, body)[:, None] + cross(
        gather_rows(free.angular_velocity, body)[:, None].expand_as(arm), arm
    )
    lever = p_other - gather_rows(now.position, at)
    speed_other = moving * (
        gather_rows(free.velocity, at) + cross(gather_rows(free.angular_velocity, at), lever)
    )
    axes = gather_rows(now.orientation, body)[:, None]
    away, slip = spot - p_other[:, None], (speed - speed_other[:, None]) * dt
    normal = n_other[:, None].expand_as(away)
    rounding = gather_rows(bodies.rounding, body) + torch.where(
        fixed, 0.0, gather_rows(bodies.rounding, at)
    )
    height, closing = (
        (away * normal).sum(-1, keepdim=True) - rounding[:, None, None],
        (slip * normal).sum(-1, keepdim=True),
    )
    acts = arm - 0.5 * rounding[:, None, None] * normal  # between the surfaces, as MuJoCo has it
    wide = away.shape[:2]
    features = torch.cat(
        [
            rotate_inverse(axes, away) / LENGTH,
            rotate_inverse(axes, slip) / LENGTH,
            rotate_inverse(axes, normal),
            rotate_inverse(axes, n_own[:, None].expand_as(away)),
            rotate_inverse(axes, apart[:, None].expand_as(away)) / LENGTH,
            height / LENGTH * 4,
            closing / LENGTH * 4,
            (height + closing) / LENGTH * 4,
            torch.tanh(height / _CLOSE),
            torch.tanh((height + closing) / _CLOSE),
            torch.tanh(height / (closing.abs() + 0.1 * _CLOSE)),
            (distance / LENGTH)[:, None, None].expand(*wide, 1),
            share[:, None, None].expand(*wide, 1),
            (rounding / LENGTH * 10)[:, None, None].expand(*wide, 1),
            fixed[:, None, None].to(away.dtype).expand(*wide, 1),
        ],
        -1,
    ).flatten(0, 1)
    thrice = torch.arange(len(rows), device=rows.device).repeat_interleave(3)
    o_corners = torch.where(fixed[:, None], -1, bodies.face[other.clamp(min=0)])
    scale = (gather_rows(bodies.mass, body) * share).repeat_interleave(3)
    return _Near(
        k.reshape(-1),
        k[thrice],
        o_corners[thrice],
        other_body[thrice],
        rows[thrice],
        features,
        gather_rows(counts, thrice),
        scale,
        acts.reshape(-1, 3),
        slip.reshape(-1, 3),
    )


def friction_of(unit: Tensor) -> Tensor:
    """Friction from its place on the unit scale of `box_contact_params`."""
    low, high = _FRICTION
    return low * (high / low) ** ((unit + 1) / 2)


def _in_cone(said: Tensor, slip: Tensor, normal: Tensor, friction: Tensor) -> Tensor:
    """Impulses (K, 2, 3) within Coulomb's cones about `normal` (3,): a push off from the floor, and
    across it at most `friction` (K,) times as much, with slip (K, 3) having a say.

    MuJoCo's impulses lie there at each substep, so their sums do. A body that slides takes the
    cone's edge, so its deceleration is right to the normal impulse's own error; a network that says
    impulses freely is off by some percent of friction, and stops in another place.
    """
    along = said @ normal
    sliding = slip - (slip @ normal)[:, None] * normal
    against = sliding / (torch.sqrt((sliding * sliding).sum(-1, keepdim=True) + 1e-12) + _SLOW)
    across = _GRIP * (said - along[..., None] * normal) - _AGAINST * against[:, None]
    push = torch.nn.functional.softplus(_SHARP * _PUSH * along - 2.0) / _SHARP
    size = (across * across).sum(-1, keepdim=True)
    return push[..., None] * (
        normal + friction[:, None, None] * across / size.clamp(min=1.0).sqrt()
    )


def _balanced(near: _Near, impulse: Tensor, contacts: int) -> Tensor:
    """Impulses (K, 2, 3) of which those of one contact between two bodies sum to zero."""
    pair = near.other >= 0
    total = torch.zeros(contacts, 2, 3, dtype=impulse.dtype, device=impulse.device).index_add(
        0, near.contact, impulse * pair[:, None, None]
    )
    return impulse - gather_rows(total, near.contact) / 6 * pair[:, None, None]


def _couple(
    near: _Near, now: RigidBodyState, body: Tensor, impulse: Tensor, contacts: int
) -> Tensor:
    """What balanced impulses (K, 2, 3) of a contact between two bodies add to angular momentum,
    shared out over its corners, to be taken away again.
    """
    pair = (near.other >= 0)[:, None, None]
    spot = (gather_rows(now.position, body) + near.arm)[:, None].expand_as(impulse)
    total = torch.zeros(contacts, 2, 3, dtype=impulse.dtype, device=impulse.device).index_add(
        0, near.contact, cross(spot, impulse) * pair
    )
    return gather_rows(total, near.contact) / 6 * pair


def step_with_contacts(
    net: GraphNet,
    bodies: RigidBodies,
    now: RigidBodyState,
    free: RigidBodyState,
    contacts: Contacts,
    *,
    floor: Floor,
    dt: float,
) -> RigidBodyState:
    """The state after one step: corners moved by Verlet's rule, then made rigid again by shape
    matching.

    With p(t - dt) = p(t) - dt v and the acceleration of free motion put apart, Verlet's p(t + dt) =
    2 p(t) - p(t - dt) + dt^2 a is the corner of free motion plus dt^2 times the acceleration that
    contact adds. Velocities get the impulses themselves.
    """
    if len(contacts.face) == 0:
        return free
    linear, angular = net(bodies, now, free, contacts, floor=floor, dt=dt)
    push, shift = (linear / bodies.mass[:, None, None]).unbind(1)
    twist, roll = rotate(
        free.orientation[:, None],
        rotate_inverse(free.orientation[:, None], angular) / bodies.inertia[:, None],
    ).unbind(1)
    arm = rotate(gather_rows(free.orientation, bodies.owner), bodies.corner)
    acceleration = (
        gather_rows(shift, bodies.owner) + cross(gather_rows(roll, bodies.owner), arm)
    ) / dt  # (V, 3), of mesh nodes (Eq. 4), by contact
    place, turn = match_shape(
        bodies, gather_rows(free.position, bodies.owner) + arm + dt * dt * acceleration
    )
    return RigidBodyState(place, turn, free.velocity + push, free.angular_velocity + twist)
