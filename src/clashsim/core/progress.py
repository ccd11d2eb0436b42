"""Shows progress of long work: nothing in library calls, a bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_FIRST_REPORT = 10.0  # s, after which a log gets its first line
_REPORT_INTERVAL = 60.0  # s, between further lines
_MINUTES = 100.0  # s, from which minutes are said
_HOURS = 100.0  # min, from which hours are said
# Called with a title and the total number of items. Returns a context that yields a function, to be
# called with the number of items done since the last call.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def quiet(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show no progress; a `Progress`."""
    yield lambda n: None


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, or lines now and then if that is no terminal; a `Progress`."""
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


def about(seconds: float) -> str:
    """A duration in words, rounded: "40 s", "12 minutes", "3 hours"."""
    if seconds < _MINUTES:
        return f"{10 * max(1, round(seconds / 10))} s"
    minutes = seconds / 60
    if minutes < _HOURS:
        return f"{minutes:.0f} minutes"
    return f"{minutes / 60:.0f} hours"


def _lines(title: str, total: int) -> Callable[[int], None]:
    """Make a function that adds up the items done and prints lines with the time that is left."""
    done = 0
    start = time.monotonic()
    next_report = start + _FIRST_REPORT

    def advance(n: int) -> None:
        nonlocal done, next_report
        done += n
        now = time.monotonic()
        if now < next_report:
            return
        next_report = now + _REPORT_INTERVAL
        left = ""
        if 0 < done < total:
            left = f", about {about((now - start) * (total - done) / done)} left"
        print(f"{title}: {done} of {total}{left}", file=sys.stderr, flush=True)

    return advance
