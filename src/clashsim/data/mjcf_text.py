"""MJCF as text: where its elements are, and the smallest edits that change their attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import numpy as np

from clashsim.core.errors import SceneError

_ATTRIBUTE = re.compile(rb"""([^\s=/<>"']+)\s*=\s*("[^"]*"|'[^']*')""")
_TAG_END = re.compile(rb"\s*/?>$")
_INDENT = re.compile(rb"\n([ \t]*)$")


@dataclass
class XmlElement:
    """One element of an XML text; positions are in bytes from the start of the text.

    Attributes:
        tag: Its tag, such as geom.
        attributes: Its attributes by name.
        begin: First byte of its start tag.
        end: First byte after its start tag.
        path: Tags of the elements around it, outermost first.
        children: The elements directly inside it.
        close: First byte of its end tag; None for an element that ends in />.
    """

    tag: str
    attributes: dict[str, str]
    begin: int
    end: int
    path: tuple[str, ...]
    children: list[XmlElement] = field(default_factory=list)
    close: int | None = None


class Edit(NamedTuple):
    """The bytes from `begin` up to `end` (not included) of a text, and what replaces them."""

    begin: int
    end: int
    replacement: bytes


@dataclass(frozen=True)
class AttributeValue:
    """The value of one parameter, and its place in an attribute, which holds one or more numbers.

    Attributes:
        attribute: Name of the attribute.
        columns: Which of the attribute's numbers get the value, counted from 0.
        value: The value.
        compiled: All numbers (n,) of the attribute in the compiled model, which stand in for those
            that the author left out.
    """

    attribute: str
    columns: tuple[int, ...]
    value: float
    compiled: np.ndarray


def parse_elements(text: bytes, scene: str) -> list[XmlElement]:
    """All elements of a text in order; `scene` is the scene's name for error messages."""
    elements: list[XmlElement] = []
    open_elements: list[XmlElement] = []
    parser = expat.ParserCreate()

    def start_element(tag: str, attributes: dict[str, str]) -> None:
        begin = parser.CurrentByteIndex
        path = tuple(element.tag for element in open_elements)
        element = XmlElement(tag, attributes, begin, _tag_end(text, begin), path)
        if open_elements:
            open_elements[-1].children.append(element)
        elements.append(element)
        open_elements.append(element)

    def end_element(tag: str) -> None:
        element = open_elements.pop()
        if not text[element.begin : element.end].endswith(b"/>"):
            element.close = parser.CurrentByteIndex

    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise SceneError(f"scene {scene!r} is not well-formed XML: {error}") from None
    return elements


def _tag_end(text: bytes, begin: int) -> int:
    """First byte after the tag that begins at `begin`; a > inside quotation marks is no end."""
    quote = b""
    for i in range(begin, len(text)):
        letter = text[i : i + 1]
        if quote:
            if letter == quote:
                quote = b""
        elif letter in (b'"', b"'"):
            quote = letter
        elif letter == b">":
            return i + 1
    return len(text)


def apply_edits(text: bytes, edits: Sequence[Edit]) -> bytes:
    """A text with edits applied, from its end to its start, so that positions stay valid."""
    # Of insertions at one place, the first given comes first in the text.
    by_place = sorted(edits, key=lambda edit: (edit.begin, edit.end))
    for edit in reversed(by_place):
        text = text[: edit.begin] + edit.replacement + text[edit.end :]
    return text


def edit_attributes(
    text: bytes, element: XmlElement, values: Sequence[AttributeValue]
) -> list[Edit]:
    """Edits that put values into the start tag of an element.

    In an attribute that is there, only the numbers concerned are replaced. Others are added whole.
    """
    spans = _attribute_spans(text, element)
    edits = []
    for name, group in by_attribute(values).items():
        if name in spans:
            begin, end = spans[name]
            edits.append(Edit(begin, end, _with_numbers_replaced(text[begin:end], group)))
        else:
            edits.append(set_attribute(text, element, name, attribute_text(group)))
    return edits


def set_attribute(text: bytes, element: XmlElement, name: str, value: str) -> Edit:
    """The edit that gives an attribute of an element a value, whether it is there or not."""
    span = _attribute_spans(text, element).get(name)
    if span is not None:
        return Edit(*span, quoteattr(value).encode())
    tag_end = _TAG_END.search(text[element.begin : element.end])
    assert tag_end is not None
    position = element.begin + tag_end.start()
    return Edit(position, position, f" {name}={quoteattr(value)}".encode())


def _attribute_spans(text: bytes, element: XmlElement) -> dict[str, tuple[int, int]]:
    """Where the quoted values of an element's attributes begin and end, by attribute."""
    spans = {}
    for match in _ATTRIBUTE.finditer(text[element.begin : element.end]):
        begin, end = match.span(2)
        spans[match[1].decode()] = (element.begin + begin, element.begin + end)
    return spans


def by_attribute(values: Sequence[AttributeValue]) -> dict[str, list[AttributeValue]]:
    """Values grouped by attribute."""
    groups: dict[str, list[AttributeValue]] = {}
    for value in values:
        groups.setdefault(value.attribute, []).append(value)
    return groups


def attribute_text(values: Sequence[AttributeValue]) -> str:
    """The text of a whole attribute: its compiled numbers, some replaced by the values."""
    words = [exact_number(number) for number in values[0].compiled]
    for value in values:
        for column in value.columns:
            words[column] = _short_number(value.value)
    return " ".join(words)


def _with_numbers_replaced(quoted: bytes, values: Sequence[AttributeValue]) -> bytes:
    """A quoted attribute with some of its numbers replaced; its spacing stays.

    Numbers that the author left to defaults are added up to the last one replaced.
    """
    quote = quoted[:1]
    pieces = re.findall(r"\S+|\s+", quoted[1:-1].decode())  # numbers and the space between them
    number_places = [i for i, piece in enumerate(pieces) if not piece.isspace()]
    for value in values:
        for column in value.columns:
            while len(number_places) <= column:
                if pieces:
                    pieces.append(" ")
                pieces.append(exact_number(value.compiled[len(number_places)]))
                number_places.append(len(pieces) - 1)
            pieces[number_places[column]] = _short_number(value.value)
    return quote + "".join(pieces).encode() + quote


def element_text(tag: str, attributes: Mapping[str, str]) -> str:
    """An element without content."""
    words = [f"{name}={quoteattr(value)}" for name, value in attributes.items()]
    return f"<{tag} {' '.join(words)}/>"


def add_child(
    text: bytes,
    parent: XmlElement,
    *children: str,
    first: bool = False,
    around: str | None = None,
) -> Edit:
    """The edit that adds children to an element, on lines of their own if their siblings are.

    Args:
        text: The whole text.
        parent: The element to add to.
        children: The children as text.
        first: Whether they become the first children, or else the last.
        around: Tag of an element to put around them; None for none.

    Returns:
        The edit.
    """
    if parent.close is None:
        raise SceneError(f"<{parent.tag}> is empty in the scene, so nothing can be added to it")
    indent = _child_indent(text, parent)
    if indent is None:
        together = "".join(children)
        line = f"<{around}>{together}</{around}>" if around else together
        position = parent.end if first else parent.close
        return Edit(position, position, line.encode())
    line_end = b"\r\n" if b"\r\n" in text else b"\n"
    lines = list(children)
    if around:
        lines = [f"<{around}>", *(f"  {child}" for child in children), f"</{around}>"]
    block = b"".join(line_end + indent + line.encode() for line in lines)
    position = parent.end if first else len(text[: parent.close].rstrip())
    return Edit(position, position, block)


def _child_indent(text: bytes, parent: XmlElement) -> bytes | None:
    """The indentation of an element's children; None where they are on the line of other tags.

    Without children it is that of the element itself and two blanks.
    """
    if parent.children:
        match = _INDENT.search(text[: parent.children[0].begin])
        return match[1] if match else None
    match = _INDENT.search(text[: parent.begin])
    return match[1] + b"  " if match else None


def _short_number(value: float) -> str:
    """A number with nine digits: no identified parameter is known more exactly."""
    return f"{value:.9g}"


def exact_number(value: float) -> str:
    """A number with as many digits as it takes to read back exactly the same."""
    return repr(float(value)).removesuffix(".0")
