"""Shows progress of long work: nothing in library calls, a bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_REPORT_INTERVAL = 60.0  # s, between lines in a log
# Called with a title and the total number of items. Returns a context that yields a function, to be
# called with the number of items done since the last call.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def quiet(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show no progress; a `Progress`."""
    yield lambda n: None


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, or a line per minute if that is no terminal; a `Progress`."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, total)
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as display:
        task = display.add_task(title, total=total)
        yield lambda n: display.advance(task, n)


def _lines(title: str, total: int) -> Callable[[int], None]:
    """Make a function that adds up the items done and prints a line per minute."""
    done = 0
    last_report = time.monotonic()

    def advance(n: int) -> None:
        nonlocal done, last_report
        done += n
        if time.monotonic() - last_report >= _REPORT_INTERVAL:
            last_report = time.monotonic()
            print(f"{title}: {done} of {total}", file=sys.stderr, flush=True)

    return advance
