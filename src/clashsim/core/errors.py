"""Mistakes of users: one exception class per kind, each message one clear sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_MESSAGE_LENGTH = 1500  # characters


class ClashError(Exception):
    """A mistake in what the user supplied; the command line prints it and exits with code 2.

    Its text is one printable line, because messages quote names from files that anybody may have
    written.
    """

    def __str__(self) -> str:
        line = " ".join(super().__str__().split())
        kept = line[:_MAX_MESSAGE_LENGTH]
        printable = "".join(letter if letter.isprintable() else "?" for letter in kept)
        return printable if kept == line else f"{printable}..."


class SceneError(ClashError):
    """The scene cannot be used: the file, the pair, the ground or a body's joints."""


class ParamError(ClashError):
    """A parameter's target, range or value is not usable."""


class DataError(ClashError):
    """Recorded or sampled data is missing, malformed or without information."""


class RunError(ClashError):
    """A run folder is absent, half-written or from another version."""


class MissingExtraError(ClashError):
    """An optional dependency is needed and cannot be imported.

    Args:
        package: What is needed, as a reader knows it.
        extra: The extra of clashsim that installs it.
        problem: What is wrong, as a clause; by default that the package is not installed.
    """

    def __init__(self, package: str, extra: str, problem: str | None = None) -> None:
        if problem is None:
            problem = f"{package} is not installed"
        super().__init__(f"{problem}; get it with: pip install 'clashsim[{extra}]'")
        self._arguments = (package, extra, problem)

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        """Let the error travel from a worker process to this one."""
        return MissingExtraError, self._arguments


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Suggest names, as the end of an error message.

    Args:
        word: What the user wrote.
        choices: The names there are.

    Returns:
        The names closest to the word, or all of them (up to twelve) when none is close.
    """
    names = sorted(set(choices))
    if not names:
        return "there are none"
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.4)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"choices: {', '.join(names[:12])}"


def quoted(value: object, length: int = 40) -> str:
    """Quote a value for an error message.

    Args:
        value: Anything.
        length: Most characters.

    Returns:
        Its `repr`, cut where it is longer.
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or lists in lists
        text = f"something too long to print (type {type(value).__name__})"
    return text if len(text) <= length else f"{text[: length - 3]}..."
