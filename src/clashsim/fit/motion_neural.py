"""Networks in the torques of joints, trained on what identified parameters leave unexplained.

After Heiden et al. 2020: each window of a trial has a start of its own (multiple shooting), and the
weights of all networks are shared. Part of the trials decides whether the networks are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from clashsim.core.augmentation_spec import NeuralScalar, initial_weights
from clashsim.core.errors import SceneError
from clashsim.core.motion_scene import MotionScene
from clashsim.core.progress import Progress, quiet
from clashsim.fit.learned_friction import LearnedFriction, suggest_friction
from clashsim.fit.motion_fit import MotionFit
from clashsim.fit.motion_problem import Segment, guess_start
from clashsim.fit.motion_segments import segments_of
from clashsim.fit.recorded_scene import RecordedScene
from clashsim.fit.shooting import (
    FreeParameters,
    ObservationModel,
    TrajectoryWindows,
    fit_by_shooting,
    rollout_uncontrolled,
    shorten_windows,
)
from clashsim.sim.augmented.simulator import AugmentedSim

_SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), _SLIDE)
_ALL_JOINTS = 3  # up to so many joints, each network reads all of them
_LEAST_SPEED = 0.1  # rad/s or m/s
_TORQUE_RATE = 2.0  # 1/s: an output of 1 changes a joint's usual speed at this rate
_LOG_SPEED_SCALE = 1.0
_LEAST_NOISE = 1e-3  # rad or m
# Share of the error without networks below which they are kept: small gains on a few trials were
# losses on others.
_LEAST_GAIN = 0.8
_FEWEST_TRIALS = 3  # for which some are kept back to judge the networks


@dataclass(frozen=True)
class NeuralFitConfig:
    """How networks are trained.

    Attributes:
        units: Hidden units of each network.
        dissipative: Whether networks act on the damping of joints, which they keep positive, so
            that they only take energy from the joints, instead of adding a torque.
        seconds: Durations of the windows, one after the other.
        windows: Number of windows at most.
        steps: Levenberg-Marquardt steps on each set of windows.
        ridge: Weight of the squared distance of the weights from their initial values.
        seed: Seed of the first weights.
    """

    units: int = 6
    dissipative: bool = False
    seconds: tuple[float, ...] = (0.1, 0.3)
    windows: int = 48
    steps: int = 12
    ridge: float = 1e-4
    seed: int = 0


@dataclass(frozen=True, eq=False)
class NeuralFit:
    """Trained networks.

    Attributes:
        augmentation: The neural scalars.
        weights: Weights (w,) of all networks; they output zero where they were not kept.
        error_without: Geometric mean of the errors without networks, in units of the noise, on
            trials that were not trained on.
        error: The same with networks.
        friction: Formulas that describe the friction which kept networks learned.
    """

    augmentation: tuple[NeuralScalar, ...]
    weights: np.ndarray
    error_without: float
    error: float
    friction: tuple[LearnedFriction, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether networks predict clearly better than none."""
        return self.error < _LEAST_GAIN * self.error_without


def joint_networks(
    recorded: RecordedScene, units: int, *, dissipative: bool = False
) -> tuple[NeuralScalar, ...]:
    """A network in the torque of each joint, or in its damping.

    Args:
        recorded: The scene and the trials, which tell the speeds of the joints.
        units: Hidden units of each network.
        dissipative: Whether networks only brake, as in `NeuralFitConfig`.

    Returns:
        The neural scalars.

    Raises:
        SceneError: A joint is neither a hinge nor a slide.
    """
    scene = recorded.scene
    model = scene.author
    names = _scalar_joints(scene)
    speeds = {}
    for joint in range(model.njnt):
        address = int(model.jnt_qposadr[joint])
        rates = [
            np.diff(state.qpos[:, address]) / np.diff(trial.t)
            for trial, state in zip(recorded.motion.trials, recorded.states, strict=True)
        ]
        speed = float(np.sqrt(np.mean(np.concatenate(rates) ** 2)))
        speeds[names[joint]] = max(speed, _LEAST_SPEED)
    scalars = []
    for joint, name in enumerate(names):
        reads, scales = _inputs(model, names if len(names) <= _ALL_JOINTS else [name], speeds)
        inertia = float(model.dof_M0[int(model.jnt_dofadr[joint])])
        scalar = NeuralScalar(
            f"force/{name}",
            reads,
            units=units,
            scale=_TORQUE_RATE * inertia * speeds[name],
            input_scales=scales,
        )
        if dissipative:
            scalar = replace(
                scalar,
                target=f"joint/{name}/damping",
                reads=(*reads, f"logspeed/{name}"),
                input_scales=(*scales, _LOG_SPEED_SCALE),
                mode="positive",
                scale=_TORQUE_RATE * inertia,
            )
        scalars.append(scalar)
    return tuple(scalars)


def _scalar_joints(scene: MotionScene) -> list[str]:
    """Names of all joints; raises a SceneError unless they are hinges and slides."""
    model = scene.author
    for joint in range(model.njnt):
        if int(model.jnt_type[joint]) not in _SCALAR:
            body = model.body(int(model.jnt_bodyid[joint])).name
            raise SceneError(
                f"the method neural needs hinges and slides alone, and body {body!r} of scene "
                f"{scene.name!r} moves freely: use mujoco or mjx"
            )
    if model.nu:
        raise SceneError(
            f"the method neural does not take actuators, and scene {scene.name!r} has "
            f"{model.nu}: use mujoco"
        )
    return [model.joint(joint).name for joint in range(model.njnt)]


def _inputs(
    model: mujoco.MjModel, names: list[str], speeds: dict[str, float]
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """What a network reads of some joints, and the divisors of these inputs."""
    reads: list[str] = []
    scales: list[float] = []
    for name in names:
        if int(model.joint(name).type[0]) == _SLIDE:
            reads.append(f"qpos/{name}")
            scales.append(1.0)
        else:
            reads += [f"sin/{name}", f"cos/{name}"]
            scales += [1.0, 1.0]
    for name in names:
        reads.append(f"qvel/{name}")
        scales.append(speeds[name])
    return tuple(reads), tuple(scales)


def train_networks(
    recorded: RecordedScene,
    fit: MotionFit,
    config: NeuralFitConfig = NeuralFitConfig(),
    *,
    progress: Progress = quiet,
) -> NeuralFit:
    """Train networks on top of identified parameters, which stay as they are.

    Args:
        recorded: The scene with its parameters, and the trials to fit.
        fit: The identified parameters.
        config: How to train.
        progress: Shows the progress.

    Returns:
        The networks.
    """
    augmentation = joint_networks(recorded, config.units, dissipative=config.dissipative)
    first = initial_weights(augmentation, seed=config.seed)
    sim = AugmentedSim(recorded.scene, augmentation, theta=fit.theta, weights=first)
    judged, trained = _judging_and_training(len(recorded.motion.trials), config.seed)
    windows = _windows(recorded.subset(trained), config, max(config.seconds))
    observation = _joint_observation(int(recorded.scene.author.nq))
    timestep = float(sim.model.opt.timestep)
    with progress("training", len(config.seconds)) as advance:
        for seconds in config.seconds:
            frames = max(round(seconds / timestep), 4) + 1
            found = fit_by_shooting(
                sim,
                shorten_windows(windows, frames),
                observation,
                camera=np.zeros(0),
                free=FreeParameters(train=True, ridge=config.ridge),
                steps=config.steps,
                origin=first,
            )
            sim = found.sim
            windows = shorten_windows(windows, windows.observed.shape[1], start=found.start)
            advance(1)
    # Judged as they will be used: on whole trials, from their first frames.
    whole = recorded.subset(judged)
    shortest = min(float(trial.t[-1]) for trial in whole.motion.trials)
    to_judge = _windows(whole, config, shortest)
    without = _error(sim.with_weights(first), to_judge)
    error = _error(sim, to_judge)
    result = NeuralFit(augmentation, np.array(sim.weights), without, error)
    if not result.kept:
        return replace(result, weights=first)
    visited = []
    for one in (windows, to_judge):
        states = rollout_uncontrolled(sim, one.start, steps=one.observed.shape[1] - 1)
        visited.append(states.reshape(-1, states.shape[-1]))
    return replace(result, friction=suggest_friction(sim, np.concatenate(visited)))


def _judging_and_training(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the trials that judge networks, and of those that train them."""
    order = np.random.default_rng([seed, 1]).permutation(count)
    if count < _FEWEST_TRIALS:
        return order, order
    judging = max(1, count // 4)
    return np.sort(order[:judging]), np.sort(order[judging:])


def _windows(recorded: RecordedScene, config: NeuralFitConfig, seconds: float) -> TrajectoryWindows:
    """Windows of joint coordinates at the steps of the simulation."""
    motion = recorded.motion
    timestep = float(recorded.scene.author.opt.timestep)
    steps = max(round(seconds / timestep), 4)
    segments = [
        segment
        for segment in segments_of(motion, recorded.whole(), seconds)
        if _duration_after(recorded, segment) >= steps * timestep
    ]
    if not segments:
        longest = max(float(trial.t[-1]) for trial in motion.trials)
        raise SceneError(
            f"the method neural needs trials of at least {seconds:g} s, the longest has "
            f"{longest:.2g} s: use mujoco"
        )
    rows = np.unique(np.linspace(0, len(segments) - 1, config.windows).round().astype(int))
    grid = np.arange(steps + 1) * timestep
    observed, starts, noise = [], [], []
    for row in rows:
        segment = segments[row]
        trial, qpos = motion.trials[segment.trial], recorded.states[segment.trial].qpos
        times = trial.t - trial.t[segment.first]
        joints = range(qpos.shape[1])
        observed.append(np.stack([np.interp(grid, times, qpos[:, j]) for j in joints], axis=1))
        starts.append(guess_start(motion, recorded.states, segment))
        noise.append(_roughness(qpos))
    sizes = np.maximum(np.median(noise, axis=0), _LEAST_NOISE)
    none = np.zeros((len(rows), 0))
    return TrajectoryWindows(np.stack(observed), sizes, np.stack(starts), none, np.zeros(0))


def _duration_after(recorded: RecordedScene, segment: Segment) -> float:
    """Seconds of a trial from the first frame of a segment on."""
    t = recorded.motion.trials[segment.trial].t
    return float(t[-1] - t[segment.first])


def _roughness(qpos: np.ndarray) -> np.ndarray:
    """Standard deviations (nq,) of noise, from third differences of joint coordinates (T, nq)."""
    return np.sqrt((np.diff(qpos, n=3, axis=0) ** 2).mean(axis=0) / 20)


def _joint_observation(nq: int) -> ObservationModel:
    """Observations that are the joint coordinates themselves."""

    def observe(states: np.ndarray, camera: np.ndarray, own: np.ndarray) -> np.ndarray:
        return states[..., :nq]

    def observe_with_jacobian(
        states: np.ndarray, camera: np.ndarray, own: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        shape = states.shape[:-1]
        by_state = np.broadcast_to(np.eye(nq, states.shape[-1]), (*shape, nq, states.shape[-1]))
        none = np.zeros((*shape, nq, 0))
        return states[..., :nq], by_state, none, none

    return ObservationModel(observe, observe_with_jacobian)


def _error(sim: AugmentedSim, windows: TrajectoryWindows) -> float:
    """Geometric mean of the windows' root mean square errors, in units of the noise.

    Predictions begin at the guessed starts.
    """
    states = rollout_uncontrolled(sim, windows.start, steps=windows.observed.shape[1] - 1)
    difference = (states[..., : windows.observed.shape[2]] - windows.observed) / windows.noise
    squares = np.nan_to_num(difference, nan=1e6, posinf=1e6, neginf=1e6) ** 2
    return float(np.exp(0.5 * np.log(squares.mean(axis=(1, 2)) + 1e-12).mean()))
