"""Parameters, weights and a camera from trajectories whose starts are not known: each window shoots
from a start of its own.

What is recorded is not the state but what a camera sees of it. Every window has a start and numbers
of its own beside what all windows share, so a step of Levenberg-Marquardt first does without them
(Schur's complement) and then follows with each. A window counts by log(1 + its mean squared
residual / noise): one that no model follows, for its motion is chaotic, does not lead the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.params import from_unit, to_unit
from clashsim.sim.augmented.simulator import AugmentedSim, JacobianBlocks

# (states (N, T, s), camera (k,), own (N, e)) -> what is seen (N, T, o)
See = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# the same, and its slopes (N, T, o, s), (N, T, o, k), (N, T, o, e)
Observe = Callable[
    [np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
]
_ROWS = 256  # windows in one call of the simulator, so that no number of windows compiles again
_FACTORS = (0.1, 1.0, 10.0)  # of the damping before, tried in each step
_LOST = 1e20  # the error of a window that the simulator cannot follow at all
_BLOCK = 32  # windows whose slopes are held at once


@dataclass(frozen=True, eq=False)
class TrajectoryWindows:
    """What windows saw (N, T, o), noise (o,) of it (one standard deviation), first guesses of
    starts (N, s) and of own numbers (N, e), and how far (e,) the latter may be off.
    """

    seen: np.ndarray
    noise: np.ndarray
    start: np.ndarray
    own: np.ndarray
    own_sd: np.ndarray


@dataclass(frozen=True, eq=False)
class ShootingFit:
    """A simulator and a camera (k,), starts (N, s) and own numbers (N, e) of the windows, their
    mean squared residuals (N,) in units of the noise, and the loss after each step.
    """

    sim: AugmentedSim
    camera: np.ndarray
    start: np.ndarray
    own: np.ndarray
    error: np.ndarray
    trace: tuple[float, ...] = ()


@dataclass(frozen=True)
class FreeParameters:
    """What is to be found: parameters and entries of the camera by index, and the weights or not;
    `ridge` is R of the weights' distance from where they began.
    """

    params: tuple[int, ...] = ()
    camera: tuple[int, ...] = ()
    train: bool = False
    ridge: float = 1e-4


@dataclass(frozen=True)
class ObservationModel:
    """How what is recorded follows from states: with slopes and, cheaper, without."""

    observe: See
    observe_with_jacobian: Observe


def fit_by_shooting(
    sim: AugmentedSim,
    shots: TrajectoryWindows,
    eye: ObservationModel,
    *,
    camera: np.ndarray,
    free: FreeParameters = FreeParameters(),
    steps: int = 15,
    tolerance: float = 2e-4,
    origin: np.ndarray | None = None,
) -> ShootingFit:
    """Fit what is `free`, and the starts, from where the simulator and the camera are; `origin`
    (w,) is where the weights began, if not here.

    With nothing free only the starts are found, each window by itself.
    """
    problem = _Problem(sim, shots, eye, free, sim.weights if origin is None else origin)
    shared = problem.pack(sim, camera)
    return (
        _shared(problem, shared, camera, steps, tolerance)
        if len(shared)
        else _alone(problem, camera, steps)
    )


def predicted(sim: AugmentedSim, start: np.ndarray, *, steps: int) -> np.ndarray:
    """States (N, steps + 1, s) of a simulator without control."""
    out = []
    for i in range(0, len(start), _ROWS):
        rows = _filled(start[i : i + _ROWS], len(start))
        out.append(sim.rollout(rows, np.zeros((len(rows), steps, sim.model.nu)))[: len(start) - i])
    return np.concatenate(out)


@dataclass(frozen=True, eq=False)
class _Problem:
    sim: AugmentedSim
    shots: TrajectoryWindows
    eye: ObservationModel
    free: FreeParameters
    origin: np.ndarray

    def pack(self, sim: AugmentedSim, camera: np.ndarray) -> np.ndarray:
        """What all windows share: parameters on the unit scale, weights, camera."""
        theta = sim.theta if sim.theta is not None else sim.scene.nominal
        params = [sim.scene.params[i] for i in self.free.params]
        return np.concatenate(
            [
                to_unit(params, theta[list(self.free.params)]),
                sim.weights if self.free.train else [],
                camera[list(self.free.camera)],
            ]
        )

    def unpack(self, shared: np.ndarray, camera: np.ndarray) -> tuple[AugmentedSim, np.ndarray]:
        """The simulator and the camera at a point."""
        q, w = len(self.free.params), len(self.sim.weights) if self.free.train else 0
        theta, camera = (
            np.array(
                self.sim.theta if self.sim.theta is not None else self.sim.scene.nominal, float
            ),
            np.array(camera, float),
        )
        theta[list(self.free.params)] = from_unit(
            [self.sim.scene.params[i] for i in self.free.params], shared[:q]
        )
        camera[list(self.free.camera)] = shared[q + w :]
        return self.sim.with_weights(
            shared[q : q + w] if self.free.train else self.sim.weights, theta
        ), camera

    def limits(self) -> np.ndarray:
        """How far from zero what is shared may be: parameters stay in their ranges."""
        return np.concatenate(
            [
                np.ones(len(self.free.params)),
                np.full(len(self.sim.weights) * self.free.train + len(self.free.camera), np.inf),
            ]
        )

    def pull(self) -> tuple[np.ndarray, np.ndarray]:
        """Strengths and origins of what holds the weights."""
        q, k = len(self.free.params), len(self.free.camera)
        w = self.origin if self.free.train else np.zeros(0)
        return np.concatenate(
            [np.zeros(q), np.full(len(w), self.free.ridge), np.zeros(k)]
        ), np.concatenate([np.zeros(q), w, np.zeros(k)])

    def error(self, shared: np.ndarray, camera: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Mean squared residuals (N,) alone: simulating costs a small part of what slopes do."""
        sim, camera = self.unpack(shared, camera)
        s, size = self.shots.start.shape[1], self.shots.seen[0].size
        # A step of the search may end in no number: such a window is lost, as one that diverges is.
        whole = np.isfinite(own).all(1)
        start = np.where(whole[:, None], own[:, :s], self.shots.start)
        with np.errstate(over="ignore", invalid="ignore"):
            states = predicted(sim, start, steps=self.shots.seen.shape[1] - 1)
            off = (
                self.eye.observe(states, camera, own[:, s:]) - self.shots.seen
            ) / self.shots.noise
            guess = (own[:, s:] - self.shots.own) / self.shots.own_sd
            error = (off**2).mean((1, 2)) + (guess**2).sum(1) / size
        return np.where(np.isfinite(error), error, 1e30)

    def normal(
        self, shared: np.ndarray, camera: np.ndarray, own: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean squared residuals (N,), and the normal equations (N, v + z, v + z), (N, v + z) in
        what is shared and then start and own numbers.
        """
        sim, camera = self.unpack(shared, camera)
        n, s, steps = len(own), self.shots.start.shape[1], self.shots.seen.shape[1] - 1
        error, left, right = [], [], []
        for i in range(0, n, _ROWS):
            rows = _filled(own[i : i + _ROWS], n)
            with np.errstate(over="ignore", invalid="ignore"):
                states, slope = sim.rollout_with_jacobian(
                    rows[:, :s],
                    np.zeros((len(rows), steps, sim.model.nu)),
                    free=self.free.params,
                    finite=False,
                    blocks=JacobianBlocks(weights=self.free.train, start=True),
                )
            for j in range(i, min(i + _ROWS, n), _BLOCK):
                part, here = (
                    slice(j, min(j + _BLOCK, n, i + _ROWS)),
                    slice(j - i, min(j + _BLOCK, n, i + _ROWS) - i),
                )
                a, b, c = self._block(states[here], slope[here], camera, own[part], part)
                error.append(a)
                left.append(b)
                right.append(c)
        return np.concatenate(error), np.concatenate(left), np.concatenate(right)

    def _block(
        self,
        states: np.ndarray,
        slope: np.ndarray,
        camera: np.ndarray,
        own: np.ndarray,
        part: slice,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        s, first = self.shots.start.shape[1], slope.shape[-1] - self.shots.start.shape[1]
        value, by_state, by_camera, by_own = self.eye.observe_with_jacobian(
            states, camera, own[:, s:]
        )
        with np.errstate(over="ignore", invalid="ignore"):
            moved = by_state @ slope
            turn = (
                np.concatenate(
                    [
                        moved[..., :first],
                        by_camera[..., list(self.free.camera)],
                        moved[..., first:],
                        by_own,
                    ],
                    -1,
                )
                / self.shots.noise[:, None]
            )
            off = (value - self.shots.seen[part]) / self.shots.noise
            n, size = len(off), off[0].size
            off, turn = off.reshape(n, size), turn.reshape(n, size, -1)
            error = (off**2).mean(1)
            left, right = (
                turn.transpose(0, 2, 1) @ turn / size,
                (turn.transpose(0, 2, 1) @ off[..., None])[..., 0] / size,
            )
            e = own.shape[1] - s  # what was expected of the own numbers is one more residual
            guess = (own[:, s:] - self.shots.own[part]) / self.shots.own_sd
            left[:, -e:, -e:] += np.diag(1 / self.shots.own_sd**2) / size
            right[:, -e:] += guess / self.shots.own_sd / size
            error = error + (guess**2).sum(1) / size
        whole = np.isfinite(error) & np.isfinite(left).all((1, 2)) & np.isfinite(right).all(1)
        error, right = np.where(whole, error, 1e30), np.where(whole[:, None], right, 0)
        return error, np.where(whole[:, None, None], left, np.eye(left.shape[1])), right


def _alone(problem: _Problem, camera: np.ndarray, steps: int) -> ShootingFit:
    """Each window's start by itself."""
    own = np.concatenate([problem.shots.start, problem.shots.own], 1)
    none, damping = np.zeros(0), np.full(len(own), 1e-3)
    error, left, right = problem.normal(none, camera, own)
    for _ in range(steps):
        moved = own - np.linalg.solve(_damped(left, damping), right[..., None])[..., 0]
        value, more_left, more_right = problem.normal(none, camera, moved)
        better = value < error
        own[better], error = moved[better], np.where(better, value, error)
        left[better], right[better] = more_left[better], more_right[better]
        damping = np.clip(np.where(better, damping / 5, damping * 8), 1e-9, 1e9)
    s = problem.shots.start.shape[1]
    return ShootingFit(problem.sim, camera, own[:, :s], own[:, s:], error)


def _shared(
    problem: _Problem, shared: np.ndarray, camera: np.ndarray, steps: int, tolerance: float
) -> ShootingFit:
    """All that is free. A step's damping is the best of three, for trying one costs a simulation
    without slopes.
    """
    own = np.concatenate([problem.shots.start, problem.shots.own], 1)
    strength, origin = problem.pull()
    limits = problem.limits()

    def loss(error: np.ndarray, shared: np.ndarray) -> float:
        return float(np.log1p(error).mean() + (strength * (shared - origin) ** 2).sum())

    def moved(at: _Point, damping: float) -> tuple[float, np.ndarray, np.ndarray]:
        """Loss, what is shared and what is not after a step."""
        step, follow = _step(at, strength, strength * (at.shared - origin), damping)
        point = np.clip(at.shared + step, -limits, limits)
        beside = at.own + follow(point - at.shared)
        return loss(problem.error(point, camera, beside), point), point, beside

    at = _Point(shared, own, *problem.normal(shared, camera, own))
    trace, damping = [loss(at.error, shared)], 1e-3
    while len(trace) <= steps:
        for _ in range(4):
            tried = {damping * f: moved(at, damping * f) for f in _FACTORS}
            damping = min(tried, key=lambda d: tried[d][0])
            if tried[damping][0] < trace[-1]:
                break
            damping *= 100
        else:
            break
        _, shared, own = tried[damping]
        at = _Point(shared, own, *problem.normal(shared, camera, own))
        trace.append(loss(at.error, shared))
        damping = float(np.clip(damping, 1e-8, 1e6))
        if trace[-2] - trace[-1] < tolerance:
            break
    if not np.isfinite(trace[-1]) or (at.error > _LOST).all():
        raise DataError(
            "the simulator diverges on all windows from where its parameters and weights begin: give shorter windows or another theta"
        )
    sim, camera = problem.unpack(at.shared, camera)
    s = problem.shots.start.shape[1]
    return ShootingFit(sim, camera, at.own[:, :s], at.own[:, s:], at.error, tuple(trace))


@dataclass(frozen=True, eq=False)
class _Point:
    """What is shared (v,) and what is not (N, z), mean squared residuals (N,) there, and the normal
    equations.
    """

    shared: np.ndarray
    own: np.ndarray
    error: np.ndarray
    left: np.ndarray
    right: np.ndarray


def _step(
    at: _Point, strength: np.ndarray, held: np.ndarray, damping: float
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The step (v,) of what is shared, and how what is not (N, z) follows a step."""
    n, v = len(at.error), len(at.shared)
    usable = at.error < _LOST
    weight = np.where(usable, 1 / (1 + at.error), 0) / n  # how the logarithm weighs a window
    within = _damped(at.left[:, v:, v:], np.full(n, max(damping, 1e-6)))
    without = np.linalg.solve(
        within, np.concatenate([at.left[:, v:, :v], at.right[:, v:, None]], 2)
    )
    hessian = np.einsum(
        "n,nij->ij", weight, at.left[:, :v, :v] - at.left[:, :v, v:] @ without[..., :v]
    ) + np.diag(strength)
    pull = (
        np.einsum(
            "n,ni->i", weight, at.right[:, :v] - (at.left[:, :v, v:] @ without[..., v:])[..., 0]
        )
        + held
    )
    step = -np.linalg.solve(_damped(hessian[None], np.array([damping]))[0], pull)
    return (
        step,
        lambda moved: -np.where(usable[:, None], without[..., v] + without[..., :v] @ moved, 0),
    )


def _damped(left: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Marquardt's damping, of the size of each diagonal entry."""
    size = np.einsum("nii->ni", left)
    size = np.maximum(size, 1e-12 * size.max(1, keepdims=True) + 1e-300)
    return (
        left
        + (damping[:, None] * size)[:, :, None] * np.eye(left.shape[1])
        + 1e-14 * size.max(1)[:, None, None] * np.eye(left.shape[1])
    )


def _filled(rows: np.ndarray, n: int) -> np.ndarray:
    """The last of several calls with as many rows as the others."""
    return np.concatenate([rows, np.repeat(rows[:1], _ROWS - len(rows), 0)]) if n > _ROWS else rows


def shorten_windows(
    shots: TrajectoryWindows,
    frames: int,
    *,
    start: np.ndarray | None = None,
    own: np.ndarray | None = None,
) -> TrajectoryWindows:
    """The first `frames` of each window, from other guesses where they are given."""
    return replace(
        shots,
        seen=shots.seen[:, :frames],
        start=shots.start if start is None else start,
        own=shots.own if own is None else own,
    )
