"""Rows of a bench: saved as they are made, and a sentence in place of one that cannot be made."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clashsim.core.errors import ClashError

Row = dict[str, Any]
# Called with all rows so far whenever there are more, so that an error or an interrupt loses none.
Save = Callable[[Sequence[Row]], None]

_LONGEST = 200  # characters of an error that is not ours


def discard(rows: Sequence[Row]) -> None:
    """Save nothing: the caller has the rows when the bench is done."""


@contextmanager
def optional(rows: list[Row], **head: Any) -> Iterator[None]:
    """Let an error within become a row with `why`, so that the bench goes on to its other rows.

    Args:
        rows: Where the row is added.
        head: What would have been measured, as in what="impacts", method="MJX".
    """
    try:
        yield
    except Exception as error:  # libraries and devices fail in many ways
        rows.append(head | {"why": why(error)})


def why(error: Exception) -> str:
    """One sentence on why a row is missing; an error that is not ours is printed whole as well."""
    said = " ".join(str(error).split())
    if isinstance(error, ClashError):
        return said
    traceback.print_exception(error)
    return f"{type(error).__name__}: {said[:_LONGEST]}"


def measured(rows: Sequence[Row]) -> list[Row]:
    """The rows that hold figures."""
    return [row for row in rows if "why" not in row]
