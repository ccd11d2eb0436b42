"""The tip path of a strike: time-stamped, within limits of speed, acceleration and jerk.

A path has these parts: travel from a resting place (if one is given), a run-up to the speed of the
strike, constant velocity through the contact, braking, and a retreat the way it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.errors import DataError
from clashsim.plan.line_motion import PHASES, StrikeLine, count_samples, move_between_rests
from clashsim.plan.motion_limits import Limits, PathConfig

__all__ = ["Limits", "PathConfig", "TipPath", "strike_path"]

MAX_ROWS = 1_000_000  # samples; a speed or a limit near zero would need hours of them
_SPEED_ROUNDING = 1e-9  # relative: a velocity scaled to the limit may round to just above it

Vector = Sequence[float] | np.ndarray


@dataclass(frozen=True, eq=False)
class TipPath:
    """A path of the tip, sampled evenly from rest to rest.

    Attributes:
        t: Time (T,) in s, from 0.
        position: (T, 3) in m and the axes of `frame`.
        velocity: (T, 3) in m/s.
        acceleration: (T, 3) in m/s2.
        phase: (T,) strings: "approach" (travel and run-up), "hit" (constant velocity, before and
            after the contact), "retreat" (braking and going back).
        touch_time: Time of the contact in s, which is one of the samples.
        rate: Samples per second.
        limits: The limits that the path keeps.
        frame: Name of the frame.
    """

    t: np.ndarray
    position: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray
    phase: np.ndarray
    touch_time: float
    rate: float
    limits: Limits
    frame: str = "world"


def strike_path(
    touch: Vector,
    velocity: Vector,
    limits: Limits = Limits(),
    *,
    start: Vector | None = None,
    config: PathConfig = PathConfig(),
) -> TipPath:
    """Return the path that passes `touch` with `velocity` on a sample, with the shortest run-up.

    Args:
        touch: Centre of the tip at first contact, (2,) or (3,) in m; a missing z is 0.
        velocity: Velocity there, (2,) or (3,) in m/s; a missing z is 0.
        limits: Speed, acceleration and jerk that the arm allows.
        start: Where the tip rests before the strike, (2,) at the height of `touch` or (3,) in m,
            behind `touch`. It goes to the run-up point in a straight line; whether that is clear of
            obstacles is up to the caller. None: the path begins at the run-up point.
        config: How the tip moves around the contact, and how the path is sampled.

    Returns:
        The path, from rest to rest.
    """
    contact = _as_vector("touch", touch)
    contact_velocity = _as_vector("velocity", velocity)
    speed = float(np.linalg.norm(contact_velocity))
    if not 0 < speed <= limits.speed * (1 + _SPEED_ROUNDING):
        raise DataError(
            "the strike needs a speed above 0 and at most the limit of "
            f"{limits.speed:.4g} m/s, got {speed:.4g} m/s"
        )
    direction = contact_velocity / speed
    rate = config.rate
    line = StrikeLine.of(speed, limits, config)
    travel = None
    if start is not None:
        rest_position = _as_vector("start", start, height=contact[2])
        distance_ahead = float((rest_position - contact) @ direction)
        if distance_ahead >= 0:
            raise DataError(
                "the start must lie behind the touch, or the way from it may lead through what is "
                f"struck; it is {distance_ahead:.4g} m ahead"
            )
        run_up_point = contact - line.run_up * direction
        travel = move_between_rests(rest_position.tolist(), run_up_point.tolist(), limits)
    travel_rows = 0 if travel is None else count_samples(travel.duration, rate)
    count = travel_rows + line.rows_before + line.rows_after + 1
    if count > MAX_ROWS:
        raise DataError(
            f"the path would take {count / rate:.4g} s, {count} rows where {MAX_ROWS} are allowed: "
            "raise the speed or the limits, or lower the rate"
        )
    clock = np.arange(-line.rows_before, line.rows_after + 1) / rate  # s from the contact
    along_line = np.array([line.state_at(time) for time in clock])  # position, speed, acceleration
    at_contact = np.stack([contact, np.zeros(3), np.zeros(3)])  # only positions have an origin
    states = along_line[:, :, None] * direction + at_contact  # (T, 3 quantities, 3 axes)
    if travel is not None and travel_rows:
        travelled = [travel.at_time(i / rate) for i in range(travel_rows)]
        states = np.concatenate([travelled, states])
    states[-1, 1:] = 0.0  # at rest; ruckig leaves rounding errors
    phase_numbers = np.concatenate([np.zeros(travel_rows, int), line.phase_numbers(clock)])
    return TipPath(
        t=np.arange(count) / rate,
        position=states[:, 0],
        velocity=states[:, 1],
        acceleration=states[:, 2],
        phase=np.array(PHASES)[phase_numbers],
        touch_time=(travel_rows + line.rows_before) / rate,
        rate=float(rate),
        limits=limits,
        frame=config.frame,
    )


def _as_vector(name: str, value: Vector, *, height: float = 0.0) -> np.ndarray:
    """Return two or three finite numbers as (3,), with `height` for a missing z."""
    try:
        vector = np.asarray(value, float)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be two or three numbers, got {value!r}") from None
    if vector.shape not in ((2,), (3,)) or not np.isfinite(vector).all():
        raise DataError(f"{name} must be two or three finite numbers, got {value!r}")
    return vector if len(vector) == 3 else np.array([*vector, height])
