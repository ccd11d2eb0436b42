"""Reader of Vicon's CSV export of objects (Tracker) or segments (Nexus).

Rotations are quaternions or one rotation vector, lengths are millimetres, and z is up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.convert import quaternions_from_angles, select_bodies
from clashsim.data.readers.mapping import LENGTH_UNITS, LoggerMapping
from clashsim.data.readers.streams import Log, Stream
from clashsim.data.readers.tables import cells_of, lines_of, parse_rows

FIRST_LINES = ("objects", "segments")
_FIRST_ROW = 6  # number of the first line with numbers, below the units
_FRAME_COLUMNS = 2  # before those of bodies: Frame and Sub Frame
_MAX_RATE = 1e7  # Hz
_POSITION = ("TX", "TY", "TZ")
_ROTATION_VECTOR = ("RX", "RY", "RZ")
_QUATERNION = ("RW", *_ROTATION_VECTOR)


def read_vicon(path: Path, logger: LoggerMapping) -> Log:
    """Read the bodies of a Vicon export; time is the frame's number over the rate in line 2."""
    lines = lines_of(path)
    next(lines, "")
    rate = _rate(cells_of(next(lines, "")))
    names = cells_of(next(lines, ""))
    axes = cells_of(next(lines, ""))
    units = cells_of(next(lines, ""))
    if [cell.lower() for cell in axes[:2]] != ["frame", "sub frame"]:
        raise DataError("the fourth line should begin with Frame and Sub Frame")
    columns = _body_columns(names, axes)
    keep = [0]  # column of the number of the frame
    for parts in columns.values():
        keep += parts.values()
    table = parse_rows(lines, axes, keep=keep, first_line=_FIRST_ROW)
    unit_of = {j: cell.lower() for j, cell in enumerate(units)}
    first_body = next(iter(columns.values()))
    length = unit_of.get(first_body["TX"], "mm")
    if length not in LENGTH_UNITS:
        choices = ", ".join(LENGTH_UNITS)
        raise DataError(f"the lengths are in {length[:40]!r}; choices: {choices}")
    t = table[0] / rate
    bodies = {}
    for name, parts in columns.items():
        in_degrees = unit_of.get(parts["RX"], "deg").startswith("deg")
        pose = _pose(parts, table, in_degrees=in_degrees)
        short_name = name.split(":")[-1] or name
        bodies[short_name] = Stream(name, t, pose)
    return select_bodies(bodies, logger, length=length, up="z")


def _rate(cells: Sequence[str]) -> float:
    """Frames per second, as the second line gives them."""
    try:
        rate = float(cells[0])
    except (ValueError, IndexError):
        rate = 0.0
    if not 0 < rate < _MAX_RATE:
        found = cells[0][:40] if cells else ""
        raise DataError(f"the second line should hold the rate in Hz, got {found!r}")
    return rate


def _body_columns(names: Sequence[str], axes: Sequence[str]) -> dict[str, dict[str, int]]:
    """Column numbers of each body by axis, such as TX.

    Args:
        names: Cells of the line of names: a body's name is above its first column only.
        axes: Cells of the line of axes.
    """
    columns: dict[str, dict[str, int]] = {}
    name = ""
    for j in range(_FRAME_COLUMNS, len(axes)):
        if j < len(names) and names[j]:
            name = names[j]
        columns.setdefault(name, {}).setdefault(axes[j].upper(), j)
    needed = {*_ROTATION_VECTOR, *_POSITION}
    bodies = {name: parts for name, parts in columns.items() if needed <= parts.keys()}
    if not bodies:
        raise DataError("the export holds no bodies with RX RY RZ and TX TY TZ")
    return bodies


def _pose(
    parts: Mapping[str, int], table: Mapping[int, np.ndarray], *, in_degrees: bool
) -> np.ndarray:
    """Poses (N, 7) wxyz in the file's unit of length."""
    position = np.column_stack([table[parts[axis]] for axis in _POSITION])
    if "RW" in parts:
        quaternion = np.column_stack([table[parts[axis]] for axis in _QUATERNION])
    else:
        vector = np.column_stack([table[parts[axis]] for axis in _ROTATION_VECTOR])
        if in_degrees:
            vector = np.radians(vector)
        quaternion = quaternions_from_angles("vector", vector)
    return np.column_stack([position, quaternion])
