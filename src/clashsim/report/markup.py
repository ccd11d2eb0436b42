"""Safe HTML: every string is escaped, unless it is `Markup` that this module made."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Markup(str):
    """Text that is HTML already."""


Child = str | int | None | Iterable["Child"]


def escape(child: Child) -> str:
    """A child of an element as HTML.

    Args:
        child: Markup stays as it is, None becomes nothing, the items of an iterable follow each
            other, and everything else is escaped.
    """
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str | int):
        return html.escape(str(child))
    return "".join(escape(item) for item in child)


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An HTML element.

    Args:
        name: Name of the element, as in "svg".
        *children: Content of the element, see `escape`.
        **attributes: Attributes of the element; `class_` and `data_i` become class and data-i.
            Floats are coordinates and are rounded to 0.1. Attributes that are None are left out.
    """
    attribute_text = ""
    for key, value in attributes.items():
        if value is not None:
            attribute = key.rstrip("_").replace("_", "-")
            attribute_text += f' {attribute}="{_attribute_value(value)}"'
    return Markup(f"<{name}{attribute_text}>{escape(children)}</{name}>")


def _attribute_value(value: str | float) -> str:
    if isinstance(value, float):
        return f"{round(value, 1):g}"
    return html.escape(str(value))


def section(heading: str, *children: Child) -> Markup:
    """A section of the page with its heading."""
    return tag("section", tag("h2", heading), children, class_="section")
