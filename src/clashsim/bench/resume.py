"""Finished rows of a benchmark in a file, from which a benchmark that was stopped continues.

The file holds JSON lines; several processes may append to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from clashsim.bench.rows import Row
from clashsim.core.files import append_lines


def read_rows(resume: Path | None) -> list[Row]:
    """Read the rows of an earlier run.

    A line that is incomplete, because the run was killed, is left out. So is a row with `why`: its
    measurement may succeed this time.

    Args:
        resume: The file, which need not exist.
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


def append_rows(resume: Path | None, rows: Iterable[Row]) -> None:
    """Append rows to the file, if there is one."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if resume is not None and text:
        append_lines(resume, text)
