"""Dataclasses from what a user wrote in TOML; names and values that do not fit are refused."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from clashsim.core.errors import ClashError, DataError, did_you_mean, quoted


def build_dataclass(
    kind: type, raw: object, *, place: str = "", error: type[ClashError] = DataError
) -> Any:
    """A dataclass from a table.

    Args:
        kind: The dataclass. Its fields are text, numbers, tuples, mappings, choices (Literal),
            dataclasses, or one of these or None.
        raw: What TOML gave.
        place: Where in the file the table is, as in "logs[0]"; empty for the whole file.
        error: What is raised.
    """
    if not isinstance(raw, dict):
        raise error(_wrong(place or "the file", raw, kind))
    where = place or "the file"
    hints = get_type_hints(kind)
    for name in raw:
        if name not in hints:
            raise error(
                f"{where} has an unknown entry {quoted(name)}; {did_you_mean(name[:40], hints)}"
            )
    required = [
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    ]
    missing = [name for name in required if name not in raw]
    if missing:
        raise error(f"{where} lacks {', '.join(missing)}")
    prefix = f"{place}." if place else ""
    return kind(
        **{
            name: _value(hints[name], value, f"{prefix}{name}", error)
            for name, value in raw.items()
        }
    )


def _value(hint: Any, raw: object, place: str, error: type[ClashError]) -> Any:
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):  # TOML has no None, so it is one of the others
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
            return tuple(
                _value(item_hint, item, f"{place}[{i}]", error)
                for i, (item_hint, item) in enumerate(items)
            )
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(raw, dict):
            return {
                key: _value(choices[1], item, f"{place}.{key[:40]}", error)
                for key, item in raw.items()
            }
    elif hint is float:
        number = _finite(raw)
        if number is not None:
            return number
    elif type(raw) is hint:
        return raw
    raise error(_wrong(place, raw, hint))


def _items(hint: Any, raw: object) -> list[tuple[Any, object]] | None:
    """Each item of a list with the type it needs; None where it is no list of that length."""
    choices = get_args(hint)
    any_length = choices[-1] is Ellipsis
    if any_length and choices[0] is str and isinstance(raw, str):
        return [(str, raw)]  # a single name may stand without brackets
    if not isinstance(raw, list):
        return None
    if any_length:
        return [(choices[0], item) for item in raw]
    if len(raw) != len(choices):
        return None
    return list(zip(choices, raw, strict=True))


def _finite(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        number = float(raw)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _wrong(place: str, raw: object, hint: Any) -> str:
    return f"{place} is {quoted(raw)}, where {_expected(hint)} is needed"


def _expected(hint: Any) -> str:
    """What a type asks for, in words."""
    origin, choices = get_origin(hint), get_args(hint)
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
    return {
        str: "a text",
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
    }.get(hint, "a table")
