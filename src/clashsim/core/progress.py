"""Progress of long work: silent in a library call, a bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_REPORT_INTERVAL = 60.0  # s
# Called with a title and a total: a context that gives a function to call with what was done.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def quiet(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show nothing."""
    yield lambda n: None


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error; where that is no terminal, a line per minute."""
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
    """Make a function that counts what was done and prints a line per minute."""
    done = 0
    last_report = time.monotonic()

    def advance(n: int) -> None:
        nonlocal done, last_report
        done += n
        if time.monotonic() - last_report >= _REPORT_INTERVAL:
            last_report = time.monotonic()
            print(f"{title}: {done} of {total}", file=sys.stderr, flush=True)

    return advance
