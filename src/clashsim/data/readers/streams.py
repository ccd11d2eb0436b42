"""Streams: the poses of one body in the log of one logger, before logs are joined to a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Columns = Mapping[str, np.ndarray]  # (N,) or (N, k) each, by name


@dataclass(frozen=True, eq=False)
class Sightings:
    """How well a camera saw the tags of a body.

    Attributes:
        error: Reprojection error (N,), root mean square over corners, px; NaN where not seen.
        edge_width: Width (N,) of the tags' edges, px; NaN where not seen.
        flipped: Whether (N,) the motion, against the corners of this frame alone, decided which of
            the two poses that look alike is right.
        margin: By how much the other poses explain all frames worse (squared misfits over their
            variance); infinite where there are none. The smaller one of body and world.
        separation: Usual angle between the two poses, rad.
        camera_moved: In how many frames tags that are fixed in the world were elsewhere.
    """

    error: np.ndarray
    edge_width: np.ndarray
    flipped: np.ndarray
    margin: float
    separation: float
    camera_moved: int = 0


@dataclass(frozen=True, eq=False)
class Stream:
    """One body in one log.

    Attributes:
        body: Name of the body.
        t: Times (N,) in the logger's clock, s, in the order of the file.
        pose: Poses (N, 7), m and wxyz, z up; NaN where the body was not seen.
        angles: Angles (N, k) in rad, if the log gives the orientation as angles.
        has_orientation: False when the log has no orientation.
        mirror_ratio: How many times better the markers fit the mirror image of the body than the
            body; 0 when there are no markers.
        up: The axis of the file that became z.
        sightings: How well a camera saw the body; None for other logs.
    """

    body: str
    t: np.ndarray
    pose: np.ndarray
    angles: np.ndarray | None = None
    has_orientation: bool = True
    mirror_ratio: float = 0.0
    up: str = "z"
    sightings: Sightings | None = None


@dataclass(frozen=True, eq=False)
class Log:
    """What was read from one file.

    Attributes:
        streams: One stream for each body.
        signals: Times (N,) in s and values (N,) or (N, c), by name of the signal.
        known: Numbers that hold for the whole trial, by name.
        moments: Times of events in the logger's clock in s, by name.
    """

    streams: tuple[Stream, ...]
    signals: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    known: Mapping[str, float] = field(default_factory=dict)
    moments: Mapping[str, float] = field(default_factory=dict)
