"""Random initial states of bodies above a floor, in a row, stacked, and by walls or a fixed box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.convex_mesh import ConvexBody

_FAR = 1e3  # unit lengths: depth of planes that are not used
_FACE_DOWN = 0.65  # share of bodies on the floor that lie on a face
_TOSSED_FACE_DOWN = 0.15
_STACKED = 0.3  # share of the scenes of several bodies in which they are above each other
_ON_TOP = 0.6  # share of the scenes with a fixed box in which the first body is above it
_SECOND_WALL = 0.4
_GAP = (0.05, 1.0)  # unit lengths, between bodies of a row
_STACK_GAP = (0.0, 0.3)
_WALL_GAP = (0.1, 2.0)
_SIDEWAYS = 0.5  # unit lengths
_LIFT = 0.3  # unit lengths, of bodies that do not lie on a face
_OVERHANG = 0.8  # unit lengths, by which a body above a fixed box may be beside it
_VERTICAL = (-2.3, 0.4)  # in the unit of speed, sqrt(9.81 length)
_LEAST_PUSH = 0.25  # of the largest speed
_STACK_SPEED = 0.4  # of the largest speed


@dataclass(frozen=True)
class StartRanges:
    """How bodies start; speeds in sqrt(9.81 length), rotation in sqrt(9.81 / length).

    Attributes:
        speed: Largest speed.
        angular_speed: Root mean square angular speed.
        drop: Largest height above the floor, unit lengths.
        walls: Share of the scenes with a wall.
    """

    speed: float = 2.6
    angular_speed: float = 0.43
    drop: float = 0.6
    walls: float = 0.0


@dataclass(frozen=True, eq=False)
class Start:
    """Start of one trajectory.

    Attributes:
        state: (13 k,), qpos then qvel.
        planes: (W, 4), unit normals and heights (m) of the floor and of walls.
        fixed: (3,), m, position of the fixed box.
    """

    state: np.ndarray
    planes: np.ndarray
    fixed: np.ndarray


def random_start(
    bodies: Sequence[ConvexBody],
    rounding: np.ndarray,
    ranges: StartRanges,
    rng: np.random.Generator,
    *,
    length: float,
    planes: int,
    fixed_half: np.ndarray | None,
) -> Start:
    """A random start.

    Args:
        bodies: The k bodies.
        rounding: (k,), m.
        ranges: How they start.
        rng: Random numbers.
        length: m, unit of length of the scene.
        planes: Number of planes, the floor included.
        fixed_half: (3,), m, half sizes of the fixed box; None for none.
    """
    k = len(bodies)
    unit_speed = np.sqrt(9.81 * length)
    angle = rng.uniform(0, 2 * np.pi)
    heading = np.array([np.cos(angle), np.sin(angle), 0.0])
    left = np.array([-heading[1], heading[0], 0.0])
    stacked = k > 1 and rng.uniform() < _STACKED
    poses = []
    velocities = np.zeros((k, 6))
    along = 0.0
    above = 0.0
    for i, body in enumerate(bodies):
        is_tossed = k == 1
        lies = rng.uniform() < (_TOSSED_FACE_DOWN if is_tossed else _FACE_DOWN)
        rotation = face_down(body, rng) if lies else Rotation.random(rng=rng)
        corners = np.concatenate([part.corners for part in body.parts]) @ rotation.as_matrix().T
        shift = left * rng.uniform(-_SIDEWAYS, _SIDEWAYS) * length
        lowest = corners[:, 2].min() - rounding[i]
        lift = 0.0 if lies else rng.uniform(0, ranges.drop if is_tossed else _LIFT) * length
        if stacked:
            shift[2] = above + lift - lowest
            top = shift[2] + corners[:, 2].max() + rounding[i]
            above = top + rng.uniform(*_STACK_GAP) * length
        else:
            reach = corners @ heading
            gap = rng.uniform(*_GAP) * length if i else 0.0
            shift += heading * (along + gap + rounding[i] - reach.min())
            shift[2] = lift - lowest
            along += gap + np.ptp(reach) + 2 * rounding[i]
        poses.append((rotation, shift, corners + shift))
    if k == 1:
        velocities[0] = _tossed(ranges, rng) * np.repeat([unit_speed, unit_speed / length], 3)
    else:
        least, most = (0.0, _STACK_SPEED) if stacked else (_LEAST_PUSH, 1.0)
        velocities[0, :3] = heading * rng.uniform(least, most) * ranges.speed * unit_speed
    all_corners = np.concatenate([corners for _, _, corners in poses])
    fixed = np.zeros(3)
    raise_by = np.zeros(3)
    if fixed_half is not None:
        on_top = rng.uniform() < _ON_TOP
        if on_top:
            fixed = _below(poses[0][2], fixed_half, rng, length=length)
            raise_by[2] = 2 * fixed_half[2]
        else:
            end = (all_corners @ heading).max() + rng.uniform(*_GAP) * length
            fixed = heading * (end + float(np.abs(heading) @ fixed_half))
            fixed += left * float(poses[-1][1] @ left)
        fixed[2] = fixed_half[2]
    qpos = [np.r_[s + raise_by, r.as_quat(scalar_first=True)] for r, s, _ in poses]
    surfaces = _planes(all_corners, heading, ranges, rng, length=length, planes=planes)
    return Start(np.concatenate([*qpos, velocities.ravel()]), surfaces, fixed)


def _below(
    corners: np.ndarray, fixed_half: np.ndarray, rng: np.random.Generator, *, length: float
) -> np.ndarray:
    """Position (3,), m, of a fixed box that a body of some corners may come down on, or beside."""
    limit = fixed_half[:2] + _OVERHANG * length
    return np.array([*(corners.mean(0)[:2] + rng.uniform(-limit, limit)), 0.0])


def face_down(body: ConvexBody, rng: np.random.Generator) -> Rotation:
    """A random orientation in which a face of the body's hull lies on the floor, below its centre.

    A compound lies on a face of its first mesh.
    """
    mesh = body.parts[0]
    normals = mesh.normals()
    triangles = mesh.corners[mesh.faces]
    sides = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    area = np.linalg.norm(np.cross(*sides), axis=1)
    face = int(rng.choice(len(area), p=area / area.sum()))
    down, _ = Rotation.align_vectors([[0.0, 0.0, -1.0]], normals[face][None])
    return Rotation.from_rotvec([0, 0, rng.uniform(0, 2 * np.pi)]) * down


def _tossed(ranges: StartRanges, rng: np.random.Generator) -> np.ndarray:
    """Velocity and angular velocity (6,) of a tossed body, in units of speed and rotation."""
    angle = rng.uniform(0, 2 * np.pi)
    speed = ranges.speed * np.sqrt(rng.uniform())
    low, high = _VERTICAL
    share = min(1.0, ranges.speed / -low)
    vertical = rng.uniform(low, high) * share
    angular = rng.normal(size=3) * ranges.angular_speed / np.sqrt(3)
    return np.r_[speed * np.cos(angle), speed * np.sin(angle), vertical, angular]


def _planes(
    corners: np.ndarray,
    heading: np.ndarray,
    ranges: StartRanges,
    rng: np.random.Generator,
    *,
    length: float,
    planes: int,
) -> np.ndarray:
    """The floor, then walls ahead and beside, (planes, 4); those not used are far below."""
    surfaces = np.tile([0.0, 0.0, 1.0, -_FAR * length], (planes, 1))
    surfaces[0, 3] = 0.0
    if planes == 1 or rng.uniform() >= ranges.walls:
        return surfaces
    turn = Rotation.from_rotvec([0, 0, rng.uniform(-0.4, 0.4)])
    sides = [turn.apply(heading)]
    if planes > 2 and rng.uniform() < _SECOND_WALL:
        sides.append(np.cross([0, 0, rng.choice([-1.0, 1.0])], sides[0]))
    for i, towards in enumerate(sides):
        end = (corners @ towards).max() + rng.uniform(*_WALL_GAP) * length
        surfaces[1 + i] = [*-towards, -end]
    return surfaces
