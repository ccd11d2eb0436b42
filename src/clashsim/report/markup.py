"""HTML that cannot be injected into: every string is escaped unless a function of this module made
it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable


class Markup(str):
    """Text that is HTML already."""


Child = str | int | None | Iterable["Child"]


def escape(child: Child) -> str:
    """A child as HTML: markup as it is, nothing for None, the items of an iterable one after the
    other, all else escaped.
    """
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str | int):
        return html.escape(str(child))
    return "".join(escape(c) for c in child)


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An element; `class_` and `data_i` become class and data-i, floats are coordinates to 0.1,
    attributes of None are left out.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{said}>{escape(children)}</{name}>")


def _value(value: str | float) -> str:
    return f"{round(value, 1):g}" if isinstance(value, float) else html.escape(str(value))


def card(heading: str, *children: object, class_: str = "") -> Markup:
    """A section of a page with its heading."""
    return tag("section", tag("h2", heading), children, class_=f"card {class_}".strip())  # type: ignore[arg-type]
