"""How noisy a trajectory is: at rest, and in motion, where jitter of the time stamps adds to it."""

from __future__ import annotations

import numpy as np

# Smaller noise is not believed: a simulator's log has none, and weights would grow without bound.
_MIN_LINEAR_NOISE = 2e-5  # m
_MIN_ANGULAR_NOISE = 4e-4  # rad
_UNKNOWN_NOISE_FACTOR = 10  # times the smallest noise, where there are too few frames
_MIN_FRAMES = 8  # to estimate the noise at rest
_MIN_MOVING_FRAMES = 8  # to estimate the jitter
_MOVING_SPEED = 0.05  # m/s
_MEDIAN_TO_STD = 0.6745  # median absolute value of a standard normal variable
# Factor of the squared jitter: a clock that lags and catches up again is off by more than the
# differences between neighbouring frames show.
_JITTER_FACTOR = 1.5
_QUIET_SHARE = 0.95  # of the frames in motion: the others may be the impacts themselves
_MAX_RATE = 250  # frames per second that a fit needs
_MIN_FRAMES_TO_DOWNSAMPLE = 40


def estimate_noise(t: np.ndarray, coordinates: np.ndarray, *, angles: int) -> np.ndarray:
    """Estimate the noise of a trajectory from how well three frames predict the fourth.

    Third differences hardly see the motion, and their median does not see the impacts.

    Args:
        t: Times (n,), s.
        coordinates: Coordinates (n, k).
        angles: How many of the last columns are angles.

    Returns:
        Standard deviations (k,), m and rad.
    """
    lowest = np.repeat(
        (_MIN_LINEAR_NOISE, _MIN_ANGULAR_NOISE), (coordinates.shape[1] - angles, angles)
    )
    if len(t) < _MIN_FRAMES:
        return _UNKNOWN_NOISE_FACTOR * lowest
    median = np.median(np.abs(_third_differences(t, coordinates)), axis=0)
    return np.maximum(median / _MEDIAN_TO_STD, lowest)


def frame_noise(
    t: np.ndarray, coordinates: np.ndarray, rest_noise: np.ndarray, *, angles: int
) -> np.ndarray:
    """Noise of each frame: that at rest, plus what jitter of the time stamps makes of the rates.

    A logger that runs beside its camera repeats and skips camera frames, so a body at 1 m/s may be
    off by 1 mm where its noise at rest is a few hundredths of that. The size of the jitter follows
    from how much noisier the frames in motion are.

    Args:
        t: Times (n,), s.
        coordinates: Coordinates (n, k).
        rest_noise: Standard deviations (k,) at rest.
        angles: How many of the last columns are angles.

    Returns:
        Standard deviations (n, k).
    """
    frames = len(t)
    at_rest = np.tile(rest_noise, (frames, 1))
    if frames < 2 * _MIN_FRAMES:
        return at_rest
    rate = _slower_rates(t, coordinates)
    lengths = coordinates.shape[1] - angles
    squared_noise = (_third_differences(t, coordinates)[:, :lengths] ** 2).sum(1)
    excess = squared_noise - (rest_noise[:lengths] ** 2).sum()
    # Difference i is over frames i to i + 3; its speed is that of frame i + 1.
    squared_speed = (rate[1:-2, :lengths] ** 2).sum(1)
    moving = squared_speed > _MOVING_SPEED**2
    if moving.sum() < _MIN_MOVING_FRAMES:
        return at_rest
    squared_jitters = np.sort(excess[moving] / squared_speed[moving])
    quiet = squared_jitters[: int(_QUIET_SHARE * moving.sum())]
    squared_jitter = max(float(quiet.mean()), 0.0)
    return np.sqrt(rest_noise**2 + _JITTER_FACTOR * squared_jitter * rate**2)


def downsample(
    t: np.ndarray, coordinates: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Average the frames of a fast camera in groups, down to about 250 frames per second.

    Args:
        t: Times (n,), s.
        coordinates: Coordinates (n, k).
        noise: Standard deviations (n, k) of the coordinates.

    Returns:
        Times (m,), coordinates (m, k) and their noise (m, k), with m <= n.
    """
    if len(t) < _MIN_FRAMES_TO_DOWNSAMPLE:
        return t, coordinates, noise
    duration = max(float(t[-1] - t[0]), 1e-9)
    group = round(len(t) / _MAX_RATE / duration)
    if group < 2:
        return t, coordinates, noise
    used = len(t) // group * group

    def group_means(values: np.ndarray) -> np.ndarray:
        return values[:used].reshape(-1, group, *values.shape[1:]).mean(1)

    return group_means(t), group_means(coordinates), group_means(noise) / np.sqrt(group)


def _slower_rates(t: np.ndarray, coordinates: np.ndarray, reach: int = 4) -> np.ndarray:
    """How fast each coordinate changes (n, k), on the slower side of each frame.

    A body at rest thus has no rate in the frames just before it is hit. The rate is taken over
    `reach` frames.
    """
    if len(t) <= reach:
        return np.zeros_like(coordinates)
    rate = np.abs(coordinates[reach:] - coordinates[:-reach]) / (t[reach:] - t[:-reach])[:, None]
    following = np.vstack([rate, rate[-1:].repeat(reach, 0)])
    preceding = np.vstack([rate[:1].repeat(reach, 0), rate])
    return np.minimum(following, preceding)


def _third_differences(t: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """Divided differences of third order (n - 3, k), scaled to the standard deviation of a frame.

    Frames need not be evenly spaced.
    """
    rows = np.arange(len(t) - 3)[:, None] + np.arange(4)
    # Time between any two of four frames; 1 on the diagonal drops out of the products.
    gaps = t[rows][:, :, None] - t[rows][:, None, :] + np.eye(4)
    weight = 1 / gaps.prod(2)
    unit_weight = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    return np.einsum("ni,nik->nk", unit_weight, coordinates[rows])
