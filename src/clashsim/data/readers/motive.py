"""OptiTrack Motive's CSV export: rigid bodies with their own names, units in the first line, y up
unless the mapping says otherwise.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.convert import chosen, rotation
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.streams import Log, Stream
from clashsim.data.readers.tables import cells_of, lines_of, parse

_LENGTH = {"meters": "m", "metres": "m", "centimeters": "cm", "millimeters": "mm", "inches": "in"}


def read(path: Path, log: LoggerMapping) -> Log:
    """Rigid bodies of a Motive export."""
    lines = lines_of(path)
    first = cells_of(next(lines, ""))
    about = dict(zip(first[::2], first[1::2], strict=False))
    length = _LENGTH.get(about.get("Length Units", "Meters").lower())
    if length is None:
        raise DataError(
            f"the lengths are in {about['Length Units'][:40]!r}; choices: {', '.join(_LENGTH)}"
        )
    labels: dict[str, list[str]] = {}
    number = 1
    for text in itertools.islice(
        lines, 12
    ):  # rows of labels above the header, of which newer versions have more
        number += 1
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
    columns: dict[str, dict[str, int]] = {}
    rows = itertools.zip_longest(
        labels["type"], labels["name"], labels["what"], labels["axis"], fillvalue=""
    )
    for j, (kind, name, what, axis) in enumerate(rows):
        if kind.lower() == "rigid body" and what in ("Rotation", "Position"):
            if f"{what} {axis}" in columns.setdefault(name, {}):
                raise DataError(f"two rigid bodies are both called {name[:40]!r}")
            columns[name][f"{what} {axis}"] = j
    if not columns:
        raise DataError("the export holds no rigid bodies; export them with Rigid Bodies ticked")
    times = [j for j, cell in enumerate(labels["axis"]) if cell.lower().startswith("time")]
    if not times:
        raise DataError("the export has no column with the time")
    keep = [times[0], *(j for body in columns.values() for j in body.values())]
    table = parse(lines, labels["axis"], keep, line=number + 1)
    angle = about.get("Rotation Type", "Quaternion")
    bodies = {}
    for name, places in columns.items():
        names = [f"Position {a}" for a in "XYZ"] + [
            f"Rotation {a}" for a in ("WXYZ" if angle == "Quaternion" else "XYZ")
        ]
        if any(n not in places for n in names):
            raise DataError(
                f"rigid body {name[:40]!r} lacks {next(n for n in names if n not in places)}"
            )
        values = np.column_stack([table[places[n]] for n in names])
        angles = None
        if angle == "Quaternion":
            turn = values[:, 3:]
        else:
            if sorted(angle.upper()) != ["X", "Y", "Z"]:
                raise DataError(
                    f"the rotations are of type {angle[:40]!r}; choices: Quaternion, or an order of XYZ"
                )
            by_turn = ["XYZ".index(a) for a in angle.upper()]
            angles = np.radians(values[:, 3:])
            turn = rotation(angle.upper(), angles[:, by_turn])
        bodies[name] = Stream(name, table[times[0]], np.column_stack([values[:, :3], turn]), angles)
    return chosen(bodies, log, length=length, up="y")
