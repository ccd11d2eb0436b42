"""A planned strike as a robot executes it: a time-stamped Cartesian path of the tip within limits
of speed, acceleration and jerk.
"""

from __future__ import annotations

import csv
import io
import json
import math
import pathlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

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
from clashsim.core.files import write_atomic

COLUMNS = ("t_s", "x_m", "y_m", "z_m", "vx_m_s", "vy_m_s", "vz_m_s", "phase")
PHASES = ("approach", "hit", "retreat")
LONGEST = 1_000_000  # rows; a speed or a limit near zero would ask for hours of them
SLACK = 1e-6  # of a sample: a duration that is whole but for rounding takes no further sample


@dataclass(frozen=True)
class Limits:
    """What the arm allows at its tip, for the norm of each vector: speed m/s, acceleration m/s2,
    jerk m/s3.
    """

    speed: float = 1.0
    acceleration: float = 10.0
    jerk: float = 500.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (np.isfinite(value) and value > 0):
                raise DataError(f"the limit of {name} must be finite and above 0, got {value}")


@dataclass(frozen=True, eq=False)
class Path:
    """A path of the tip, sampled evenly from rest to rest.

    t (T,) s from 0. position, velocity, acceleration (T, 3) in m, m/s, m/s2 and the axes of
    `frame`. phase (T,) words: 'approach' (travel and run-up), 'hit' (constant velocity, before and
    after the touch), 'retreat' (braking and going back). touch_time: s, one of t. rate: Hz.
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
    touch: Sequence[float] | np.ndarray,
    velocity: Sequence[float] | np.ndarray,
    limits: Limits = Limits(),
    *,
    through: float = 0.02,
    settle: float = 0.02,
    retreat: float | None = 0.1,
    start: Sequence[float] | np.ndarray | None = None,
    rate: float = 1000.0,
    frame: str = "world",
) -> Path:
    """The path that passes `touch` with `velocity` on a sample, from rest as near behind it as the
    limits allow.

    touch (2,) or (3,) m: centre of the tip at first touch; velocity (2,) or (3,) m/s there; z is 0
    where left out. settle: s, at least, at that velocity before the touch (up to one sample more,
    so that the touch falls on one). through: m at that velocity after it. retreat: m back from the
    furthest point along the way it came; None: stop there. start (2,), at the height of the touch,
    or (3,) m: where the tip rests at first, to go to the run-up point in a straight line. That line
    is kept behind the touch; whether it is clear of everything else is for the caller to know.
    """
    centre, hit = _vector("touch", touch), _vector("velocity", velocity)
    speed = float(np.linalg.norm(hit))
    if (
        not 0 < speed <= limits.speed * (1 + 1e-9)
    ):  # a velocity scaled to the limit may round to just above it
        raise DataError(
            f"the strike needs a speed above 0 and at most the limit of {limits.speed:.4g} m/s, got {speed:.4g} m/s"
        )
    for name, value in (("through", through), ("settle", settle)):
        if not (np.isfinite(value) and value >= 0):
            raise DataError(f"{name} must be finite and at least 0, got {value}")
    for name, some in (("retreat", retreat), ("rate", rate)):
        if some is not None and not (np.isfinite(some) and some > 0):
            raise DataError(f"{name} must be finite and above 0, got {some}")
    way = hit / speed

    ramp = _to_speed(0.0, speed, limits)
    rows = _samples(ramp.duration + settle, rate)  # from the run-up point to the touch
    coast = rows / rate - ramp.duration  # s at full speed before the touch
    run_up = _end(ramp) + coast * speed
    gone_on = through / speed  # s after the touch, as is `stopped`
    brake = _to_speed(speed, 0.0, limits)
    stopped = gone_on + brake.duration
    furthest = through + _end(brake)
    back = None if retreat is None else _to_rest([furthest], [furthest - retreat], limits)
    after = _samples(stopped + (0.0 if back is None else back.duration), rate)
    travel = None
    if start is not None:
        rest = _vector("start", start, height=centre[2])
        if (ahead := float((rest - centre) @ way)) >= 0:
            raise DataError(
                f"the start must lie behind the touch, or the way from it may lead through what is struck; it is {ahead:.4g} m ahead"
            )
        travel = _to_rest(rest.tolist(), (centre - run_up * way).tolist(), limits)
    lead = 0 if travel is None else _samples(travel.duration, rate)
    count = lead + rows + after + 1
    if count > LONGEST:
        raise DataError(
            f"the path would take {count / rate:.4g} s, {count} rows where {LONGEST} are allowed: raise the speed or the limits, or lower the rate"
        )

    def along(clock: float) -> tuple[float, float, float]:
        """Position (m, from the touch), speed and acceleration on the line of the strike, at a time
        (s) from the touch.
        """
        if clock < -coast:
            s, v, a = _state(ramp, clock + rows / rate)
            return s - run_up, v, a
        if clock <= gone_on:
            return speed * clock, speed, 0.0
        if clock <= stopped or back is None:
            s, v, a = _state(brake, clock - gone_on)
            return through + s, v, a
        return _state(back, clock - stopped)

    clock = np.arange(-rows, after + 1) / rate
    line = np.array([along(c) for c in clock])
    states = line[:, :, None] * way + np.stack([centre, np.zeros(3), np.zeros(3)])
    if travel is not None and lead:
        states = np.concatenate([[travel.at_time(i / rate) for i in range(lead)], states])
    states[-1, 1:] = 0.0  # at rest but for rounding
    word = np.where(
        clock < -coast - SLACK / rate, 0, np.where(clock <= gone_on + SLACK / rate, 1, 2)
    )
    phase = np.array(PHASES)[np.concatenate([np.zeros(lead, int), word])]
    return Path(
        np.arange(count) / rate,
        states[:, 0],
        states[:, 1],
        states[:, 2],
        phase,
        touch_time=(lead + rows) / rate,
        rate=float(rate),
        limits=limits,
        frame=frame,
    )


def write_path(path: Path, file: pathlib.Path | str, *, overwrite: bool = False) -> None:
    """Write a path as .csv (a row of names, then a row per sample) or .json (the same columns, with
    frame, units, limits and the touch).
    """
    file = pathlib.Path(file)
    if file.suffix.lower() not in (".csv", ".json"):
        raise DataError(f"a path is written as .csv or .json, got {str(file)!r}")
    if file.exists() and not overwrite:
        raise DataError(
            f"{str(file)!r} already exists; choose another file, or replace it with overwrite=True"
        )
    numbers = np.column_stack([path.t, path.position, path.velocity]) + 0.0  # no -0.0 in a file
    rows = [[*row, str(word)] for row, word in zip(numbers.tolist(), path.phase, strict=True)]
    text = io.StringIO()
    if file.suffix.lower() == ".csv":
        csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    else:
        about = {
            "frame": path.frame,
            "units": {"t": "s", "position": "m", "velocity": "m/s"},
            "rate_hz": path.rate,
            "touch_s": path.touch_time,
            "limits": {
                f"{name}_{unit}": float(value)
                for (name, value), unit in zip(
                    asdict(path.limits).items(), ("m_s", "m_s2", "m_s3"), strict=True
                )
            },
            "columns": COLUMNS,
        }
        lines = ",\n".join(
            json.dumps(row) for row in rows
        )  # a row per line, for people and for diff
        text.write(f'{json.dumps(about, indent=1)[:-2]},\n "rows": [\n{lines}\n]}}\n')
    try:
        write_atomic(file, text.getvalue().encode())
    except OSError as error:
        raise DataError(f"the path {str(file)!r} cannot be written: {error.strerror}") from None


def _vector(name: str, value: Sequence[float] | np.ndarray, *, height: float = 0.0) -> np.ndarray:
    """Two or three finite numbers as (3,), with `height` for a z that is left out."""
    try:
        vector = np.asarray(value, float)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be two or three numbers, got {value!r}") from None
    if vector.shape not in ((2,), (3,)) or not np.isfinite(vector).all():
        raise DataError(f"{name} must be two or three finite numbers, got {value!r}")
    return vector if len(vector) == 3 else np.array([*vector, height])


def _to_speed(now: float, then: float, limits: Limits) -> Trajectory:
    """The quickest change of speed (m/s) on a line, from 0 m, without acceleration at either end."""
    wish = InputParameter(1)
    wish.control_interface = ControlInterface.Velocity
    wish.current_velocity, wish.target_velocity = [now], [then]
    return _solved(wish, limits)


def _to_rest(now: list[float], then: list[float], limits: Limits) -> Trajectory:
    """The quickest straight way from rest to rest between two points (m) that keeps the limits on
    each axis, tightened so that norms keep them too.
    """
    wish = InputParameter(len(now))
    wish.synchronization = (
        Synchronization.Phase
    )  # the default, Time, bends the way where the axes have unequal distances to go
    wish.current_position, wish.target_position = now, then
    return _solved(wish, limits)


def _solved(wish: InputParameter, limits: Limits) -> Trajectory:
    axes = wish.degrees_of_freedom
    share = 1 / math.sqrt(axes)
    wish.max_velocity, wish.max_acceleration, wish.max_jerk = (
        [value * share] * axes for value in (limits.speed, limits.acceleration, limits.jerk)
    )
    trajectory = Trajectory(axes)
    try:
        result = Ruckig(axes).calculate(wish, trajectory)
    except (
        RuckigError,
        ValueError,
    ) as error:  # ValueError: a code that is missing from ruckig's Python enum, -101, for a duration above 7600 s
        raise DataError(
            f"no path can be computed within {limits}: it takes hours, or a limit is extreme ({' '.join(str(error).split())[:100]})"
        ) from None
    if result not in (Result.Working, Result.Finished):
        raise DataError(f"no path can be computed within {limits}: {result}")
    return trajectory


def _samples(duration: float, rate: float) -> int:
    """Samples after the first that reach to the end of a duration (s)."""
    return math.ceil(
        min(duration * rate, 1e15) - SLACK
    )  # what is endless is refused by its number of rows


def _state(line: Trajectory, time: float) -> tuple[float, float, float]:
    """Position, speed and acceleration at a time (s) on a trajectory of one axis; its end after
    that, where ruckig would drift on by rounding errors.
    """
    (s,), (v,), (a,) = line.at_time(min(time, line.duration))
    return s, v, a


def _end(line: Trajectory) -> float:
    return _state(line, line.duration)[0]
