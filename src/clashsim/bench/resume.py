"""Rows of a bench kept as they are made, so that one that was stopped goes on: JSON lines, several processes may add to one file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def kept(resume: Path | None) -> list[Row]:
    """Rows of an earlier run; a line that a kill cut short is left out."""
    if resume is None or not resume.is_file():
        return []
    rows = []
    for line in resume.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return rows


def keep(resume: Path | None, rows: Iterable[Row]) -> None:
    """Add rows, where there is a file for them; in one write, so that rows of other processes do not fall in between."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if resume is not None and text:
        with resume.open("a") as file:
            file.write(text)
