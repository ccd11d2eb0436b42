"""Velocity jumps: times at which a body's velocity changes suddenly while its position does not.

Between every two frames, two parabolas that share the position there (a jump of velocity) are
compared with two parabolas that share the velocity as well (a change of acceleration). Friction
that sets in or ends bends a motion in the second way. Only an impact bends it in the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.data.segmentation.noise import downsample

# Time on each side of a jump over which motion is taken as a parabola: short for hits in quick
# succession, long for slow ones.
_SPANS = (0.05, 0.1)  # s
_MIN_FRAMES = 5  # on each side
_USUAL_ACCELERATION = 5.0  # m/s^2, that friction or gravity may have
# How much a jump must lower the sum of squared residuals over noise, compared with the best sudden
# change of acceleration.
_MIN_EVIDENCE = 15.0
_MAX_BEND_PLACES = 13  # of a window at which a change of acceleration is tried
_MIN_FRAMES_APART = 3.5  # frames: two jumps nearer than this are one
_RIDGE = 1e-9  # added to the diagonal of normal equations, which then always have a solution


@dataclass(frozen=True, eq=False)
class VelocityJump:
    """A sudden change of velocity.

    Attributes:
        time: Time of the jump, s.
        low: Time of the last frame before it, s.
        high: Time of the first frame after it, s.
        jump: Change (k,) of the coordinates' rates.
        evidence: By how much the jump lowers the sum of squared residuals over noise.
    """

    time: float
    low: float
    high: float
    jump: np.ndarray
    evidence: float


def find_velocity_jumps(
    t: np.ndarray,
    coordinates: np.ndarray,
    noise: np.ndarray,
    *,
    length_scale: np.ndarray,
    min_jump: float,
) -> list[VelocityJump]:
    """Find the times at which the rate of coordinates jumps.

    Args:
        t: Times (n,), s.
        coordinates: Coordinates (n, k).
        noise: Standard deviations (n, k) of the coordinates.
        length_scale: Factors (k,) that turn rates into m/s.
        min_jump: Smallest jump that counts, m/s.

    Returns:
        The jumps in order of time.
    """
    if len(t) < 2:
        return []
    t, coordinates, noise = downsample(t, coordinates, noise)
    frame_rate = 1 / float(np.median(np.diff(t)))
    min_distance = max(_SPANS[0], _MIN_FRAMES_APART / frame_rate)
    found: list[VelocityJump] = []
    for span in _SPANS:
        side = max(_MIN_FRAMES, round(span * frame_rate))
        # A long span that holds two hits puts its jump between them, so it only adds jumps that the
        # short span has not found.
        from_shorter_spans = list(found)
        for candidate in _jumps_of_span(t, coordinates, noise, length_scale, side=side):
            is_large = np.linalg.norm(candidate.jump * length_scale) > min_jump
            is_new = all(
                abs(candidate.time - other.time) > min_distance for other in from_shorter_spans
            )
            if is_large and is_new:
                found.append(candidate)
    return sorted(found, key=lambda jump: jump.time)


def _jumps_of_span(
    t: np.ndarray,
    coordinates: np.ndarray,
    noise: np.ndarray,
    length_scale: np.ndarray,
    *,
    side: int,
) -> list[VelocityJump]:
    """Jumps with enough evidence in windows of `side` frames on each side.

    There is one window for each place between two frames that has `side` frames on both sides. Of
    windows next to each other that show the same jump, the best is taken.
    """
    windows = len(t) - 2 * side + 1
    if windows < 1:
        return []
    rows = np.arange(windows)[:, None] + np.arange(2 * side)
    middle = 0.5 * (t[side - 1 : side - 1 + windows] + t[side : side + windows])
    elapsed = t[rows] - middle[:, None]
    duration = np.abs(elapsed).max(1, keepdims=True)
    unit = noise.min(0)  # (k,), in which the coordinates of all windows are measured
    # Frames in motion are less certain because of the jitter of their time stamps.
    weight = 1 / np.max(noise / unit, axis=1)[rows][:, :, None]
    scaled_time = elapsed / duration
    centred = (coordinates[rows] - coordinates[rows].mean(1, keepdims=True)) / unit
    targets = weight * centred
    # The acceleration that friction or gravity may have bounds the parabolas. Without this a sharp
    # bend over a few frames would be taken for a jump.
    mean_noise = float(np.exp(np.log(unit * length_scale).mean()))
    stiffness = (2 * mean_noise / (_USUAL_ACCELERATION * duration[:, 0] ** 2)) ** 2

    jump_basis = weight * _two_parabolas(scaled_time, 0.0, smooth=False)
    jump_misfit, coefficients = _least_squares(jump_basis, targets, stiffness)
    rate_left = coefficients[:, 1]
    rate_right = coefficients[:, 2]
    jump = (rate_right - rate_left) / duration * unit
    bend_basis = weight * _two_parabolas(scaled_time, 0.0, smooth=True)
    bend_misfit, _ = _least_squares(bend_basis, targets, stiffness)
    evidence = bend_misfit - jump_misfit
    # Few windows get this far, so the search for the best place of the bend is fast.
    likely = np.flatnonzero(evidence > _MIN_EVIDENCE)
    # At least two frames of a window lie on each side of a bend.
    bend_places = np.linspace(2, 2 * side - 2, min(2 * side - 3, _MAX_BEND_PLACES)).astype(int)
    for place in np.unique(bend_places):
        bend_time = 0.5 * (scaled_time[likely, place - 1] + scaled_time[likely, place])
        bend_basis = weight[likely] * _two_parabolas(scaled_time[likely], bend_time, smooth=True)
        bend_misfit, _ = _least_squares(bend_basis, targets[likely], stiffness[likely])
        evidence[likely] = np.minimum(evidence[likely], bend_misfit - jump_misfit[likely])

    # Where a window sees two hits, a jump between them may have more evidence, but it fits worse.
    rank = evidence - jump_misfit
    neighbourhood = side // 2 + 1
    jumps = []
    for i in np.flatnonzero(evidence > _MIN_EVIDENCE):
        # A maximum in the first or last window only shows that more of the jump lies beyond it.
        is_inside = 0 < i < windows - 1
        nearby = rank[max(i - neighbourhood, 0) : i + neighbourhood + 1]
        if is_inside and rank[i] >= nearby.max():
            jumps.append(
                VelocityJump(
                    time=float(middle[i]),
                    low=float(t[i + side - 1]),
                    high=float(t[i + side]),
                    jump=jump[i],
                    evidence=float(evidence[i]),
                )
            )
    return jumps


def _two_parabolas(
    scaled_time: np.ndarray, joint: np.ndarray | float, *, smooth: bool
) -> np.ndarray:
    """Basis (n, 2 side, 5) of two parabolas joined in position at the scaled time `joint` (n,).

    Its columns are the position, the rates on the left and on the right, and the squares of time
    on the left and on the right. Where smooth, the two rates are one (n, 2 side, 4).
    """
    from_joint = scaled_time - np.reshape(joint, (-1, 1))
    left = np.minimum(from_joint, 0)
    right = np.maximum(from_joint, 0)
    linear = [from_joint] if smooth else [left, right]
    return np.stack([np.ones_like(from_joint), *linear, left**2, right**2], axis=2)


def _least_squares(
    basis: np.ndarray, targets: np.ndarray, stiffness: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit each window, with a penalty on the accelerations of the two parabolas.

    Args:
        basis: Basis (n, 2 side, p), of which the coefficients of the last two columns (the
            accelerations) are penalised.
        targets: Weighted coordinates (n, 2 side, k).
        stiffness: Factors (n,) of the penalty.

    Returns:
        The sums (n,) of squared residuals and penalties over all coordinates, and the
        coefficients (n, p, k).
    """
    normal = np.einsum("nip,niq->npq", basis, basis) + _RIDGE * np.eye(basis.shape[2])
    normal[:, [-2, -1], [-2, -1]] += stiffness[:, None]
    right_side = np.einsum("nip,nik->npk", basis, targets)
    coefficients = np.linalg.solve(normal, right_side)
    misfit = (targets**2).sum((1, 2)) - (right_side * coefficients).sum((1, 2))
    return misfit, coefficients
