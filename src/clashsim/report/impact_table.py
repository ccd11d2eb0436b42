"""A table of measured impacts for the terminal."""

from __future__ import annotations

import numpy as np
from rich.table import Table

from clashsim.core.contact_geometry import Contact
from clashsim.core.impacts import Impacts, MotionBefore

_MAX_ROWS = 60
_MIN_SPEED = 1e-3  # m/s at which surfaces close in: below, their ratio means nothing


def impacts_table(
    impacts: Impacts, before: np.ndarray, contact: Contact, *, numbers: np.ndarray | None = None
) -> Table:
    """A table with a row per impact, at most 60.

    Columns are the speeds at which the two surfaces close in and slide at their contact, the speed
    at which they part over that at which they closed in, and the speed of the struck body after.

    Args:
        impacts: N impacts.
        before: Their motion before, (N, d) as in `Impacts`, with the bodies touching.
        contact: Their contacts.
        numbers: Of the impacts (N,) in their recording; None for 0, 1, ...
    """
    if numbers is None:
        numbers = np.arange(len(impacts))
    closing, sliding, parting = _contact_speeds(impacts, before, contact)
    speeds = np.linalg.norm(impacts.after[:, : 2 if impacts.planar else 3], axis=1)
    table = Table(title=f"{len(impacts)} impacts", title_justify="left")
    heads = ("closing, m/s", "sliding, m/s", "parting over closing", "speed after, m/s")
    table.add_column("impact", justify="right")
    for head in heads:
        table.add_column(head, justify="right")
    for row in range(min(len(impacts), _MAX_ROWS)):
        meets = contact.touching[row] and closing[row] > _MIN_SPEED
        cells = ("the bodies do not meet", "-", "-")
        if meets:
            ratio = parting[row] / closing[row]
            cells = (f"{closing[row]:.3f}", f"{sliding[row]:.3f}", _cell(ratio, 2))
        table.add_row(str(numbers[row]), *cells, _cell(speeds[row], 3))
    if len(impacts) > _MAX_ROWS:
        table.caption = f"and {len(impacts) - _MAX_ROWS} more"
    return table


def _cell(value: float, digits: int) -> str:
    """A number; a dash where parts of the outcome were not measured."""
    return "-" if np.isnan(value) else f"{value:.{digits}f}"


def _contact_speeds(
    impacts: Impacts, before: np.ndarray, contact: Contact
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Speeds (N,), m/s, at which surfaces close in, slide, and part again.

    Where the striker's motion after an impact was not measured, it is taken to go on.
    """
    relative = []
    after = before.copy()
    MotionBefore.of(after).struck.twist[:] = impacts.after
    if impacts.striker_after is not None:
        measured = impacts.striker_measured.all(1)
        MotionBefore.of(after).striker.twist[measured] = impacts.striker_after[measured]
    for rows in (before, after):
        motion = MotionBefore.of(rows)
        struck = motion.struck.velocity_at(contact.point)
        relative.append(struck - motion.striker.velocity_at(contact.point))
    along_before, along_after = (np.einsum("ni,ni->n", v, contact.normal) for v in relative)
    sliding = relative[0] - along_before[:, None] * contact.normal
    return -along_before, np.linalg.norm(sliding, axis=1), along_after
