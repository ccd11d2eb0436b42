"""Progress of long work: silent in a library call, a bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def quiet(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show nothing."""
    yield lambda n: None


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, which is drawn only where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    parts = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*parts, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task(title, total=total)
        yield lambda n: shown.advance(task, n)
