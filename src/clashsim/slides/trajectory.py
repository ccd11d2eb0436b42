"""A slide under friction to rest in the plane, fitted to all of its frames at once.

A body that slides and turns on the ground decelerates by the ellipsoidal limit surface: with speed
v, spin w and s = sqrt(v^2 + (c w)^2),

    dv/dt = -A v / s,   dw/dt = -B w / s,

so its mass centre goes straight ahead, and with u = exp(-min(A, B) tau), dtau = dt / s, time, way
and turn are integrals over u. It has three constants for a whole slide where polynomials of the
same reach would need ten, and it knows that the body stays where it stops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.data.segmentation.polynomial_motion import Anchor

_NODES = (
    1 - np.linspace(0, 1, 97) ** 2
)  # values of u, dense at the start so that a body that hardly decelerates is resolved too
_LOGS = slice(6, 9)  # places of log A, log(B / A), log c among the constants
_KINK = 9  # place of the time of the impact
_STEP = np.array(
    [1e-6, 1e-6, 1e-6, 1e-5, 1e-5, 1e-4, 1e-4, 1e-4, 1e-4, 1e-6]
)  # of the finite differences
_HUBER = 3.0  # residuals beyond this many standard deviations count by size, not by square


@dataclass(frozen=True, eq=False)
class SlideMotion:
    """A slide from time `start`: constants (10,) x, y, yaw, vx, vy, w, log A, log(B / A), log c,
    and the impact's time after `start`.
    """

    start: float
    constants: np.ndarray
    covariance: np.ndarray
    misfit: float

    @property
    def std(self) -> np.ndarray:
        """Standard deviation (3,) of the rates at the start."""
        return np.sqrt(np.maximum(np.diag(self.covariance)[3:6], 0))

    @property
    def coordinates_std(self) -> np.ndarray:
        """Standard deviation (3,) of the coordinates at the start."""
        return np.sqrt(np.maximum(np.diag(self.covariance)[:3], 0))

    @property
    def kink(self) -> float:
        """Time of the impact: where this motion leaves the one before."""
        return self.start + float(self.constants[_KINK])

    @property
    def deceleration(self) -> float:
        """A, m/s^2: friction coefficient times gravity."""
        return float(np.exp(self.constants[6]))

    @property
    def stop(self) -> float:
        """Time at which the body comes to rest."""
        return self.start + float(_clock(self.constants[None])[0][0, -1])

    def coordinates(self, t: np.ndarray) -> np.ndarray:
        """Coordinates (n, 3) at times (n,)."""
        return _curves(self.constants[None], t - self.start)[0]

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Rates (n, 3) at times (n,); before the start the deceleration at the start is kept."""
        clock, a, b = _clock(self.constants[None])
        powers = np.array([a[0], a[0], b[0]])
        share = np.interp(t - self.start, clock[0], _NODES)[:, None] ** powers
        early = np.minimum(t - self.start, 0.0)[:, None]
        return self.constants[3:6] * (
            share + early * (_NODES[1] ** powers - 1) / max(float(clock[0, 1]), 1e-12)
        )


def fit_slide_motion(
    t: np.ndarray,
    pose: np.ndarray,
    noise: np.ndarray,
    *,
    lever: float,
    friction: tuple[float, float],
    anchor: Anchor,
) -> SlideMotion:
    """Fit a slide to coordinates (n, 3) of the mass centre with noise (n, 3), begun at the anchor;
    `lever` (m) guesses c, `friction` log A and how sure that is.

    The anchor binds where the slide begins but not when: the time of the impact is one of the
    constants. Levenberg-Marquardt with Huber weights, so that a swapped marker does not turn the
    velocity, and a second start where the first does not fit.
    """
    mean, width = np.array([friction[0], 0.0, np.log(lever)]), np.array([friction[1], 0.5, 0.5])
    free = max(pose.size - 6, 1)
    line, whole = _guesses(t - anchor.time, pose, mean, anchor)
    best = _descend(t - anchor.time, pose, noise, whole, (mean, width), anchor)
    if best[0] > 1.3 * free:
        best = min(
            best,
            _descend(t - anchor.time, pose, noise, line, (mean, width), anchor),
            key=lambda found: found[0],
        )
    cost, constants, normal = best
    return SlideMotion(
        anchor.time,
        constants,
        np.linalg.pinv(normal) * max(cost / free, 1.0),
        float(np.sqrt(cost / free)),
    )


def _clock(constants: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times (p, nodes) since the start at the values of u, and the powers of u that speed and spin
    follow (p,), for constants (p, 10).
    """
    a, b = np.exp(constants[:, 6]), np.exp(constants[:, 6] + constants[:, 7])
    least = np.minimum(a, b)
    power_a, power_b = a / least, b / least
    speed2 = (constants[:, 3:5] ** 2).sum(1)[:, None]
    spin2 = (np.exp(constants[:, 8]) * constants[:, 5])[:, None] ** 2
    with np.errstate(divide="ignore"):
        rate = (
            np.sqrt(
                speed2 * _NODES ** (2 * power_a[:, None] - 2)
                + spin2 * _NODES ** (2 * power_b[:, None] - 2)
                + 1e-12
            )
            / least[:, None]
        )  # -dt/du
    return _cumulate(rate, -np.diff(_NODES)), power_a, power_b


def _curves(constants: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Coordinates (p, n, 3) at times t (n,) since the start, for constants (p, 10)."""
    clock, power_a, power_b = _clock(constants)
    step = np.diff(clock, axis=1)
    gain = np.empty((len(constants), len(t), 3))
    early = np.minimum(t, 0.0)
    for j, power in ((0, power_a), (2, power_b)):
        way = _cumulate(_NODES ** power[:, None], step)
        for i in range(len(constants)):
            gain[i, :, j] = np.interp(t, clock[i], way[i]) + early
    gain[:, :, 1] = gain[:, :, 0]
    return constants[:, None, :3] + constants[:, None, 3:6] * gain


def _cumulate(height: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Running integral (p, nodes) by trapezia."""
    return np.concatenate(
        [
            np.zeros((len(height), 1)),
            np.cumsum(0.5 * (height[:, 1:] + height[:, :-1]) * step, axis=1),
        ],
        axis=1,
    )


def _guesses(
    t: np.ndarray, pose: np.ndarray, mean: np.ndarray, anchor: Anchor
) -> tuple[np.ndarray, np.ndarray]:
    """Constants (10,) from the first frames as a straight line, and from the whole way as an even
    deceleration.
    """
    first = min(len(t), 6)
    line = np.polynomial.polynomial.polyfit(t[:first], pose[:first], 1)
    total = np.median(pose[-3:], 0) - anchor.coordinates
    way = np.linalg.norm(pose[:, :2] - anchor.coordinates[:2], axis=1)
    arrived = max(
        float(t[int(np.argmax(way >= 0.9 * way[-3:].mean()))]) / 0.68, 1e-3
    )  # after this share of its time 0.9 of the way is made
    whole = np.concatenate([anchor.coordinates, 2 * total / arrived, mean, [0.0]])
    whole[6] = np.clip(
        np.log(max(float(np.linalg.norm(whole[3:5])) / arrived, 1e-3)), mean[0] - 3, mean[0] + 3
    )
    return np.concatenate([anchor.coordinates, line[1], mean, [0.0]]), whole


def _descend(
    t: np.ndarray,
    pose: np.ndarray,
    noise: np.ndarray,
    guess: np.ndarray,
    prior: tuple[np.ndarray, np.ndarray],
    anchor: Anchor,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Cost, constants (10,) and normal matrix (10, 10) at the end of a descent from a guess;
    `prior`: mean and width (3,) of the logarithms.
    """
    mean, width = prior

    def residuals(x: np.ndarray) -> np.ndarray:
        begun = x[:, :3] + (x[:, 3:6] - anchor.rate) * x[:, _KINK:] - anchor.coordinates
        return np.concatenate(
            [
                ((_curves(x, t) - pose) / noise).reshape(len(x), -1),
                (x[:, _LOGS] - mean) / width,
                x[:, _KINK:] / 0.03,
                begun / anchor.std,
            ],
            axis=1,
        )

    x, damping = guess, 1e-3
    now = residuals(x[None])[0]
    value, normal = _cost(now), np.eye(len(x))
    for _ in range(25):
        jacobian = (residuals(x + np.diag(_STEP)) - now).T / _STEP
        weight = np.minimum(1.0, _HUBER / np.maximum(np.abs(now), 1e-12))
        normal = (jacobian * weight[:, None]).T @ jacobian
        gradient = jacobian.T @ (weight * now)
        for _try in range(6):
            new_x = x - np.linalg.solve(
                normal + damping * np.diag(np.diag(normal) + 1e-12), gradient
            )
            new_x[_LOGS] = np.clip(new_x[_LOGS], mean - 5 * width, mean + 5 * width)
            new = residuals(new_x[None])[0]
            level = _cost(new)
            if level < value:
                break
            damping *= 8
        else:
            break
        done = value - level < max(0.02, 1e-5 * value)  # less than noise would move it
        x, now, value, damping = new_x, new, level, damping / 6
        if done:
            break
    return value, x, normal


def _cost(residuals: np.ndarray) -> float:
    size = np.abs(residuals)
    return float(np.where(size < _HUBER, size**2, 2 * _HUBER * size - _HUBER**2).sum())
