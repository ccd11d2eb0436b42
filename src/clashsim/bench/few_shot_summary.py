"""In how many cells of a few-shot comparison clashsim is the best method.

A cell is one data set, draw and number of impacts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clashsim.bench.rows import Row, measured

_OURS = "clashsim"
_FIGURE = "accuracy_0.1"
_NEARLY = 0.01  # below the best other row, which counts as equal to it
_ROUNDING = 1e-9
_HONEST = {"coverage_68": (0.60, 0.76), "coverage_90": (0.84, 0.96)}


class Cell(NamedTuple):
    """One cell: by how much clashsim is above the best other method, which may be negative."""

    name: str
    best_other: str
    margin: float


def cells(rows: Sequence[Row]) -> list[Cell]:
    """All cells in which clashsim and another method were measured."""
    good = [row for row in measured(rows) if row.get(_FIGURE) is not None]
    found = []
    for ours in good:
        if ours["method"] != _OURS:
            continue
        others = [
            row
            for row in good
            if row["set"] == ours["set"]
            and not row["method"].startswith(_OURS)
            and (row["n"] == 0 or (row["n"], row["draw"]) == (ours["n"], ours["draw"]))
        ]
        if others:
            best = max(others, key=lambda row: row[_FIGURE])
            name = f"{ours['set']}, {ours['draw']}, {ours['n']} impacts"
            found.append(Cell(name, best["method"], ours[_FIGURE] - best[_FIGURE]))
    return found


def summary(rows: Sequence[Row]) -> list[str]:
    """Sentences on the cells in which clashsim is best, and on its intervals; may be none."""
    sentences = []
    compared = cells(rows)
    if compared:
        best = sum(cell.margin >= -_ROUNDING for cell in compared)
        nearly = sum(cell.margin >= -_NEARLY - _ROUNDING for cell in compared)
        worst = min(compared, key=lambda cell: cell.margin)
        sentence = (
            f"clashsim is the best method in {best} of {len(compared)} cells, "
            f"within {_NEARLY} of it in {nearly}"
        )
        if worst.margin < 0:
            sentence += (
                f"; the worst cell is {-worst.margin:.3f} below {worst.best_other} ({worst.name})"
            )
        sentences.append(f"{sentence}.")
    for key, (low, high) in _HONEST.items():
        shares = [row[key] for row in measured(rows) if row.get(key) is not None]
        if shares:
            honest = sum(low <= share <= high for share in shares)
            mean = sum(shares) / len(shares)
            sentences.append(
                f"The {key.removeprefix('coverage_')} % intervals hold {100 * mean:.0f} % in the "
                f"mean, and between {100 * low:.0f} and {100 * high:.0f} % in {honest} of "
                f"{len(shares)} rows."
            )
    return sentences
