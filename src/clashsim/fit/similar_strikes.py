"""Strikes like the recorded ones: blends of two recorded impacts that touch near each other.

Where nobody gave ranges of strikes, the recordings are the only evidence of what can be made: how
fast, from where, and where on the body. A body that joints carry can only be where they let it, so
its pose is a recorded one, or is put back onto the joints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.contact_frame import ContactFrame, contact_frame
from clashsim.core.contact_geometry import Contact, PairPoser, closing_speed
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore, MovingBody
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene

SPEED_MARGIN = 0.1  # share of a speed by which proposed ranges exceed the recorded one
_ANGLE_MARGIN = np.radians(8)  # likewise of the angle between velocity and normal
_RATE_MARGIN = 0.2  # likewise a share of the struck body's angular speed
_PLACE_MARGIN = 0.1  # likewise of the box of contact points, a share of its largest side
_BLENDED = (-0.15, 1.15)  # from one recorded impact, 0, to another, 1
_NEAR_SHARE = 0.3  # of the recorded impacts that count as near another one, but
_MIN_NEAR = 3
_TRIED_PER_STRIKE = 3
_MOST_TRIED_WITH_JOINTS = 600  # inverse kinematics takes a millisecond each
_SMALLEST_SPEED = 1e-6  # m/s; slower strikes have no direction
# By how much joints may miss a pose at which bodies touch: m, and cosine of a rotation.
_REACHED_DISTANCE = 1e-3
_REACHED_COSINE = np.cos(0.02 / 2)
_LIMIT_SLACK = 1e-6  # rad or m


@dataclass(frozen=True, eq=False)
class SimilarStrikes:
    """N strikes like the recorded ones, with the bodies touching.

    Attributes:
        before: (N, d), as in `Impacts`.
        speed: (N,), m/s: see `strike_speed`.
        deflection: (N,), rad, angle between the approach velocity and the contact normal.
        spin: (N,), rad/s, angular speed of the struck body before contact.
        touch: (N, 2 or 3), m, contact points in the struck body's axes.
    """

    before: np.ndarray
    speed: np.ndarray
    deflection: np.ndarray
    spin: np.ndarray
    touch: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> SimilarStrikes:
        return SimilarStrikes(
            self.before[rows],
            self.speed[rows],
            self.deflection[rows],
            self.spin[rows],
            self.touch[rows],
        )

    def __len__(self) -> int:
        return len(self.before)

    @staticmethod
    def of(scene: Scene, before: np.ndarray, contact: Contact) -> SimilarStrikes:
        """Describe touching pairs `before` (N, d)."""
        motion = MotionBefore.of(before)
        approach = _approach(scene, motion, contact)
        speed = np.linalg.norm(approach, axis=1)
        closing = np.einsum("ni,ni->n", approach, contact.normal)
        cosine = closing / np.maximum(speed, _SMALLEST_SPEED)
        angular = motion.struck.angular_velocity
        spin = np.abs(angular) if motion.struck.planar else np.linalg.norm(angular, axis=1)
        pose = _Poses.of(motion.struck)
        away = _in_space(contact.point - motion.struck.position)
        touch = pose.rotation.apply(away, inverse=True)
        return SimilarStrikes(
            before,
            speed,
            np.arccos(np.clip(cosine, -1, 1)),
            spin,
            touch[:, : contact.point.shape[1]],
        )


def speed_range(scene: Scene, recorded: np.ndarray) -> tuple[float, float]:
    """Speeds (m/s) that are proposed after recorded strikes: theirs, a little widened.

    Args:
        scene: The scene.
        recorded: Motion (N, d) before recorded impacts, as in `Impacts`.
    """
    speed = _described(scene, recorded)[0].speed
    return (1 - SPEED_MARGIN) * float(speed.min()), (1 + SPEED_MARGIN) * float(speed.max())


def similar_strikes(
    scene: Scene,
    recorded: np.ndarray,
    rng: np.random.Generator,
    *,
    n: int,
    speed: tuple[float, float],
) -> SimilarStrikes:
    """Make at most n strikes within the range of recorded ones.

    Args:
        scene: The scene.
        recorded: Motion (N, d) before recorded impacts, as in `Impacts`.
        rng: Random numbers.
        n: Largest number of strikes.
        speed: Lowest and highest speed, m/s.

    Returns:
        Those of the strikes tried that touch the body where it was touched, from the side from
        which it was, and that the joints of both bodies allow.
    """
    examples, _ = _described(scene, recorded)
    bodies = (scene.struck_body, scene.striker_body)
    num_tried = _TRIED_PER_STRIKE * n
    if any(body.mechanism is not None for body in bodies):
        num_tried = min(num_tried, _MOST_TRIED_WITH_JOINTS)
    first = rng.integers(len(examples), size=num_tried)
    second = _neighbour_of_each(examples, first, rng)
    before = _blended(scene, examples.before[first], examples.before[second], rng)
    tried = _touching(scene, before)
    if len(tried) == 0:
        return tried
    aimed = rng.uniform(*speed, len(tried))
    _scale_velocities(scene, tried.before, aimed / np.maximum(tried.speed, _SMALLEST_SPEED))
    tried = _touching(scene, tried.before)
    return tried[_within(examples, tried, speed)][:n]


def _described(scene: Scene, before: np.ndarray) -> tuple[SimilarStrikes, ContactFrame]:
    """Pairs `before` (N, d) brought into contact, and their contact frames."""
    planar = scene.plane is not None
    impacts = Impacts(planar, before, np.zeros((len(before), 3 if planar else 6)))
    frame = contact_frame(scene, impacts, strict=False)
    return SimilarStrikes.of(scene, frame.before, frame.contact), frame


def _touching(scene: Scene, before: np.ndarray) -> SimilarStrikes:
    """Those of the pairs `before` (N, d) that meet where the joints of both bodies allow it."""
    placed, _ = _put_on_joints(scene, before)
    found, frame = _described(scene, placed)
    meets = frame.contact.touching & (closing_speed(frame.before, frame.contact) > 0)
    found, contact = found[meets], frame.contact[meets]
    on_joints, reached = _put_on_joints(scene, found.before)
    return SimilarStrikes.of(scene, on_joints[reached], contact[reached])


def _within(
    examples: SimilarStrikes, tried: SimilarStrikes, speed: tuple[float, float]
) -> np.ndarray:
    """Indices of the strikes within the range of the recorded ones."""
    low, high = examples.touch.min(0), examples.touch.max(0)
    margin = _PLACE_MARGIN * float((high - low).max())
    is_on_side = ((tried.touch >= low - margin) & (tried.touch <= high + margin)).all(1)
    fits = (tried.speed >= speed[0]) & (tried.speed <= speed[1])
    fits &= tried.deflection <= examples.deflection.max() + _ANGLE_MARGIN
    fits &= tried.spin <= (1 + _RATE_MARGIN) * examples.spin.max() + _SMALLEST_SPEED
    return np.flatnonzero(is_on_side & fits)


def _neighbour_of_each(
    examples: SimilarStrikes, first: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """For each of the impacts `first` (T,) one that touches the body near it, (T,)."""
    away = np.linalg.norm(examples.touch[:, None] - examples.touch[None], axis=2)
    num_near = min(max(_MIN_NEAR, round(_NEAR_SHARE * len(examples))), len(examples) - 1)
    order = np.argsort(away, axis=1)  # each is its own nearest
    picked = rng.integers(num_near + 1, size=len(first))
    neighbours: np.ndarray = order[first, picked]
    return neighbours


@dataclass(frozen=True, eq=False)
class _Poses:
    """Poses and twists of one body in N impacts, in space; a plane is that of x and y.

    Attributes:
        position: (N, 3), m.
        rotation: N rotations, body to world axes.
        linear: (N, 3), m/s.
        angular: (N, 3), rad/s.
    """

    position: np.ndarray
    rotation: Rotation
    linear: np.ndarray
    angular: np.ndarray

    @staticmethod
    def of(body: MovingBody) -> _Poses:
        """Read the columns of a body."""
        if body.planar:
            upwards = np.array([0.0, 0.0, 1.0])
            rotation = Rotation.from_rotvec(body.yaw[:, None] * upwards)
            angular = body.angular_velocity[:, None] * upwards
        else:
            rotation = Rotation.from_quat(body.quaternion, scalar_first=True)
            angular = body.angular_velocity
        return _Poses(_in_space(body.position), rotation, _in_space(body.velocity), angular)

    def seen_from(self, base: _Poses) -> _Poses:
        """The same in the axes of another body; velocities stay relative to the world."""
        inverse = base.rotation.inv()
        return _Poses(
            inverse.apply(self.position - base.position),
            inverse * self.rotation,
            inverse.apply(self.linear),
            inverse.apply(self.angular),
        )

    def moved_with(self, base: _Poses) -> _Poses:
        """The inverse of `seen_from`."""
        return _Poses(
            base.position + base.rotation.apply(self.position),
            base.rotation * self.rotation,
            base.rotation.apply(self.linear),
            base.rotation.apply(self.angular),
        )

    def blended(self, other: _Poses, share: np.ndarray) -> _Poses:
        """Poses and twists between these (share 0) and others (1); shares (N,) may leave 0 to 1."""
        turn = (self.rotation.inv() * other.rotation).as_rotvec()
        part = share[:, None]
        return _Poses(
            (1 - part) * self.position + part * other.position,
            self.rotation * Rotation.from_rotvec(part * turn),
            (1 - part) * self.linear + part * other.linear,
            (1 - part) * self.angular + part * other.angular,
        )

    def write(self, body: MovingBody) -> None:
        """Write to the columns of a body."""
        dim = body.position.shape[1]
        body.position[:] = self.position[:, :dim]
        body.velocity[:] = self.linear[:, :dim]
        if body.planar:
            body.yaw[:] = self.rotation.as_rotvec()[:, 2]
            body.angular_velocity[:] = self.angular[:, 2]
        else:
            body.quaternion[:] = self.rotation.as_quat(scalar_first=True)
            body.angular_velocity[:] = self.angular


def _blended(
    scene: Scene, first: np.ndarray, second: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Pairs between recorded ones, (T, d) each.

    The body that moves least freely stays where it was recorded first; pose and twists relative to
    it are between both.
    """
    one, other = MotionBefore.of(first), MotionBefore.of(second)
    on_striker = _striker_is_base(scene)
    share = rng.uniform(*_BLENDED, len(first))
    base, base_of_other = (
        _Poses.of(motion.striker if on_striker else motion.struck) for motion in (one, other)
    )
    before = first.copy()
    motion = MotionBefore.of(before)
    for body, of_one, of_other in (
        (motion.struck, one.struck, other.struck),
        (motion.striker, one.striker, other.striker),
    ):
        seen = _Poses.of(of_one).seen_from(base)
        seen_in_other = _Poses.of(of_other).seen_from(base_of_other)
        seen.blended(seen_in_other, share).moved_with(base).write(body)
    return before


def _striker_is_base(scene: Scene) -> bool:
    """Whether the striker's recorded poses are kept, rather than those of the struck body."""
    striker, struck = scene.striker_body, scene.struck_body
    return striker.fixed or (not moves_freely(striker) and moves_freely(struck))


def moves_freely(body: Mobility) -> bool:
    """Whether joints let a body move in all directions in which it was recorded."""
    if body.free:
        return True
    return body.mechanism is None and len(body.slides) == 2 and body.hinge is not None


def _approach(scene: Scene, motion: MotionBefore, contact: Contact) -> np.ndarray:
    """Velocities (N, 2 or 3), m/s, of the striker relative to the struck body.

    That of a body that moves freely is its origin's, as one throws it; that of a body that joints
    carry is that of its material at the contact.
    """
    velocities = []
    for body, mobility in (
        (motion.struck, scene.struck_body),
        (motion.striker, scene.striker_body),
    ):
        freely = moves_freely(mobility)
        velocities.append(body.velocity if freely else body.velocity_at(contact.point))
    of_struck, of_striker = velocities
    approach: np.ndarray = of_striker - of_struck
    return approach


def _scale_velocities(scene: Scene, before: np.ndarray, factor: np.ndarray) -> None:
    """Multiply velocities in `before` (N, d) by factors (N,), in place.

    Not the angular velocity of a body that moves freely, which it was given by itself.
    """
    motion = MotionBefore.of(before)
    for body, mobility in (
        (motion.struck, scene.struck_body),
        (motion.striker, scene.striker_body),
    ):
        scaled = body.velocity if moves_freely(mobility) else body.twist
        scaled *= factor[:, None]


def _put_on_joints(scene: Scene, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put bodies that joints carry where these let them be, with a twist that these allow.

    Args:
        scene: The scene.
        before: (N, d), as in `Impacts`.

    Returns:
        A copy of `before`, and whether each pair (N,) hardly moved by it.
    """
    poser = PairPoser(scene)
    placed = before.copy()
    motion = MotionBefore.of(placed)
    reached = np.ones(len(before), bool)
    for body, mobility in (
        (motion.struck, scene.struck_body),
        (motion.striker, scene.striker_body),
    ):
        if not mobility.fixed and not mobility.free:
            reached &= _put_body_on_joints(poser, body, mobility)
    return placed, reached


def _put_body_on_joints(poser: PairPoser, body: MovingBody, mobility: Mobility) -> np.ndarray:
    """`_put_on_joints` for one body, in place; whether it hardly moved (N,)."""
    model = poser.scene.base
    old = _Poses.of(replace(body, rows=body.rows.copy()))
    reached = np.zeros(len(body.rows), bool)
    data = mujoco.MjData(model)
    jacobian = np.zeros((6, model.nv))
    position, rotation = poser.world_pose(body.pose, mobility, None)
    linear, angular = poser.world_twist(body.twist)
    for row in range(len(body.rows)):
        one = slice(row, row + 1)
        try:
            coordinates = mobility.coordinates(position[one], rotation[one])
        except DataError:  # out of reach
            continue
        rates = mobility.rates(linear[one], angular[one], coordinates)
        if mobility.mechanism is not None:
            data.qpos[:] = mobility.mechanism.reference
        data.qpos[mobility.qpos] = coordinates[0]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], mobility.body)
        twist = jacobian[:, mobility.qvel] @ rates[0]
        pose = poser.scene_pose(data.xpos[[mobility.body]], data.xquat[[mobility.body]], mobility)
        body.pose[row] = pose[0]
        body.twist[row] = poser.scene_twist(twist[None, :3], twist[None, 3:])[0]
        reached[row] = _within_limits(model, mobility, coordinates[0])
    new = _Poses.of(body)
    away = np.linalg.norm(new.position - old.position, axis=1)
    cosine = np.cos((new.rotation.inv() * old.rotation).magnitude() / 2)
    return reached & (away < _REACHED_DISTANCE) & (cosine > _REACHED_COSINE)


def _within_limits(model: mujoco.MjModel, mobility: Mobility, coordinates: np.ndarray) -> bool:
    """Whether coordinates of a body's joints are within their ranges."""
    for joint in range(model.njnt):
        address = int(model.jnt_qposadr[joint])
        if not model.jnt_limited[joint] or address not in mobility.qpos:
            continue
        value = float(coordinates[list(mobility.qpos).index(address)])
        low, high = map(float, model.jnt_range[joint])
        if not low - _LIMIT_SLACK <= value <= high + _LIMIT_SLACK:
            return False
    return True


def _in_space(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N, 3) of vectors (N, 2 or 3)."""
    if vectors.shape[1] == 3:
        return np.asarray(vectors, float)
    return np.column_stack([vectors, np.zeros(len(vectors))])
