"""Predictions of whole trajectories from their first frames, and their errors over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from clashsim.core.kinematics import conjugate, logarithm, multiply
from clashsim.core.params import to_unit
from clashsim.core.protocols import Simulator
from clashsim.fit.motion_segments import contact_depth, whole_trials
from clashsim.fit.recorded_scene import MotionFitConfig, RecordedScene
from clashsim.sim.mujoco.quiet_warnings import without_warnings

_LOST = 100.0  # sizes: predictions that are not finite count as this far off
_WATCHED_TRIALS = 12  # in which divergence is looked for, at most
_DIVERGED = (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
)
_DEPTH_FRAMES = 40  # of a trial, in which penetration is measured


@dataclass(frozen=True, eq=False)
class MotionPrediction:
    """Predictions of n trials, at F frames each; b bodies and j joints were recorded.

    Attributes:
        trials: Names of the trials.
        times: Times (n, F) from the first frame, s.
        qpos: Predicted joint coordinates (n, F, nq).
        recorded: Recorded poses (n, F, b, 7); NaN where a body was not seen.
        predicted: Predicted poses (n, F, b, 7).
        recorded_joints: Recorded coordinates (n, F, j) of joints, rad or m.
        predicted_joints: Predicted coordinates (n, F, j).
        misfit: Root mean square residuals (n,) of the whole trials, sizes.
        bodies: Names of the recorded bodies.
        joints: Names of the recorded joints.
        hinged: Which of these joints (j,) are hinges, the others being slides.
        sizes: Sizes (b,) of the bodies, m.
        start_frames: Number of frames (n,) that the start of each trial was fitted to.
    """

    trials: tuple[str, ...]
    times: np.ndarray
    qpos: np.ndarray
    recorded: np.ndarray
    predicted: np.ndarray
    recorded_joints: np.ndarray
    predicted_joints: np.ndarray
    misfit: np.ndarray
    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    hinged: np.ndarray
    sizes: np.ndarray
    start_frames: np.ndarray

    @property
    def position_error(self) -> np.ndarray:
        """Distances (n, F, b) between predicted and recorded positions, m."""
        distance = np.linalg.norm(self.predicted[..., :3] - self.recorded[..., :3], axis=-1)
        lost = ~np.isfinite(self.predicted[..., :3]).all(axis=-1)
        return np.where(lost, _LOST * self.sizes, np.minimum(distance, _LOST * self.sizes))

    @property
    def rotation_error(self) -> np.ndarray:
        """Angles (n, F, b) between predicted and recorded rotations, rad."""
        relative = multiply(conjugate(self.recorded[..., 3:]), self.predicted[..., 3:])
        angle = np.linalg.norm(logarithm(relative), axis=-1)
        lost = ~np.isfinite(self.predicted[..., 3:]).all(axis=-1)
        return np.where(lost, np.pi, angle)

    @property
    def joint_error(self) -> np.ndarray:
        """Differences (n, F, j) of joint coordinates, rad or m; whole turns do not count."""
        difference = np.nan_to_num(self.predicted_joints, nan=_LOST) - self.recorded_joints
        rounds = np.where(self.hinged, np.round(difference / (2 * np.pi)), 0.0)
        return np.abs(difference - 2 * np.pi * rounds)


def predict_trials(
    recorded: RecordedScene,
    theta: np.ndarray | None,
    *,
    simulator: Simulator | None = None,
    timestep: float | None = None,
    longest: float = np.inf,
    frames: int = 200,
) -> MotionPrediction:
    """Predict trials from their first frames.

    Args:
        recorded: The scene with its parameters, and the trials.
        theta: Parameters (p,), natural units; None for a scene without parameters.
        simulator: What predicts; MuJoCo with these parameters by default. Starts are fitted in
            MuJoCo.
        timestep: Time step of the simulator, s, where it is not the scene's.
        longest: Duration that is predicted at most, s.
        frames: Number of frames of a trial that are compared, at most.

    Returns:
        The predictions.
    """
    config = MotionFitConfig(frames=frames)
    segments = whole_trials(recorded.motion, recorded.contacts, longest)
    problem = recorded.problem(segments, config)
    params = recorded.scene.params
    unit = np.zeros(0) if theta is None else to_unit(params, theta)
    starts = problem.fit_starts(unit, differentiate=False)
    with np.errstate(over="ignore", invalid="ignore"):
        if simulator is None:
            thetas = None if theta is None else theta[None]
            qpos = problem.rollouts(starts.state[None], thetas)[0]
        else:
            control = problem.control
            if timestep is not None:
                steps = int(np.ceil(problem.times.max() / timestep - 1e-9))
                control = np.zeros((len(segments), steps, 0))
            states = simulator.rollout(starts.state, control)
            qpos = problem.at_frames(states[None], timestep)[0]
        observer = problem.observer
        predicted = observer.poses(qpos)
        residual = observer.residuals(qpos, problem.poses, problem.joints)
    residual = np.nan_to_num(residual, nan=_LOST, posinf=_LOST, neginf=-_LOST)
    return MotionPrediction(
        trials=tuple(recorded.motion.trials[s.trial].name for s in segments),
        times=problem.times,
        qpos=qpos,
        recorded=problem.poses,
        predicted=predicted,
        recorded_joints=problem.joints,
        predicted_joints=observer.joint_coordinates(qpos),
        misfit=problem.root_mean_squares(np.clip(residual, -_LOST, _LOST)),
        bodies=observer.body_names,
        joints=observer.joint_names,
        hinged=observer.hinged,
        sizes=observer.sizes,
        start_frames=np.array([segment.start_frames for segment in segments]),
    )


def diverging_trials(recorded: RecordedScene, theta: np.ndarray | None) -> list[str]:
    """Names of the trials in whose simulation MuJoCo meets numbers that are not finite or huge.

    MuJoCo then begins again from the reference, so that predictions look finite.

    Args:
        recorded: The scene with its parameters, and the trials.
        theta: Parameters (p,), natural units; None for a scene without parameters.
    """
    segments = recorded.whole()[:_WATCHED_TRIALS]
    problem = recorded.problem(segments, MotionFitConfig())
    unit = np.zeros(0) if theta is None else to_unit(recorded.scene.params, theta)
    starts = problem.fit_starts(unit, differentiate=False)
    model = recorded.scene.model(theta)
    data = mujoco.MjData(model)
    full = int(mujoco.mjtState.mjSTATE_PHYSICS)
    names = []
    for i, segment in enumerate(segments):
        mujoco.mj_resetData(model, data)
        mujoco.mj_setState(model, data, starts.state[i], full)
        with without_warnings():
            for control in problem.control[i]:
                data.ctrl[:] = control
                mujoco.mj_step(model, data)
        if any(data.warning[int(kind)].number for kind in _DIVERGED):
            names.append(recorded.motion.trials[segment.trial].name)
    return names


def error_figures(prediction: MotionPrediction) -> dict[str, Any]:
    """Errors of predictions: means over frames, then means and medians over trials.

    Args:
        prediction: The predictions.

    Returns:
        Entries of metrics.json: "error" (root mean square, sizes), and by body and joint.
    """
    bodies = {}
    position = _over_frames(prediction.position_error)
    rotation = np.degrees(_over_frames(prediction.rotation_error))
    for i, body in enumerate(prediction.bodies):
        bodies[body] = {
            "position_pct": _figure(100 * position[:, i] / prediction.sizes[i]),
            "position_mm": _figure(1e3 * position[:, i]),
            "rotation_deg": _figure(rotation[:, i]),
        }
    joints = {}
    of_joints = _over_frames(prediction.joint_error)
    for i, joint in enumerate(prediction.joints):
        scale, key = (np.degrees(1.0), "deg") if prediction.hinged[i] else (1e3, "mm")
        joints[joint] = {key: _figure(scale * of_joints[:, i])}
    return {
        "error": float(prediction.misfit.mean()),
        "median": float(np.median(prediction.misfit)),
        "bodies": bodies,
        "joints": joints,
    }


def _over_frames(errors: np.ndarray) -> np.ndarray:
    """Means (n, k) of errors (n, F, k) over the frames at which something was recorded."""
    seen = np.isfinite(errors)
    return np.where(seen, errors, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)


def _figure(values: np.ndarray) -> dict[str, float]:
    """Mean and median of values (n,) of trials."""
    return {"mean": float(values.mean()), "median": float(np.median(values))}


def penetration(
    recorded: RecordedScene, prediction: MotionPrediction, *, of_recording: bool = False
) -> Mapping[str, float] | None:
    """How deep bodies are inside each other.

    Args:
        recorded: The scene and the trials.
        prediction: Predictions of the trials.
        of_recording: Measure the recorded motion instead of the predicted one.

    Returns:
        "mean_mm" (over frames with contact) and "largest_mm"; None without contact.
    """
    if not recorded.has_contact:
        return None
    scene = recorded.scene
    data = mujoco.MjData(scene.author)
    depths = []
    for i, times in enumerate(prediction.times):
        rows = np.unique(np.linspace(0, len(times) - 1, _DEPTH_FRAMES).astype(int))
        for row in rows:
            qpos = prediction.qpos[i, row]
            if of_recording:
                qpos = _recorded_qpos(recorded, prediction.trials[i], times[row])
            if not np.isfinite(qpos).all():
                continue
            data.qpos[:] = qpos
            mujoco.mj_kinematics(scene.author, data)
            found = [contact_depth(scene, data, name) for name in recorded.contacts.touching]
            depths.append(max(found))
    touching = [depth for depth in depths if depth > 0]
    if not touching:
        return {"mean_mm": 0.0, "largest_mm": 0.0}
    return {"mean_mm": 1e3 * float(np.mean(touching)), "largest_mm": 1e3 * max(touching)}


def _recorded_qpos(recorded: RecordedScene, name: str, time: float) -> np.ndarray:
    """Joint coordinates (nq,) of a recorded frame."""
    trials: Sequence[Any] = recorded.motion.trials
    for trial, state in zip(trials, recorded.states, strict=True):
        if trial.name == name:
            row = int(np.abs(trial.t - time).argmin())
            return state.qpos[row]
    raise KeyError(name)
