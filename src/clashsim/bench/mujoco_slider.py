"""Simulates a free body that slides to rest on the ground, stepped by MuJoCo until it rests."""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.angles import wrap_angle
from clashsim.core.scene import GROUND

_SETTLING_TIME = 0.3  # s, in which the body settles on the ground before its slide
_CHECK_INTERVAL = 0.02  # s between two checks of whether all bodies rest
_REST_SPEED = 2e-3  # m/s, below which a body rests
_REST_ANGULAR_SPEED = 2e-2  # rad/s, below which a body rests
# Layout of a free joint in MuJoCo: qpos is position, quaternion wxyz; qvel is velocity, angular
# velocity.
_NUM_QPOS = 7
_NUM_QVEL = 6
_QUATERNION_W = 3
_QUATERNION_Z = 6
_YAW_RATE = 5


class MujocoSlider:
    """Simulates a free body that slides to rest on the ground, each with its own friction.

    The model has one free body, whose contact with the ground is the pair `ground`.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = model
        self.pair = model.pair(GROUND).id
        is_free = model.jnt_type == mujoco.mjtJoint.mjJNT_FREE
        joint = int(np.flatnonzero(is_free)[0])
        self.qpos_start = int(model.jnt_qposadr[joint])
        self.qvel_start = int(model.jnt_dofadr[joint])

    def rest(
        self, pose: np.ndarray, twist: np.ndarray, friction: np.ndarray, *, longest: float = 4.0
    ) -> np.ndarray:
        """Slide N bodies to rest.

        Args:
            pose: At the start, (N, 3): x, y (m), yaw (rad).
            twist: At the start, (N, 3), m/s and rad/s.
            friction: Sliding friction and torsional friction (m), (N, 2) or (2,).
            longest: Seconds after which a slide ends even if the body still moves.

        Returns:
            Poses at rest, (N, 3); yaw is not wrapped.
        """
        n = len(pose)
        bodies = batch.Batch(self.model, n)
        sliding, torsional = np.broadcast_to(friction, (n, 2)).T
        pair_friction = bodies.expand("pair_friction")
        pair_friction[:, self.pair, :2] = sliding[:, None]
        pair_friction[:, self.pair, 2] = torsional
        qpos = bodies.bind("qpos")[:, self.qpos_start : self.qpos_start + _NUM_QPOS]
        qvel = bodies.bind("qvel")[:, self.qvel_start : self.qvel_start + _NUM_QVEL]
        timestep = self.model.opt.timestep
        bodies.step(nstep=round(_SETTLING_TIME / timestep))
        self._write_states(qpos, qvel, pose, twist)
        yaw = pose[:, 2].copy()
        steps_between_checks = round(_CHECK_INTERVAL / timestep)
        for _ in range(round(longest / _CHECK_INTERVAL)):
            bodies.step(nstep=steps_between_checks)
            yaw_change = _yaw(qpos[:, 3:]) - yaw
            yaw += wrap_angle(yaw_change)
            slow = np.abs(qvel[:, :2]).max() < _REST_SPEED
            if slow and np.abs(qvel[:, _YAW_RATE]).max() < _REST_ANGULAR_SPEED:
                break
        return np.column_stack([qpos[:, 0], qpos[:, 1], yaw])

    @staticmethod
    def _write_states(
        qpos: np.ndarray, qvel: np.ndarray, pose: np.ndarray, twist: np.ndarray
    ) -> None:
        """Write poses and twists (N, 3) into states; bodies keep the height at which they stand."""
        qpos[:, :2] = pose[:, :2]
        qpos[:, 3:] = 0.0
        qpos[:, _QUATERNION_W] = np.cos(pose[:, 2] / 2)
        qpos[:, _QUATERNION_Z] = np.sin(pose[:, 2] / 2)
        qvel[:] = 0.0
        qvel[:, :2] = twist[:, :2]
        qvel[:, _YAW_RATE] = twist[:, 2]


def _yaw(quaternions: np.ndarray) -> np.ndarray:
    """Yaw (N,) of quaternions wxyz (N, 4), rad."""
    w, x, y, z = quaternions.T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
