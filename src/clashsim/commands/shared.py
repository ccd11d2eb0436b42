"""Shared by several commands: the console for tables, checks of output files, the executor."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from clashsim.commands.option_types import ExecutionOptions
from clashsim.commands.terminal import PlainConsole
from clashsim.core.errors import DataError, ParamError
from clashsim.core.executor import Executor, local

# What plans and policies need of a run first.
STRIKE_TABLE = "predicting where strikes leave the body, which takes 5 to 30 s"
_MAX_WIDTH = 100  # columns of results: what a terminal shows beside another window
_WIDTH_WITHOUT_TERMINAL = 160  # columns: wide enough that no table is folded


def console() -> Console:
    """A console for tables."""
    if sys.stdout.isatty():
        return PlainConsole()
    return PlainConsole(width=_WIDTH_WITHOUT_TERMINAL)


def say(sentence: str, style: str | None = None) -> None:
    """Print a sentence, wrapped at `_MAX_WIDTH` columns or the width of a narrower terminal.

    Args:
        sentence: The sentence.
        style: How a terminal shows it, as in "bold yellow".
    """
    screen = console()
    # Names from files may contain text like [red], which rich would interpret.
    screen.print(
        sentence, style=style, markup=False, highlight=False, width=min(screen.width, _MAX_WIDTH)
    )
    screen.file.flush()


def say_table(table: Table) -> None:
    """Print a table as wide as `say` prints sentences."""
    screen = console()
    screen.print(table, markup=False, width=min(screen.width, _MAX_WIDTH))


def check_output_file(path: Path, endings: Sequence[str], *, overwrite: bool) -> None:
    """Refuse an output file that has the wrong ending or already exists, before any work.

    Args:
        path: File to be written.
        endings: Suffixes that it may have, as in (".csv", ".json").
        overwrite: Whether an existing file may be replaced.

    Raises:
        DataError: The file cannot be the output.
    """
    if path.suffix not in endings:
        *others, last = endings
        choices = f"{', '.join(others)} or {last}" if others else last
        raise DataError(f"the output {str(path)!r} must end in {choices}")
    if path.is_dir():
        raise DataError(f"the output {str(path)!r} is a folder, not a file")
    if path.exists() and not overwrite:
        raise DataError(
            f"the output {str(path)!r} already exists; "
            "choose another, or replace it with --overwrite"
        )


def announce(work: str) -> None:
    """Say what takes a while, and before it that the contact solver is compiled if it has to be.

    Args:
        work: What takes a while and how long, as in "planning, which takes 5 to 30 s".
    """
    announce_compilation()
    print(work, flush=True)


def announce_compilation() -> None:
    """Say that the contact solver is about to be compiled, where it has to be."""
    from clashsim.pipeline.durations import compilation_sentence

    sentence = compilation_sentence()
    if sentence is not None:
        print(sentence, flush=True)


@contextmanager
def open_executor(options: ExecutionOptions) -> Iterator[Executor]:
    """The executor that the options name: this process, or workers of Ray.

    Args:
        options: As given on the command line.

    Yields:
        An `Executor`, which maps a function over items.
    """
    if options.executor is None:
        if options.workers:
            raise ParamError("--workers is the number of workers on Ray: give --executor as well")
        yield local
        return
    from clashsim.scale.ray_executor import ray_executor

    with ray_executor(options.executor, options.workers) as executor:
        yield executor
