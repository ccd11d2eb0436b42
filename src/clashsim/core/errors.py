"""What a user can get wrong, one class per kind, each message one clear sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 1500  # characters of a message


class ClashError(Exception):
    """A mistake in what the user supplied; the command line prints it and exits with code 2.

    Its text is one printable line, because messages quote names from files that anybody may have
    written.
    """

    def __str__(self) -> str:
        line = " ".join(super().__str__().split())
        printable = "".join(letter if letter.isprintable() else "?" for letter in line[:_LONGEST])
        return printable if len(line) <= _LONGEST else f"{printable}..."


class SceneError(ClashError):
    """The scene cannot be used: the file, the pair, the ground or a body's joints."""


class ParamError(ClashError):
    """A parameter's target, range or value is not usable."""


class DataError(ClashError):
    """Recorded or sampled data is missing, malformed or says nothing."""


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
        self.lacks = package, extra, problem

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        """So that it can be raised in a worker and told here."""
        return MissingExtraError, self.lacks


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A tail for a message: the names closest to `word`, or all of them when none is close."""
    names = sorted(set(choices))
    if not names:
        return "there are none"
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.4)
    return (
        "did you mean " + ", ".join(close) + "?" if close else "choices: " + ", ".join(names[:12])
    )


def quoted(value: object, length: int = 40) -> str:
    """A value as an error message quotes it: its `repr`, cut to `length` characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or lists in lists
        text = f"something too long to print (type {type(value).__name__})"
    return text if len(text) <= length else f"{text[: length - 3]}..."
