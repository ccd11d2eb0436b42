"""Contact geometry: pose a pair of bodies in MuJoCo and move them until they touch."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import lru_cache

import mujoco
import numpy as np
from mujoco import batch
from scipy.spatial.transform import Rotation

from clashsim.core.errors import DataError
from clashsim.core.ground_surface import GroundSurface
from clashsim.core.impacts import MotionBefore
from clashsim.core.mobility import Mobility
from clashsim.core.resting import settled_on_ground
from clashsim.core.scene import DISTANCE_SENSOR, FROMTO_SENSOR, Scene
from clashsim.core.workers import default_threads

_STAGE_POSITION = int(mujoco.mjtStage.mjSTAGE_POS)
_TOUCHING_DISTANCE = 1e-5  # m; bodies at most this far apart are taken to touch
_TOUCHING_ROUNDING = 1.01  # factor that allows for rounding of that distance
_AIMED_DISTANCE = 0.5 * _TOUCHING_DISTANCE  # m, above zero, where the normal is still defined
_MIN_GAP = 1e-12  # m; nearest points closer than this give no normal
_CLEARANCE = 1e-3  # m, by which a pair is separated before it is moved the shortest way
_MAX_TRAVEL = 3  # how far a body is advanced at most, in multiples of the initial separation
_SEPARATION_MARGIN = 1.2  # factor on the bounding radii that separates a pair
_MIN_CLOSING_RATE = 1e-3  # cosine of normal and approach below which bodies pass each other
_CHUNK = 8192  # pairs that are simulated at once, to bound memory
_MIN_BATCH = 64  # pairs, so that a batch can be used again for slightly more
_MAX_QUATERNION_ERROR = 1e-2  # deviation of a quaternion's length from 1


@dataclass(frozen=True, eq=False)
class Contact:
    """Contacts of N impacts, in world axes; in planar scenes in the plane's axes (vectors of two).

    Attributes:
        point: (N, 2 or 3), m, where the surfaces touch.
        normal: (N, 2 or 3), unit vector, out of the striker into the struck body.
        shift: (N,), m, how far the struck body was moved along its approach to touch; negative
            against it.
        touching: (N,), whether the bodies touch; false where they miss each other.
    """

    point: np.ndarray
    normal: np.ndarray
    shift: np.ndarray
    touching: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> Contact:
        return Contact(self.point[rows], self.normal[rows], self.shift[rows], self.touching[rows])


class PairPoser:
    """Writes planar or spatial poses and twists of the pair into batches of MuJoCo simulations.

    Args:
        scene: The scene of the pair.
        height: m, () or (n,), of the struck body's origin along the plane's normal; by default the
            scene's own. Planar scenes only.
    """

    def __init__(self, scene: Scene, height: float | np.ndarray | None = None) -> None:
        self.scene = scene
        self.plane = scene.plane
        self.struck = scene.struck_body
        self.striker = scene.striker_body
        if self.struck.fixed:
            raise DataError(
                f"the struck geom {scene.struck!r} is fixed to the world; "
                "name the moving geom as struck"
            )
        self.planar = self.plane is not None
        self.height = height

    def write(self, before: np.ndarray, qpos: np.ndarray, qvel: np.ndarray | None = None) -> None:
        """Write poses and twists of the pair into rows of MuJoCo's state.

        Args:
            before: (n, d), as in `Impacts`.
            qpos: (n, nq), changed in place.
            qvel: (n, nv), changed in place; None to write only poses.
        """
        motion = MotionBefore.of(before)
        bodies = (
            (self.struck, motion.struck, self.height),
            (self.striker, motion.striker, None),
        )
        for mobility, body, height in bodies:
            if mobility.fixed:
                continue
            if mobility.mechanism is not None:
                qpos[:] = np.where(mobility.mechanism.others, mobility.mechanism.reference, qpos)
            position, rotation = self.world_pose(body.pose, mobility, height)
            coordinates = mobility.coordinates(position, rotation)
            qpos[:, mobility.qpos] = coordinates
            if qvel is not None:
                linear, angular = self.world_twist(body.twist)
                qvel[:, mobility.qvel] = mobility.rates(linear, angular, coordinates)

    def scene_twist(self, linear: np.ndarray, angular: np.ndarray) -> np.ndarray:
        """Express world twists in the axes of the scene's impacts.

        Args:
            linear: (n, 3), m/s, world axes.
            angular: (n, 3), rad/s, world axes.

        Returns:
            Twists as in `Impacts`: (n, 3) in the plane's axes in planar scenes, else (n, 6).
        """
        if self.plane is None:
            return np.concatenate([linear, angular], axis=1)
        return np.concatenate([linear @ self.plane[:2].T, angular @ self.plane[2:].T], axis=1)

    def scene_pose(
        self, position: np.ndarray, quaternion: np.ndarray, mobility: Mobility
    ) -> np.ndarray:
        """Express world poses of a body in the axes of the scene's impacts; as `world_pose`.

        Args:
            position: (n, 3), m, of the body's origin, world axes.
            quaternion: (n, 4), wxyz.
            mobility: How the body moves.

        Returns:
            (n, 3) in the plane's axes in planar scenes, else (n, 7).
        """
        if self.plane is None:
            return np.concatenate([position, quaternion], axis=1)
        seen = np.isfinite(quaternion).all(1)
        yaw = np.full(len(position), np.nan)
        orientation = Rotation.from_quat(quaternion[seen], scalar_first=True)
        relative = orientation * Rotation.from_matrix(mobility.rotation).inv()
        numbers = relative.as_quat(scalar_first=True)
        yaw[seen] = 2 * np.arctan2(numbers[:, 1:] @ self.plane[2], numbers[:, 0])
        return np.column_stack([position @ self.plane[:2].T, yaw])

    def striker_at_reference(self, n: int) -> np.ndarray:
        """Make rows `before` (n, d) with the striker at rest at its reference pose.

        The struck body is at rest at the origin. In a plane, a tool with recorded postures is where
        one of them has it, since an arm's reference configuration may be far from the plane.
        """
        before, motion = MotionBefore.at_origin(n, planar=self.planar)
        mechanism = self.striker.mechanism
        if self.plane is not None and mechanism is not None and len(mechanism.postures):
            poses = mechanism.planar_posture_poses(self.plane, self.striker.rotation)
            from_middle = poses[:, :2] - np.median(poses[:, :2], axis=0)
            motion.striker.pose[:] = poses[np.argmin((from_middle**2).sum(1))]
        elif self.plane is not None:
            motion.striker.position[:] = self.plane[:2] @ self.striker.position
        else:
            rotation = Rotation.from_matrix(self.striker.rotation)
            motion.striker.position[:] = self.striker.position
            motion.striker.quaternion[:] = rotation.as_quat(scalar_first=True)
            motion.struck.quaternion[:] = [1.0, 0.0, 0.0, 0.0]
        return before

    def world_pose(
        self, pose: np.ndarray, mobility: Mobility, height: float | np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """World position (n, 3) and orientation (n, 3, 3) of a body at poses (n, 3) or (n, 7).

        In a plane, a tool has height and tilt of the recorded posture that is nearest.
        """
        if self.plane is None:
            quaternion = pose[:, 3:7]
            _check_quaternions(quaternion)
            return pose[:, :3], Rotation.from_quat(quaternion, scalar_first=True).as_matrix()
        if mobility.mechanism is not None and len(mobility.mechanism.postures):
            return mobility.mechanism.in_plane(pose, self.plane, mobility.rotation)
        normal = self.plane[2]
        if height is None:
            height = float(mobility.position @ normal)
        position = pose[:, :2] @ self.plane[:2] + np.reshape(height, (-1, 1)) * normal
        in_plane = Rotation.from_rotvec(pose[:, 2:3] * normal).as_matrix()
        return position, in_plane @ mobility.rotation

    def world_twist(self, twist: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """World linear and angular velocity, (n, 3) each, of twists (n, 3) or (n, 6)."""
        if self.plane is None:
            return twist[:, :3], twist[:, 3:]
        return twist[:, :2] @ self.plane[:2], twist[:, 2:] * self.plane[2]


def advance_to_contact(
    scene: Scene,
    before: np.ndarray,
    direction: np.ndarray | None = None,
    *,
    back: float | None = None,
    iterations: int = 40,
) -> tuple[Contact, np.ndarray]:
    """Move the struck body along its approach until it just touches the striker.

    A body whose joints do not let it stays where it is, and the striker is moved to it.

    The struck body is first moved back, so that recorded poses may overlap or be slightly wrong.
    For convex bodies, steps of distance over closing rate never go past the contact (conservative
    advancement).

    Args:
        scene: The scene of the pair.
        before: (N, d), as in `Impacts`.
        direction: (N, 2 or 3), of any length, in which the struck body moves to the striker; by
            default its velocity relative to the striker.
        back: m, how far the struck body is first moved back; by default a distance that surely
            separates the bodies.
        iterations: Maximum number of steps of the advancement.

    Returns:
        The contacts, and a copy of `before` with the struck bodies moved into contact.
    """
    if direction is None:
        direction = MotionBefore.of(before).approach_velocity
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    unit_direction = np.divide(direction, length, out=np.zeros_like(direction), where=length > 0)
    if back is None:
        back = _separating_distance(scene)
    moved = before.copy()
    _shift_pair(scene, moved, -back * unit_direction)
    n, dim = unit_direction.shape
    contact = Contact(
        point=np.zeros((n, dim)),
        normal=np.zeros((n, dim)),
        shift=np.full(n, -back),
        touching=np.zeros(n, bool),
    )
    nearest_points = NearestPoints.of(scene, min(n, _CHUNK))
    for start in range(0, n, _CHUNK):
        active = np.arange(start, min(start + _CHUNK, n))
        for _ in range(iterations):
            stride = _advance(
                nearest_points, moved, unit_direction, contact, active=active, back=back
            )
            step = np.zeros_like(unit_direction)
            step[active] = stride[:, None] * unit_direction[active]
            _shift_pair(scene, moved, step)
            active = active[stride > 0]
            if len(active) == 0:
                break
    return contact, moved


def bring_into_contact(scene: Scene, before: np.ndarray) -> tuple[Contact, np.ndarray]:
    """Move recorded pairs until they touch where they collide.

    As `advance_to_contact`. Where the bodies would then part, as when a corner comes down because
    a body spins while its centre rises, the struck body is moved by the shortest way instead.
    Bodies that lie on a ground in space are settled onto it, and stay on it.

    Args:
        scene: The scene of the pair.
        before: (N, d), as in `Impacts`.

    Returns:
        The contacts, and a copy of `before` with the pairs in contact.
    """
    settled = settled_on_ground(scene, before)
    contact, moved = _bring_settled_into_contact(scene, settled.before)
    if settled.lies.any():
        _keep_on_ground(scene, settled.before, (contact, moved), settled.lies)
    return contact, moved


def _keep_on_ground(
    scene: Scene, before: np.ndarray, found: tuple[Contact, np.ndarray], lies: np.ndarray
) -> None:
    """Undo, in place, what moved struck bodies that lie out of their ground.

    The striker is moved along, where it can move, so that the bodies touch as before.

    Args:
        scene: The scene of the pair, in space.
        before: (N, d), as in `Impacts`, before bodies were moved.
        found: The contacts, and `before` (N, d) of the moved bodies, changed in place.
        lies: (N,), whether each struck body lies on the ground.
    """
    assert scene.ground is not None
    if scene.striker_body.fixed:
        return
    contact, moved = found
    normal = GroundSurface.of(scene.base, scene.ground).normal
    motion = MotionBefore.of(moved)
    lifted = (motion.struck.position - MotionBefore.of(before).struck.position) @ normal
    back = np.where(lies, lifted, 0.0)[:, None] * normal
    motion.struck.position[:] -= back
    motion.striker.position[:] -= back
    contact.point[:] -= back


def _bring_settled_into_contact(scene: Scene, before: np.ndarray) -> tuple[Contact, np.ndarray]:
    """`bring_into_contact` where no body has to stay on a ground."""
    contact, moved = advance_to_contact(scene, before)
    rows = np.flatnonzero(~contact.touching | (closing_speed(moved, contact) <= 0))
    if len(rows) == 0:
        return contact, moved
    distance, gap, _ = NearestPoints.of(scene, len(rows))(before[rows])
    order = np.arange(len(rows))
    nearest = np.argmin(distance, axis=1)
    depth = np.maximum(-distance[order, nearest], 0.0)
    # The nearest points of bodies that overlap have changed sides.
    direction = gap[order, nearest] * np.where(depth > 0, 1.0, -1.0)[:, None]
    back = float(depth.max()) + _CLEARANCE
    again, moved_again = advance_to_contact(scene, before[rows], direction, back=back)
    again.touching[:] &= closing_speed(moved_again, again) > 0
    found = rows[again.touching]
    for values, new_values in (
        (contact.point, again.point),
        (contact.normal, again.normal),
        (contact.shift, again.shift),
        (contact.touching, again.touching),
        (moved, moved_again),
    ):
        values[found] = new_values[again.touching]
    return contact, moved


def closing_speed(before: np.ndarray, contact: Contact) -> np.ndarray:
    """Speed at which surfaces close in on each other at their contacts.

    Args:
        before: (N, d), as in `Impacts`, of touching bodies.
        contact: Their contacts.

    Returns:
        (N,), m/s; negative where they part.
    """
    motion = MotionBefore.of(before)
    velocity = motion.struck.velocity_at(contact.point) - motion.striker.velocity_at(contact.point)
    return -np.einsum("ni,ni->n", velocity, contact.normal)


def _advance(
    nearest_points: NearestPoints,
    moved: np.ndarray,
    unit_direction: np.ndarray,
    contact: Contact,
    *,
    active: np.ndarray,
    back: float,
) -> np.ndarray:
    """Find how far the A active rows can be advanced, (A,), m.

    Changes `contact` in place.
    """
    distance, gap, on_striker = nearest_points(moved[active])
    gap_length = np.linalg.norm(gap, axis=2)
    # At zero distance the nearest points coincide and define no normal: keep the previous one.
    apart = (distance > 0) & (gap_length > _MIN_GAP)
    unit_gap = gap / np.maximum(gap_length, _MIN_GAP)[..., None]
    normal = np.where(apart[..., None], unit_gap, contact.normal[active][:, None])
    closing = -np.einsum("api,ai->ap", normal, unit_direction[active])
    approaching = apart & (closing > _MIN_CLOSING_RATE)
    # Of bodies of several geoms, the pair that would touch first decides.
    to_go = np.maximum(distance, 0) - _AIMED_DISTANCE
    wanted = to_go / np.maximum(closing, _MIN_CLOSING_RATE)
    rows = np.arange(len(active))
    first = np.argmin(np.where(approaching, wanted, np.inf), axis=1)
    is_touching = distance[rows, first] <= _TOUCHING_DISTANCE * _TOUCHING_ROUNDING

    contact.point[active] = on_striker[rows, first]
    contact.normal[active] = normal[rows, first]
    contact.touching[active] = approaching[rows, first] & is_touching

    moving = approaching[rows, first] & (distance[rows, first] > _TOUCHING_DISTANCE)
    stride = np.where(moving, wanted[rows, first], 0.0)
    stride = np.minimum(stride, _MAX_TRAVEL * back - contact.shift[active])
    contact.shift[active] += stride
    return np.where(moving, stride, 0.0)


def _shift_pair(scene: Scene, before: np.ndarray, step: np.ndarray) -> None:
    """Move struck bodies by steps (N, 2 or 3), m, or their strikers the other way.

    Strikers where the joints of the struck body do not let it move in all directions.
    """
    motion = MotionBefore.of(before)
    struck = scene.struck_body
    can_move = struck.free or len(struck.slides) >= step.shape[1]
    if can_move or scene.striker_body.fixed:
        motion.struck.position[:] += step
    else:
        motion.striker.position[:] -= step


class NearestPoints:
    """Finds the nearest points of the two bodies for many poses, by sensors of a MuJoCo batch."""

    @staticmethod
    def of(scene: Scene, size: int) -> NearestPoints:
        """One for `size` poses or more, which the calling thread keeps for the next time."""
        rounded = max(_MIN_BATCH, 1 << (size - 1).bit_length())
        return _kept_nearest_points(scene, rounded, (os.getpid(), threading.get_ident()))

    def __init__(self, scene: Scene, size: int) -> None:
        model = scene.probe
        self._poser = PairPoser(scene)
        self._batch = batch.Batch(model, size, nthread=default_threads())
        self._qpos = self._batch.bind("qpos")
        self._sensordata = self._batch.bind("sensordata")
        parts = range(len(scene.strike_geoms))
        addresses = [model.sensor(f"{DISTANCE_SENSOR}/{i}").adr[0] for i in parts]
        self._distance = np.array(addresses, int)
        addresses = [model.sensor(f"{FROMTO_SENSOR}/{i}").adr[0] for i in parts]
        self._fromto = np.array(addresses, int)
        # Rows are the axes in which nearest points are returned: the plane's, or the world's.
        self._basis = scene.plane[:2] if scene.plane is not None else np.eye(3)

    def __call__(self, before: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the nearest points of each of P pairs of geoms, for poses `before` (A, d).

        Returns:
            Distance (A, P), m; the vector (A, P, 2 or 3) from the striker's nearest point to that
            of the struck body; and the striker's nearest point (A, P, 2 or 3).
        """
        distance, on_struck, on_striker = self.of_parts(before)
        return distance, (on_struck - on_striker) @ self._basis.T, on_striker @ self._basis.T

    def of_parts(self, before: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the nearest points of each of P pairs of geoms, for poses `before` (A, d).

        Returns:
            Distance (A, P), m, and nearest points (A, P, 3), m, of the struck body and the striker,
            world axes.
        """
        ids = np.arange(len(before))
        qpos = self._qpos[ids]
        self._poser.write(before, qpos)
        self._qpos[ids] = qpos
        self._batch.forward(ids=ids, stage=_STAGE_POSITION)
        # A sensor holds the point on the struck geom, then the one on the striker.
        columns = self._fromto[:, None] + np.arange(6)
        points = self._sensordata[ids[:, None, None], columns]
        distance = self._sensordata[ids[:, None], self._distance]
        return distance, points[..., :3], points[..., 3:]

    def in_world(self, before: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distance (A,), m, and nearest points (A, 3) of the struck body and the striker, world."""
        distance, on_struck, on_striker = self.of_parts(before)
        rows = np.arange(len(before))
        nearest = np.argmin(distance, axis=1)
        return distance[rows, nearest], on_struck[rows, nearest], on_striker[rows, nearest]


@lru_cache(maxsize=8)
def _kept_nearest_points(scene: Scene, size: int, owner: tuple[int, int]) -> NearestPoints:
    """Keep a batch for each owner (process and thread): two must not use one at the same time."""
    del owner
    return NearestPoints(scene, size)


def _check_quaternions(quaternion: np.ndarray) -> None:
    """Raise a `DataError` unless quaternions (n, 4) have length 1."""
    length = np.linalg.norm(quaternion, axis=1)
    error = np.abs(length - 1)
    if (error > _MAX_QUATERNION_ERROR).any():
        worst = int(np.argmax(error))
        raise DataError(
            f"impact {worst} has a quaternion of length {length[worst]:.3g}; "
            "the order is qw, qx, qy, qz"
        )


def _separating_distance(scene: Scene) -> float:
    """A distance (m) that surely separates the pair: bounding radii about the bodies' origins."""
    radii = [0.0, 0.0]
    for pair in scene.strike_geoms:
        for body, name in enumerate(pair):
            radii[body] = max(radii[body], _radius_about_body(scene, name))
    total = sum(radii)
    return _SEPARATION_MARGIN * total


def _radius_about_body(scene: Scene, name: str) -> float:
    """Radius (m) of a ball about the origin of a geom's moving body that holds the geom."""
    model = scene.base
    geom = model.geom(name)
    if int(geom.type[0]) == int(mujoco.mjtGeom.mjGEOM_PLANE):
        return 0.0
    body = int(model.body_weldid[geom.bodyid[0]])
    if body == 0:
        return float(geom.rbound[0])
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return float(geom.rbound[0] + np.linalg.norm(data.geom_xpos[geom.id] - data.xpos[body]))
