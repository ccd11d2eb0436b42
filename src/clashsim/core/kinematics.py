"""Poses of bodies for many joint coordinates at once, without stepping a model row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_BALL = int(mujoco.mjtJoint.mjJNT_BALL)
_SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
_SMALL_ANGLE = 1e-12  # rad, below which a rotation has no axis


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product of quaternions wxyz (..., 4)."""
    aw, ax, ay, az = np.moveaxis(np.asarray(a, float), -1, 0)
    bw, bx, by, bz = np.moveaxis(np.asarray(b, float), -1, 0)
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=-1,
    )


def conjugate(q: np.ndarray) -> np.ndarray:
    """Inverse rotations of unit quaternions wxyz (..., 4)."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def rotate(q: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Vectors (..., 3) rotated by unit quaternions wxyz (..., 4)."""
    axis = q[..., 1:]
    doubled = 2 * np.cross(axis, vector)
    return vector + q[..., :1] * doubled + np.cross(axis, doubled)


def exponential(rotation: np.ndarray) -> np.ndarray:
    """Quaternions wxyz (..., 4) of rotation vectors (..., 3), rad."""
    angle = np.linalg.norm(rotation, axis=-1, keepdims=True)
    half = np.sinc(angle / (2 * np.pi)) / 2
    return np.concatenate([np.cos(angle / 2), half * rotation], axis=-1)


def logarithm(q: np.ndarray) -> np.ndarray:
    """Rotation vectors (..., 3), rad, at most pi long, of unit quaternions wxyz (..., 4)."""
    q = np.where(q[..., :1] < 0, -q, q)
    length = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(length, q[..., :1])
    ratio = np.where(length > _SMALL_ANGLE, angle / np.maximum(length, _SMALL_ANGLE), 2.0)
    return ratio * q[..., 1:]


def normalise(q: np.ndarray) -> np.ndarray:
    """Quaternions (..., 4) of length 1."""
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Kinematics:
    """Forward kinematics of a model, and its tangent space.

    Attributes:
        model: The model; its body and joint frames are used.
    """

    model: mujoco.MjModel

    def poses(self, qpos: np.ndarray, bodies: Sequence[int]) -> np.ndarray:
        """Poses of bodies.

        Args:
            qpos: Joint coordinates (n, nq).
            bodies: Indices of b bodies.

        Returns:
            Poses (n, b, 7), position (m) and quaternion wxyz in world axes.
        """
        n = len(qpos)
        world = np.tile([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], (n, 1))
        done: dict[int, np.ndarray] = {0: world}

        def pose(body: int) -> np.ndarray:
            if body not in done:
                parent = pose(int(self.model.body_parentid[body]))
                done[body] = self._pose(qpos, body, parent)
            return done[body]

        return np.stack([pose(body) for body in bodies], axis=1)

    def _pose(self, qpos: np.ndarray, body: int, parent: np.ndarray) -> np.ndarray:
        """Pose (n, 7) of a body, given that of its parent."""
        model = self.model
        first = int(model.body_jntadr[body])
        joints = range(first, first + int(model.body_jntnum[body]))
        if len(joints) == 1 and int(model.jnt_type[first]) == _FREE:
            start = int(model.jnt_qposadr[first])
            free = qpos[:, start : start + 7]
            return np.concatenate([free[:, :3], normalise(free[:, 3:])], axis=1)
        position = parent[:, :3] + rotate(parent[:, 3:], model.body_pos[body])
        quaternion = multiply(parent[:, 3:], model.body_quat[body])
        for joint in joints:
            start = int(model.jnt_qposadr[joint])
            axis = model.jnt_axis[joint]
            kind = int(model.jnt_type[joint])
            if kind == _SLIDE:
                moved = qpos[:, start] - model.qpos0[start]
                position = position + rotate(quaternion, axis) * moved[:, None]
                continue
            anchor = position + rotate(quaternion, model.jnt_pos[joint])
            if kind == _BALL:
                local = normalise(qpos[:, start : start + 4])
            else:
                angle = qpos[:, start] - model.qpos0[start]
                local = exponential(angle[:, None] * axis)
            quaternion = multiply(quaternion, local)
            position = anchor - rotate(quaternion, model.jnt_pos[joint])
        return np.concatenate([position, quaternion], axis=1)

    def integrate(self, qpos: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Joint coordinates after a step in the tangent space, as mj_integratePos.

        Args:
            qpos: (n, nq).
            step: (n, nv), m and rad; rotations of free and ball joints in the body's axes.

        Returns:
            Joint coordinates (n, nq).
        """
        moved = np.array(qpos, float)
        for joint in range(self.model.njnt):
            q, v, rotates = self._addresses(joint)
            size = 3 if int(self.model.jnt_type[joint]) == _FREE else 0
            if size or not rotates:
                count = size or 1
                moved[:, q : q + count] += step[:, v : v + count]
            if rotates:
                local = exponential(step[:, v + size : v + size + 3])
                rows = slice(q + size, q + size + 4)
                moved[:, rows] = normalise(multiply(moved[:, rows], local))
        return moved

    def difference(self, qpos: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The step (n, nv) in the tangent space from `qpos` (n, nq) to `other` (n, nq)."""
        step = np.zeros((len(qpos), self.model.nv))
        for joint in range(self.model.njnt):
            q, v, rotates = self._addresses(joint)
            size = 3 if int(self.model.jnt_type[joint]) == _FREE else 0
            if size or not rotates:
                count = size or 1
                step[:, v : v + count] = other[:, q : q + count] - qpos[:, q : q + count]
            if rotates:
                rows = slice(q + size, q + size + 4)
                relative = multiply(conjugate(qpos[:, rows]), other[:, rows])
                step[:, v + size : v + size + 3] = logarithm(relative)
        return step

    def interpolate(self, qpos: np.ndarray, share: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Joint coordinates a share (n,) of the way from `qpos` (n, nq) to `after` (n, nq)."""
        mixed = qpos + share[:, None] * (after - qpos)
        for joint in range(self.model.njnt):
            q, _, rotates = self._addresses(joint)
            if rotates:
                start = q + 3 if int(self.model.jnt_type[joint]) == _FREE else q
                rows = slice(start, start + 4)
                mixed[:, rows] = normalise(mixed[:, rows])
        return mixed

    def _addresses(self, joint: int) -> tuple[int, int, bool]:
        """First index of a joint in qpos and in qvel, and whether it has a quaternion."""
        rotates = int(self.model.jnt_type[joint]) in (_FREE, _BALL)
        return int(self.model.jnt_qposadr[joint]), int(self.model.jnt_dofadr[joint]), rotates
