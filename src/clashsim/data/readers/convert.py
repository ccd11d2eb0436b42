"""From columns and a logger's mapping to streams: units, quaternion order, angles and the axis that
points up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.trials import quaternion
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping
from clashsim.data.readers.streams import Columns, Log, Stream

_FAR = 1e9  # m: no body was seen there, and squares of more overflow
_REFERENCE = re.compile(r"(.+?)\[(\d{1,6})(?::(\d{1,6}))?\]")
# Rows are the new x, y, z in the file's axes; all are rotations, so handedness is kept.
TURNS = {
    "z": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "y": ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    "x": ((0, 1, 0), (0, 0, 1), (1, 0, 0)),
    "-z": ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    "-y": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "-x": ((0, 1, 0), (0, 0, -1), (-1, 0, 0)),
}


def column_of(reference: str, names: Sequence[str] | Columns) -> str:
    """The column that a reference `name`, `name[i]` or `name[i:j]` means; a name with brackets of
    its own comes first.
    """
    if reference in names:
        return reference
    match = _REFERENCE.fullmatch(reference)
    if match and match[1] in names:
        return match[1]
    raise DataError(f"there is no column {reference[:60]!r}; {did_you_mean(reference, names)}")


def pick(columns: Columns, references: Sequence[str], width: int) -> np.ndarray:
    """Columns side by side, (N, width)."""
    parts = []
    for reference in references:
        values = columns[column_of(reference, columns)]
        values = values[:, None] if values.ndim == 1 else values
        if reference not in columns and (match := _REFERENCE.fullmatch(reference)):
            first, last = int(match[2]), int(match[3] or int(match[2]) + 1)
            if not first < last <= values.shape[1]:
                raise DataError(
                    f"{reference!r} is outside the {values.shape[1]} numbers of its column"
                )
            values = values[:, first:last]
        parts.append(values)
    lengths = {len(part) for part in parts}
    if len(lengths) > 1:
        raise DataError(f"the columns {', '.join(references)} differ in length: {sorted(lengths)}")
    table = np.concatenate(parts, 1) if parts else np.empty((0, 0))
    if table.shape[1] != width:
        raise DataError(
            f"{', '.join(references)} give {table.shape[1]} numbers a row, where {width} are needed"
        )
    return table


def from_columns(columns: Columns, log: LoggerMapping, *, header: Columns | None = None) -> Log:
    """The streams, signals and known numbers of one log, by its mapping."""
    if not log.bodies:
        raise DataError("the mapping names no body ([[logs.bodies]]), so there is nothing to read")
    bodies = {body.name: _pose(columns, body, log) for body in log.bodies}
    rows = len(next(iter(bodies.values()))[0])
    if log.time:
        t = (
            pick(columns, [log.time], 1)[:, 0]
            * (1 / log.rate if log.rate else log.unit("time", "s"))
            + log.offset
        )
    elif log.rate:
        t = np.arange(rows) / log.rate + log.offset
    else:
        raise DataError("the mapping names neither a column with the time nor a rate")
    if any(len(pose) != len(t) for pose, _ in bodies.values()):
        raise DataError(
            f"the time has {len(t)} rows, but a body has {', '.join(sorted({str(len(p)) for p, _ in bodies.values()} - {str(len(t))}))}"
        )
    turned = {body.name: bool(body.quaternion or body.euler or body.yaw) for body in log.bodies}
    streams = tuple(
        Stream(name, t, pose, angles, turned[name]) for name, (pose, angles) in bodies.items()
    )
    signals = {}
    for name, reference in log.signals.items():
        values = (
            pick(columns, [reference], 1)
            if _REFERENCE.fullmatch(reference) and reference not in columns
            else columns[column_of(reference, columns)]
        )
        if len(values) != len(t):
            raise DataError(f"signal {name!r} has {len(values)} rows, where the time has {len(t)}")
        signals[name] = (t, values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values)
    fields = header or {}
    known = {
        name: float(pick(fields, [reference], 1)[0, 0]) for name, reference in log.header.items()
    }
    moments = {
        name: float(pick(fields, [reference], 1)[0, 0]) * log.unit("time", "s") + log.offset
        for name, reference in log.moments.items()
    }
    return Log(
        tuple(upright(stream, log.up or "z", log.flip) for stream in streams),
        signals,
        known,
        moments,
    )


def chosen(bodies: Mapping[str, Stream], log: LoggerMapping, *, length: str, up: str) -> Log:
    """The bodies of a file that describes itself, under the names and in the units the mapping
    gives them; all of them when it names none.
    """
    wanted = {body.source or body.name: body.name for body in log.bodies} or {
        name: name for name in bodies
    }
    scale = np.array([log.unit("length", length)] * 3 + [1.0] * 4)
    found = []
    for source, name in wanted.items():
        if source not in bodies:
            raise DataError(f"there is no body {source[:60]!r}; {did_you_mean(source, bodies)}")
        stream = bodies[source]
        found.append(
            upright(
                replace(stream, body=name, t=stream.t + log.offset, pose=stream.pose * scale),
                log.up or up,
                log.flip,
            )
        )
    return Log(tuple(found))


def rotation(sequence: str, angles: np.ndarray) -> np.ndarray:
    """Quaternions wxyz (N, 4) of angles (N, 3) in rad turned in a sequence as scipy names them, or
    of a rotation `vector`; NaN stays NaN.
    """
    from scipy.spatial.transform import Rotation

    turn = np.full((len(angles), 4), np.nan)
    seen = np.isfinite(angles).all(1)
    if seen.any():
        made = (
            Rotation.from_rotvec(angles[seen])
            if sequence == "vector"
            else Rotation.from_euler(sequence, angles[seen])
        )
        turn[seen] = made.as_quat()[:, [3, 0, 1, 2]]
    return turn


def upright(stream: Stream, up: str, flip: Sequence[str] = ()) -> Stream:
    """A stream turned so that z is up. A body's own axes are renamed with the world's: one that has
    no turn in the file has none afterwards.
    """
    pose = np.where(np.abs(stream.pose) < _FAR, stream.pose, np.nan)
    for axis in flip:
        pose[:, "xyz".index(axis)] *= -1
    turn = np.array(TURNS[up], float)
    pose[:, :3], pose[:, 4:] = (
        pose[:, :3] @ turn.T,
        pose[:, 4:] @ turn.T,
    )  # the vector part of a quaternion turns as a vector does
    return replace(stream, pose=pose, up=up)


def _pose(
    columns: Columns, body: BodyMapping, log: LoggerMapping
) -> tuple[np.ndarray, np.ndarray | None]:
    """Pose (N, 7) in m and wxyz along the file's axes, and angles (N, k) in rad where there are
    any.
    """
    if not body.position:
        raise DataError(f"body {body.name!r} has no columns for its position")
    flat = len(body.position) == 2
    place = pick(columns, body.position, 2 if flat else 3) * log.unit("length", "m")
    place = np.column_stack([place, np.zeros(len(place))]) if flat else place
    if flat and log.up not in ("", "z"):
        raise DataError(
            f"body {body.name!r} has two numbers for its position, which lie in the plane with z up, but up is {log.up!r}"
        )
    angles = None
    turn = np.zeros((len(place), 4))
    turn[:, 0] = 1.0
    if body.quaternion:
        turn = pick(columns, body.quaternion, 4)
        turn = turn if body.order == "wxyz" else turn[:, [3, 0, 1, 2]]
    elif body.euler or body.yaw:
        angles = pick(columns, body.euler or [body.yaw], 3 if body.euler else 1) * log.unit(
            "angle", "rad"
        )
        if body.euler:
            turn = rotation(body.sequence, angles)
        else:
            turn = quaternion(angles[:, 0])
            up = log.up or "z"
            turn[:, 1:] = turn[:, [3]] * np.array(
                TURNS[up][2], float
            )  # about the file's own up, which `upright` turns to z
    if len(turn) != len(place):
        raise DataError(
            f"body {body.name!r} has {len(place)} positions and {len(turn)} orientations"
        )
    return np.concatenate([place, turn], 1), angles
