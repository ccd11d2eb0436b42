"""A slide under friction to rest in the plane, fitted to all of its frames at once.

A body that slides and turns on the ground decelerates by the ellipsoidal limit surface: with speed
v, yaw rate w and s = sqrt(v^2 + (c w)^2),

    dv/dt = -A v / s,   dw/dt = -B w / s,

so its mass centre goes straight ahead, and with u = exp(-min(A, B) tau), dtau = dt / s, time,
distance and rotation are integrals over u. It has three constants for a whole slide where
polynomials of the same range would need ten, and it knows that the body stays where it stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clashsim.optim.levenberg_marquardt import DescentSchedule, descend
from clashsim.optim.normal_equations import huber_cost, huber_weights

# Values of u, dense at the start so that a body that hardly decelerates is resolved too.
_NODES = 1 - np.linspace(0, 1, 97) ** 2
# Where the constants x, y, yaw, vx, vy, w, log A, log(B / A), log c, time of impact are.
_COORDINATES = slice(0, 3)
_VELOCITY = slice(3, 6)
_LOGS = slice(6, 9)
_IMPACT_TIME = 9
_IMPACT_TIME_STD = 0.03  # s
_DIFFERENCES = np.array([1e-6, 1e-6, 1e-6, 1e-5, 1e-5, 1e-4, 1e-4, 1e-4, 1e-4, 1e-6])
_HUBER = 3.0  # standard deviations beyond which residuals count by size, not by square
_POOR_FIT = 1.3  # cost per degree of freedom from which a second start is tried
SCHEDULE = DescentSchedule(
    initial=1e-3,
    decrease=6.0,
    increase=8.0,
    rounds=6,
    steps=25,
    absolute_tolerance=0.02,  # less than noise would change it
    relative_tolerance=1e-5,
)


class MotionStart(Protocol):
    """Where a motion must begin: the motion before the impact.

    Attributes:
        time: s.
        coordinates: x, y, yaw (3,) at that time.
        rate: Their rates (3,).
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
        start: Time at which it begins, s.
        constants: (10,): x, y, yaw, vx, vy, w, log A, log(B / A), log c, and the impact's time
            after `start`.
        covariance: Of the constants, (10, 10).
        misfit: Root mean square residual over the noise.
    """

    start: float
    constants: np.ndarray
    covariance: np.ndarray
    misfit: float

    @property
    def std(self) -> np.ndarray:
        """Standard deviation (3,) of the rates at the start."""
        return np.sqrt(np.maximum(np.diag(self.covariance)[_VELOCITY], 0))

    @property
    def coordinates_std(self) -> np.ndarray:
        """Standard deviation (3,) of the coordinates at the start."""
        return np.sqrt(np.maximum(np.diag(self.covariance)[_COORDINATES], 0))

    @property
    def impact_time(self) -> float:
        """Time of the impact: where this motion leaves the one before."""
        return self.start + float(self.constants[_IMPACT_TIME])

    @property
    def deceleration(self) -> float:
        """A, m/s^2: friction coefficient times gravity."""
        return float(np.exp(self.constants[_LOGS][0]))

    @property
    def stop(self) -> float:
        """Time at which the body comes to rest."""
        times, _, _ = _node_times(self.constants[None])
        return self.start + float(times[0, -1])

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, 3) at times (n,)."""
        return _curves(self.constants[None], t - self.start)[0]

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates (n, 3) at times (n,); before the start its deceleration is kept."""
        times, linear_power, angular_power = _node_times(self.constants[None])
        powers = np.array([linear_power[0], linear_power[0], angular_power[0]])
        share = np.interp(t - self.start, times[0], _NODES)[:, None] ** powers
        early = np.minimum(t - self.start, 0.0)[:, None]
        first_rate = (_NODES[1] ** powers - 1) / max(float(times[0, 1]), 1e-12)
        return self.constants[_VELOCITY] * (share + early * first_rate)


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

    The anchor binds where the slide begins but not when: the time of the impact is one of the
    constants. Residuals have Huber's loss, so that a swapped marker does not turn the velocity, and
    there is a second start where the first does not fit.

    Args:
        t: Times (n,), s.
        pose: x, y, yaw (n, 3) of the mass centre.
        noise: Standard deviations (n, 3) of these.
        effective_radius: First guess of c, m.
        friction: Expected log A, and its standard deviation.
        anchor: The motion before the impact.

    Returns:
        The fitted motion.
    """
    problem = _MotionProblem(
        t=t - anchor.time,
        pose=pose,
        noise=noise,
        log_mean=np.array([friction[0], 0.0, np.log(effective_radius)]),
        log_std=np.array([friction[1], 0.5, 0.5]),
        anchor=anchor,
    )
    degrees_of_freedom = max(pose.size - 6, 1)
    straight, whole = problem.guesses()
    cost, constants, normal = problem.solve(whole)
    if cost > _POOR_FIT * degrees_of_freedom:
        other = problem.solve(straight)
        if other[0] < cost:
            cost, constants, normal = other
    scatter = cost / degrees_of_freedom
    return SlideMotion(
        anchor.time,
        constants,
        np.linalg.pinv(normal) * max(scatter, 1.0),
        float(np.sqrt(scatter)),
    )


def _node_times(constants: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times at the values of u, for constants (p, 10).

    Returns:
        Times (p, nodes) since the start, and the powers of u that speed and yaw rate follow, (p,)
        each.
    """
    log_linear, log_ratio, log_radius = constants[:, _LOGS].T
    linear = np.exp(log_linear)
    angular = np.exp(log_linear + log_ratio)
    slowest = np.minimum(linear, angular)
    linear_power = linear / slowest
    angular_power = angular / slowest
    speed_squared = (constants[:, 3:5] ** 2).sum(1)[:, None]
    rotation_squared = (np.exp(log_radius) * constants[:, 5])[:, None] ** 2
    with np.errstate(divide="ignore"):
        size_squared = (
            speed_squared * _NODES ** (2 * linear_power[:, None] - 2)
            + rotation_squared * _NODES ** (2 * angular_power[:, None] - 2)
            + 1e-12
        )
        time_per_u = np.sqrt(size_squared) / slowest[:, None]  # -dt/du
    return _cumulate(time_per_u, -np.diff(_NODES)), linear_power, angular_power


def _curves(constants: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Coordinates (p, n, 3) at times t (n,) since the start, for constants (p, 10)."""
    times, linear_power, angular_power = _node_times(constants)
    step = np.diff(times, axis=1)
    gain = np.empty((len(constants), len(t), 3))
    early = np.minimum(t, 0.0)
    for column, power in ((0, linear_power), (2, angular_power)):
        travelled = _cumulate(_NODES ** power[:, None], step)
        for i in range(len(constants)):
            gain[i, :, column] = np.interp(t, times[i], travelled[i]) + early
    gain[:, :, 1] = gain[:, :, 0]
    return constants[:, None, _COORDINATES] + constants[:, None, _VELOCITY] * gain


def _cumulate(height: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Running integral (p, nodes) by trapezia."""
    trapezia = 0.5 * (height[:, 1:] + height[:, :-1]) * step
    zero = np.zeros((len(height), 1))
    return np.concatenate([zero, np.cumsum(trapezia, axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class _MotionProblem:
    """The least-squares problem of one slide.

    Attributes:
        t: Times (n,) since the anchor, s.
        pose: Recorded coordinates (n, 3).
        noise: Standard deviations (n, 3).
        log_mean: Expected log A, log(B / A), log c, (3,).
        log_std: Their standard deviations (3,).
        anchor: The motion before the impact.
    """

    t: np.ndarray
    pose: np.ndarray
    noise: np.ndarray
    log_mean: np.ndarray
    log_std: np.ndarray
    anchor: MotionStart

    def guesses(self) -> tuple[np.ndarray, np.ndarray]:
        """Constants (10,) from a line through the first frames, and from an even deceleration."""
        begin = self.anchor.coordinates
        first = min(len(self.t), 6)
        line = np.polynomial.polynomial.polyfit(self.t[:first], self.pose[:first], 1)
        straight = np.concatenate([begin, line[1], self.log_mean, [0.0]])
        total = np.median(self.pose[-3:], 0) - begin
        distance = np.linalg.norm(self.pose[:, :2] - begin[:2], axis=1)
        almost = int(np.argmax(distance >= 0.9 * distance[-3:].mean()))
        # After 0.68 of its time a body has made 0.9 of its distance.
        duration = max(float(self.t[almost]) / 0.68, 1e-3)
        whole = np.concatenate([begin, 2 * total / duration, self.log_mean, [0.0]])
        deceleration = max(float(np.linalg.norm(whole[3:5])) / duration, 1e-3)
        low = self.log_mean[0] - 3
        high = self.log_mean[0] + 3
        whole[_LOGS.start] = np.clip(np.log(deceleration), low, high)
        return straight, whole

    def residuals(self, constants: np.ndarray) -> np.ndarray:
        """Standardised residuals (p, r) at constants (p, 10)."""
        impact_time = constants[:, _IMPACT_TIME:]
        velocity_change = constants[:, _VELOCITY] - self.anchor.rate
        at_impact = constants[:, _COORDINATES] + velocity_change * impact_time
        frames = (_curves(constants, self.t) - self.pose) / self.noise
        parts = [
            frames.reshape(len(constants), -1),
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
    """The constants with their residuals and cost."""
    residuals = problem.residuals(constants[None])[0]
    return _State(constants, residuals, huber_cost(residuals, _HUBER))


@dataclass(frozen=True, eq=False)
class _Linearised:
    """Normal matrix (10, 10) and gradient (10,) at some constants."""

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
        """The constants after a damped step, held near what is expected of them."""
        damped = self.normal + damping * np.diag(np.diag(self.normal) + 1e-12)
        constants = self.state.constants - np.linalg.solve(damped, self.gradient)
        low = self.problem.log_mean - 5 * self.problem.log_std
        high = self.problem.log_mean + 5 * self.problem.log_std
        constants[_LOGS] = np.clip(constants[_LOGS], low, high)
        return _state(self.problem, constants)
