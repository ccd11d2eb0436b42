"""Simulated against recorded motion, for many parameters at once.

A segment is a part of a trial that is predicted from its first frames: a start (state at its first
frame) is fitted to these, for the parameters at hand. Since the start depends smoothly on the
parameters, its derivatives are computed once, and it then moves with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clashsim.core.loop_closure import LoopClosure
from clashsim.core.motion_scene import MotionScene
from clashsim.core.observed_motion import MotionObserver, ObservedMotion, poses_mask
from clashsim.core.params import from_unit
from clashsim.fit.joint_states import JointStates
from clashsim.sim.mujoco.quiet_warnings import without_warnings
from clashsim.sim.mujoco.simulator import MujocoSim

_MAX_NUMBERS = 30_000_000  # of simulated states in memory at once
_START_STEPS = 4  # Gauss-Newton steps of the starts
_START_DIFFERENCE = 1e-5  # m, rad, m/s or rad/s
_START_DAMPING = 1e-9
_LARGEST_RESIDUAL = 20.0  # sizes: simulations that are lost count as this far off


@dataclass(frozen=True)
class Segment:
    """A part of a trial.

    Attributes:
        trial: Index of the trial.
        first: Index of its first frame.
        frames: Number of frames.
        start_frames: Number of frames, from the first on, that the start is fitted to.
    """

    trial: int
    first: int
    frames: int
    start_frames: int


@dataclass(frozen=True, eq=False)
class Starts:
    """Starts of n segments, for parameters near those that they were fitted at.

    Attributes:
        state: States (n, nq + nv + na) at the parameters `unit`.
        unit: Parameters (p,) on the unit scale.
        derivative: Derivatives (n, 2 nv, p) of positions (tangent space) and velocities.
        misfit: Root mean square residuals (n,) in the frames that starts are fitted to, sizes.
    """

    state: np.ndarray
    unit: np.ndarray
    derivative: np.ndarray
    misfit: np.ndarray


class MotionProblem:
    """Segments of recordings, and rollouts of a scene that are compared with them.

    Attributes:
        scene: The scene, with the p parameters to identify.
        motion: The recordings.
        states: Joint coordinates of the recordings.
        segments: The n segments.
        rows: Indices (n, F) of the compared frames, from the first frame of the segment.
        times: Times (n, F) of the compared frames, s from the first frame of the segment.
        poses: Recorded poses (n, F, b, 7) in these frames.
        joints: Recorded coordinates of joints (n, F, j) in these frames.
        recorded: Mask (n, F, r) of the residuals that were recorded.
        steps: Time steps of a rollout.
    """

    def __init__(
        self,
        scene: MotionScene,
        motion: ObservedMotion,
        states: Sequence[JointStates],
        segments: Sequence[Segment],
        *,
        frames: int = 80,
        threads: int = 0,
    ) -> None:
        """Prepare segments.

        Args:
            scene: The scene, with the p parameters to identify.
            motion: The recordings.
            states: Joint coordinates of the recordings.
            segments: The n segments.
            frames: Number F of frames of a segment, evenly spaced, that are compared.
            threads: Of MuJoCo, 0 for one per core.
        """
        self.scene = scene
        self.motion = motion
        self.states = tuple(states)
        self.segments = tuple(segments)
        self._threads = threads
        self._sim = MujocoSim(scene, threads=threads)
        self._dt = float(self._sim.model.opt.timestep)
        count = min(frames, max(segment.frames for segment in self.segments))
        shares = np.linspace(0, 1, count)
        self.rows = np.stack([np.round(shares * (s.frames - 1)).astype(int) for s in segments])
        trials = [motion.trials[s.trial] for s in self.segments]
        firsts = [s.first for s in self.segments]
        times, poses, joints = [], [], []
        for trial, first, rows in zip(trials, firsts, self.rows, strict=True):
            times.append(trial.t[first + rows] - trial.t[first])
            poses.append(trial.poses[first + rows])
            joints.append(trial.joints[first + rows])
        self.times = np.stack(times)  # (n, F), s
        self.poses = np.stack(poses)
        self.joints = np.stack(joints)
        self.recorded = ~np.isnan(poses_mask(self.poses, self.joints))
        self.steps = int(np.ceil(self.times.max() / self._dt - 1e-9))
        self._control = self._controls()

    @property
    def observer(self) -> MotionObserver:
        """What was observed."""
        return self.motion.observer

    @property
    def control(self) -> np.ndarray:
        """Controls (n, steps, nu)."""
        return self._control

    @property
    def timestep(self) -> float:
        """Time step of the simulation, s."""
        return self._dt

    def _controls(self) -> np.ndarray:
        """Recorded controls at the steps of the simulation, each held until the next."""
        grid = np.arange(self.steps) * self._dt
        controls = []
        for segment in self.segments:
            trial = self.motion.trials[segment.trial]
            t = trial.t - trial.t[segment.first]
            row = np.searchsorted(t, grid + 1e-9, side="right") - 1
            controls.append(trial.control[np.clip(row, 0, len(t) - 1)])
        return np.stack(controls)

    def part(self, *, frames: int, share: Sequence[Segment] | None = None) -> MotionProblem:
        """The same problem with other segments, of which `frames` frames are compared."""
        return MotionProblem(
            self.scene,
            self.motion,
            self.states,
            self.segments if share is None else share,
            frames=frames,
            threads=self._threads,
        )

    def rollouts(self, start: np.ndarray, theta: np.ndarray | None) -> np.ndarray:
        """Simulate and pick the compared frames.

        Args:
            start: States (m, n, s) of n segments for m sets of parameters.
            theta: Parameters (m, p), natural units; None for the author's values.

        Returns:
            Joint coordinates (m, n, F, nq).
        """
        m, n, size = start.shape
        per_call = max(1, _MAX_NUMBERS // (n * (self.steps + 1) * size))
        found = []
        for first in range(0, m, per_call):
            part = start[first : first + per_call]
            rows = len(part)
            thetas = None
            if theta is not None and self.scene.params:
                thetas = np.repeat(theta[first : first + rows], n, axis=0)
            control = np.tile(self._control, (rows, 1, 1))
            with without_warnings():
                states = self._sim.rollout(part.reshape(rows * n, size), control, theta=thetas)
            found.append(self.at_frames(states.reshape(rows, n, self.steps + 1, size)))
        return np.concatenate(found)

    def at_frames(self, states: np.ndarray, timestep: float | None = None) -> np.ndarray:
        """Joint coordinates at the compared frames.

        Args:
            states: States (m, n, steps + 1, s) at the steps of a simulation.
            timestep: Its time step, s; that of the scene by default.

        Returns:
            Joint coordinates (m, n, F, nq).
        """
        nq = int(self._sim.model.nq)
        m, n = states.shape[:2]
        before, share = self.steps_before(timestep)
        segment = np.arange(n)[:, None]
        earlier = states[:, segment, before, :nq].reshape(-1, nq)
        later = states[:, segment, before + 1, :nq].reshape(-1, nq)
        shares = np.broadcast_to(share, (m, *share.shape)).ravel()
        mixed = self.observer.kinematics.interpolate(earlier, shares, later)
        return mixed.reshape(m, n, -1, nq)

    def steps_before(self, timestep: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The step before each compared frame, and the share of the way to the next, (n, F)."""
        exact = self.times / (timestep or self._dt)
        last = max(int(np.ceil(exact.max() - 1e-9)) - 1, 0)
        before = np.clip(np.floor(exact + 1e-9).astype(int), 0, last)
        return before, np.clip(exact - before, 0.0, 1.0)

    def residuals(self, start: np.ndarray, theta: np.ndarray | None) -> np.ndarray:
        """Residuals (m, n, F, r), in sizes; arguments as for `rollouts`."""
        with np.errstate(over="ignore", invalid="ignore"):
            qpos = self.rollouts(start, theta)
            found = self.observer.residuals(qpos, self.poses, self.joints)
        found = np.where(np.isfinite(found), found, _LARGEST_RESIDUAL)
        return np.clip(found, -_LARGEST_RESIDUAL, _LARGEST_RESIDUAL)

    def root_mean_squares(self, residuals: np.ndarray) -> np.ndarray:
        """Root mean squares (n,) of residuals (n, F, r), over what was recorded."""
        count = np.maximum(self.recorded.sum(axis=(1, 2)), 1)
        return np.sqrt((residuals**2).sum(axis=(1, 2)) / count)

    def moved(self, starts: Starts, unit: np.ndarray) -> np.ndarray:
        """Starts (m, n, s) for parameters (m, p) on the unit scale."""
        step = np.einsum("nvp,mp->mnv", starts.derivative, unit - starts.unit)
        return self.stepped(np.broadcast_to(starts.state, (len(unit), *starts.state.shape)), step)

    def stepped(self, state: np.ndarray, step: np.ndarray) -> np.ndarray:
        """States (..., s) after steps (..., 2 nv) of positions (tangent space) and velocities."""
        model = self._sim.model
        nq, nv = int(model.nq), int(model.nv)
        flat = state.reshape(-1, state.shape[-1])
        change = step.reshape(-1, 2 * nv)
        qpos = self.observer.kinematics.integrate(flat[:, :nq], change[:, :nv])
        qvel = flat[:, nq : nq + nv] + change[:, nv:]
        moved = np.concatenate([qpos, qvel, flat[:, nq + nv :]], axis=1)
        return moved.reshape(state.shape)

    def theta(self, unit: np.ndarray) -> np.ndarray | None:
        """Parameters (m, p), natural units, of points (m, p) on the unit scale."""
        return from_unit(self.scene.params, unit) if self.scene.params else None

    def fit_starts(self, unit: np.ndarray, *, differentiate: bool = True) -> Starts:
        """Fit the starts of all segments to their first frames.

        Args:
            unit: Parameters (p,) on the unit scale.
            differentiate: Whether derivatives with respect to the parameters are needed.

        Returns:
            The starts.
        """
        short = [replace(s, frames=s.start_frames) for s in self.segments]
        frames = max(s.start_frames for s in short)
        problem = self.part(frames=frames, share=short)
        state = np.stack([guess_start(self.motion, self.states, s) for s in short])
        return _fit_starts(problem, state, unit, differentiate=differentiate)


def guess_start(
    motion: ObservedMotion, states: Sequence[JointStates], segment: Segment
) -> np.ndarray:
    """State (s,) at the first frame of a segment, by parabolas through its first frames."""
    kinematics = motion.observer.kinematics
    model = kinematics.model
    rows = slice(segment.first, segment.first + segment.start_frames)
    t = motion.trials[segment.trial].t[rows]
    t = t - t[0]
    qpos = states[segment.trial].qpos[rows]
    first = np.broadcast_to(qpos[0], qpos.shape)
    step = kinematics.difference(first, qpos)
    powers = np.vander(t, 3 if len(t) >= 5 else 2, increasing=True)
    coefficients = np.linalg.lstsq(powers, step, rcond=None)[0]
    start = kinematics.integrate(qpos[:1], coefficients[:1])[0]
    return np.concatenate([start, coefficients[1], np.zeros(int(model.na))])


def _fit_starts(
    problem: MotionProblem, state: np.ndarray, unit: np.ndarray, *, differentiate: bool
) -> Starts:
    """Gauss-Newton steps of all starts at once, and how starts depend on the parameters."""
    nv = 2 * int(problem.observer.kinematics.model.nv)
    unit = np.asarray(unit, float)
    state, allowed = _on_constraints(problem, state)
    # Steps (nv + 1, n, nv) along each direction, as far as constraints allow it.
    steps = np.zeros((nv + 1, *allowed.shape[:2]))
    steps[1:] = _START_DIFFERENCE * np.moveaxis(allowed, 2, 0)

    def evaluate(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (n, k) and their derivatives (n, k, 2 nv)."""
        repeated = np.broadcast_to(state, (nv + 1, *state.shape))
        moved = problem.stepped(repeated, steps)
        thetas = problem.theta(np.broadcast_to(unit, (nv + 1, len(unit))))
        residual = problem.residuals(moved, thetas).reshape(nv + 1, len(state), -1)
        jacobian = (residual[1:] - residual[0]) / _START_DIFFERENCE
        return residual[0], np.moveaxis(jacobian, 0, 2)

    residual, jacobian = evaluate(state)
    for _ in range(_START_STEPS):
        step = -np.einsum("nij,nj->ni", _pseudo_inverse(jacobian), residual)
        moved = problem.stepped(state, np.einsum("nij,nj->ni", allowed, step))
        new_residual, new_jacobian = evaluate(moved)
        better = (new_residual**2).sum(axis=1) < (residual**2).sum(axis=1)
        state = np.where(better[:, None], moved, state)
        residual = np.where(better[:, None], new_residual, residual)
        jacobian = np.where(better[:, None, None], new_jacobian, jacobian)
        if not better.any():
            break
    misfit = problem.root_mean_squares(residual.reshape(problem.recorded.shape))
    derivative = np.zeros((len(state), nv, len(unit)))
    if differentiate and len(unit):
        by_parameter = _by_parameter(problem, state, unit)
        derivative = -np.einsum("nij,njp->nip", _pseudo_inverse(jacobian), by_parameter)
        derivative = np.einsum("nij,njp->nip", allowed, derivative)
    return Starts(state, unit, derivative, misfit)


def _on_constraints(problem: MotionProblem, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts (n, s) whose velocities meet equality constraints, and which steps do.

    Returns:
        The starts, and projections (n, 2 nv, 2 nv) of their steps.
    """
    model = problem.observer.kinematics.model
    nq, nv = int(model.nq), int(model.nv)
    closure = LoopClosure(model)
    allowed = np.broadcast_to(np.eye(2 * nv), (len(state), 2 * nv, 2 * nv))
    if not closure.exists:
        return state, allowed
    projection = closure.projectors(state[:, :nq])
    allowed = np.zeros(allowed.shape)
    allowed[:, :nv, :nv] = allowed[:, nv:, nv:] = projection
    state = state.copy()
    velocity = np.einsum("nij,nj->ni", projection, state[:, nq : nq + nv])
    state[:, nq : nq + nv] = velocity
    return state, allowed


def _pseudo_inverse(jacobian: np.ndarray) -> np.ndarray:
    """Damped pseudo-inverses (n, v, k) of Jacobians (n, k, v)."""
    matrix = np.einsum("nki,nkj->nij", jacobian, jacobian)
    # Velocities act over the window's short time, so each column has its own scale.
    scale = np.sqrt(np.einsum("nii->ni", matrix)) + 1e-12
    scaled = matrix / scale[:, :, None] / scale[:, None, :]
    scaled = scaled + _START_DAMPING * np.eye(matrix.shape[1])
    transposed = np.moveaxis(jacobian, 1, 2) / scale[:, :, None]
    return np.linalg.solve(scaled, transposed) / scale[:, :, None]


_PARAMETER_DIFFERENCE = 1e-3  # on the unit scale


def _by_parameter(problem: MotionProblem, state: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Derivatives (n, k, p) of residuals (n, k) with respect to the parameters, at fixed starts."""
    # To both sides, as errors of one-sided differences would tell apart parameters that replace
    # each other.
    above = np.minimum(unit + _PARAMETER_DIFFERENCE, 1.0)
    below = np.maximum(unit - _PARAMETER_DIFFERENCE, -1.0)
    moved = []
    for end in (above, below):
        points = np.where(np.eye(len(unit), dtype=bool), end, unit)
        repeated = np.broadcast_to(state, (len(unit), *state.shape))
        found = problem.residuals(repeated, problem.theta(points))
        moved.append(found.reshape(len(unit), len(state), -1))
    return np.moveaxis((moved[0] - moved[1]) / (above - below)[:, None, None], 0, 2)
