"""Safe output to a terminal.

Names and sentences come from files that others wrote. A terminal obeys some characters instead of
showing them, so everything that a command prints goes through here.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Whole escape sequences: colours, cursor movement, window titles. Removing only the first character
# would leave the rest of each sequence as visible noise.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x9b[0-?]*[ -/]*[@-~]"
)


def plain(text: str) -> str:
    """Remove escape sequences from a text, and replace other control characters by "?"."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return "".join(letter if _shows(letter) else "?" for letter in text)


def _shows(letter: str) -> bool:
    """Whether a terminal shows a character; `isprintable` is false for most kinds of space."""
    return letter.isprintable() or letter in "\n\t" or unicodedata.category(letter) == "Zs"


class PlainConsole(Console):
    """A console that styles tables itself and shows their text through `plain`."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments of a renderable, with plain text."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)


class _PlainStream:
    """A stream that passes text through `plain`; rich consoles bypass it (see `PlainConsole`)."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # rich writes to the stream of this attribute directly

    def write(self, text: str) -> int:
        """Write the text as a terminal may show it."""
        return self.rich_proxied_file.write(plain(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line as a terminal may show it."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Pass everything printed in this context through `plain`."""
    out = cast(TextIO, _PlainStream(sys.stdout))
    errors = cast(TextIO, _PlainStream(sys.stderr))
    with redirect_stdout(out), redirect_stderr(errors):
        yield
