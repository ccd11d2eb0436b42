"""Equality constraints of a scene: linkages that close, and joints that are coupled."""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np

_STEPS = 8  # Newton steps of one frame
_CLOSED = 1e-9  # m or rad
_SMALLEST_RESPONSE = 1e-6  # relative singular value below which a direction changes nothing


def _silent_model(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of a model whose only constraints are equalities."""
    copied = model.__copy__()
    disabled = mujoco.mjtDisableBit
    for bit in (disabled.mjDSBL_CONTACT, disabled.mjDSBL_LIMIT, disabled.mjDSBL_FRICTIONLOSS):
        copied.opt.disableflags |= int(bit)
    # Sparse rows of Jacobians would have to be unpacked.
    copied.opt.jacobian = int(mujoco.mjtJacobian.mjJAC_DENSE)
    return copied


@dataclass(frozen=True, eq=False)
class LoopClosure:
    """The equality constraints of a model, as residuals of joint coordinates.

    Attributes:
        model: The model.
    """

    model: mujoco.MjModel
    _own: mujoco.MjModel = field(init=False)
    _data: mujoco.MjData = field(init=False)

    def __post_init__(self) -> None:
        own = _silent_model(self.model)
        object.__setattr__(self, "_own", own)
        object.__setattr__(self, "_data", mujoco.MjData(own))

    @property
    def exists(self) -> bool:
        """Whether the model has any active equality constraint."""
        return bool(self.model.neq) and bool(np.any(self.model.eq_active0))

    def residuals(self, qpos: np.ndarray) -> np.ndarray:
        """How far constraints are from being met.

        Args:
            qpos: Joint coordinates (n, nq).

        Returns:
            (n, e), m and rad.
        """
        return np.array([self._at(row)[0] for row in qpos])

    def projectors(self, qpos: np.ndarray) -> np.ndarray:
        """Projections of velocities onto those that the constraints allow.

        Args:
            qpos: Joint coordinates (n, nq).

        Returns:
            (n, nv, nv).
        """
        identity = np.eye(self.model.nv)
        found = []
        for row in qpos:
            jacobian = self._at(row)[1]
            inverse = np.linalg.pinv(jacobian, rcond=_SMALLEST_RESPONSE)
            found.append(identity - inverse @ jacobian)
        return np.array(found)

    def followed(self, qpos: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Close the loops of successive frames, each from the one before.

        Args:
            qpos: Joint coordinates (n, nq), the first of which are closed.
            free: Mask (nv,) of the degrees of freedom that may be changed.

        Returns:
            Joint coordinates (n, nq); those that may not be changed are as given.
        """
        closed = np.array(qpos, float)
        fixed = self._fixed_coordinates(free)
        for i in range(1, len(closed)):
            row = closed[i - 1].copy()
            row[fixed] = qpos[i, fixed]
            for _ in range(_STEPS):
                residual, jacobian = self._at(row)
                if np.abs(residual).max(initial=0.0) < _CLOSED:
                    break
                step = np.zeros(self.model.nv)
                inverse = np.linalg.pinv(jacobian[:, free], rcond=_SMALLEST_RESPONSE)
                step[free] = -inverse @ residual
                mujoco.mj_integratePos(self.model, row, step, 1.0)
            closed[i] = row
        return closed

    def _fixed_coordinates(self, free: np.ndarray) -> np.ndarray:
        """Mask (nq,) of the coordinates of joints that may not be changed."""
        fixed = np.zeros(self.model.nq, bool)
        for joint in range(self.model.njnt):
            first = int(self.model.jnt_qposadr[joint])
            last = self.model.nq
            if joint + 1 < self.model.njnt:
                last = int(self.model.jnt_qposadr[joint + 1])
            fixed[first:last] = not free[int(self.model.jnt_dofadr[joint])]
        return fixed

    def _at(self, qpos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (e,) and their Jacobian (e, nv) at joint coordinates (nq,)."""
        self._data.qpos[:] = qpos
        mujoco.mj_fwdPosition(self._own, self._data)
        rows = self._data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)
        jacobian = self._data.efc_J.reshape(-1, self.model.nv)
        return self._data.efc_pos[rows].copy(), jacobian[rows].copy()
