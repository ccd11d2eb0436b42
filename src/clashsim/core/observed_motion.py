"""What recordings show of a scene's motion: poses of bodies and coordinates of joints.

Errors are counted in sizes of bodies: a position error over the body's size, and half a rotation
error in rad, which is how far the surface moves by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.joint_params import body_radius
from clashsim.core.kinematics import Kinematics, conjugate, logarithm, multiply
from clashsim.core.motion_scene import MotionScene
from clashsim.core.recorded_joints import match_joints, scalar_signals
from clashsim.core.trials import Trial, Trials

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_SIZES_PER_RADIAN = 0.5
_UNIT_LENGTH_ERROR = 0.05  # largest difference from 1 of a quaternion's length
FEWEST_FRAMES = 6  # of a trial
_POSE = 7
_RESIDUALS_OF_POSE = 6


@dataclass(frozen=True, eq=False)
class MotionTrial:
    """One recording as arrays, for a scene; NaN where something was not seen.

    Attributes:
        name: Name of the trial.
        t: Times (T,) from the first frame, s.
        poses: Poses (T, b, 7) of the observed bodies.
        joints: Coordinates (T, j) of the observed joints, rad or m.
        control: Controls (T, nu); zero for actuators that were not recorded.
    """

    name: str
    t: np.ndarray
    poses: np.ndarray
    joints: np.ndarray
    control: np.ndarray


@dataclass(frozen=True, eq=False)
class MotionObserver:
    """Which bodies and joints of a scene are observed, and how errors of them are counted.

    Attributes:
        kinematics: Kinematics of the scene.
        bodies: Indices of the b observed bodies.
        sizes: Sizes (b,) of these bodies, m: twice their radius.
        oriented: Whether the orientation of each body was recorded, (b,).
        joints: Indices of the j observed joints.
        joint_scale: Sizes per rad or m (j,) of these joints.
    """

    kinematics: Kinematics
    bodies: tuple[int, ...]
    sizes: np.ndarray
    oriented: np.ndarray
    joints: tuple[int, ...]
    joint_scale: np.ndarray

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the observed bodies."""
        return tuple(self.kinematics.model.body(body).name for body in self.bodies)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the observed joints."""
        return tuple(self.kinematics.model.joint(joint).name for joint in self.joints)

    @property
    def hinged(self) -> np.ndarray:
        """Which of the observed joints are hinges, (j,)."""
        return self.kinematics.model.jnt_type[list(self.joints)] == _SCALAR[0]

    def poses(self, qpos: np.ndarray) -> np.ndarray:
        """Poses (..., b, 7) of the observed bodies at joint coordinates (..., nq)."""
        flat = qpos.reshape(-1, qpos.shape[-1])
        if not self.bodies:
            return np.zeros((*qpos.shape[:-1], 0, _POSE))
        poses = self.kinematics.poses(flat, self.bodies)
        return poses.reshape(*qpos.shape[:-1], len(self.bodies), _POSE)

    def joint_coordinates(self, qpos: np.ndarray) -> np.ndarray:
        """Coordinates (..., j) of the observed joints at joint coordinates (..., nq)."""
        return qpos[..., self.kinematics.model.jnt_qposadr[list(self.joints)]]

    def residuals(self, qpos: np.ndarray, poses: np.ndarray, joints: np.ndarray) -> np.ndarray:
        """Differences between simulated and recorded motion, in sizes.

        Args:
            qpos: Simulated joint coordinates (..., nq).
            poses: Recorded poses (..., b, 7).
            joints: Recorded coordinates of joints (..., j).

        Returns:
            (..., 6 b + j): position and rotation of each body, then the joints; zero where nothing
            was recorded.
        """
        simulated = self.poses(qpos)
        position = (simulated[..., :3] - poses[..., :3]) / self.sizes[:, None]
        relative = multiply(conjugate(poses[..., 3:]), simulated[..., 3:])
        rotation = _SIZES_PER_RADIAN * logarithm(relative) * self.oriented[:, None]
        of_bodies = np.concatenate([position, rotation], axis=-1)
        of_bodies = of_bodies.reshape(*qpos.shape[:-1], _RESIDUALS_OF_POSE * len(self.bodies))
        difference = self.joint_coordinates(qpos) - joints
        # Recorded angles may be cut to a range; whole turns are no error.
        rounds = np.where(self.hinged, np.round(difference / (2 * np.pi)), 0.0)
        of_joints = (difference - 2 * np.pi * rounds) * self.joint_scale
        found = np.concatenate([of_bodies, of_joints], axis=-1)
        return np.where(np.isnan(poses_mask(poses, joints)), 0.0, found)


def poses_mask(poses: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Zero where residuals were recorded and NaN elsewhere; arguments as `residuals`."""
    of_pose = poses.sum(axis=-1, keepdims=True) * 0.0
    repeated = np.broadcast_to(of_pose, (*of_pose.shape[:-1], _RESIDUALS_OF_POSE))
    flat = repeated.reshape(*poses.shape[:-2], -1)
    return np.concatenate([flat, joints * 0.0], axis=-1)


@dataclass(frozen=True, eq=False)
class ObservedMotion:
    """Recordings of a scene's motion.

    Attributes:
        scene: The scene; its parameters play no part.
        observer: What was observed.
        trials: The recordings.
        notes: Sentences on what was left out or assumed.
    """

    scene: MotionScene
    observer: MotionObserver
    trials: tuple[MotionTrial, ...]
    notes: tuple[str, ...] = ()


def observe_trials(
    scene: MotionScene, trials: Trials, bodies: Sequence[str] = ()
) -> ObservedMotion:
    """Find the bodies and joints of a scene in trials.

    Args:
        scene: The scene.
        trials: The recordings.
        bodies: Names of the recorded bodies to use; all if there are none.

    Returns:
        The recordings as arrays.

    Raises:
        DataError: The scene lacks a body, nothing that moves was recorded, or numbers are wrong.
    """
    model = scene.author
    notes: list[str] = []
    used = _used_bodies(scene, trials, bodies, notes)
    joints = _recorded_joints(model, trials)
    if not used and not joints:
        signals = [name for trial in trials for name in scalar_signals(trial)]
        recorded = ", ".join(dict.fromkeys([*trials.bodies, *signals])) or "nothing"
        names = [model.joint(j).name for j in range(model.njnt)]
        moving = [model.body(b).name for b in range(1, model.nbody) if model.body_weldid[b]]
        known = ", ".join(name for name in dict.fromkeys([*moving, *names]) if name)
        raise DataError(
            f"the trials show no body or joint that moves in scene {scene.name!r}, which has "
            f"{known}; {recorded} was recorded"
        )
    indices = tuple(int(model.body(name).id) for name in used)
    sizes = np.array([2 * body_radius(model, body) for body in indices])
    joint_indices = tuple(int(model.joint(name).id) for name in joints)
    observer = MotionObserver(
        kinematics=Kinematics(model),
        bodies=indices,
        sizes=sizes,
        oriented=np.array([_is_oriented(trials, name, notes) for name in used], bool),
        joints=joint_indices,
        joint_scale=np.array([_joint_scale(model, joint) for joint in joint_indices]),
    )
    actuators = _recorded_actuators(model, trials, notes)
    arrays = tuple(_arrays(model, trial, used, joints, actuators) for trial in trials)
    return ObservedMotion(scene, observer, arrays, tuple(notes))


def _used_bodies(
    scene: MotionScene, trials: Trials, bodies: Sequence[str], notes: list[str]
) -> list[str]:
    """Names of the recorded bodies that move in the scene."""
    model = scene.author
    known = [model.body(b).name for b in range(1, model.nbody)]
    for name in bodies:
        if name not in trials.bodies:
            raise DataError(
                f"the trials have no body {name!r}; {did_you_mean(name, trials.bodies)}"
            )
    used = []
    for name in bodies or trials.bodies:
        if name not in known:
            raise DataError(
                f"scene {scene.name!r} has no body {name!r}, whose motion was recorded; "
                f"{did_you_mean(name, known)} (--bodies names the recorded bodies to use)"
            )
        body = int(model.body(name).id)
        if model.body_mocapid[model.body_rootid[body]] >= 0:
            raise DataError(
                f"body {name!r} of scene {scene.name!r} is a mocap body, which follows no physics: "
                "give it a joint, or leave it out with --bodies"
            )
        if int(model.body_weldid[body]) == 0:
            notes.append(f"body {name!r} was recorded but cannot move in the scene: left out")
            continue
        used.append(name)
    return used


def _recorded_joints(model: mujoco.MjModel, trials: Trials) -> dict[str, None]:
    """Names of the hinges and slides that a trial has a signal of, in the model's order."""
    names = []
    for joint in range(model.njnt):
        if int(model.jnt_type[joint]) in _SCALAR:
            names.append(model.joint(joint).name)
    found: set[str] = set()
    for trial in trials:
        found |= set(match_joints(names, scalar_signals(trial)))
    return dict.fromkeys(name for name in names if name in found)


def _recorded_actuators(
    model: mujoco.MjModel, trials: Trials, notes: list[str]
) -> tuple[str | None, ...]:
    """Name of the signal of each actuator, None where it was not recorded."""
    names: list[str | None] = []
    for i in range(model.nu):
        name = model.actuator(i).name
        recorded = bool(name) and all(name in trial.signals for trial in trials)
        names.append(name if recorded else None)
        if not recorded:
            notes.append(f"no control of actuator {name or i!r} was recorded: it is taken as 0")
    return tuple(names)


def _is_oriented(trials: Trials, body: str, notes: list[str]) -> bool:
    """Whether the orientation of a body was recorded: imports of points leave it the same."""
    quaternions = [trial.poses[body][:, 3:] for trial in trials if body in trial.poses]
    stacked = np.concatenate(quaternions)
    stacked = stacked[np.isfinite(stacked).all(axis=1)]
    if len(stacked) and np.all(stacked == [1.0, 0.0, 0.0, 0.0]):
        notes.append(f"the orientation of body {body!r} never changes: taken as not recorded")
        return False
    return True


def _joint_scale(model: mujoco.MjModel, joint: int) -> float:
    """Sizes per rad of a hinge or per m of a slide."""
    if int(model.jnt_type[joint]) == _SCALAR[0]:
        return _SIZES_PER_RADIAN
    return 1 / (2 * body_radius(model, int(model.jnt_bodyid[joint])))


def _arrays(
    model: mujoco.MjModel,
    trial: Trial,
    bodies: Sequence[str],
    joints: Sequence[str] | dict[str, None],
    actuators: Sequence[str | None],
) -> MotionTrial:
    """The arrays of one trial."""
    n = len(trial.t)
    if n < FEWEST_FRAMES:
        raise DataError(
            f"trial {trial.name!r} has {n} frames, and at least {FEWEST_FRAMES} are needed"
        )
    poses = np.full((n, len(bodies), _POSE), np.nan)
    for i, name in enumerate(bodies):
        if name in trial.poses:
            poses[:, i] = _checked_poses(trial, name)
    names = list(joints)
    coordinates = np.full((n, len(names)), np.nan)
    signals = scalar_signals(trial)
    for joint, signal in match_joints(names, signals).items():
        coordinates[:, names.index(joint)] = signals[signal]
    control = np.zeros((n, model.nu))
    for i, actuator in enumerate(actuators):
        if actuator is not None:
            control[:, i] = _held(trial, actuator)
    return MotionTrial(trial.name, trial.t - trial.t[0], poses, coordinates, control)


def _held(trial: Trial, actuator: str) -> np.ndarray:
    """Recorded controls (T,) of an actuator; where a logger has none, the last one holds."""
    values = np.asarray(trial.signals[actuator], float)
    seen = np.flatnonzero(np.isfinite(values))
    if not len(seen):
        raise DataError(
            f"trial {trial.name!r}: the control of actuator {actuator!r} has no number in any row"
        )
    last = np.searchsorted(seen, np.arange(len(values)), side="right") - 1
    return values[seen[np.maximum(last, 0)]]


def _checked_poses(trial: Trial, body: str) -> np.ndarray:
    """Poses (T, 7) of a body with quaternions of length 1; rows that are not finite become NaN."""
    poses = np.array(trial.poses[body], float)
    poses[~np.isfinite(poses).all(axis=1)] = np.nan
    length = np.linalg.norm(poses[:, 3:], axis=1)
    if np.any(np.abs(length - 1) > _UNIT_LENGTH_ERROR):
        worst = float(length[np.nanargmax(np.abs(length - 1))])
        raise DataError(
            f"trial {trial.name!r}: quaternions of {body!r} must have length 1, found {worst:.3g}"
        )
    poses[:, 3:] /= length[:, None]
    return poses
