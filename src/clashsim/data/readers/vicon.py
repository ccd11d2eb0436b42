"""Vicon's CSV export of objects (Tracker) or segments (Nexus): turns as quaternions or as one
rotation vector, millimetres, z up.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.convert import chosen, rotation
from clashsim.data.readers.mapping import LENGTH, LoggerMapping
from clashsim.data.readers.streams import Log, Stream
from clashsim.data.readers.tables import cells_of, lines_of, parse

FIRST = ("objects", "segments")


def read(path: Path, log: LoggerMapping) -> Log:
    """Bodies of a Vicon export; time is the frame's number over the rate in the second line."""
    lines = lines_of(path)
    next(lines, "")
    rate_line, names, axes, units = (cells_of(next(lines, "")) for _ in range(4))
    try:
        rate = float(rate_line[0])
    except (ValueError, IndexError):
        rate = 0.0
    if not 0 < rate < 1e7:
        raise DataError(
            f"the second line should hold the rate in Hz, got {rate_line[0][:40] if rate_line else ''!r}"
        )
    if [cell.lower() for cell in axes[:2]] != ["frame", "sub frame"]:
        raise DataError("the fourth line should begin with Frame and Sub Frame")
    columns: dict[str, dict[str, int]] = {}
    name = ""
    for j in range(2, len(axes)):
        name = names[j] if j < len(names) and names[j] else name
        columns.setdefault(name, {}).setdefault(axes[j].upper(), j)
    columns = {
        name: places
        for name, places in columns.items()
        if {"RX", "RY", "RZ", "TX", "TY", "TZ"} <= places.keys()
    }
    if not columns:
        raise DataError("the export holds no bodies with RX RY RZ and TX TY TZ")
    table = parse(
        lines, axes, [0, *(j for places in columns.values() for j in places.values())], line=6
    )
    unit = {j: cell.lower() for j, cell in enumerate(units)}
    bodies = {}
    length = unit.get(next(iter(columns.values()))["TX"], "mm")
    if length not in LENGTH:
        raise DataError(f"the lengths are in {length[:40]!r}; choices: {', '.join(LENGTH)}")
    for name, places in columns.items():
        turn = np.column_stack([table[places[a]] for a in ("RW", "RX", "RY", "RZ") if a in places])
        if "RW" not in places:
            turn = rotation(
                "vector",
                np.radians(turn) if unit.get(places["RX"], "deg").startswith("deg") else turn,
            )
        bodies[name.split(":")[-1] or name] = Stream(
            name,
            table[0] / rate,
            np.column_stack([*(table[places[a]] for a in ("TX", "TY", "TZ")), turn]),
        )
    return chosen(bodies, log, length=length, up="z")
