"""Findings: what may be wrong with recordings, by name, and which findings stop an import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clashsim.core.errors import DataError, did_you_mean

Severity = Literal["stop", "warn"]
MAX_ROWS = 1000  # rows that a finding lists; its message counts them all
_MAX_SHOWN = 4  # findings in one error message

FINDING_NAMES = {
    "time_backwards": "time runs backwards",
    "time_repeated": "two rows have one time",
    "time_missing": "rows have no time",
    "time_gap": "rows are missing",
    "time_unit": "times are off by a factor, as ms for s",
    "clocks": "two loggers share no time",
    "missing_log": "a logger's file is absent",
    "length_unit": "lengths are off by a factor, as mm for m",
    "angle_unit": "degrees taken for radians, or the other way",
    "quaternion_norm": "quaternions are not of length 1",
    "quaternion_order": "xyzw taken for wxyz, or the other way",
    "never_seen": "a body is never seen",
    "dropout": "a body is lost for some rows",
    "freeze": "a body stands still while it is lost",
    "repeated_frames": "a logger repeats frames",
    "jump": "single frames lie elsewhere",
    "up_axis": "another axis points up",
    "mirrored": "an axis is mirrored",
    "axes": "two axes are exchanged",
    "swapped": "two bodies change places",
    "no_orientation": "a body has no orientation",
    "reprojection": "a pose does not fit the corners of its tags",
    "blur": "frames are blurred",
    "flipped_tag": "motion decides between two poses of a tag that look alike",
    "ambiguous_tag": "nothing decides between two poses of a tag that look alike",
    "camera_moved": "the camera moved",
}

# Those on what all numbers of a recording mean.
CONVENTION_NAMES = frozenset(
    (
        *("time_unit", "length_unit", "angle_unit", "quaternion_order"),
        *("up_axis", "mirrored", "axes", "swapped", "no_orientation"),
    )
)


@dataclass(frozen=True)
class Finding:
    """One thing found wrong.

    Attributes:
        name: One of `FINDING_NAMES`.
        severity: "stop" for a finding that stops an import unless it is accepted by name.
        trial: Name of the trial; empty for a finding about a table of impacts.
        body: Name of the body; empty when the finding concerns the whole trial.
        rows: The first rows that the finding concerns, counted from 0 in the body's own log, or in
            the trial where it concerns two bodies.
        message: What was found, with numbers.
    """

    name: str
    severity: Severity
    trial: str
    body: str
    rows: tuple[int, ...]
    message: str

    @property
    def where(self) -> str:
        """The trial, and the body where there is one; empty for impacts, which have neither."""
        if not self.trial:
            return ""
        place = f"trial {self.trial!r}"
        return f"{place}, body {self.body!r}" if self.body else place

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{self.name} ({self.severity}): {place}{self.message}"


def finding(
    name: str,
    severity: Severity,
    message: str,
    *,
    trial: str,
    body: str = "",
    rows: np.ndarray | Sequence[int] = (),
) -> Finding:
    """Make a finding that lists the first `MAX_ROWS` rows only."""
    assert name in FINDING_NAMES, name
    first_rows = tuple(int(row) for row in rows[:MAX_ROWS])
    return Finding(name, severity, trial, body, first_rows, message)


def check_finding_names(accept: Sequence[str]) -> None:
    """Raise a DataError for a name that is not in `FINDING_NAMES`."""
    for name in accept:
        if name not in FINDING_NAMES:
            raise DataError(
                f"there is no finding called {name!r}; {did_you_mean(name, FINDING_NAMES)}"
            )


def raise_if_serious(
    findings: Sequence[Finding],
    accept: Sequence[str],
    *,
    data: str = "the logs",
    remedy: str = "correct the mapping, or accept by name",
) -> None:
    """Raise a DataError for serious findings that were not accepted by name.

    Args:
        findings: All findings.
        accept: Names of those that are accepted.
        data: What was checked, for the message.
        remedy: What to do, for the message; the names of the findings follow.
    """
    serious = [f for f in findings if f.severity == "stop" and f.name not in accept]
    if not serious:
        return
    messages = []
    for found in serious[:_MAX_SHOWN]:
        place = f" in {found.where}" if found.where else ""
        messages.append(f"{found.name}{place}: {found.message}")
    if len(serious) > _MAX_SHOWN:
        messages.append(f"and {len(serious) - _MAX_SHOWN} more")
    names = ", ".join(sorted({f.name for f in serious}))
    advice = f"{remedy}: {names}"
    raise DataError(f"{data} cannot be trusted as they are: {'; '.join(messages)} ({advice})")
