"""What a command prints, as a terminal may safely show it.

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

# Whole sequences that set colours, move the cursor, or name the window: other libraries print them
# too, and what is left of one without its first character is noise.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x9b[0-?]*[ -/]*[@-~]"
)


def plain(text: str) -> str:
    """Text without what a terminal would obey: escape sequences go, other characters become "?"."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return "".join(letter if _shows(letter) else "?" for letter in text)


def _shows(letter: str) -> bool:
    """Whether a terminal shows a character as it is; spaces of all widths are not "printable"."""
    return letter.isprintable() or letter in "\n\t" or unicodedata.category(letter) == "Zs"


class PlainConsole(Console):
    """A console for tables: colours are its own, and the text in them is plain."""

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
    """A stream that writes plain text to another one; rich writes to that one itself."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # where consoles of rich look for the stream itself

    def write(self, text: str) -> int:
        """Write the text as a terminal may show it."""
        return self.rich_proxied_file.write(plain(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Likewise."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Make all that is printed meanwhile plain."""
    out = cast(TextIO, _PlainStream(sys.stdout))
    errors = cast(TextIO, _PlainStream(sys.stderr))
    with redirect_stdout(out), redirect_stderr(errors):
        yield
