"""How much a scene's MJCF expands to; counted before MuJoCo builds anything.

A few words of MJCF can ask for millions of bodies or for gigabytes. MuJoCo's time grows with the
square of what <replicate> makes, and with its cube where sensors refer to it, so the bounds are on
what is made, not on the length of the text.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clashsim.core.errors import SceneError

MAX_ELEMENTS = 5_000  # made by <replicate>, <attach> and <flexcomp>: some seconds for MuJoCo
MAX_BYTES = 2**30  # reserved by numbers in the text: textures, height fields, user data, the arena

Repeats = tuple[tuple[int, int], ...]  # <replicate> elements, as (identity, count), count above 1

_PNG = b"\x89PNG\r\n\x1a\n"
_OBJ_VERTEX = re.compile(rb"^\s*v\s", re.MULTILINE)
_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
# Bytes that MuJoCo was seen to take for one of each.
_PIXEL = 4
_CELL = 16
_RAY = 8
_TAXEL = 64
_VERTEX = 1024
_USER = 16
_SIZES = {"nkey": 1024, "njmax": 2048, "nconmax": 1024, "nstack": 8, "nuserdata": 16}
_PER_POINT = 4  # elements that <flexcomp> makes of a point: a body and three joints
_PER_VERTEX = 50  # bytes of a mesh file, at least
_MOST_REPEATS = 64  # 2**64 repetitions are refused whatever the counts are


@dataclass(frozen=True)
class Element:
    """One element of an MJCF.

    Attributes:
        tag: Its name.
        attributes: As they are written.
        folder: That its file lies in.
        repeats: The <replicate> elements about it.
        default: Whether it is part of <default>.
    """

    tag: str
    attributes: Mapping[str, str]
    folder: str
    repeats: Repeats
    default: bool


@dataclass(frozen=True, eq=False)
class ModelText:
    """A model file as it is written, with all that it includes.

    Attributes:
        name: Of the model.
        elements: All of them in order, without the root.
        models: Model files that it names, by the names that <attach> uses.
        files: Content of the other files that elements name.
    """

    name: str
    elements: tuple[Element, ...]
    models: tuple[tuple[str, ModelText], ...]
    files: tuple[tuple[Element, bytes], ...]

    @cached_property
    def repetitions(self) -> list[int]:
        """How often each element is repeated; what refers to a repeated one is repeated with it."""
        named: dict[str, dict[int, int]] = {}
        prefixed: dict[str, dict[int, int]] = {}
        for element in self.elements:
            if element.repeats and "name" in element.attributes:
                _add(named.setdefault(element.attributes["name"], {}), element.repeats)
            if element.repeats and element.tag == "attach":
                prefix = element.attributes.get("prefix", "")
                _add(prefixed.setdefault(prefix, {}), element.repeats)
        lengths = {len(prefix) for prefix in prefixed}
        out = []
        for element in self.elements:
            about = dict(element.repeats)
            references = [value for key, value in element.attributes.items() if key != "name"]
            for value in references:
                _add(about, named.get(value, {}).items())
                for length in lengths:
                    _add(about, prefixed.get(value[:length], {}).items())
            out.append(math.prod(about.values()))
        return out

    @cached_property
    def counts(self) -> list[int]:
        """How many elements each one becomes."""
        models = dict(self.models)
        counts = []
        for element, repetitions in zip(self.elements, self.repetitions, strict=True):
            made = 1
            if element.tag == "flexcomp":
                made = _PER_POINT * self._points(element)
            if element.tag == "attach" and element.attributes.get("model") in models:
                made = models[element.attributes["model"]].size
            counts.append(made * repetitions)
        return counts

    @cached_property
    def size(self) -> int:
        """How many elements the whole becomes; a model that is only named is read all the same."""
        return sum(self.counts) + sum(model.size for _, model in self.models)

    @cached_property
    def reserved(self) -> int:
        """Bytes that numbers in the text reserve."""
        models = dict(self.models)
        defaults = _largest_defaults(self.elements)
        total = sum(_picture(element.tag, content) for element, content in self.files)
        total += sum(model.reserved for _, model in self.models)
        for element, repetitions in zip(self.elements, self.repetitions, strict=True):
            attributes = {**defaults.get(element.tag, {}), **element.attributes}
            total += repetitions * _reserved(element.tag, attributes, self.size)
            if element.tag == "attach" and element.attributes.get("model") in models:
                total += repetitions * models[element.attributes["model"]].reserved
        return total

    def _points(self, element: Element) -> int:
        """Points of a <flexcomp>: of its grid, of its file, or of the cells between them."""
        attributes = element.attributes
        cells = [2 * n + 1 for n in _integers(attributes.get("cellcount", ""))]
        kind = attributes.get("type", "mesh" if "mesh" in attributes else "grid")
        if kind in ("mesh", "gmsh", "direct"):
            written = len(attributes.get("point", "").split()) // 3
            points = max(written, *map(_vertices, self._meshes(element)), 0)
        else:
            points = math.prod(_integers(attributes.get("count", "")) or [10, 10, 10])
        return max(points, math.prod(cells))

    def _meshes(self, element: Element) -> list[bytes]:
        """Content of the file that a <flexcomp> names, or of the mesh that it refers to."""
        wanted = element.attributes.get("mesh")
        found = []
        for owner, content in self.files:
            name = owner.attributes.get("name") or owner.attributes.get("file", "")
            refers = wanted is not None and owner.tag == "mesh" and wanted in name
            if owner is element or refers:
                found.append(content)
        return found


def refuse_large(model: ModelText, scene: str) -> None:
    """Raise if a scene expands beyond `MAX_ELEMENTS` or reserves more than `MAX_BYTES`.

    Args:
        model: The scene's text.
        scene: Its name, for the message.
    """
    made = sum(count for count in model.counts if count > 1)
    made += sum(child.size for _, child in model.models)
    if made > MAX_ELEMENTS:
        raise SceneError(
            f"scene {scene!r} expands to {_figure(made)} elements by <replicate>, <attach> or "
            f"<flexcomp>, and at most {MAX_ELEMENTS:,} are built"
        )
    if model.reserved > MAX_BYTES:
        raise SceneError(
            f"scene {scene!r} asks for {_figure(model.reserved)} bytes of textures, height fields "
            f"or other sizes, and at most {MAX_BYTES:,} are given"
        )


def first_integer(attributes: Mapping[str, str], name: str, default: int) -> int:
    """The first whole number of an attribute, at least 0."""
    return next(iter(_integers(attributes.get(name, ""))), default)


def _integers(text: str) -> list[int]:
    """The whole numbers of a text, at least 0; other words count as 1, for MuJoCo refuses them."""
    found = []
    for word in text.split():
        try:
            found.append(max(int(word), 0))
        except ValueError:
            found.append(1)
    return found


def _add(repeats: dict[int, int], further: Iterable[tuple[int, int]]) -> None:
    """Add <replicate> elements to others, until there are so many that their number decides."""
    for identity, count in further:
        if len(repeats) >= _MOST_REPEATS:
            return
        repeats[identity] = count


def _largest_defaults(elements: Sequence[Element]) -> dict[str, dict[str, str]]:
    """The largest value that any default class gives an attribute, by tag."""
    found: dict[str, dict[str, str]] = {}
    for element in elements:
        if not element.default:
            continue
        largest = found.setdefault(element.tag, {})
        for key, value in element.attributes.items():
            if math.prod(_integers(value)) >= math.prod(_integers(largest.get(key, ""))):
                largest[key] = value
    return found


def _vertices(content: bytes) -> int:
    """Vertices of a mesh file, roughly."""
    written = len(_OBJ_VERTEX.findall(content))
    return written or len(content) // _PER_VERTEX


def _picture(tag: str, content: bytes) -> int:
    """Bytes that a picture takes when it is unpacked."""
    if tag not in ("texture", "hfield") or not content.startswith(_PNG) or len(content) < 24:
        return 0
    width, height = struct.unpack(">II", content[16:24])
    return width * height * (_PIXEL if tag == "texture" else _CELL)


def _reserved(tag: str, attributes: Mapping[str, str], elements: int) -> int:
    """Bytes that the numbers of one element reserve in a model of so many elements."""
    if tag == "texture":
        width = first_integer(attributes, "width", 0)
        height = first_integer(attributes, "height", 0)
        if attributes.get("type", "cube") != "2d":  # six squares, whatever height is given
            height = max(height, 6 * width)
        return _PIXEL * width * height
    if tag == "hfield":
        rows = first_integer(attributes, "nrow", 0)
        return _CELL * rows * first_integer(attributes, "ncol", 0)
    if tag == "camera":
        return _RAY * math.prod(_integers(attributes.get("resolution", "")))
    if tag == "config" and attributes.get("key") == "size":  # of a grid of touch sensors
        return _TAXEL * math.prod(_integers(attributes.get("value", "")))
    if tag == "mesh" and "builtin" in attributes:
        return _VERTEX * max(_integers(attributes.get("params", "")), default=0) ** 2
    if tag == "size":
        users = [key for key in attributes if key.startswith("nuser_")]
        total = sum(first_integer(attributes, key, 0) for key in users) * elements * _USER
        total += sum(first_integer(attributes, key, 0) * unit for key, unit in _SIZES.items())
        return total + _memory(attributes.get("memory", ""))
    return 0


def _memory(text: str) -> int:
    """Bytes as in "64M"."""
    suffix = text.strip()[-1:].upper()
    unit = _SUFFIXES.get(suffix, 1)
    number = text.strip()[:-1] if suffix in _SUFFIXES else text
    return unit * math.prod(_integers(number)) if number.strip() else 0


def _figure(number: int) -> str:
    """A number that may be very long."""
    return f"{number:,}" if number < 10**12 else "more than 10^12"
