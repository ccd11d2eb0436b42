"""Rows of a bench kept as they are made, so that one that was stopped goes on: JSON lines, several
processes may add to one file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from clashsim.bench.rows import Row
from clashsim.core.files import append_lines


def kept(resume: Path | None) -> list[Row]:
    """Rows of an earlier run, without a line that a kill cut short.

    A row with `why` is left out as well: what was missing may be there this time.
    """
    if resume is None or not resume.is_file():
        return []
    rows = []
    for line in resume.read_text().splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if "why" not in row:
            rows.append(row)
    return rows


def keep(resume: Path | None, rows: Iterable[Row]) -> None:
    """Add rows, where there is a file for them."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if resume is not None and text:
        append_lines(resume, text)
