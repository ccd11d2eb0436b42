"""Slides of a free body on the ground, stepped by MuJoCo until it rests."""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco import batch

from clashsim.core.angles import wrap_angle
from clashsim.core.scene import GROUND

_SETTLING_TIME = 0.3  # s, in which the body sinks into the ground and stands still
_CHECK_INTERVAL = 0.02  # s between two looks at whether all bodies rest
_REST_SPEED = 2e-3  # m/s
_REST_ANGULAR_SPEED = 2e-2  # rad/s


class MujocoSlider:
    """Slides of a free body on the ground of a pair called `ground`, with a friction for each."""

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
            twist: At the start, (N, 3).
            friction: Sliding and torsional (m), (N, 2) or (2,).
            longest: Seconds after which a slide ends in any case.

        Returns:
            Poses at rest, (N, 3); yaw is not wrapped.
        """
        n = len(pose)
        bodies = batch.Batch(self.model, n)
        sliding, torsional = np.broadcast_to(friction, (n, 2)).T
        pair_friction = bodies.expand("pair_friction")
        pair_friction[:, self.pair, :2] = sliding[:, None]
        pair_friction[:, self.pair, 2] = torsional
        qpos = bodies.bind("qpos")[:, self.qpos_start : self.qpos_start + 7]
        qvel = bodies.bind("qvel")[:, self.qvel_start : self.qvel_start + 6]
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
            if slow and np.abs(qvel[:, 5]).max() < _REST_ANGULAR_SPEED:
                break
        return np.column_stack([qpos[:, 0], qpos[:, 1], yaw])

    @staticmethod
    def _write_states(
        qpos: np.ndarray, qvel: np.ndarray, pose: np.ndarray, twist: np.ndarray
    ) -> None:
        """Write poses and twists (N, 3) into states; bodies keep the height at which they stand."""
        qpos[:, :2] = pose[:, :2]
        qpos[:, 3:] = 0.0
        qpos[:, 3] = np.cos(pose[:, 2] / 2)
        qpos[:, 6] = np.sin(pose[:, 2] / 2)
        qvel[:] = 0.0
        qvel[:, :2] = twist[:, :2]
        qvel[:, 5] = twist[:, 2]


def _yaw(quaternions: np.ndarray) -> np.ndarray:
    """Yaw (N,) of quaternions wxyz (N, 4), rad."""
    w, x, y, z = quaternions.T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
