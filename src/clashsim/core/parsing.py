"""JSON and TOML from users, read within bounds; what is wrong with them is one sentence."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from clashsim.core.errors import ClashError, DataError

JSON_BYTES = 64 << 20  # parsed JSON takes up to 25 times the memory of its text
TOML_BYTES = 1 << 20  # a long settings file has a few thousand
# tomllib needs time that grows with the square of the parts of a dotted key, or worse.
_MAX_KEY_PARTS = 64
Text = bytes | str


def read_bounded(
    path: Path, what: str, *, limit: int, error: type[ClashError] = DataError
) -> bytes:
    """Read a file of at most `limit` bytes.

    Args:
        path: The file.
        what: What the file is called in messages, as in "settings file 'puck.toml'".
        limit: Most bytes that are read.
        error: What is raised where the file is missing, unreadable or too large.

    Returns:
        Its content.
    """
    try:
        if not path.is_file():
            raise error(f"there is no {what}")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Python makes room for all that it is asked to read, so ask for no more than there is.
            content = file.read(min(size, limit) + 1)
    except OSError as failure:
        raise error(f"{what} cannot be read: {failure.strerror}") from None
    except ValueError:  # a path with a zero byte
        raise error(f"there is no {what}") from None
    if len(content) > limit:
        raise error(f"{what} is larger than the {limit / 1e6:.0f} MB allowed")
    return content


def parse_json(content: Text, what: str, *, error: type[ClashError] = DataError) -> Any:
    """Parse a JSON text.

    Args:
        content: The text.
        what: What the text is called in messages.
        error: What is raised where it is no JSON.

    Returns:
        Its value.
    """
    if len(content) > JSON_BYTES:
        raise error(f"{what} is larger than the {JSON_BYTES / 1e6:.0f} MB allowed for JSON")
    text = _decoded(content, what, error)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise error(f"{what} is damaged or cut off, not valid JSON: {_reason(failure)}") from None


def parse_toml(content: Text, what: str, *, error: type[ClashError] = DataError) -> dict[str, Any]:
    """Parse a TOML text.

    Args:
        content: The text.
        what: What the text is called in messages.
        error: What is raised where it is no TOML.

    Returns:
        Its table.
    """
    if len(content) > TOML_BYTES:
        raise error(f"{what} is larger than the {TOML_BYTES / 1e6:.0f} MB allowed for TOML")
    text = _decoded(content, what, error)
    for piece in re.split(r"[=,{\n]", text):
        if piece.count(".") > _MAX_KEY_PARTS and not piece.lstrip().startswith("#"):
            raise error(
                f"{what} has a key of more than {_MAX_KEY_PARTS} parts: {piece.strip()[:20]!r}..."
            )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as failure:
        raise error(f"{what} is damaged, not valid TOML: {_reason(failure)}") from None


def _decoded(content: Text, what: str, error: type[ClashError]) -> str:
    """The text of UTF-8 bytes, with or without a byte order mark."""
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{what} is not UTF-8 text") from None


def _reason(failure: Exception) -> str:
    """The reason of a parser in one line, without words that only programmers know."""
    if isinstance(failure, RecursionError):
        return "it is nested too deeply"
    if isinstance(failure, json.JSONDecodeError | tomllib.TOMLDecodeError):
        return " ".join(str(failure).split())[:160]
    return "a whole number has too many digits"
