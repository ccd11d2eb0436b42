"""Streams: what one logger saw of one body, before loggers are joined into a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Columns = Mapping[str, np.ndarray]  # (N,) or (N, k) each, by name


@dataclass(frozen=True, eq=False)
class Stream:
    """One body in one log. t (N,) s in the logger's clock, in the file's order; pose (N, 7) m and
    wxyz, z up, NaN where it was not seen.

    angles (N, k) rad are there when the orientation was written as angles. turned is False when the
    log has no orientation. mirrored is how much better (a factor) the markers fit their mirror
    image than themselves, 0 when there are none. up is the file's axis that became z.
    """

    body: str
    t: np.ndarray
    pose: np.ndarray
    angles: np.ndarray | None = None
    turned: bool = True
    mirrored: float = 0.0
    up: str = "z"


@dataclass(frozen=True, eq=False)
class Log:
    """One file. signals: t (N,) s with values (N,) or (N, c), by name. known: numbers for the whole
    trial. moments: s in the logger's clock.
    """

    streams: tuple[Stream, ...]
    signals: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    known: Mapping[str, float] = field(default_factory=dict)
    moments: Mapping[str, float] = field(default_factory=dict)
