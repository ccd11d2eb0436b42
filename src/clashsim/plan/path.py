"""The tip path of a strike: time-stamped, within limits of speed, acceleration and jerk.

A path has these parts: travel from a resting place (if one is given), a run-up to the speed of the
strike, constant velocity through the contact, braking, and a retreat the way it came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from ruckig import (
    ControlInterface,
    InputParameter,
    Result,
    Ruckig,
    RuckigError,
    Synchronization,
    Trajectory,
)

from clashsim.core.errors import DataError

PHASES = ("approach", "hit", "retreat")
MAX_ROWS = 1_000_000  # a speed or a limit near zero would ask for hours of samples
_ROUNDING = 1e-6  # of a sample: a duration that is whole but for rounding takes no further sample
_SPEED_ROUNDING = 1e-9  # a velocity scaled to the limit may round to just above it

Vector = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Limits:
    """What the arm allows at its tip, for the norm of each vector.

    Args:
        speed: In m/s.
        acceleration: In m/s2.
        jerk: In m/s3.
    """

    speed: float = 1.0
    acceleration: float = 10.0
    jerk: float = 500.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (np.isfinite(value) and value > 0):
                raise DataError(f"the limit of {name} must be finite and above 0, got {value}")


@dataclass(frozen=True)
class PathConfig:
    """How the tip moves around the contact, and how the path is sampled.

    Args:
        through: Distance in m at the velocity of the strike after the contact.
        settle: Least time in s at that velocity before the contact; up to one sample is added, so
            that the contact falls on a sample.
        retreat: Distance in m back from the furthest point along the way it came; None: stop there.
        rate: Samples per second.
        frame: Name of the frame that positions are given in.
    """

    through: float = 0.02
    settle: float = 0.02
    retreat: float | None = 0.1
    rate: float = 1000.0
    frame: str = "world"

    def __post_init__(self) -> None:
        for name, value in (("through", self.through), ("settle", self.settle)):
            if not (np.isfinite(value) and value >= 0):
                raise DataError(f"{name} must be finite and at least 0, got {value}")
        for name, optional in (("retreat", self.retreat), ("rate", self.rate)):
            if optional is not None and not (np.isfinite(optional) and optional > 0):
                raise DataError(f"{name} must be finite and above 0, got {optional}")


@dataclass(frozen=True, eq=False)
class TipPath:
    """A path of the tip, sampled evenly from rest to rest.

    Args:
        t: Time (T,) in s, from 0.
        position: (T, 3) in m and the axes of `frame`.
        velocity: (T, 3) in m/s.
        acceleration: (T, 3) in m/s2.
        phase: (T,) words: "approach" (travel and run-up), "hit" (constant velocity, before and
            after the contact), "retreat" (braking and going back).
        touch_time: Time of the contact in s, one of t.
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
        start: Where the tip rests at first, (2,) at the height of the touch or (3,) in m. It goes
            to the run-up point in a straight line, which is kept behind the touch; the caller has
            to know that it is clear of everything else.
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
    line = _StrikeLine.of(speed, limits, config)
    travel = None
    if start is not None:
        resting_place = _as_vector("start", start, height=contact[2])
        ahead = float((resting_place - contact) @ direction)
        if ahead >= 0:
            raise DataError(
                "the start must lie behind the touch, or the way from it may lead through what is "
                f"struck; it is {ahead:.4g} m ahead"
            )
        run_up_point = contact - line.run_up * direction
        travel = _between_rests(resting_place.tolist(), run_up_point.tolist(), limits)
    travel_rows = 0 if travel is None else _samples(travel.duration, rate)
    count = travel_rows + line.rows_before + line.rows_after + 1
    if count > MAX_ROWS:
        raise DataError(
            f"the path would take {count / rate:.4g} s, {count} rows where {MAX_ROWS} are allowed: "
            "raise the speed or the limits, or lower the rate"
        )
    clock = np.arange(-line.rows_before, line.rows_after + 1) / rate  # s from the contact
    along_line = np.array([line.state_at(time) for time in clock])
    origin = np.stack([contact, np.zeros(3), np.zeros(3)])
    states = along_line[:, :, None] * direction + origin
    if travel is not None and travel_rows:
        travelled = [travel.at_time(i / rate) for i in range(travel_rows)]
        states = np.concatenate([travelled, states])
    states[-1, 1:] = 0.0  # at rest but for rounding
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


@dataclass(frozen=True)
class _StrikeLine:
    """The motion along the line of the strike: run-up, constant speed, braking and retreat.

    Times are in s from the contact, distances in m from it along the velocity.
    """

    speed: float
    through: float
    rate: float
    ramp: Trajectory  # from rest to the speed of the strike
    brake: Trajectory  # from that speed to rest
    back: Trajectory | None  # the retreat
    rows_before: int  # samples from the run-up point to the contact
    rows_after: int

    @staticmethod
    def of(speed: float, limits: Limits, config: PathConfig) -> _StrikeLine:
        """Return the motion with the shortest run-up and the quickest way back to rest."""
        ramp = _change_of_speed(0.0, speed, limits)
        brake = _change_of_speed(speed, 0.0, limits)
        back = None
        after = config.through / speed + brake.duration
        if config.retreat is not None:
            furthest = config.through + _end_position(brake)
            back = _between_rests([furthest], [furthest - config.retreat], limits)
            after += back.duration
        return _StrikeLine(
            speed=speed,
            through=config.through,
            rate=config.rate,
            ramp=ramp,
            brake=brake,
            back=back,
            rows_before=_samples(ramp.duration + config.settle, config.rate),
            rows_after=_samples(after, config.rate),
        )

    @cached_property
    def coast_time(self) -> float:
        """Time at full speed before the contact, s."""
        return self.rows_before / self.rate - self.ramp.duration

    @cached_property
    def run_up(self) -> float:
        """Distance from the run-up point to the contact, m."""
        return _end_position(self.ramp) + self.coast_time * self.speed

    @cached_property
    def brake_time(self) -> float:
        """When braking begins, s after the contact."""
        return self.through / self.speed

    @cached_property
    def stop_time(self) -> float:
        """When the tip is at its furthest point, s after the contact."""
        return self.brake_time + self.brake.duration

    def state_at(self, time: float) -> tuple[float, float, float]:
        """Return position, speed and acceleration along the line at a time from the contact."""
        if time < -self.coast_time:
            position, speed, acceleration = _state(self.ramp, time + self.rows_before / self.rate)
            return position - self.run_up, speed, acceleration
        if time <= self.brake_time:
            return self.speed * time, self.speed, 0.0
        if time <= self.stop_time or self.back is None:
            position, speed, acceleration = _state(self.brake, time - self.brake_time)
            return self.through + position, speed, acceleration
        return _state(self.back, time - self.stop_time)

    def phase_numbers(self, clock: np.ndarray) -> np.ndarray:
        """Return indices (T,) into `PHASES` for times (T,) from the contact."""
        tolerance = _ROUNDING / self.rate
        is_approach = clock < -self.coast_time - tolerance
        is_hit = clock <= self.brake_time + tolerance
        return np.where(is_approach, 0, np.where(is_hit, 1, 2))


def _as_vector(name: str, value: Vector, *, height: float = 0.0) -> np.ndarray:
    """Return two or three finite numbers as (3,), with `height` for a missing z."""
    try:
        vector = np.asarray(value, float)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be two or three numbers, got {value!r}") from None
    if vector.shape not in ((2,), (3,)) or not np.isfinite(vector).all():
        raise DataError(f"{name} must be two or three finite numbers, got {value!r}")
    return vector if len(vector) == 3 else np.array([*vector, height])


def _change_of_speed(before: float, after: float, limits: Limits) -> Trajectory:
    """Return the quickest change of speed (m/s) on a line, without end accelerations."""
    request = InputParameter(1)
    request.control_interface = ControlInterface.Velocity
    request.current_velocity = [before]
    request.target_velocity = [after]
    return _solve(request, limits)


def _between_rests(start: list[float], end: list[float], limits: Limits) -> Trajectory:
    """Return the quickest straight way from rest to rest between two points (m)."""
    request = InputParameter(len(start))
    # The default, Time, bends the way where the axes have unequal distances to go.
    request.synchronization = Synchronization.Phase
    request.current_position = start
    request.target_position = end
    return _solve(request, limits)


def _solve(request: InputParameter, limits: Limits) -> Trajectory:
    """Return the trajectory that ruckig finds, with limits per axis so that norms keep them too."""
    axes = request.degrees_of_freedom
    share = 1 / math.sqrt(axes)
    request.max_velocity = [limits.speed * share] * axes
    request.max_acceleration = [limits.acceleration * share] * axes
    request.max_jerk = [limits.jerk * share] * axes
    trajectory = Trajectory(axes)
    try:
        result = Ruckig(axes).calculate(request, trajectory)
    except (RuckigError, ValueError) as error:
        # ValueError: for a duration above 7600 s ruckig returns the code -101, which its Python
        # enumeration does not have.
        details = " ".join(str(error).split())[:100]
        raise DataError(
            f"no path can be computed within {limits}: it takes hours, or a limit is extreme "
            f"({details})"
        ) from None
    if result not in (Result.Working, Result.Finished):
        raise DataError(f"no path can be computed within {limits}: {result}")
    return trajectory


def _samples(duration: float, rate: float) -> int:
    """Return the samples after the first that reach to the end of a duration (s)."""
    # A duration without end is refused later, by its number of rows.
    return math.ceil(min(duration * rate, 1e15) - _ROUNDING)


def _state(trajectory: Trajectory, time: float) -> tuple[float, float, float]:
    """Return position, speed and acceleration of a trajectory of one axis at a time (s)."""
    # After its end ruckig would drift on by rounding errors.
    (position,), (speed,), (acceleration,) = trajectory.at_time(min(time, trajectory.duration))
    return position, speed, acceleration


def _end_position(trajectory: Trajectory) -> float:
    """Return where a trajectory of one axis ends, m."""
    return _state(trajectory, trajectory.duration)[0]
