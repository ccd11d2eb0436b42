"""Rows of a benchmark: figures, or under `why` the reason why they could not be measured."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clashsim.core.errors import ClashError

Row = dict[str, Any]
# Called with all rows so far whenever rows were added, so that an error or an interrupt loses none.
Save = Callable[[Sequence[Row]], None]

_MAX_MESSAGE = 200  # characters kept of an error that is not a ClashError


def discard(rows: Sequence[Row]) -> None:
    """Save nothing: the caller gets the rows when the benchmark is done."""


@contextmanager
def optional(rows: list[Row], **head: Any) -> Iterator[None]:
    """Turn an error into a row with `why`, so that the benchmark goes on to its other rows.

    Args:
        rows: List to which the row with `why` is appended.
        head: Keys that identify the row, as in what="impacts", method="MJX".
    """
    try:
        yield
    except Exception as error:  # libraries and devices fail in many ways
        rows.append(head | {"why": why(error)})


def why(error: Exception) -> str:
    """The reason why a row has no figures, in one line.

    The traceback of an error that is not a ClashError is printed as well.
    """
    message = " ".join(str(error).split())
    if isinstance(error, ClashError):
        return message
    traceback.print_exception(error)
    return f"{type(error).__name__}: {message[:_MAX_MESSAGE]}"


def measured(rows: Sequence[Row]) -> list[Row]:
    """The rows that hold figures, that is no `why`."""
    return [row for row in rows if "why" not in row]


def find_row(rows: Sequence[Row], content: Row) -> Row | None:
    """The first row that has all of these keys with these values."""
    for row in rows:
        if row | content == row:
            return row
    return None
