"""The quickest motions along a line within limits of speed, acceleration and jerk, by ruckig."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from clashsim.plan.motion_limits import Limits, PathConfig

PHASES = ("approach", "hit", "retreat")
_ROUNDING = 1e-6  # samples: a duration that exceeds a whole number by less takes no extra sample
_MAX_SAMPLES = 1e15  # stands for an infinite duration, which has no number of samples


@dataclass(frozen=True)
class StrikeLine:
    """The motion along the line of the strike: run-up, constant speed, braking and retreat.

    Times are in s from the contact, distances in m from it along the velocity.
    """

    speed: float  # of the strike, m/s
    through: float  # distance at that speed after the contact, m
    rate: float  # samples per second
    ramp: Trajectory  # from rest to the speed of the strike
    brake: Trajectory  # from that speed to rest
    back: Trajectory | None  # the retreat; None: the tip stays where it stopped
    rows_before: int  # samples from the run-up point to the contact
    rows_after: int  # samples from the contact to the end

    @staticmethod
    def of(speed: float, limits: Limits, config: PathConfig) -> StrikeLine:
        """Return the motion with the shortest run-up and the quickest way back to rest."""
        ramp = _change_of_speed(0.0, speed, limits)
        brake = _change_of_speed(speed, 0.0, limits)
        back = None
        time_after = config.through / speed + brake.duration  # s from the contact to the end
        if config.retreat is not None:
            furthest = config.through + _end_position(brake)
            back = move_between_rests([furthest], [furthest - config.retreat], limits)
            time_after += back.duration
        return StrikeLine(
            speed=speed,
            through=config.through,
            rate=config.rate,
            ramp=ramp,
            brake=brake,
            back=back,
            rows_before=count_samples(ramp.duration + config.settle, config.rate),
            rows_after=count_samples(time_after, config.rate),
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
        """Return position (m), speed (m/s), acceleration (m/s2) at a time (s) from the contact."""
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
        """Return indices (T,) into `PHASES` for times (T,) in s from the contact."""
        tolerance = _ROUNDING / self.rate
        is_approach = clock < -self.coast_time - tolerance
        is_hit = clock <= self.brake_time + tolerance
        return np.where(is_approach, 0, np.where(is_hit, 1, 2))


def _change_of_speed(before: float, after: float, limits: Limits) -> Trajectory:
    """Return the quickest change of speed (m/s) on a line, without acceleration at its ends."""
    request = InputParameter(1)
    request.control_interface = ControlInterface.Velocity
    request.current_velocity = [before]
    request.target_velocity = [after]
    return _solve(request, limits)


def move_between_rests(start: list[float], end: list[float], limits: Limits) -> Trajectory:
    """Return the quickest straight way from rest to rest between two points (m)."""
    request = InputParameter(len(start))
    # ruckig's default, Time, lets the axes end together but bends the way between the points.
    request.synchronization = Synchronization.Phase
    request.current_position = start
    request.target_position = end
    return _solve(request, limits)


def _solve(request: InputParameter, limits: Limits) -> Trajectory:
    """Return ruckig's trajectory, with limits per axis such that norms keep `limits`."""
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


def count_samples(duration: float, rate: float) -> int:
    """Return how many samples, beside that at time 0, reach to the end of a duration (s)."""
    # `strike_path` refuses paths with too many samples, also those of an infinite duration.
    return math.ceil(min(duration * rate, _MAX_SAMPLES) - _ROUNDING)


def _state(trajectory: Trajectory, time: float) -> tuple[float, float, float]:
    """Return position, speed and acceleration of a trajectory of one axis at a time (s)."""
    # Beyond the end ruckig extrapolates, with a velocity that is zero only up to rounding.
    (position,), (speed,), (acceleration,) = trajectory.at_time(min(time, trajectory.duration))
    return position, speed, acceleration


def _end_position(trajectory: Trajectory) -> float:
    """Return where a trajectory of one axis ends, m."""
    return _state(trajectory, trajectory.duration)[0]
