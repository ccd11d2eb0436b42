"""Kinematics of a body that a chain of joints carries, as a tool at the end of an arm.

A pose of the body is turned into joint coordinates by inverse kinematics, from the nearest of the
recorded postures, or the model's first keyframe or else its reference configuration, in steps of
least norm. So where an arm has more joints than a pose needs, it has the recorded posture, or poses
that are close to each other get configurations that are.
"""

from __future__ import annotations

import threading
from functools import cached_property

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError

_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_BALL = int(mujoco.mjtJoint.mjJNT_BALL)
_HINGE = int(mujoco.mjtJoint.mjJNT_HINGE)
_SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
_COORDINATES = {_FREE: 7, _BALL: 4, _SLIDE: 1, _HINGE: 1}  # entries of qpos of a joint
_ITERATIONS = 200
_TOLERANCE = 1e-10  # m, and rad times `_ROTATION_LENGTH`
_ROTATION_LENGTH = 0.1  # m: an error of one radian counts like one of this many metres
_DAMPING = 1e-4  # m/rad, of the least-squares steps
_LARGEST_STEP = 0.3  # rad or m, of a joint in one iteration
# m, and rad times `_ROTATION_LENGTH`: nearer poses count as reached.
_REACHED = 5e-2
_SMALLEST_STEP = 1e-10  # rad or m: a search that moves joints by less has come as near as it can
_MISSED = 1e-6  # m, and rad times `_ROTATION_LENGTH`: farther poses are not reached exactly
_UNRECORDED = 0.02  # weight of the height and tilt of a tool that were not recorded
_SMALLEST_RESPONSE = 1e-8  # relative singular value below which a body cannot move in a direction
_SQUARE = 1e-6  # m, and difference of cosines, between axes that are taken to be at right angles
_MAX_KEPT = 200_000  # configurations
_GRID = 0.05  # m, and
_ANGLE_GRID = 0.2  # rad: distance of poses at which the search for others begins


class Mechanism:
    """A body and the joints between it and the world.

    Attributes:
        model: The model.
        body: Index of the body.
        joints: Indices of the joints that move the body, from the world outwards.
        qpos: Indices of their coordinates in the model's qpos.
        qvel: Indices of their velocities in the model's qvel.
        reference: (nq,), the model's qpos from which configurations are searched.
        postures: (m, len(qpos)), recorded coordinates of the joints; may be none.
        plane_normal: (3,), of the plane in which poses are recorded; None for poses in space.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        body: int,
        *,
        postures: np.ndarray | None = None,
        plane_normal: np.ndarray | None = None,
    ) -> None:
        self.model = model
        self.body = body
        self.joints = joints_to_world(model, body)
        self.qpos = np.concatenate([_coordinates_of(model, joint) for joint in self.joints])
        jacobian_columns = [_velocities_of(model, joint) for joint in self.joints]
        self.qvel = np.concatenate(jacobian_columns)
        self.reference = np.array(model.key_qpos[0] if model.nkey else model.qpos0)
        self.postures = np.zeros((0, len(self.qpos))) if postures is None else postures
        self.plane_normal = plane_normal
        self._kept: dict[bytes, np.ndarray] = {}
        self._own = threading.local()

    @cached_property
    def tree(self) -> np.ndarray:
        """Indices in qvel of all that moves with the joints, such as the fingers of a gripper."""
        tree = int(self.model.dof_treeid[self.qvel[0]])
        return np.flatnonzero(self.model.dof_treeid == tree)

    @cached_property
    def others(self) -> np.ndarray:
        """(nq,), which coordinates belong to the rest of the tree."""
        joints = np.unique(self.model.dof_jntid[self.tree])
        others = np.zeros(self.model.nq, bool)
        for joint in joints:
            others[_coordinates_of(self.model, int(joint))] = True
        others[self.qpos] = False
        return others

    @cached_property
    def normal(self) -> np.ndarray | None:
        """Unit normal (3,), world axes, of the plane to which the joints confine the body.

        None where the body can leave any plane, or only slides.
        """
        data = self.at(self.reference)
        axes = [data.xaxis[joint] for joint in self.joints if self._kind(joint) == _HINGE]
        if not axes or any(self._kind(joint) not in (_HINGE, _SLIDE) for joint in self.joints):
            return None
        normal = axes[0].copy()
        for joint in self.joints:
            along = abs(float(data.xaxis[joint] @ normal))
            wanted = 1.0 if self._kind(joint) == _HINGE else 0.0
            if abs(along - wanted) > 1e-6:
                return None
        return normal

    @property
    def is_stage(self) -> bool:
        """Whether the joints are those of a stage: slides, then a hinge, all at right angles."""
        return self._stage is not None

    @cached_property
    def pivot(self) -> np.ndarray | None:
        """A point (3,) of the axis on which the body only rotates, m, in the body's frame.

        None where it has other joints than one hinge.
        """
        if [self._kind(joint) for joint in self.joints] != [_HINGE]:
            return None
        data = self.at(self.reference)
        anchor = data.xanchor[self.joints[0]] - data.xpos[self.body]
        return self._reference_rotation.T @ anchor

    def at(self, qpos: np.ndarray) -> mujoco.MjData:
        """Kinematics at a configuration (nq,); the calling thread's next call overwrites them."""
        data = getattr(self._own, "data", None)
        if data is None:
            data = self._own.data = mujoco.MjData(self.model)
        data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        return data

    def jacobian(self, data: mujoco.MjData) -> np.ndarray:
        """(6, nv), linear and angular velocity of the body's origin by the model's qvel."""
        jacobian = np.zeros((6, self.model.nv))
        mujoco.mj_jacBody(self.model, data, jacobian[:3], jacobian[3:], self.body)
        return jacobian

    def coordinates(self, position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """Find coordinates (n, len(self.qpos)) of the joints for poses; see `Mobility.coordinates`.

        Raises:
            DataError: The joints cannot bring the body there.
        """
        if self._stage is not None:
            return self._on_stage(self._stage, position, rotation)
        found = np.empty((len(position), len(self.qpos)))
        for row in range(len(position)):
            key = position[row].tobytes() + rotation[row].tobytes()
            if key not in self._kept:
                if len(self._kept) >= _MAX_KEPT:
                    self._kept.clear()
                begin = self._begin(position[row], rotation[row])
                self._kept[key] = self._solve(position[row], rotation[row], begin)
            found[row] = self._kept[key]
        return found

    def rates(self, linear: np.ndarray, angular: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Find joint velocities (n, len(self.qvel)) for twists, (n, 3) each, world axes.

        Those of least norm where there are several; where there are none, those that come closest.
        """
        if self._stage is not None:
            rates = linear @ self._stage.T
            if self._kind(self.joints[-1]) == _HINGE:
                rates[:, -1] = angular @ self._stage[-1]
            return rates
        # Impacts are solved for many parameters, so that the same motion comes again and again.
        motion = np.concatenate([coordinates, linear, angular], axis=1)
        _, first, which = np.unique(motion, axis=0, return_index=True, return_inverse=True)
        rates = np.empty((len(first), len(self.qvel)))
        for i, row in enumerate(first):
            jacobian = self.jacobian(self.at(self.full(coordinates[row])))[:, self.qvel]
            twist = np.concatenate([linear[row], _ROTATION_LENGTH * angular[row]])
            jacobian[3:] *= _ROTATION_LENGTH
            rates[i] = np.linalg.lstsq(jacobian, twist, rcond=_SMALLEST_RESPONSE)[0]
        return rates[which.reshape(-1)]

    def twist(self, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Linear (m/s) and angular (rad/s) velocity, (n, 3) each, of the body's origin, world axes.

        Args:
            qpos: (n, nq), of the whole model.
            qvel: (n, nv), of the whole model.
        """
        twists = np.empty((len(qpos), 6))
        for row in range(len(qpos)):
            twists[row] = self.jacobian(self.at(qpos[row])) @ qvel[row]
        return twists[:, :3], twists[:, 3:]

    def full(self, coordinates: np.ndarray) -> np.ndarray:
        """The model's qpos (nq,) with given coordinates of the joints, else the reference."""
        qpos = self.reference.copy()
        qpos[self.qpos] = coordinates
        return qpos

    def _kind(self, joint: int) -> int:
        return int(self.model.jnt_type[joint])

    @cached_property
    def _reference_rotation(self) -> np.ndarray:
        """Orientation (3, 3) of the body at the reference configuration."""
        return self.at(self.reference).xmat[self.body].reshape(3, 3).copy()

    @cached_property
    def _stage(self) -> np.ndarray | None:
        """Axes (j, 3) of the joints where they are slides, then a hinge through the body's origin.

        All at right angles, as the stages of a table; None for other joints. Such joints need no
        search, and URDF has one for each of a body's directions.
        """
        kinds = [self._kind(joint) for joint in self.joints]
        if kinds[:-1] != [_SLIDE] * (len(kinds) - 1) or kinds[-1] not in (_SLIDE, _HINGE):
            return None
        data = self.at(self.reference)
        axes = data.xaxis[self.joints].copy()
        is_square = np.allclose(axes @ axes.T, np.eye(len(axes)), atol=_SQUARE)
        offset = data.xanchor[self.joints[-1]] - data.xpos[self.body]
        is_centred = kinds[-1] == _SLIDE or np.abs(offset).max() < _SQUARE
        return axes if is_square and is_centred else None

    def _on_stage(self, axes: np.ndarray, position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """`coordinates` for joints with given axes of `_stage`."""
        moved = position - self.at(self.reference).xpos[self.body]
        coordinates = self.reference[self.qpos] + moved @ axes.T
        if self._kind(self.joints[-1]) == _HINGE:
            turn = Rotation.from_matrix(rotation @ self._reference_rotation.T).as_rotvec()
            coordinates[:, -1] = self.reference[self.qpos[-1]] + turn @ axes[-1]
        return coordinates

    @cached_property
    def posture_poses(self) -> tuple[np.ndarray, np.ndarray]:
        """Position (m, 3) and orientation (m, 3, 3) of the body in the recorded postures."""
        return self.reached(self.postures)

    def planar_posture_poses(self, plane: np.ndarray, zero_yaw: np.ndarray) -> np.ndarray:
        """Poses (m, 3) of the body in the recorded postures: x, y (m) and yaw (rad) in a plane.

        Args:
            plane: Rows e1, e2, n of the plane, (3, 3) in world axes.
            zero_yaw: (3, 3), orientation of the body, but for its tilt, at a yaw of zero.
        """
        positions, rotations = self.posture_poses
        relative = Rotation.from_matrix(rotations @ zero_yaw.T).as_quat(scalar_first=True)
        yaw = 2 * np.arctan2(relative[:, 1:] @ plane[2], relative[:, 0])
        return np.column_stack([positions @ plane[:2].T, yaw])

    def in_plane(
        self, pose: np.ndarray, plane: np.ndarray, zero_yaw: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Poses in space for poses in a plane, with height and tilt of the nearest posture.

        Args:
            pose: (n, 3), x, y (m) and yaw (rad) in the plane.
            plane: Rows e1, e2, n of the plane, (3, 3) in world axes.
            zero_yaw: (3, 3), orientation of the body, but for its tilt, at a yaw of zero.

        Returns:
            Position (n, 3), m, and orientation (n, 3, 3), world axes.
        """
        positions, rotations = self.posture_poses
        recorded = self.planar_posture_poses(plane, zero_yaw)
        away = pose[:, None, :2] - recorded[:, :2]
        yaw_away = wrap_angle(pose[:, None, 2] - recorded[:, 2])
        distance = (away**2).sum(2) + (_ROTATION_LENGTH * yaw_away) ** 2
        nearest = np.argmin(distance, axis=1)
        height = positions[nearest] @ plane[2]
        position = pose[:, :2] @ plane[:2] + height[:, None] * plane[2]
        rotated = yaw_away[np.arange(len(pose)), nearest, None] * plane[2]
        return position, Rotation.from_rotvec(rotated).as_matrix() @ rotations[nearest]

    def reached(self, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Position (n, 3) and orientation (n, 3, 3) of the body at coordinates of its joints."""
        position = np.empty((len(coordinates), 3))
        rotation = np.empty((len(coordinates), 3, 3))
        for row in range(len(coordinates)):
            data = self.at(self.full(coordinates[row]))
            position[row] = data.xpos[self.body]
            rotation[row] = data.xmat[self.body].reshape(3, 3)
        return position, rotation

    def _begin(self, position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """The model's qpos (nq,) from which one pose is searched.

        That of the recorded posture with the nearest pose (in the plane of poses, if there is one).
        """
        if len(self.postures) == 0:
            return self._near(position, rotation)
        positions, rotations = self.posture_poses
        away = position - positions
        turn = Rotation.from_matrix(rotation @ np.swapaxes(rotations, 1, 2)).as_rotvec()
        if self.plane_normal is not None:
            away = away - np.outer(away @ self.plane_normal, self.plane_normal)
            turn = turn @ self.plane_normal[:, None]
        distance = (away**2).sum(1) + ((_ROTATION_LENGTH * turn) ** 2).sum(1)
        return self.full(self.postures[int(np.argmin(distance))])

    def _near(self, position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """The model's qpos (nq,) for a pose on a coarse grid, which is near the given one.

        Poses that hardly differ, as those of one impact in a calibration, begin at the same.
        """
        near = np.round(position / _GRID) * _GRID
        turn = Rotation.from_matrix(
            rotation @ self.at(self.reference).xmat[self.body].reshape(3, 3).T
        )
        coarse = np.round(turn.as_rotvec() / _ANGLE_GRID) * _ANGLE_GRID
        key = b"near" + near.tobytes() + coarse.tobytes()
        if key not in self._kept:
            reference = self.at(self.reference).xmat[self.body].reshape(3, 3).copy()
            wanted = Rotation.from_rotvec(coarse).as_matrix() @ reference
            try:
                self._kept[key] = self._solve(near, wanted, self.reference)
            except DataError:  # the given pose may still be within reach
                self._kept[key] = self.reference[self.qpos]
        return self.full(self._kept[key])

    def _solve(self, position: np.ndarray, rotation: np.ndarray, begin: np.ndarray) -> np.ndarray:
        """Coordinates for one pose, by damped least squares within the limits of the joints.

        The search begins at the model's qpos `begin` (nq,). Height and tilt of a tool whose poses
        were recorded in a plane give way where the joints cannot reach all of a pose.
        """
        qpos, error = self._approached(position, rotation, begin, np.eye(6))
        in_plane = self.normal is None and self.plane_normal is not None
        if in_plane and np.abs(error).max() > _MISSED:
            assert self.plane_normal is not None
            recorded = _in_plane_alone(self.plane_normal)
            weights = recorded + _UNRECORDED * (np.eye(6) - recorded)
            qpos, error = self._approached(position, rotation, qpos, weights)
            error = recorded @ error
        if self.normal is None and np.abs(error).max() > _REACHED:
            raise DataError(
                f"{self.model.body(self.body).name!r} cannot be brought to a recorded pose by the "
                f"joints that carry it: it stays {np.linalg.norm(error[:3]):.3g} m away; "
                "are positions in metres and in the axes of the scene?"
            )
        return qpos[self.qpos]

    def _approached(
        self, position: np.ndarray, rotation: np.ndarray, begin: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The model's qpos (nq,) that comes nearest to a pose, and the error (6,) that is left.

        The error is in m, and rad times `_ROTATION_LENGTH`; weights (6, 6) of it are made small.
        """
        qpos = begin.copy()
        error = np.zeros(6)
        for _ in range(_ITERATIONS):
            data = self.at(qpos)
            error[:3] = position - data.xpos[self.body]
            turn = rotation @ data.xmat[self.body].reshape(3, 3).T
            error[3:] = _ROTATION_LENGTH * Rotation.from_matrix(turn).as_rotvec()
            weighted = weights @ error
            if np.abs(weighted).max() < _TOLERANCE:
                break
            jacobian = self.jacobian(data)[:, self.qvel]
            jacobian[3:] *= _ROTATION_LENGTH
            jacobian = weights @ jacobian
            normal_matrix = jacobian @ jacobian.T + _DAMPING**2 * np.eye(6)
            step = np.zeros(self.model.nv)
            step[self.qvel] = jacobian.T @ np.linalg.solve(normal_matrix, weighted)
            step *= min(1.0, _LARGEST_STEP / max(np.abs(step).max(), 1e-30))
            before = qpos.copy()
            mujoco.mj_integratePos(self.model, qpos, step, 1.0)
            self._clip(qpos)
            if np.abs(qpos - before).max() < _SMALLEST_STEP:
                break
        return qpos, error

    def _clip(self, qpos: np.ndarray) -> None:
        """Keep joints within their limits."""
        for joint in self.joints:
            if self.model.jnt_limited[joint] and self._kind(joint) in (_HINGE, _SLIDE):
                address = int(self.model.jnt_qposadr[joint])
                qpos[address] = np.clip(qpos[address], *self.model.jnt_range[joint])


def _in_plane_alone(normal: np.ndarray) -> np.ndarray:
    """Projection (6, 6) of errors of a pose on those in a plane with a given normal (3,)."""
    along = np.outer(normal, normal)
    projection = np.zeros((6, 6))
    projection[:3, :3] = np.eye(3) - along
    projection[3:, 3:] = along
    return projection


def joints_to_world(model: mujoco.MjModel, body: int) -> list[int]:
    """Joints between a body and the world, from the world outwards."""
    joints: list[int] = []
    while body > 0:
        first = int(model.body_jntadr[body])
        joints = [*range(first, first + int(model.body_jntnum[body])), *joints]
        body = int(model.body_parentid[body])
    return joints


def _coordinates_of(model: mujoco.MjModel, joint: int) -> np.ndarray:
    """Indices in qpos of a joint."""
    first = int(model.jnt_qposadr[joint])
    return np.arange(first, first + _COORDINATES[int(model.jnt_type[joint])])


def _velocities_of(model: mujoco.MjModel, joint: int) -> np.ndarray:
    """Indices in qvel of a joint."""
    return np.flatnonzero(model.dof_jntid == joint)
