"""Loggers on one clock: the union of all time stamps, with NaN where a body was not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.trials import Trial
from clashsim.data.readers.streams import Log

ROWS = 1 << 24  # rows of a trial: more than a day at 120 Hz


def join(name: str, logs: Sequence[Log], known: Mapping[str, float]) -> Trial:
    """One trial from the logs of its loggers, whose clocks agree. The first time of all becomes 0;
    nothing is resampled, so nothing is lost.

    Rows at which nothing was seen and no signal was logged are left out.
    """
    streams = [stream for log in logs for stream in log.streams]
    names = [stream.body for stream in streams]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise DataError(f"two logs of trial {name!r} both have a body {twice!r}")
    rows = [stream.t[np.isfinite(stream.pose).all(1) & np.isfinite(stream.t)] for stream in streams]
    rows += [t[np.isfinite(t)] for log in logs for t, _ in log.signals.values()]
    t = np.unique(np.concatenate(rows)) if rows else np.empty(0)
    if len(t) > ROWS:
        raise DataError(
            f"trial {name!r} has {len(t)} rows, more than the {ROWS} allowed; cut it into trials"
        )
    if len(t) < 2:
        raise DataError(
            f"trial {name!r} has {len(t)} row{'s' * (len(t) != 1)} in which a body was seen; a motion needs two"
        )
    poses, signals = {}, {}
    for stream in streams:
        poses[stream.body] = _spread(t, stream.t, stream.pose)
    for log in logs:
        for signal, (times, values) in log.signals.items():
            if signal in signals:
                raise DataError(f"two logs of trial {name!r} both have a signal {signal!r}")
            signals[signal] = _spread(t, times, values)
    numbers = (
        {k: v for log in logs for k, v in log.known.items()}
        | {k: float(v - t[0]) for log in logs for k, v in log.moments.items()}
        | dict(known)
    )
    return Trial(name, t - t[0], poses, "real", signals, numbers)


def _spread(t: np.ndarray, times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values (N, ...) at their times among t (T,), NaN elsewhere; of several at one time the first
    that was seen counts.
    """
    out = np.full((len(t), *values.shape[1:]), np.nan)
    seen = np.isfinite(times) & np.isfinite(values.reshape(len(values), -1)).all(1)
    at, first = np.unique(times[seen], return_index=True)
    out[np.searchsorted(t, at)] = values[seen][first]
    return out
