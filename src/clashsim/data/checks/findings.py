"""What goes wrong in laboratories, as named findings, and the list of those that stop an import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clashsim.core.errors import DataError, did_you_mean

Severity = Literal["stop", "warn"]
ROWS = 1000  # rows a finding lists; its sentence counts them all

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
    "swapped": "two bodies change places",
    "no_orientation": "a body has no orientation",
}


@dataclass(frozen=True)
class Finding:
    """One thing found wrong. rows count from 0 in the body's own log (of the trial where it
    concerns two), the first 1000; body is empty when it concerns the whole trial.
    """

    name: str
    severity: Severity
    trial: str
    body: str
    rows: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        where = f"trial {self.trial!r}" + (f", body {self.body!r}" if self.body else "")
        return f"{self.name} ({self.severity}): {where}: {self.message}"


def finding(
    name: str,
    severity: Severity,
    trial: str,
    body: str,
    rows: np.ndarray | Sequence[int],
    sentence: str,
) -> Finding:
    """A finding whose rows are cut to the first ones."""
    assert name in FINDING_NAMES, name
    return Finding(name, severity, trial, body, tuple(int(i) for i in rows[:ROWS]), sentence)


def check_finding_names(accept: Sequence[str]) -> None:
    """Refuse names that are no finding's."""
    for name in accept:
        if name not in FINDING_NAMES:
            raise DataError(
                f"there is no finding called {name!r}; {did_you_mean(name, FINDING_NAMES)}"
            )


def stop(findings: Sequence[Finding], accept: Sequence[str]) -> None:
    """Refuse an import with a serious finding that was not accepted by name."""
    serious = [f for f in findings if f.severity == "stop" and f.name not in accept]
    if not serious:
        return
    shown = "; ".join(
        f"{f.name} in trial {f.trial!r}"
        + (f", body {f.body!r}" if f.body else "")
        + f": {f.message}"
        for f in serious[:4]
    )
    more = f"; and {len(serious) - 4} more" if len(serious) > 4 else ""
    raise DataError(
        f"the logs cannot be trusted as they are: {shown}{more} (mend the mapping, or accept by name: {', '.join(sorted({f.name for f in serious}))})"
    )
