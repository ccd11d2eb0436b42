"""Bounds on the size that a scene's MJCF expands to, checked before MuJoCo builds anything.

A few words of MJCF can ask for millions of bodies or for gigabytes. MuJoCo's time grows with the
square of the number of elements that <replicate> makes, and with its cube where sensors refer to
them, so this number is bounded and not the length of the text.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clashsim.core.errors import SceneError

# Elements made by <replicate>, <attach> and <flexcomp>; at this number, MuJoCo needs some
# seconds.
MAX_ELEMENTS = 5_000
MAX_BYTES = 2**30  # reserved by numbers in the text: textures, height fields, user data, the arena

Repeats = tuple[tuple[int, int], ...]  # <replicate> elements, as (identity, count), count above 1

_PNG = b"\x89PNG\r\n\x1a\n"
_OBJ_VERTEX = re.compile(rb"^\s*v\s", re.MULTILINE)
_MEMORY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
_PNG_SIZE = slice(16, 24)  # bytes of a PNG file that hold width and height
# Bytes that MuJoCo was measured to need for one of each.
_BYTES_PER_PIXEL = 4
_BYTES_PER_CELL = 16
_BYTES_PER_RAY = 8
_BYTES_PER_TAXEL = 64
_BYTES_PER_VERTEX = 1024
_BYTES_PER_USER_NUMBER = 16
_BYTES_PER_SIZE = {"nkey": 1024, "njmax": 2048, "nconmax": 1024, "nstack": 8, "nuserdata": 16}
_ELEMENTS_PER_POINT = 4  # that <flexcomp> makes: a body and three joints
_FILE_BYTES_PER_VERTEX = 50  # at least
# <replicate> elements that repeat one element. Each at least doubles it, and 2**64 are too many.
_MAX_REPEATS = 64
_DEFAULT_GRID = (10, 10, 10)  # points of a <flexcomp> without a count


@dataclass(frozen=True)
class Element:
    """One element of an MJCF.

    Attributes:
        tag: Name of the element.
        attributes: Its attributes, as they are written.
        folder: Folder of the file in which it is written.
        repeats: The <replicate> elements that enclose it.
        default: Whether it is within <default>.
    """

    tag: str
    attributes: Mapping[str, str]
    folder: str
    repeats: Repeats
    default: bool


@dataclass(frozen=True, eq=False)
class ModelText:
    """The elements of a model file and of all files that it includes, before they are expanded.

    Attributes:
        name: Name of the model.
        elements: All elements in order, without the root.
        models: Model files that it names, each with the name that <attach> uses.
        files: Other files: the element that names the file, and its content.
    """

    name: str
    elements: tuple[Element, ...]
    models: tuple[tuple[str, ModelText], ...]
    files: tuple[tuple[Element, bytes], ...]

    @cached_property
    def repetitions(self) -> list[int]:
        """How often each element is made; one that refers to a repeated element repeats with it."""
        # <replicate> elements (count by identity) that repeat an element, by the element's name, or
        # by the prefix that an <attach> gives to names.
        named: dict[str, dict[int, int]] = {}
        prefixed: dict[str, dict[int, int]] = {}
        for element in self.elements:
            if element.repeats and "name" in element.attributes:
                _add_repeats(named.setdefault(element.attributes["name"], {}), element.repeats)
            if element.repeats and element.tag == "attach":
                prefix = element.attributes.get("prefix", "")
                _add_repeats(prefixed.setdefault(prefix, {}), element.repeats)
        prefix_lengths = {len(prefix) for prefix in prefixed}
        repetitions_of_each = []
        for element in self.elements:
            repeats = dict(element.repeats)
            references = [value for key, value in element.attributes.items() if key != "name"]
            for value in references:
                _add_repeats(repeats, named.get(value, {}).items())
                for length in prefix_lengths:
                    _add_repeats(repeats, prefixed.get(value[:length], {}).items())
            repetitions_of_each.append(math.prod(repeats.values()))
        return repetitions_of_each

    @cached_property
    def counts(self) -> list[int]:
        """How many elements each element expands to."""
        models = dict(self.models)
        counts = []
        for element, repetitions in zip(self.elements, self.repetitions, strict=True):
            made = 1
            if element.tag == "flexcomp":
                made = _ELEMENTS_PER_POINT * self._count_points(element)
            if element.tag == "attach" and element.attributes.get("model") in models:
                made = models[element.attributes["model"]].size
            counts.append(made * repetitions)
        return counts

    @cached_property
    def size(self) -> int:
        """How many elements the model expands to, with models that are named but not attached."""
        return sum(self.counts) + sum(model.size for _, model in self.models)

    @cached_property
    def reserved(self) -> int:
        """Bytes that sizes in the text make MuJoCo reserve."""
        models = dict(self.models)
        defaults = _largest_defaults(self.elements)
        total = sum(_picture_bytes(element.tag, content) for element, content in self.files)
        total += sum(model.reserved for _, model in self.models)
        for element, repetitions in zip(self.elements, self.repetitions, strict=True):
            attributes = {**defaults.get(element.tag, {}), **element.attributes}
            total += repetitions * _reserved_bytes(element.tag, attributes, self.size)
            if element.tag == "attach" and element.attributes.get("model") in models:
                total += repetitions * models[element.attributes["model"]].reserved
        return total

    def _count_points(self, element: Element) -> int:
        """Points of a <flexcomp>: of its grid or file, or of its cells where these have more."""
        attributes = element.attributes
        # Along an axis of n cells there are at most 2 n + 1 points: corners and middles.
        cell_points = [2 * n + 1 for n in _integers(attributes.get("cellcount", ""))]
        kind = attributes.get("type", "mesh" if "mesh" in attributes else "grid")
        if kind in ("mesh", "gmsh", "direct"):
            written = len(attributes.get("point", "").split()) // 3
            points = max(written, *map(_count_vertices, self._mesh_contents(element)), 0)
        else:
            points = math.prod(_integers(attributes.get("count", "")) or _DEFAULT_GRID)
        return max(points, math.prod(cell_points))

    def _mesh_contents(self, element: Element) -> list[bytes]:
        """Content of the file that a <flexcomp> names, or of the mesh that it refers to."""
        wanted = element.attributes.get("mesh")
        found = []
        for owner, content in self.files:
            name = owner.attributes.get("name") or owner.attributes.get("file", "")
            is_wanted = wanted is not None and owner.tag == "mesh" and wanted in name
            if owner is element or is_wanted:
                found.append(content)
        return found


def refuse_large(model: ModelText, scene: str) -> None:
    """Raise if a scene expands beyond `MAX_ELEMENTS` or reserves more than `MAX_BYTES`.

    Args:
        model: The scene.
        scene: The scene's name, for the message.
    """
    made = sum(count for count in model.counts if count > 1)
    made += sum(child.size for _, child in model.models)
    if made > MAX_ELEMENTS:
        raise SceneError(
            f"scene {scene!r} expands to {_format_count(made)} elements by <replicate>, <attach> "
            f"or <flexcomp>, and at most {MAX_ELEMENTS:,} are built"
        )
    reserved = model.reserved
    if reserved > MAX_BYTES:
        raise SceneError(
            f"scene {scene!r} asks for {_format_count(reserved)} bytes of textures, height fields "
            f"or other sizes, and at most {MAX_BYTES:,} are given"
        )


def first_integer(attributes: Mapping[str, str], name: str, default: int) -> int:
    """Read the first whole number of an attribute, at least 0; `default` where it is absent."""
    return next(iter(_integers(attributes.get(name, ""))), default)


def _integers(text: str) -> list[int]:
    """The whole numbers of a text, negative ones as 0; other words, which MuJoCo refuses, as 1."""
    found = []
    for word in text.split():
        try:
            found.append(max(int(word), 0))
        except ValueError:
            found.append(1)
    return found


def _add_repeats(repeats: dict[int, int], further: Iterable[tuple[int, int]]) -> None:
    """Add <replicate> elements to others, up to the number at which the scene is refused anyway."""
    for identity, count in further:
        if len(repeats) >= _MAX_REPEATS:
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


def _count_vertices(content: bytes) -> int:
    """Number of vertices of a mesh file; an upper estimate where it is not an OBJ text."""
    written = len(_OBJ_VERTEX.findall(content))
    return written or len(content) // _FILE_BYTES_PER_VERTEX


def _picture_bytes(tag: str, content: bytes) -> int:
    """Bytes that a PNG picture takes when it is unpacked; 0 for other files."""
    is_png = content.startswith(_PNG) and len(content) >= _PNG_SIZE.stop
    if tag not in ("texture", "hfield") or not is_png:
        return 0
    width, height = struct.unpack(">II", content[_PNG_SIZE])
    return width * height * (_BYTES_PER_PIXEL if tag == "texture" else _BYTES_PER_CELL)


def _reserved_bytes(tag: str, attributes: Mapping[str, str], elements: int) -> int:
    """Bytes that the sizes in one element reserve; `elements` is the number in the whole model."""
    if tag == "texture":
        width = first_integer(attributes, "width", 0)
        height = first_integer(attributes, "height", 0)
        if attributes.get("type", "cube") != "2d":  # six square faces, whatever height is given
            height = max(height, 6 * width)
        return _BYTES_PER_PIXEL * width * height
    if tag == "hfield":
        rows = first_integer(attributes, "nrow", 0)
        return _BYTES_PER_CELL * rows * first_integer(attributes, "ncol", 0)
    if tag == "camera":
        return _BYTES_PER_RAY * math.prod(_integers(attributes.get("resolution", "")))
    if tag == "config" and attributes.get("key") == "size":  # of a grid of touch sensors
        return _BYTES_PER_TAXEL * math.prod(_integers(attributes.get("value", "")))
    if tag == "mesh" and "builtin" in attributes:
        return _BYTES_PER_VERTEX * max(_integers(attributes.get("params", "")), default=0) ** 2
    if tag == "size":
        users = [key for key in attributes if key.startswith("nuser_")]
        numbers = elements * sum(first_integer(attributes, key, 0) for key in users)
        total = numbers * _BYTES_PER_USER_NUMBER
        for key, size in _BYTES_PER_SIZE.items():
            total += first_integer(attributes, key, 0) * size
        return total + _memory_bytes(attributes.get("memory", ""))
    return 0


def _memory_bytes(text: str) -> int:
    """Bytes that a text such as "64M" stands for."""
    suffix = text.strip()[-1:].upper()
    unit = _MEMORY_UNITS.get(suffix, 1)
    number = text.strip()[:-1] if suffix in _MEMORY_UNITS else text
    return unit * math.prod(_integers(number)) if number.strip() else 0


def _format_count(number: int) -> str:
    """A number for a message, without its digits where it is huge."""
    return f"{number:,}" if number < 10**12 else "more than 10^12"
