"""Errors caused by a user's input: one exception class per kind, each message one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_MESSAGE_LENGTH = 1500  # characters
_MAX_CLOSE_NAMES = 3  # names that a message suggests
_MIN_SIMILARITY = 0.4  # of a suggested name, 0 to 1, as difflib measures it
_MAX_CHOICES = 12  # names that a message lists where none is similar


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
        package: Name of the dependency, for the message.
        extra: The extra of clashsim that installs it.
        problem: Main clause of the message; by default that the package is not installed.
    """

    def __init__(self, package: str, extra: str, problem: str | None = None) -> None:
        if problem is None:
            problem = f"{package} is not installed"
        super().__init__(f"{problem}; get it with: pip install 'clashsim[{extra}]'")
        self._arguments = (package, extra, problem)

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        """Let the error be pickled, so that it can be sent from a worker process."""
        return MissingExtraError, self._arguments


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Suggest names, as the last part of an error message.

    Args:
        word: What the user wrote.
        choices: The valid names.

    Returns:
        A clause with the names most similar to the word, or up to twelve where none is similar.
    """
    names = sorted(set(choices))
    if not names:
        return "there are none"
    close = difflib.get_close_matches(word, names, n=_MAX_CLOSE_NAMES, cutoff=_MIN_SIMILARITY)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"choices: {', '.join(names[:_MAX_CHOICES])}"


def quoted(value: object, length: int = 40) -> str:
    """Quote a value for an error message.

    Args:
        value: Anything.
        length: Maximum number of characters.

    Returns:
        The `repr` of the value, cut off with "..." where it is longer.
    """
    try:
        text = repr(value)
    except (
        ValueError,
        RecursionError,
    ):  # an integer of thousands of digits, or deeply nested lists
        text = f"something too long to print (type {type(value).__name__})"
    return text if len(text) <= length else f"{text[: length - 3]}..."
