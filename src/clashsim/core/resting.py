"""Bodies that lie on the ground, where impacts are recorded in space.

Measured poses hover a little above the ground or reach into it, and are tilted a little. A body
that lies is put onto the ground as it comes to rest there in MuJoCo; a body in flight stays as it
was recorded.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from functools import cached_property, lru_cache

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.ground_surface import GroundSurface
from clashsim.core.impacts import MotionBefore, MovingBody
from clashsim.core.params import pair_rows
from clashsim.core.scene import GROUND, Scene

# How far a recorded body that lies may be from where it comes to rest.
_HEIGHT_ERROR = 5e-3  # m
_TILT_ERROR = 0.06  # rad
# Velocities along the normal at the points on which a body lies, beyond which it is in flight.
_LIFTING_SPEED = 0.05  # m/s
_LIFTING_SHARE = 0.03  # of the speed of the body, since axes of a recording may be a little tilted
# A body comes to rest in several rounds of simulation. After each its velocity is reduced, so that
# it does so on bouncy ground as well.
SINK_ROUNDS = 40
SINK_TIME = 0.01  # s, of a round
SINK_KEPT_VELOCITY = 0.3  # share of the velocity that is kept after a round
_NO_CONTACT = -1e3  # m: margin of a pair of geoms, at which it never touches
_SMALLEST_RESPONSE = 1e-6  # relative singular value of motions that lift no point of contact
_MAX_KEPT = 20_000  # motions of which it is known whether bodies lie
_FAR = 1.0  # m, within which the ground is looked for


@dataclass(frozen=True, eq=False)
class RestPose:
    """A way in which a body lies on the ground, for the contact parameters of the scene's author.

    Attributes:
        pose: (7,), m and quaternion wxyz, a pose in which the body lies so.
        up: (3,), the ground's normal in the axes of the body.
        height: m, of the body's origin above the ground.
        points: (c, 3), m, points of contact in the body's frame.
        normals: (c, 3), unit vectors out of the ground at these points, in the body's axes.
    """

    pose: np.ndarray
    up: np.ndarray
    height: float
    points: np.ndarray
    normals: np.ndarray


@dataclass(frozen=True, eq=False)
class SettledBodies:
    """N impacts whose struck bodies were put onto the ground where they lie on it.

    Attributes:
        before: (N, d), as in `Impacts`.
        rest: (N,), index in `rest_poses` of how each body lies; negative where it does not.
    """

    before: np.ndarray
    rest: np.ndarray

    @property
    def lies(self) -> np.ndarray:
        """Whether each struck body (N,) lies on the ground."""
        return self.rest >= 0


def settled_on_ground(scene: Scene, before: np.ndarray) -> SettledBodies:
    """Put struck bodies that lie on the ground, within errors of measurement, exactly onto it.

    Their velocity loses what would lift or press a point on which they lie. Where impacts are in a
    plane, or there is no ground, nothing changes.

    Args:
        scene: The scene.
        before: (N, d), as in `Impacts`.

    Returns:
        The impacts; settling them again changes nothing.
    """
    if scene.ground is None or scene.plane is not None or not scene.struck_body.free:
        return SettledBodies(before, np.full(len(before), -1))
    return _kept_resting(scene).settled(before)


def rest_pose(scene: Scene, index: int) -> RestPose:
    """The way to lie on the ground that `SettledBodies.rest` numbers."""
    return _kept_resting(scene).found[index]


def on_ground_alone(scene: Scene) -> mujoco.MjModel:
    """The scene without any contact but those of the ground.

    In a scene's reference configuration other bodies may be where the struck body lies.
    """
    model = copy.copy(scene.base)
    model.geom_contype[:] = 0
    model.geom_conaffinity[:] = 0
    other_pairs = np.setdiff1d(np.arange(model.npair), pair_rows(model, GROUND))
    model.pair_margin[other_pairs] = _NO_CONTACT
    return model


class _Resting:
    """The ways in which the struck body of a scene lies on its ground, found one after another.

    Attributes:
        found: Those that were found so far.
    """

    def __init__(self, scene: Scene) -> None:
        assert scene.ground is not None
        self.found: list[RestPose] = []
        self._scene = scene
        self._surface = GroundSurface.of(scene.base, scene.ground)
        self._model = on_ground_alone(scene)
        self._pairs = {
            frozenset(int(scene.base.geom(name).id) for name in pair) for pair in scene.ground_geoms
        }
        self._data = mujoco.MjData(self._model)
        self._lock = threading.Lock()
        # Motions of struck bodies on the ground, and their rest poses, by the bytes of the recorded
        # motion.
        self._settled: dict[bytes, tuple[np.ndarray, int]] = {}

    def settled(self, before: np.ndarray) -> SettledBodies:
        """See `settled_on_ground`."""
        with self._lock:
            before = before.copy()
            rest = np.full(len(before), -1)
            struck = MotionBefore.of(before).struck.rows
            # A fit asks for the same impacts again and again.
            for row, key in enumerate(struck[row].tobytes() for row in range(len(struck))):
                if key in self._settled:
                    struck[row], rest[row] = self._settled[key]
                    continue
                if len(self._settled) >= _MAX_KEPT:
                    self._settled.clear()
                struck[row], rest[row] = self._settle(struck[row])
                self._settled[key] = struck[row].copy(), int(rest[row])
                self._settled[struck[row].tobytes()] = self._settled[key]
            return SettledBodies(before, rest)

    def _settle(self, struck: np.ndarray) -> tuple[np.ndarray, int]:
        """Motion (13,) of a struck body put onto the ground, and its rest pose; -1 in flight."""
        body = MovingBody(struck)
        if not self._may_lie(body):
            return struck, -1
        index = self._index_of(body.pose)
        if index < 0:
            return struck, -1
        pose = self._on(self.found[index], body.pose)
        twist, is_quiet = self._sliding(self.found[index], pose, body.twist)
        return (np.concatenate([pose, twist]), index) if is_quiet else (struck, -1)

    def _may_lie(self, body: MovingBody) -> bool:
        """Whether a body is over the ground, near it, and does not fall or rise fast."""
        if not np.isfinite(body.rows).all():
            return False
        height = float(self._surface.height(body.position))
        depth = 0.0 if self._surface.is_flat else float(self._model.hfield_size[:, 2].max())
        if abs(height) > self._reach + depth:
            return False
        if float(self._surface.inset(body.position)) < -self._reach:
            return False
        if not self._surface.is_flat:
            return True
        rotation = Rotation.from_quat(body.quaternion, scalar_first=True)
        arm = rotation.apply(self._scene.base.body_ipos[self._scene.struck_body.body])
        lifting = float(
            (body.velocity + np.cross(body.angular_velocity, arm)) @ self._surface.normal
        )
        return abs(lifting) < self._fastest(body.velocity)

    @cached_property
    def _reach(self) -> float:
        """m: a body whose origin is farther from the ground does not touch it."""
        model = self._scene.base
        body = self._scene.struck_body
        radius = 0.0
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        for name, _ in self._scene.ground_geoms:
            geom = model.geom(name).id
            offset = np.linalg.norm(data.geom_xpos[geom] - data.xpos[body.body])
            radius = max(radius, float(model.geom_rbound[geom] + offset))
        return radius + _HEIGHT_ERROR

    def _index_of(self, pose: np.ndarray) -> int:
        """Index of the rest pose that is within errors of measurement of a pose (7,), or -1."""
        if self._surface.is_flat:
            up = self._up(pose)
            away = [self._angle(up, rest.up) for rest in self.found]
            if away and min(away) < _TILT_ERROR:
                nearest = int(np.argmin(away))
                return nearest if self._is_near(pose, self.found[nearest]) else -1
            if self._gap(pose) > _HEIGHT_ERROR:
                return -1
        rest = self._simulated(pose)
        if rest is None or not self._is_near(pose, rest):
            return -1
        self.found.append(rest)
        return len(self.found) - 1

    def _gap(self, pose: np.ndarray) -> float:
        """Distance or depth (m) of a body at a pose (7,) from flat ground."""
        model = self._model
        self._data.qpos[:] = model.qpos0
        self._data.qpos[self._scene.struck_body.qpos] = pose
        mujoco.mj_kinematics(model, self._data)
        gaps = []
        for own, ground in self._scene.ground_geoms:
            pair = int(model.geom(own).id), int(model.geom(ground).id)
            gaps.append(mujoco.mj_geomDistance(model, self._data, *pair, _FAR, None))
        return abs(min(gaps))

    def _is_near(self, pose: np.ndarray, rest: RestPose) -> bool:
        """Whether a body at a pose (7,) is within errors of measurement of a rest pose."""
        if self._angle(self._up(pose), rest.up) >= _TILT_ERROR:
            return False
        height = float(self._surface.height(pose[:3]))
        return abs(height - rest.height) < _HEIGHT_ERROR

    def _angle(self, up: np.ndarray, other: np.ndarray) -> float:
        """Angle (rad) between normals (3,) in the axes of the body; none for a ball."""
        if self._scene.is_round:
            return 0.0
        return float(np.arctan2(np.linalg.norm(np.cross(up, other)), up @ other))

    def _up(self, pose: np.ndarray) -> np.ndarray:
        """The ground's normal (3,) in the axes of a body at a pose (7,)."""
        rotation = Rotation.from_quat(pose[3:], scalar_first=True)
        up: np.ndarray = rotation.apply(self._surface.normal, inverse=True)
        return up

    def _on(self, rest: RestPose, pose: np.ndarray) -> np.ndarray:
        """A pose (7,), tilted and lifted by as little as puts the body onto the ground."""
        settled = pose.copy()
        height = float(self._surface.height(pose[:3]))
        settled[:3] += (rest.height - height) * self._surface.normal
        if self._scene.is_round:
            return settled
        up = self._up(pose)
        axis = np.cross(rest.up, up)
        sine = float(np.linalg.norm(axis))
        if sine > 0:
            tilt = Rotation.from_rotvec(axis / sine * np.arctan2(sine, rest.up @ up))
            rotation = Rotation.from_quat(pose[3:], scalar_first=True) * tilt
            settled[3:] = rotation.as_quat(scalar_first=True)
        return settled

    def _sliding(
        self, rest: RestPose, pose: np.ndarray, twist: np.ndarray
    ) -> tuple[np.ndarray, bool]:
        """The nearest twist (6,) that lifts no point of contact, and whether it is near."""
        rotation = Rotation.from_quat(pose[3:], scalar_first=True).as_matrix()
        normals = rest.normals @ rotation.T
        arms = rest.points @ rotation.T
        if self._scene.is_round:
            normals = self._surface.normal[None]
            arms = -rest.height * normals
        lifting = np.hstack([normals, np.cross(arms, normals)])  # (c, 6), velocities per twist
        speeds = lifting @ twist
        is_quiet = bool(np.abs(speeds).max(initial=0.0) < self._fastest(twist[:3]))
        # Angular velocities count as velocities at the distance of the farthest point of contact.
        length = max(float(np.linalg.norm(arms, axis=1).max(initial=0.0)), 1e-6)
        scale = np.r_[1.0, 1.0, 1.0, np.full(3, 1.0 / length)]
        inverse = np.linalg.pinv(lifting * scale, rcond=_SMALLEST_RESPONSE)
        return twist - scale * (inverse @ speeds), is_quiet

    @staticmethod
    def _fastest(velocity: np.ndarray) -> float:
        """Largest speed (m/s) of the points on which a body of some velocity (3,) lies."""
        return _LIFTING_SPEED + _LIFTING_SHARE * float(np.linalg.norm(velocity))

    def _simulated(self, pose: np.ndarray) -> RestPose | None:
        """How the body comes to rest from a pose (7,); None where it meets no ground there."""
        model = self._model
        body = self._scene.struck_body
        data = mujoco.MjData(model)
        steps = max(1, round(SINK_TIME / model.opt.timestep))
        settled = pose
        for _ in range(SINK_ROUNDS):
            # Nothing else takes part, and an arm without its controller would fall.
            velocity = data.qvel[body.qvel].copy()
            data.qpos[:] = model.qpos0
            data.qvel[:] = 0.0
            data.qpos[body.qpos] = settled
            data.qvel[body.qvel] = SINK_KEPT_VELOCITY * velocity
            mujoco.mj_step(model, data, steps)
            settled = data.qpos[body.qpos].copy()
            if not np.isfinite(settled).all():
                return None
        mujoco.mj_forward(model, data)
        rotation = data.xmat[body.body].reshape(3, 3)
        points, normals = [], []
        for i in range(data.ncon):
            contact = data.contact[i]
            if frozenset((int(contact.geom1), int(contact.geom2))) not in self._pairs:
                continue
            of_first = int(model.body_weldid[model.geom_bodyid[contact.geom1]]) == body.body
            # MuJoCo's normal points from the first geom to the second.
            normals.append((-1.0 if of_first else 1.0) * rotation.T @ contact.frame[:3])
            points.append(rotation.T @ (contact.pos - data.xpos[body.body]))
        if not points:
            return None
        return RestPose(
            pose=settled,
            up=rotation.T @ self._surface.normal,
            height=float(self._surface.height(settled[:3])),
            points=np.array(points),
            normals=np.array(normals),
        )


@lru_cache(maxsize=32)
def _kept_resting(scene: Scene) -> _Resting:
    """The ways to lie on the ground that were found so far in a scene."""
    return _Resting(scene)
