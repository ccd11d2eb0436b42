"""Joint coordinates of all recorded frames, by inverse kinematics."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.kinematics import Kinematics
from clashsim.core.loop_closure import LoopClosure
from clashsim.core.observed_motion import MotionObserver, MotionTrial, ObservedMotion

_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_HINGE = int(mujoco.mjtJoint.mjJNT_HINGE)
_STEPS = 30
_DAMPING = 1e-6
_DIFFERENCE = 1e-6  # m or rad
_FOUND = 0.03  # sizes, largest mean residual of a frame whose coordinates were found
_STARTS = 48  # of the first frame, if the scene's own posture does not lead to it
_BLIND = 1e-4  # sizes per rad or m below which a degree of freedom is not observed
_CLOSURE_WEIGHT = 10.0  # sizes per m over the size, or per rad, of loops that are not closed
_LARGEST_MISFIT = 0.5  # sizes, mean residual above which recording and scene do not fit together


@dataclass(frozen=True, eq=False)
class JointStates:
    """Joint coordinates of one trial.

    Attributes:
        qpos: (T, nq), interpolated at frames at which something was not seen.
        misfit: Root mean square residual of the frames, sizes.
    """

    qpos: np.ndarray
    misfit: float


def joint_states(motion: ObservedMotion, *, seed: int = 0) -> tuple[JointStates, ...]:
    """Find the joint coordinates of every frame.

    Args:
        motion: The recordings.
        seed: Seed of the postures from which inverse kinematics begins.

    Returns:
        The coordinates of each trial.

    Raises:
        DataError: A joint moves without being observed, or the scene cannot take recorded poses.
    """
    states = []
    for trial in motion.trials:
        states.append(_states_of(motion, trial, seed))
    _refuse_unobserved(motion, states)
    return tuple(states)


@dataclass(frozen=True, eq=False)
class _Posture:
    """What joint coordinates are found from: what was observed, and the scene's closed loops.

    Attributes:
        observer: What was observed.
        closure: The equality constraints of the scene.
    """

    observer: MotionObserver
    closure: LoopClosure

    def residuals(self, qpos: np.ndarray, poses: np.ndarray, joints: np.ndarray) -> np.ndarray:
        """Residuals (n, r) as of the observer, then those of the constraints."""
        found = self.observer.residuals(qpos, poses, joints)
        if not self.closure.exists:
            return found
        size = float(self.observer.sizes.mean()) if len(self.observer.sizes) else 1.0
        return np.hstack([found, _CLOSURE_WEIGHT / size * self.closure.residuals(qpos)])


def _states_of(motion: ObservedMotion, trial: MotionTrial, seed: int) -> JointStates:
    """Joint coordinates of one trial."""
    observer = motion.observer
    posture = _Posture(observer, LoopClosure(observer.kinematics.model))
    seen = np.isfinite(trial.poses).all(axis=(1, 2)) & np.isfinite(trial.joints).all(axis=1)
    if seen.sum() < 2:
        raise DataError(
            f"trial {trial.name!r} has no two frames at which all bodies and joints were seen"
        )
    poses, joints = trial.poses[seen], trial.joints[seen]
    first = _first_posture(posture, poses[:1], joints[:1], seed)
    guess = _with_observed(observer, np.tile(first, (len(poses), 1)), poses, joints)
    if posture.closure.exists:
        guess[0] = first
        guess = posture.closure.followed(guess, _unobserved_dofs(observer))
    found = _solve(posture, guess, poses, joints)
    residual = observer.residuals(found, poses, joints)
    misfit = float(np.sqrt((residual**2).sum(axis=1).mean()))
    if misfit > _LARGEST_MISFIT:
        raise DataError(
            f"trial {trial.name!r}: scene {motion.scene.name!r} cannot take the recorded poses, "
            f"which are {misfit:.2g} body sizes from the nearest that it can: check the frames of "
            "the bodies, the units and the joints"
        )
    found = _unwrapped(observer.kinematics.model, found)
    return JointStates(_filled(observer.kinematics, trial.t, seen, found), misfit)


def _with_observed(
    observer: MotionObserver, qpos: np.ndarray, poses: np.ndarray, joints: np.ndarray
) -> np.ndarray:
    """Joint coordinates (n, nq) with those that were recorded directly."""
    model = observer.kinematics.model
    qpos = np.array(qpos, float)
    for column, joint in enumerate(observer.joints):
        qpos[:, model.jnt_qposadr[joint]] = joints[:, column]
    for column, body in enumerate(observer.bodies):
        joint = int(model.body_jntadr[body])
        if joint >= 0 and int(model.jnt_type[joint]) == _FREE:
            start = int(model.jnt_qposadr[joint])
            qpos[:, start : start + 7] = poses[:, column]
    return qpos


def _unobserved_dofs(observer: MotionObserver) -> np.ndarray:
    """Mask (nv,) of the degrees of freedom of joints that were not recorded directly."""
    model = observer.kinematics.model
    direct = set(observer.joints)
    for body in observer.bodies:
        joint = int(model.body_jntadr[body])
        if joint >= 0 and int(model.jnt_type[joint]) == _FREE:
            direct.add(joint)
    return np.array([int(joint) not in direct for joint in model.dof_jntid])


def _first_posture(
    posture: _Posture, poses: np.ndarray, joints: np.ndarray, seed: int
) -> np.ndarray:
    """Joint coordinates (nq,) of one frame, from several postures."""
    observer = posture.observer
    model = observer.kinematics.model
    rng = np.random.default_rng(seed)
    guesses = np.tile(model.qpos0, (_STARTS, 1))
    for joint in range(model.njnt):
        address = int(model.jnt_qposadr[joint])
        if int(model.jnt_type[joint]) == _HINGE:
            low, high = (-np.pi, np.pi)
            if model.jnt_limited[joint]:
                low, high = model.jnt_range[joint]
            guesses[1:, address] = rng.uniform(low, high, _STARTS - 1)
    poses, joints = np.repeat(poses, _STARTS, 0), np.repeat(joints, _STARTS, 0)
    found = _solve(posture, _with_observed(observer, guesses, poses, joints), poses, joints)
    misfit = np.sqrt((posture.residuals(found, poses, joints) ** 2).sum(axis=1))
    if misfit[0] < _FOUND:
        return found[0]
    return found[int(misfit.argmin())]


def _solve(
    posture: _Posture, qpos: np.ndarray, poses: np.ndarray, joints: np.ndarray
) -> np.ndarray:
    """Joint coordinates (n, nq) that fit recorded frames best, by Gauss-Newton steps."""
    kinematics = posture.observer.kinematics
    residual = posture.residuals(qpos, poses, joints)
    cost = (residual**2).sum(axis=1)
    damping = np.full(len(qpos), _DAMPING)
    for _ in range(_STEPS):
        jacobian = _jacobian(posture, qpos, poses, joints)
        matrix = np.einsum("nri,nrj->nij", jacobian, jacobian)
        scale = np.einsum("nii->ni", matrix).max(axis=1, initial=0.0) + 1e-12
        matrix += (damping * scale)[:, None, None] * np.eye(matrix.shape[1])
        gradient = np.einsum("nri,nr->ni", jacobian, residual)
        step = -np.linalg.solve(matrix, gradient[..., None])[..., 0]
        step *= np.minimum(1.0, 1.0 / np.maximum(np.abs(step).max(axis=1), 1e-12))[:, None]
        moved = kinematics.integrate(qpos, step)
        new_residual = posture.residuals(moved, poses, joints)
        new_cost = (new_residual**2).sum(axis=1)
        better = new_cost < cost
        qpos = np.where(better[:, None], moved, qpos)
        residual = np.where(better[:, None], new_residual, residual)
        fall = np.where(better, cost - new_cost, 0.0)
        cost = np.where(better, new_cost, cost)
        damping = np.where(better, np.maximum(damping / 10, _DAMPING), damping * 10)
        if fall.max(initial=0.0) < 1e-14:
            break
    return qpos


def _jacobian(
    posture: _Posture, qpos: np.ndarray, poses: np.ndarray, joints: np.ndarray
) -> np.ndarray:
    """Derivatives (n, r, nv) of the residuals along each degree of freedom."""
    n = len(qpos)
    nv = int(posture.observer.kinematics.model.nv)
    base = posture.residuals(qpos, poses, joints)
    columns = []
    for dof in range(nv):
        step = np.zeros((n, nv))
        step[:, dof] = _DIFFERENCE
        moved = posture.observer.kinematics.integrate(qpos, step)
        columns.append((posture.residuals(moved, poses, joints) - base) / _DIFFERENCE)
    return np.stack(columns, axis=2)


def _refuse_unobserved(motion: ObservedMotion, states: list[JointStates]) -> None:
    """Raise a DataError that names a joint which moves without any effect on what was observed."""
    observer = motion.observer
    model = observer.kinematics.model
    posture = _Posture(observer, LoopClosure(model))
    total = np.zeros((model.nv, model.nv))
    count = 0
    for trial, state in zip(motion.trials, states, strict=True):
        rows = np.unique(np.linspace(0, len(trial.t) - 1, 8).astype(int))
        poses, joints = np.nan_to_num(trial.poses[rows], nan=1.0), trial.joints[rows]
        poses = np.where(np.isnan(trial.poses[rows]), observer.poses(state.qpos[rows]), poses)
        jacobian = _jacobian(posture, state.qpos[rows], poses, np.nan_to_num(joints))
        total += np.einsum("nri,nrj->ij", jacobian, jacobian)
        count += len(rows)
    values, vectors = np.linalg.eigh(total / count)
    for value, vector in zip(values, vectors.T, strict=True):
        if value > _BLIND**2:
            continue
        dof = int(np.abs(vector).argmax())
        if _is_unrecorded_rotation(observer, dof):
            continue
        joint = model.joint(int(model.dof_jntid[dof])).name
        body = model.body(int(model.dof_bodyid[dof])).name
        what = f"joint {joint!r}" if joint else f"the free joint of body {body!r}"
        raise DataError(
            f"{what} of scene {motion.scene.name!r} was not observed: record its "
            f"coordinate under its name, or the pose of body {body!r} or of one that it carries"
        )


def _is_unrecorded_rotation(observer: MotionObserver, dof: int) -> bool:
    """Whether a degree of freedom rotates a free body whose orientation was not recorded."""
    model = observer.kinematics.model
    joint = int(model.dof_jntid[dof])
    body = int(model.dof_bodyid[dof])
    if int(model.jnt_type[joint]) != _FREE or body not in observer.bodies:
        return False
    return not observer.oriented[observer.bodies.index(body)]


def _unwrapped(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Joint coordinates (n, nq) whose hinges do not jump by whole turns between frames."""
    for joint in range(model.njnt):
        if int(model.jnt_type[joint]) == _HINGE and not model.jnt_limited[joint]:
            address = int(model.jnt_qposadr[joint])
            qpos[:, address] = np.unwrap(qpos[:, address])
    return qpos


def _filled(
    kinematics: Kinematics, t: np.ndarray, seen: np.ndarray, found: np.ndarray
) -> np.ndarray:
    """Joint coordinates (T, nq) of all frames, from those (S, nq) of the seen ones."""
    times = t[seen]
    before = np.clip(np.searchsorted(times, t, side="right") - 1, 0, len(times) - 2)
    share = (t - times[before]) / (times[before + 1] - times[before])
    return kinematics.interpolate(found[before], np.clip(share, 0, 1), found[before + 1])
