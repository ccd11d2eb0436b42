"""Reader of OptiTrack Motive's CSV export: named rigid bodies, with units in the first line.

y is up unless the mapping says otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.convert import quaternions_from_angles, select_bodies
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.streams import Log, Stream
from clashsim.data.readers.tables import cells_of, lines_of, parse_rows

_LENGTH_UNITS = {
    "meters": "m",
    "metres": "m",
    "centimeters": "cm",
    "millimeters": "mm",
    "inches": "in",
}
_MAX_LABEL_ROWS = 12  # between the first line and the numbers; newer versions have more of them


def read_motive(path: Path, logger: LoggerMapping) -> Log:
    """Read the rigid bodies of a Motive export."""
    lines = lines_of(path)
    first = cells_of(next(lines, ""))  # name, value, name, value, ...
    settings = dict(zip(first[::2], first[1::2], strict=False))
    length = _LENGTH_UNITS.get(settings.get("Length Units", "Meters").lower())
    if length is None:
        found = settings["Length Units"][:40]
        raise DataError(f"the lengths are in {found!r}; choices: {', '.join(_LENGTH_UNITS)}")
    labels, label_rows = _read_labels(lines)
    columns = _body_columns(labels)
    times = [j for j, cell in enumerate(labels["axis"]) if cell.lower().startswith("time")]
    if not times:
        raise DataError("the export has no column with the time")
    keep = [times[0]]
    for parts in columns.values():
        keep += parts.values()
    # Numbers follow the line of settings and the rows of labels; lines are counted from 1.
    table = parse_rows(lines, labels["axis"], keep=keep, first_line=label_rows + 2)
    rotation_type = settings.get("Rotation Type", "Quaternion")
    bodies = {}
    for name, parts in columns.items():
        pose, angles = _pose(name, parts, table, rotation_type)
        bodies[name] = Stream(name, table[times[0]], pose, angles)
    return select_bodies(bodies, logger, length=length, up="y")


def _read_labels(lines: Iterator[str]) -> tuple[dict[str, list[str]], int]:
    """Rows of labels above the columns by content, and how many rows were read.

    The contents are: type (such as Rigid Body), name, what (Rotation or Position) and axis.
    """
    labels: dict[str, list[str]] = {}
    count = 0
    for text in itertools.islice(lines, _MAX_LABEL_ROWS):
        count += 1
        cells = cells_of(text)
        if cells and cells[0].lower().startswith("frame"):
            labels["axis"] = cells
            break
        if len(cells) > 2:
            labels[cells[1].lower() or "what"] = cells
    if not {"type", "name", "what", "axis"} <= labels.keys():
        raise DataError(
            "the export lacks rows of its header (Type, Name, Rotation and Position, Frame)"
        )
    return labels, count


def _body_columns(labels: Mapping[str, list[str]]) -> dict[str, dict[str, int]]:
    """Column numbers of each rigid body by what the column holds, such as `Position X`."""
    columns: dict[str, dict[str, int]] = {}
    rows = itertools.zip_longest(
        labels["type"], labels["name"], labels["what"], labels["axis"], fillvalue=""
    )
    for j, (kind, name, what, axis) in enumerate(rows):
        if kind.lower() != "rigid body" or what not in ("Rotation", "Position"):
            continue
        parts = columns.setdefault(name, {})
        if f"{what} {axis}" in parts:
            raise DataError(f"two rigid bodies are both called {name[:40]!r}")
        parts[f"{what} {axis}"] = j
    if not columns:
        raise DataError("the export holds no rigid bodies; export them with Rigid Bodies ticked")
    return columns


def _pose(
    name: str, parts: Mapping[str, int], table: Mapping[int, np.ndarray], rotation_type: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Poses (N, 7) wxyz in the file's unit; and angles (N, 3) in rad where the export has them."""
    is_quaternion = rotation_type == "Quaternion"
    needed = [f"Position {axis}" for axis in "XYZ"]
    needed += [f"Rotation {axis}" for axis in ("WXYZ" if is_quaternion else "XYZ")]
    missing = next((part for part in needed if part not in parts), None)
    if missing is not None:
        raise DataError(f"rigid body {name[:40]!r} lacks {missing}")
    values = np.column_stack([table[parts[part]] for part in needed])
    position = values[:, :3]
    if is_quaternion:
        return np.column_stack([position, values[:, 3:]]), None
    sequence = rotation_type.upper()
    if sorted(sequence) != ["X", "Y", "Z"]:
        raise DataError(
            f"the rotations are of type {rotation_type[:40]!r};"
            " choices: Quaternion, or an order of XYZ"
        )
    angles = np.radians(values[:, 3:])
    in_sequence = angles[:, ["XYZ".index(axis) for axis in sequence]]
    quaternion = quaternions_from_angles(sequence, in_sequence)
    return np.column_stack([position, quaternion]), angles
