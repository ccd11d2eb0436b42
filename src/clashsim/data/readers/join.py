"""Joins the logs of one trial: rows at all their time stamps, NaN where a body was not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.trials import Trial
from clashsim.data.readers.streams import Log

MAX_ROWS = 1 << 24  # of a trial: more than a day at 120 Hz


def join_logs(name: str, logs: Sequence[Log], known: Mapping[str, float]) -> Trial:
    """Join the logs of a trial, whose clocks agree.

    The earliest time becomes 0. Nothing is resampled, so no measurement is lost. Times at which no
    body was seen and no signal was logged are left out.

    Args:
        name: Name of the trial.
        logs: The logs of its loggers.
        known: Numbers that hold for every trial.

    Returns:
        The trial.
    """
    streams = [stream for log in logs for stream in log.streams]
    names = [stream.body for stream in streams]
    duplicate = next((body for body in names if names.count(body) > 1), None)
    if duplicate is not None:
        raise DataError(f"two logs of trial {name!r} both have a body {duplicate!r}")
    t = _union_of_times(logs)
    if len(t) > MAX_ROWS:
        raise DataError(
            f"trial {name!r} has {len(t)} rows, more than the {MAX_ROWS} allowed;"
            " cut it into trials"
        )
    if len(t) < 2:
        rows = "1 row" if len(t) == 1 else f"{len(t)} rows"
        raise DataError(f"trial {name!r} has {rows} in which a body was seen; a motion needs two")
    poses = {stream.body: _insert_at_times(t, stream.t, stream.pose) for stream in streams}
    signals: dict[str, np.ndarray] = {}
    numbers: dict[str, float] = {}
    for log in logs:
        numbers |= log.known
        for signal, (times, values) in log.signals.items():
            if signal in signals:
                raise DataError(f"two logs of trial {name!r} both have a signal {signal!r}")
            signals[signal] = _insert_at_times(t, times, values)
    for log in logs:
        for moment, time in log.moments.items():
            numbers[moment] = float(time - t[0])
    numbers |= known
    return Trial(name, t - t[0], poses, "real", signals, numbers)


def _union_of_times(logs: Sequence[Log]) -> np.ndarray:
    """Rising times (T,) at which a body was seen or a signal was logged, s."""
    times = []
    for log in logs:
        for stream in log.streams:
            seen = np.isfinite(stream.pose).all(1) & np.isfinite(stream.t)
            times.append(stream.t[seen])
        for t, _ in log.signals.values():
            times.append(t[np.isfinite(t)])
    return np.unique(np.concatenate(times)) if times else np.empty(0)


def _insert_at_times(t: np.ndarray, times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Put values (N, ...) at their times among t (T,), with NaN elsewhere.

    Of several values at one time, the first without NaN is taken.
    """
    out = np.full((len(t), *values.shape[1:]), np.nan)
    seen = np.isfinite(times) & np.isfinite(values.reshape(len(values), -1)).all(1)
    unique_times, first = np.unique(times[seen], return_index=True)
    out[np.searchsorted(t, unique_times)] = values[seen][first]
    return out
