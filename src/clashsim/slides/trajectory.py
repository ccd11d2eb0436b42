"""A slide under friction to rest in the plane, fitted to all of its recorded samples at once.

A body that slides and turns on the ground decelerates by the ellipsoidal limit surface: with speed
v (m/s), yaw rate w (rad/s) and s = sqrt(v^2 + (c w)^2),

    dv/dt = -A v / s,   dw/dt = -B w / s,

so its mass centre moves on a straight line, and with u = exp(-min(A, B) tau), dtau = dt / s, time,
distance and rotation are integrals over u, which falls from 1 at the start to 0 at rest. The
friction of a whole slide has three constants (A, B, c), where polynomials over the same time would
need ten, and in this model a body that has stopped stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clashsim.optim.levenberg_marquardt import DescentSchedule, descend
from clashsim.optim.normal_equations import huber_cost, huber_weights

# Values of u at the nodes of the integrals: dense near the start (u = 1), so that a body that
# hardly decelerates while it is recorded is resolved too.
_NUM_NODES = 97
_NODES = 1 - np.linspace(0, 1, _NUM_NODES) ** 2
# Indices among the constants x, y, yaw, vx, vy, w, log A, log(B / A), log c, time of impact.
_COORDINATES = slice(0, 3)
_VELOCITY = slice(3, 6)
_LOGS = slice(6, 9)
_IMPACT_TIME = 9
_SPEED = slice(3, 5)  # vx, vy
_YAW_RATE = 5
_NUM_FITTED = 6  # pose and velocity; the other constants have priors of their own
_IMPACT_TIME_STD = 0.03  # s, prior of the impact's time
_RATIO_STD = 0.5  # prior of log(B / A)
_RADIUS_STD = 0.5  # prior of log c
_MAX_LOG_DEVIATION = 5  # prior standard deviations that the fitted logarithms may move
_MAX_GUESS_DEVIATION = 3  # by which the first guess of log A may differ from its prior mean
# Steps of the finite differences by each of the constants.
_DIFFERENCES = np.array([1e-6, 1e-6, 1e-6, 1e-5, 1e-5, 1e-4, 1e-4, 1e-4, 1e-4, 1e-6])
_HUBER = 3.0  # standardised residuals beyond this enter the cost linearly, not squared
_POOR_FIT = 1.3  # cost per degree of freedom above which a second initial guess is tried
_LINE_SAMPLES = 6  # at the start, through which a line gives the first guess of the velocity
_REST_SAMPLES = 3  # at the end, whose median is taken as the pose at rest
# Under a constant deceleration a body has covered the share 0.9 of its distance after the share
# 1 - sqrt(1 - 0.9) of its time.
_DISTANCE_SHARE = 0.9
_TIME_SHARE = 0.68
SCHEDULE = DescentSchedule(
    initial=1e-3,
    decrease=6.0,
    increase=8.0,
    rounds=6,
    steps=25,
    absolute_tolerance=0.02,  # smaller changes of the cost are within its noise
    relative_tolerance=1e-5,
)


class MotionStart(Protocol):
    """The motion before the impact, which the slide must continue.

    Attributes:
        time: Time (s) at which the other attributes are given.
        coordinates: x, y (m), yaw (rad), (3,).
        rate: Velocity of these coordinates (3,), m/s and rad/s.
        std: Standard deviations (3,) of the coordinates.
    """

    @property
    def time(self) -> float: ...
    @property
    def coordinates(self) -> np.ndarray: ...
    @property
    def rate(self) -> np.ndarray: ...
    @property
    def std(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class SlideMotion:
    """The fitted motion of one slide.

    Attributes:
        start: Time to which pose and velocity of the constants belong, s.
        constants: (10,): x, y, yaw, vx, vy, w at `start`, log A, log(B / A), log c, and the
            impact's time after `start` (s).
        covariance: Of the constants, (10, 10).
        misfit: Root mean square residual in standard deviations of the noise.
    """

    start: float
    constants: np.ndarray
    covariance: np.ndarray
    misfit: float

    @property
    def std(self) -> np.ndarray:
        """Standard deviations (3,) of vx, vy (m/s) and yaw rate (rad/s) at the start."""
        return np.sqrt(np.maximum(np.diag(self.covariance)[_VELOCITY], 0))

    @property
    def coordinates_std(self) -> np.ndarray:
        """Standard deviations (3,) of x, y (m) and yaw (rad) at the start."""
        return np.sqrt(np.maximum(np.diag(self.covariance)[_COORDINATES], 0))

    @property
    def impact_time(self) -> float:
        """Time (s) of the impact, at which the motion before it changes into this one."""
        return self.start + float(self.constants[_IMPACT_TIME])

    @property
    def deceleration(self) -> float:
        """A of the module's docstring, m/s^2: friction coefficient times gravity."""
        return float(np.exp(self.constants[_LOGS][0]))

    @property
    def stop(self) -> float:
        """Time at which the body comes to rest, s."""
        times, _, _ = _node_times(self.constants[None])
        return self.start + float(times[0, -1])

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """x, y (m), yaw (rad) of the mass centre, (n, 3), at times t (n,), s."""
        return _curves(self.constants[None], t - self.start)[0]

    def rate(self, t: np.ndarray) -> np.ndarray:
        """vx, vy (m/s), yaw rate (rad/s), (n, 3), at times t (n,), s.

        Before the start the deceleration is that at the start.
        """
        times, linear_power, angular_power = _node_times(self.constants[None])
        powers = np.array([linear_power[0], linear_power[0], angular_power[0]])
        share_left = np.interp(t - self.start, times[0], _NODES)[:, None] ** powers
        time_before_start = np.minimum(t - self.start, 0.0)[:, None]  # s, at most 0
        share_per_second = (_NODES[1] ** powers - 1) / max(float(times[0, 1]), 1e-12)
        return self.constants[_VELOCITY] * (share_left + time_before_start * share_per_second)


def fit_slide_motion(
    t: np.ndarray,
    pose: np.ndarray,
    noise: np.ndarray,
    *,
    effective_radius: float,
    friction: tuple[float, float],
    anchor: MotionStart,
) -> SlideMotion:
    """Fit a slide to the recorded coordinates of the mass centre.

    The anchor fixes where the slide begins but not when: the time of the impact is one of the
    constants. Residuals have Huber's loss, so that swapped markers in a few samples do not change
    the velocity. Where the descent from the first guess fits poorly, a second guess is tried.

    Args:
        t: Times (n,), s.
        pose: x, y (m), yaw (rad) of the mass centre, (n, 3).
        noise: Standard deviations (n, 3) of `pose`.
        effective_radius: Prior mean of c, m.
        friction: Prior mean of log A, and its standard deviation.
        anchor: The motion before the impact.

    Returns:
        The fitted motion.
    """
    problem = _MotionProblem(
        t=t - anchor.time,
        pose=pose,
        noise=noise,
        log_mean=np.array([friction[0], 0.0, np.log(effective_radius)]),
        log_std=np.array([friction[1], _RATIO_STD, _RADIUS_STD]),
        anchor=anchor,
    )
    degrees_of_freedom = max(pose.size - _NUM_FITTED, 1)
    straight, whole = problem.guesses()
    cost, constants, normal = problem.solve(whole)
    if cost > _POOR_FIT * degrees_of_freedom:
        second = problem.solve(straight)
        if second[0] < cost:
            cost, constants, normal = second
    scatter = cost / degrees_of_freedom
    return SlideMotion(
        anchor.time,
        constants,
        np.linalg.pinv(normal) * max(scatter, 1.0),
        float(np.sqrt(scatter)),
    )


def _node_times(constants: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times at which u takes the values `_NODES`, for p sets of constants (p, 10).

    Returns:
        Times (p, nodes) since the start, s, and the powers of u to which speed and yaw rate are
        proportional, (p,) each.
    """
    log_linear, log_ratio, log_radius = constants[:, _LOGS].T
    linear = np.exp(log_linear)
    angular = np.exp(log_linear + log_ratio)
    slowest = np.minimum(linear, angular)
    linear_power = linear / slowest
    angular_power = angular / slowest
    speed_squared = (constants[:, _SPEED] ** 2).sum(1)[:, None]
    rotation_squared = (np.exp(log_radius) * constants[:, _YAW_RATE])[:, None] ** 2
    with np.errstate(divide="ignore"):
        size_squared = (
            speed_squared * _NODES ** (2 * linear_power[:, None] - 2)
            + rotation_squared * _NODES ** (2 * angular_power[:, None] - 2)
            + 1e-12
        )
        time_per_u = np.sqrt(size_squared) / slowest[:, None]  # -dt/du
    return _cumulate(time_per_u, -np.diff(_NODES)), linear_power, angular_power


def _curves(constants: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Coordinates (p, n, 3) at times t (n,), s, since the start, for constants (p, 10)."""
    times, linear_power, angular_power = _node_times(constants)
    step = np.diff(times, axis=1)
    # Distance and angle over the initial velocity, s.
    travelled = np.empty((len(constants), len(t), 3))
    time_before_start = np.minimum(t, 0.0)
    for column, power in ((0, linear_power), (2, angular_power)):
        at_nodes = _cumulate(_NODES ** power[:, None], step)
        for i in range(len(constants)):
            travelled[i, :, column] = np.interp(t, times[i], at_nodes[i]) + time_before_start
    travelled[:, :, 1] = travelled[:, :, 0]
    return constants[:, None, _COORDINATES] + constants[:, None, _VELOCITY] * travelled


def _cumulate(height: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Running integral (p, nodes) of heights (p, nodes) by the trapezoidal rule."""
    areas = 0.5 * (height[:, 1:] + height[:, :-1]) * step
    zero = np.zeros((len(height), 1))
    return np.concatenate([zero, np.cumsum(areas, axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class _MotionProblem:
    """The least-squares problem of one slide.

    Attributes:
        t: Times (n,) since the anchor, s.
        pose: Recorded coordinates (n, 3).
        noise: Standard deviations (n, 3) of `pose`.
        log_mean: Prior means of log A, log(B / A), log c, (3,).
        log_std: Prior standard deviations of the same (3,).
        anchor: The motion before the impact.
    """

    t: np.ndarray
    pose: np.ndarray
    noise: np.ndarray
    log_mean: np.ndarray
    log_std: np.ndarray
    anchor: MotionStart

    def guesses(self) -> tuple[np.ndarray, np.ndarray]:
        """First guesses of the constants.

        Returns:
            Constants (10,) with the velocity of a line through the first samples, and constants
            (10,) of a constant deceleration over the whole path.
        """
        begin = self.anchor.coordinates
        first = min(len(self.t), _LINE_SAMPLES)
        line = np.polynomial.polynomial.polyfit(self.t[:first], self.pose[:first], 1)
        straight = np.concatenate([begin, line[1], self.log_mean, [0.0]])
        total = np.median(self.pose[-_REST_SAMPLES:], 0) - begin
        distance = np.linalg.norm(self.pose[:, :2] - begin[:2], axis=1)
        final_distance = distance[-_REST_SAMPLES:].mean()
        nearly_stopped = int(np.argmax(distance >= _DISTANCE_SHARE * final_distance))
        duration = max(float(self.t[nearly_stopped]) / _TIME_SHARE, 1e-3)
        whole = np.concatenate([begin, 2 * total / duration, self.log_mean, [0.0]])
        deceleration = max(float(np.linalg.norm(whole[_SPEED])) / duration, 1e-3)
        low = self.log_mean[0] - _MAX_GUESS_DEVIATION
        high = self.log_mean[0] + _MAX_GUESS_DEVIATION
        whole[_LOGS.start] = np.clip(np.log(deceleration), low, high)
        return straight, whole

    def residuals(self, constants: np.ndarray) -> np.ndarray:
        """Standardised residuals (p, r) at p sets of constants (p, 10)."""
        impact_time = constants[:, _IMPACT_TIME:]
        velocity_change = constants[:, _VELOCITY] - self.anchor.rate
        at_impact = constants[:, _COORDINATES] + velocity_change * impact_time
        of_samples = (_curves(constants, self.t) - self.pose) / self.noise
        parts = [
            of_samples.reshape(len(constants), -1),
            (constants[:, _LOGS] - self.log_mean) / self.log_std,
            impact_time / _IMPACT_TIME_STD,
            (at_impact - self.anchor.coordinates) / self.anchor.std,
        ]
        return np.concatenate(parts, axis=1)

    def solve(self, guess: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Cost, constants (10,) and normal matrix (10, 10) at the end of a descent from a guess."""
        end = descend(_state(self, guess), lambda at: _Linearised.at(self, at), SCHEDULE)
        model = end.model
        assert isinstance(model, _Linearised)
        return end.state.cost, end.state.constants, model.normal


@dataclass(frozen=True, eq=False)
class _State:
    """Constants (10,), their residuals (r,) and cost."""

    constants: np.ndarray
    residuals: np.ndarray
    cost: float


def _state(problem: _MotionProblem, constants: np.ndarray) -> _State:
    """Evaluate the residuals and the cost at constants (10,)."""
    residuals = problem.residuals(constants[None])[0]
    return _State(constants, residuals, huber_cost(residuals, _HUBER))


@dataclass(frozen=True, eq=False)
class _Linearised:
    """Normal matrix (10, 10) and gradient (10,) of the cost at the constants of `state`."""

    problem: _MotionProblem
    state: _State
    normal: np.ndarray
    gradient: np.ndarray

    @staticmethod
    def at(problem: _MotionProblem, state: _State) -> _Linearised:
        """Linearise by finite differences."""
        shifted = problem.residuals(state.constants + np.diag(_DIFFERENCES))
        jacobian = (shifted - state.residuals).T / _DIFFERENCES
        weights = huber_weights(state.residuals, _HUBER)
        normal = (jacobian * weights[:, None]).T @ jacobian
        return _Linearised(problem, state, normal, jacobian.T @ (weights * state.residuals))

    def trial(self, damping: float) -> _State:
        """The constants after a damped step, with the logarithms held near their prior means."""
        damped = self.normal + damping * np.diag(np.diag(self.normal) + 1e-12)
        constants = self.state.constants - np.linalg.solve(damped, self.gradient)
        low = self.problem.log_mean - _MAX_LOG_DEVIATION * self.problem.log_std
        high = self.problem.log_mean + _MAX_LOG_DEVIATION * self.problem.log_std
        constants[_LOGS] = np.clip(constants[_LOGS], low, high)
        return _state(self.problem, constants)
