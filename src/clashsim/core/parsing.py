"""Reads JSON and TOML from users within bounds; each error is one sentence."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from clashsim.core.errors import ClashError, DataError

# Maximum size of a text.
JSON_BYTES = 64 << 20  # parsed JSON takes up to 25 times the memory of its text
TOML_BYTES = 1 << 20  # a long settings file has a few thousand bytes
# tomllib's time grows at least with the square of the number of parts of a dotted key.
_MAX_KEY_PARTS = 64
# Characters that a message quotes.
_MAX_KEY_QUOTE = 20
_MAX_REASON_LENGTH = 160
Text = bytes | str


def read_bounded(
    path: Path, what: str, *, limit: int, error: type[ClashError] = DataError
) -> bytes:
    """Read a file of at most `limit` bytes.

    Args:
        path: The file.
        what: What the file is called in messages, as in "settings file 'puck.toml'".
        limit: Maximum number of bytes.
        error: Class of the error that is raised where the file is missing, unreadable or too large.

    Returns:
        The content of the file.
    """
    try:
        if not path.is_file():
            raise error(f"there is no {what}")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Python reserves memory for as many bytes as it is asked to read. One byte more than
            # the limit shows that the file is too large.
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
        error: Class of the error that is raised where the text is not JSON.

    Returns:
        The parsed value.
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
        error: Class of the error that is raised where the text is not TOML.

    Returns:
        The parsed table.
    """
    if len(content) > TOML_BYTES:
        raise error(f"{what} is larger than the {TOML_BYTES / 1e6:.0f} MB allowed for TOML")
    text = _decoded(content, what, error)
    for piece in re.split(r"[=,{\n]", text):  # every key is one of these pieces
        if piece.count(".") > _MAX_KEY_PARTS and not piece.lstrip().startswith("#"):
            start = piece.strip()[:_MAX_KEY_QUOTE]
            raise error(f"{what} has a key of more than {_MAX_KEY_PARTS} parts: {start!r}...")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as failure:
        raise error(f"{what} is damaged, not valid TOML: {_reason(failure)}") from None


def _decoded(content: Text, what: str, error: type[ClashError]) -> str:
    """Decode UTF-8, with or without a byte order mark."""
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{what} is not UTF-8 text") from None


def _reason(failure: Exception) -> str:
    """A parser's reason for an error, in one line of words that users know."""
    if isinstance(failure, RecursionError):
        return "it is nested too deeply"
    if isinstance(failure, json.JSONDecodeError | tomllib.TOMLDecodeError):
        return " ".join(str(failure).split())[:_MAX_REASON_LENGTH]
    return "a whole number has too many digits"
