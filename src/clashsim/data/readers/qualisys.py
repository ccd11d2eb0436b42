"""Reader of Qualisys Track Manager's TSV export of 6D data: named rigid bodies in millimetres.

Lines of a name and a value come first (NO_OF_FRAMES, BODY_NAMES, ...), then the names of columns,
if they were exported, and one line per frame. z is up. The nine numbers of a rotation matrix are
its columns one after the other. They are read instead of roll, pitch and yaw, whose meaning is an
option of the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.convert import quaternions_from_matrices, select_bodies
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.streams import Log, Stream
from clashsim.data.readers.tables import cells_of, lines_of, parse_rows

FIRST_WORDS = ("NO_OF_FRAMES", "FILE_VERSION")
_MAX_HEADER_LINES = 100_000  # events have a line each
_MAX_RATE = 1e7  # Hz
_MATRIX = tuple(f"Rot[{i}]" for i in range(9))
_PARTS = ("X", "Y", "Z", "Roll", "Pitch", "Yaw", "Residual", *_MATRIX)


def read_qualisys(path: Path, logger: LoggerMapping) -> Log:
    """Read the rigid bodies of an export of 6D data; a body that was not found is NaN."""
    lines = lines_of(path)
    header, first_row, row_number = _read_header(lines)
    kind = header.get("DATA_INCLUDED", [""])[0]
    if kind != "6D":
        raise DataError(
            f"the export holds {kind[:20] or 'no'} data, where 6D data of rigid bodies are needed:"
            " tick 6D in the TSV export, or export C3D for markers"
        )
    names = [name for name in header.get("BODY_NAMES", []) if name]
    if not names:
        raise DataError("the export names no rigid bodies (BODY_NAMES)")
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise DataError(f"two rigid bodies are both called {duplicate[:40]!r}")
    has_labels = not _is_number(first_row[0])
    labels = first_row if has_labels else _usual_labels(first_row, names)
    columns = _body_columns(labels, names)
    time, rate = _time_column(labels, header)
    keep = [time]
    for parts in columns.values():
        keep += parts.values()
    rows: Iterator[str] = lines
    if not has_labels:
        rows = itertools.chain(["\t".join(first_row)], lines)
    first_line = row_number + has_labels
    table = parse_rows(rows, labels, keep=keep, delimiter="\t", first_line=first_line)
    t = table[time] / rate
    bodies = {}
    for name, parts in columns.items():
        bodies[name] = Stream(name, t, _pose(parts, table))
    return select_bodies(bodies, logger, length="mm", up="z")


def _read_header(lines: Iterator[str]) -> tuple[dict[str, list[str]], list[str], int]:
    """Values by name in the header; and the cells and number of the first line below it."""
    header: dict[str, list[str]] = {}
    for number, line in enumerate(itertools.islice(lines, _MAX_HEADER_LINES), 1):
        cells = cells_of(line, "\t")
        if not cells or not cells[0]:
            continue
        if cells[0].replace("_", "").isupper() and not _is_number(cells[0]):
            header[cells[0]] = cells[1:]
            continue
        return header, cells, number
    raise DataError("the export has a header, but no frames")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _usual_labels(row: list[str], names: list[str]) -> list[str]:
    """Names of columns of an export without them: frame and time may be there or not."""
    of_bodies = [f"{name} {part}" if part == "X" else part for name in names for part in _PARTS]
    filled = len(row)
    while filled and not row[filled - 1]:
        filled -= 1
    before = filled - len(of_bodies)
    if before not in (1, 2):
        raise DataError(
            f"a line has {filled} numbers, where {len(names)} bodies with frame and time have"
            f" {len(of_bodies) + 2}: export the column header as well"
        )
    return [*("Frame", "Time")[:before], *of_bodies]


def _body_columns(labels: list[str], names: list[str]) -> dict[str, dict[str, int]]:
    """Column numbers of each body, by part; a body's columns begin with its name and X."""
    columns: dict[str, dict[str, int]] = {}
    parts: dict[str, int] = {}
    for j, label in enumerate(labels):
        name, _, part = label.rpartition(" ")
        if part == "X" and name in names:
            parts = columns.setdefault(name, {})
        parts.setdefault(part if part == "X" else label, j)
    needed = ("X", "Y", "Z", *_MATRIX)
    for name in names:
        missing = next((part for part in needed if part not in columns.get(name, {})), None)
        if missing is not None:
            raise DataError(f"rigid body {name[:40]!r} has no column {missing}")
    return {name: {part: columns[name][part] for part in needed} for name in names}


def _time_column(labels: list[str], header: Mapping[str, list[str]]) -> tuple[int, float]:
    """Number of the column of times and 1; or of that of frames, and the rate in Hz."""
    if "Time" in labels:
        return labels.index("Time"), 1.0
    if "Frame" not in labels:
        raise DataError("the export has no column Frame or Time: export them as well")
    value = header.get("FREQUENCY", [""])[0]
    rate = float(value) if _is_number(value) else 0.0
    if not 0 < rate < _MAX_RATE:
        raise DataError(f"FREQUENCY should be the rate in Hz, got {value[:40]!r}")
    return labels.index("Frame"), rate


def _pose(parts: Mapping[str, int], table: Mapping[int, np.ndarray]) -> np.ndarray:
    """Poses (N, 7), mm and wxyz."""
    position = np.column_stack([table[parts[axis]] for axis in "XYZ"])
    by_columns = np.column_stack([table[parts[label]] for label in _MATRIX])
    matrices = by_columns.reshape(-1, 3, 3).transpose(0, 2, 1)
    return np.column_stack([position, quaternions_from_matrices(matrices)])
