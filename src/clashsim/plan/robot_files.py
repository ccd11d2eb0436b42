"""Tip paths as files for a robot: CSV or JSON with one row per sample."""

from __future__ import annotations

import csv
import io
import json
import pathlib
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic
from clashsim.plan.path import TipPath

COLUMNS = ("t_s", "x_m", "y_m", "z_m", "vx_m_s", "vy_m_s", "vz_m_s", "phase")


def write_path(path: TipPath, file: pathlib.Path | str, *, overwrite: bool = False) -> None:
    """Write a path as .csv (a row of names, then a row per sample) or as .json.

    Args:
        path: The path to write.
        file: Ends with .csv or .json. The JSON has the same columns, and the frame, the units, the
            limits and the time of the contact.
        overwrite: Whether a file that exists may be replaced.
    """
    file = pathlib.Path(file)
    suffix = file.suffix.lower()
    if suffix not in (".csv", ".json"):
        raise DataError(f"a path is written as .csv or .json, got {str(file)!r}")
    if file.exists() and not overwrite:
        raise DataError(
            f"{str(file)!r} already exists; choose another file, or replace it with overwrite=True"
        )
    numbers = np.column_stack([path.t, path.position, path.velocity]) + 0.0  # turns -0.0 into 0.0
    rows = []
    for row, phase in zip(numbers.tolist(), path.phase, strict=True):
        rows.append([*row, str(phase)])
    text = _csv_text(rows) if suffix == ".csv" else _json_text(path, rows)
    try:
        write_atomic(file, text.encode())
    except OSError as error:
        raise DataError(f"the path {str(file)!r} cannot be written: {error.strerror}") from None


def _csv_text(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    return text.getvalue()


def _json_text(path: TipPath, rows: list[list[Any]]) -> str:
    """Return the JSON of a path, with one row per line for people and for diff."""
    limits = path.limits
    description = {
        "frame": path.frame,
        "units": {"t": "s", "position": "m", "velocity": "m/s"},
        "rate_hz": path.rate,
        "touch_s": path.touch_time,
        "limits": {
            "speed_m_s": float(limits.speed),
            "acceleration_m_s2": float(limits.acceleration),
            "jerk_m_s3": float(limits.jerk),
        },
        "columns": COLUMNS,
    }
    head = json.dumps(description, indent=1)[:-2]  # without its last line, the closing brace
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f'{head},\n "rows": [\n{lines}\n]}}\n'
