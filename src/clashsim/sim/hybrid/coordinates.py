"""Arithmetic of MuJoCo's coordinates for many simulations at once."""

from __future__ import annotations

import mujoco
import numpy as np

from clashsim.sim.hybrid.compiled_steps import move_in_body_axes
from clashsim.sim.hybrid.row_math import cross, dot

_QUATERNION_JOINTS = {
    int(mujoco.mjtJoint.mjJNT_FREE): 3,  # entries of qpos and qvel before the quaternion
    int(mujoco.mjtJoint.mjJNT_BALL): 0,
}
_SMALLEST_SINE = 1e-12  # of half an angle, below which a rotation has no axis


class Coordinates:
    """Where quaternions are in a model's qpos, and rotations in its qvel."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self._quaternions: list[tuple[slice, slice]] = []
        plain_qpos: list[int] = []
        plain_qvel: list[int] = []
        for joint in range(model.njnt):
            qpos = int(model.jnt_qposadr[joint])
            qvel = int(model.jnt_dofadr[joint])
            plain = _QUATERNION_JOINTS.get(int(model.jnt_type[joint]))
            straight = 1 if plain is None else plain
            plain_qpos += range(qpos, qpos + straight)
            plain_qvel += range(qvel, qvel + straight)
            if plain is not None:
                quaternion = slice(qpos + plain, qpos + plain + 4)
                self._quaternions.append((quaternion, slice(qvel + plain, qvel + plain + 3)))
        self._plain_qpos = np.array(plain_qpos, int)
        self._plain_qvel = np.array(plain_qvel, int)

    def velocity(self, before: np.ndarray, after: np.ndarray, duration: np.ndarray) -> np.ndarray:
        """Constant velocities that lead from one position to another, as `mj_differentiatePos`.

        Args:
            before: (n, nq).
            after: (n, nq).
            duration: (n,), s.

        Returns:
            (n, nv).
        """
        columns = len(self._plain_qvel) + 3 * len(self._quaternions)
        change = np.empty((len(before), columns))
        change[:, self._plain_qvel] = after[:, self._plain_qpos] - before[:, self._plain_qpos]
        for quaternion, rotation in self._quaternions:
            inverse = before[:, quaternion] * [1.0, -1.0, -1.0, -1.0]
            change[:, rotation] = _rotation_vector(_product(inverse, after[:, quaternion]))
        return change / duration[:, None]

    def moved(self, qpos: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Positions (n, nq) after velocities times durations (n, nv), as `mj_integratePos`."""
        out = qpos.copy()
        out[:, self._plain_qpos] += change[:, self._plain_qvel]
        for quaternion, rotation in self._quaternions:
            move_in_body_axes(out, change, quaternion.start, rotation.start)
        return out


def _product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Products (n, 4) of quaternions wxyz (n, 4)."""
    out = np.empty_like(first)
    v = first[:, 1:]
    w = second[:, 1:]
    out[:, 0] = first[:, 0] * second[:, 0] - dot(v, w)
    out[:, 1:] = first[:, :1] * w + second[:, :1] * v + cross(v, w)
    return out


def _rotation_vector(quaternion: np.ndarray) -> np.ndarray:
    """Rotation vectors (n, 3), rad, at most pi long, of unit quaternions wxyz (n, 4)."""
    vector = quaternion[:, 1:]
    sine = np.sqrt(dot(vector, vector))
    angle = 2 * np.arctan2(sine, quaternion[:, 0])
    angle = np.where(angle > np.pi, angle - 2 * np.pi, angle)
    factor = np.where(sine > _SMALLEST_SINE, angle / np.maximum(sine, _SMALLEST_SINE), 2.0)
    return factor[:, None] * vector
