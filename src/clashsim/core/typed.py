"""Builds dataclasses from tables of a TOML file, and refuses unknown names and wrong types."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from clashsim.core.errors import ClashError, DataError, did_you_mean, quoted

_MAX_NAME_LENGTH = 40  # characters of a name from the file that a message quotes
# How messages describe the types of values.
_WORDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
}


def build_dataclass(
    kind: type, raw: object, *, place: str = "", error: type[ClashError] = DataError
) -> Any:
    """Build a dataclass from a table.

    Args:
        kind: The dataclass. Its fields may be text, numbers, tuples, mappings, choices (Literal) or
            dataclasses, and each of them may be optional (None).
        raw: The table, as parsed.
        place: Where in the file the table is, as in "logs[0]"; empty for the whole file.
        error: Class of the error that is raised where the table does not fit.

    Returns:
        An instance of `kind`.
    """
    where = place or "the file"
    if not isinstance(raw, dict):
        raise error(_mismatch(where, raw, kind))
    hints = get_type_hints(kind)
    for name in raw:
        if name not in hints:
            suggestion = did_you_mean(name[:_MAX_NAME_LENGTH], hints)
            raise error(f"{where} has an unknown entry {quoted(name)}; {suggestion}")
    required = [
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    ]
    missing = [name for name in required if name not in raw]
    if missing:
        raise error(f"{where} lacks {', '.join(missing)}")
    prefix = f"{place}." if place else ""
    values = {}
    for name, value in raw.items():
        values[name] = _value(hints[name], value, f"{prefix}{name}", error)
    return kind(**values)


def _value(hint: Any, raw: object, place: str, error: type[ClashError]) -> Any:
    """Convert the value at a place in the file to the type of its field, or raise."""
    origin = get_origin(hint)
    choices = get_args(hint)
    if origin in (Union, types.UnionType):  # optional: TOML has no None, so take the other type
        hint = next(choice for choice in choices if choice is not types.NoneType)
        return _value(hint, raw, place, error)
    if is_dataclass(hint) and isinstance(hint, type):
        return build_dataclass(hint, raw, place=place, error=error)
    if origin is Literal:
        if isinstance(raw, str) and raw in choices:
            return raw
    elif origin is tuple:
        items = _items(hint, raw)
        if items is not None:
            converted = []
            for i, (item_hint, item) in enumerate(items):
                converted.append(_value(item_hint, item, f"{place}[{i}]", error))
            return tuple(converted)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(raw, dict):
            table = {}
            for key, item in raw.items():
                table[key] = _value(choices[1], item, f"{place}.{key[:_MAX_NAME_LENGTH]}", error)
            return table
    elif hint is float:
        number = _finite(raw)
        if number is not None:
            return number
    elif type(raw) is hint:
        return raw
    raise error(_mismatch(place, raw, hint))


def _items(hint: Any, raw: object) -> list[tuple[Any, object]] | None:
    """Pair each item of a list with its required type; None if `raw` is not such a list."""
    choices = get_args(hint)
    any_length = choices[-1] is Ellipsis
    if any_length and choices[0] is str and isinstance(raw, str):
        return [(str, raw)]  # a single text is accepted as a list of one
    if not isinstance(raw, list):
        return None
    if any_length:
        return [(choices[0], item) for item in raw]
    if len(raw) != len(choices):
        return None
    return list(zip(choices, raw, strict=True))


def _finite(raw: object) -> float | None:
    """The value as a float; None where it is not a finite number."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        number = float(raw)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _mismatch(place: str, raw: object, hint: Any) -> str:
    """Message for a value that is not of the required type."""
    return f"{place} is {quoted(raw)}, where {_expected(hint)} is needed"


def _expected(hint: Any) -> str:
    """Describe in words which values a type accepts."""
    origin = get_origin(hint)
    choices = get_args(hint)
    if origin in (Union, types.UnionType):
        return _expected(next(choice for choice in choices if choice is not types.NoneType))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, choices))
    if origin is tuple and choices[-1] is Ellipsis:
        return f"a list with {_expected(choices[0])} for each item"
    if origin is tuple:
        return f"a list of {len(choices)} items, each {_expected(choices[0])},"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a table with {_expected(choices[1])} for each name"
    return _WORDS.get(hint, "a table")
