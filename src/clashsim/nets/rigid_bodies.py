"""Rigid bodies as meshes, many scenes in one set of flat arrays, and the rigid-body arithmetic on
them in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from clashsim.core.box import SUBSTEPS, Box

# Triangles of a box over the corners of `Box.corners`, seen from outside counter-clockwise.
TRIANGLES = np.array(
    [
        [0, 1, 3],
        [0, 3, 2],
        [4, 6, 7],
        [4, 7, 5],
        [0, 4, 5],
        [0, 5, 1],
        [2, 3, 7],
        [2, 7, 6],
        [0, 2, 6],
        [0, 6, 4],
        [1, 5, 7],
        [1, 7, 3],
    ]
)


@dataclass(frozen=True, eq=False)
class RigidBodies:
    """O bodies with V corners and F faces in all; bodies of one scene collide, those of different
    scenes do not.

    corner (V, 3) m, from the centre of mass, body axes; owner (V,) body of a corner; face (F, 3)
    corners; face_owner (F,); normal (F, 3) outward, body axes; edge (2, E) mesh edges, both ways;
    mass (O,) kg; inertia (O, 3) kg m^2 along the body's axes; centre (O, 3) m, of mass, in the axes
    of the body's origin; contact (O, c) parameters of the contact on the unit scale; scene (O,);
    drag (O,) 1/s; rounding (O,) m, how far the surface lies outside of the mesh.
    """

    corner: Tensor
    owner: Tensor
    face: Tensor
    face_owner: Tensor
    normal: Tensor
    edge: Tensor
    mass: Tensor
    inertia: Tensor
    centre: Tensor
    contact: Tensor
    scene: Tensor
    drag: Tensor
    rounding: Tensor

    def __len__(self) -> int:
        return len(self.mass)

    @staticmethod
    def boxes(
        boxes: Sequence[Box],
        contact: np.ndarray,
        *,
        scene: Sequence[int] | None = None,
        drag: float = 0.0,
        rounding: float = 0.0,
    ) -> RigidBodies:
        """Boxes (O) with contact parameters (c,) or (O, c); by default each is a scene of its own."""
        count = len(boxes)
        half, centre = (
            torch.tensor(np.array([getattr(b, k) for b in boxes]), dtype=torch.float64)
            for k in ("half", "centre")
        )
        contact_rows = torch.tensor(
            np.broadcast_to(contact, (count, np.shape(contact)[-1])).copy(), dtype=torch.float64
        )
        mass, inertia = (
            torch.tensor([b.mass for b in boxes], dtype=torch.float64),
            torch.tensor([b.inertia for b in boxes], dtype=torch.float64),
        )
        where = torch.arange(count) if scene is None else torch.as_tensor(list(scene))
        return boxes_from_tensors(
            half,
            mass,
            inertia,
            centre,
            contact_rows,
            where,
            *(torch.full((count,), v, dtype=torch.float64) for v in (drag, rounding)),
        )

    def to(self, device: str | torch.device) -> RigidBodies:
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})


def boxes_from_tensors(
    half: Tensor,
    mass: Tensor,
    inertia: Tensor,
    centre: Tensor,
    contact: Tensor,
    scene: Tensor,
    drag: Tensor,
    rounding: Tensor,
) -> RigidBodies:
    """Boxes from tensors, gradients of half sizes, inertia and centres included."""
    count, device = len(half), half.device
    signs = torch.tensor(
        [[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)],
        dtype=half.dtype,
        device=device,
    )
    corner = (signs * half[:, None] - centre[:, None]).reshape(-1, 3)
    bodies = torch.arange(count, device=device)
    triangles = torch.as_tensor(TRIANGLES, device=device)
    face = (triangles + 8 * bodies[:, None, None]).reshape(-1, 3)
    a, b, c = (corner.detach()[face[:, i]] for i in range(3))
    normal = torch.nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=-1)
    pairs = sorted(
        {tuple(sorted((int(t[i]), int(t[(i + 1) % 3])))) for t in TRIANGLES for i in range(3)}
    )
    both = torch.tensor([*pairs, *((j, i) for i, j in pairs)], device=device).T
    edge = (both[:, None] + 8 * bodies[:, None]).reshape(2, -1)
    return RigidBodies(
        corner,
        bodies.repeat_interleave(8),
        face,
        bodies.repeat_interleave(12),
        normal,
        edge,
        mass,
        inertia,
        centre,
        contact,
        scene.to(device),
        drag,
        rounding,
    )


def join_bodies(parts: Sequence[RigidBodies]) -> RigidBodies:
    """Sets of bodies as one; their scenes stay apart."""
    corners, bodies, scenes = 0, 0, 0
    out: dict[str, list[Tensor]] = {f.name: [] for f in fields(RigidBodies)}
    for p in parts:
        shifts = {
            "owner": bodies,
            "face": corners,
            "face_owner": bodies,
            "edge": corners,
            "scene": scenes,
        }
        for name, values in out.items():
            values.append(getattr(p, name) + shifts[name] if name in shifts else getattr(p, name))
        corners, bodies, scenes = (
            corners + len(p.corner),
            bodies + len(p),
            scenes + int(p.scene.max()) + 1,
        )
    return RigidBodies(
        **{name: torch.cat(values, dim=1 if name == "edge" else 0) for name, values in out.items()}
    )


@dataclass(frozen=True, eq=False)
class RigidBodyState:
    """Motion of O bodies: place (O, 3) of the centre of mass, turn (O, 3, 3), velocity (O, 3) and
    spin (O, 3), all in world axes.
    """

    position: Tensor
    orientation: Tensor
    velocity: Tensor
    angular_velocity: Tensor


def gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """values[rows] for rows of any shape; by index_select, whose slopes are sums and not sorts."""
    return values.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *values.shape[1:])


def cross(a: Tensor, b: Tensor) -> Tensor:
    """a x b along the last axis."""
    return torch.linalg.cross(a, b, dim=-1)


def rotate(turn: Tensor, vector: Tensor) -> Tensor:
    """turn (..., 3, 3) times vector (..., 3)."""
    return (turn @ vector[..., None])[..., 0]


def rotate_inverse(turn: Tensor, vector: Tensor) -> Tensor:
    """Transposed turn (..., 3, 3) times vector (..., 3)."""
    return (turn.transpose(-1, -2) @ vector[..., None])[..., 0]


def rotation_from_vector(vector: Tensor) -> Tensor:
    """Rotations (..., 3, 3) by vectors (..., 3), smooth at zero."""
    angle2 = (vector * vector).sum(-1)[..., None, None]
    angle = torch.sqrt(angle2 + 1e-24)
    zero = torch.zeros_like(vector[..., 0])
    x, y, z = vector.unbind(-1)
    skew = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(
        *vector.shape[:-1], 3, 3
    )
    small = angle2 < 1e-8
    first = torch.where(small, 1 - angle2 / 6, torch.sin(angle) / angle)
    second = torch.where(small, 0.5 - angle2 / 24, (1 - torch.cos(angle)) / (angle2 + 1e-24))
    return (
        torch.eye(3, dtype=vector.dtype, device=vector.device)
        + first * skew
        + second * (skew @ skew)
    )


def free_motion(
    bodies: RigidBodies, state: RigidBodyState, gravity: Tensor, dt: float
) -> RigidBodyState:
    """Free motion for one step as MuJoCo has it in `SUBSTEPS` of Euler's: it falls by dt^2 g (1 + 1
    / SUBSTEPS) / 2.
    """
    local = rotate_inverse(state.orientation, state.angular_velocity)

    def torque_free(spin: Tensor) -> Tensor:
        return -cross(spin, bodies.inertia * spin) / bodies.inertia

    middle = local + 0.5 * dt * torque_free(local)
    after = local + dt * torque_free(middle)
    turn = state.orientation @ rotation_from_vector(dt * 0.5 * (local + after))
    slow = torch.exp(-bodies.drag * dt)[:, None]
    velocity = slow * state.velocity + dt * gravity
    place = (
        state.position
        + dt * 0.5 * (1 + slow) * state.velocity
        + 0.5 * (1 + 1 / SUBSTEPS) * dt * dt * gravity
    )
    return RigidBodyState(place, turn, velocity, rotate(turn, after))


def match_shape(bodies: RigidBodies, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Shape matching (Mueller et al. 2005): place (O, 3) and turn (O, 3, 3) of the rigid bodies
    nearest to moved corners (V, 3).

    The turn is the polar factor by Newton's iteration: through a singular value decomposition the
    slopes of a cube, whose singular values are all the same, are not finite.
    """
    count = len(bodies)
    ones = torch.zeros(count, dtype=nodes.dtype, device=nodes.device).index_add(
        0, bodies.owner, torch.ones_like(nodes[:, 0])
    )[:, None]

    def mean(values: Tensor) -> Tensor:
        return (
            torch.zeros(count, values.shape[-1], dtype=nodes.dtype, device=nodes.device).index_add(
                0, bodies.owner, values
            )
            / ones
        )

    rest, moved = mean(bodies.corner), mean(nodes)
    a, b = nodes - gather_rows(moved, bodies.owner), bodies.corner - gather_rows(rest, bodies.owner)
    turn = mean((a[:, :, None] * b[:, None]).reshape(-1, 9)).reshape(-1, 3, 3)
    spread = mean((b[:, :, None] * b[:, None]).reshape(-1, 9)).reshape(-1, 3, 3)
    turn = turn @ _inverse_transposed(
        spread
    )  # the best linear map (the spread is symmetric); near a rotation
    for _ in range(6):
        turn = 0.5 * (turn + _inverse_transposed(turn))
    return moved - rotate(turn, rest), turn


def _inverse_transposed(m: Tensor) -> Tensor:
    a, b, c = m.unbind(-1)
    bc = cross(b, c)
    return torch.stack([bc, cross(c, a), cross(a, b)], -1) / (a * bc).sum(-1)[..., None, None]
