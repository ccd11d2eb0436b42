"""Derivatives of recorded motion's residuals by forward mode in MJX."""

from __future__ import annotations

import numpy as np

from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import MotionObserver
from clashsim.fit.motion_loss import Linearise, MotionLoss
from clashsim.sim.mjx.simulator import MjxSim

_START_DIFFERENCE = 1e-4  # on the unit scale; starts are linear in the parameters
_POSE_DIFFERENCE = 1e-6  # of the tangents of joint coordinates


class MjxDerivatives:
    """Derivatives of losses of one scene; compiled programs are shared by all of them."""

    def __init__(self, scene: MotionScene) -> None:
        """Put the scene into MJX, or refuse it with the reason.

        Args:
            scene: The scene with the parameters to identify.
        """
        self._sim = MjxSim(scene)

    def __call__(self, loss: MotionLoss) -> Linearise:
        """The function that linearises a loss at a point."""

        def linearise(unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            qpos, by_unit = self._coordinates(loss, unit)
            problem = loss.problem
            return linear_residuals(
                problem.observer, qpos, by_unit, recorded=(problem.poses, problem.joints)
            )

        return linearise

    def _coordinates(self, loss: MotionLoss, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Joint coordinates (n, F, nq) at the compared frames, and derivatives (n, F, nq, p)."""
        problem = loss.problem
        p = len(unit)
        points = np.concatenate([unit[None], unit + _START_DIFFERENCE * np.eye(p)])
        starts = problem.moved(loss.starts, points)  # (p + 1, n, s)
        by_start = np.moveaxis((starts[1:] - starts[0]) / _START_DIFFERENCE, 0, 1)
        theta = problem.theta(unit[None])
        assert theta is not None
        states, jacobian = self._sim.rollout_with_jacobian(
            starts[0],
            problem.control,
            theta[0],
            free=range(p),
            finite=False,
            start_jacobian=by_start,
        )
        before, share = problem.steps_before()
        rows = np.arange(len(states))[:, None]
        nq = problem.observer.kinematics.model.nq
        weight = share[:, :, None, None]
        qpos = problem.at_frames(states[None])[0]
        earlier, later = jacobian[rows, before, :nq], jacobian[rows, before + 1, :nq]
        return qpos, (1 - weight) * earlier + weight * later


def linear_residuals(
    observer: MotionObserver,
    qpos: np.ndarray,
    by_unit: np.ndarray,
    *,
    recorded: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals and their derivatives from joint coordinates and theirs.

    Args:
        observer: What was observed.
        qpos: Joint coordinates (n, F, nq).
        by_unit: Their derivatives (n, F, nq, p).
        recorded: Recorded poses (n, F, b, 7) and coordinates of joints (n, F, j).

    Returns:
        Residuals (n, F, r) and derivatives (n, F, r, p); zero where a simulation was lost.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        base = observer.residuals(qpos, *recorded)
        columns = []
        for i in range(by_unit.shape[-1]):
            moved = qpos + _POSE_DIFFERENCE * by_unit[..., i]
            columns.append((observer.residuals(moved, *recorded) - base) / _POSE_DIFFERENCE)
        jacobian = np.stack(columns, axis=-1)
    lost = ~np.isfinite(base) | ~np.isfinite(jacobian).all(axis=-1)
    return np.where(lost, 0.0, base), np.where(lost[..., None], 0.0, jacobian)
