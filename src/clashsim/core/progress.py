"""Progress of long work: silent in a library call, a bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_MINUTE = 60.0  # s
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def quiet(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show nothing."""
    yield lambda n: None


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error; where that is no terminal, a line a minute."""
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
    parts = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*parts, console=console) as shown:
        task = shown.add_task(title, total=total)
        yield lambda n: shown.advance(task, n)


def _lines(title: str, total: int) -> Callable[[int], None]:
    done, told = 0, time.monotonic()

    def advance(n: int) -> None:
        nonlocal done, told
        done += n
        if time.monotonic() - told >= _MINUTE:
            told = time.monotonic()
            print(f"{title}: {done} of {total}", file=sys.stderr, flush=True)

    return advance
