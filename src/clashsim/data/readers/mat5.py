"""MAT files of version 5: arrays of numbers, and fields of structures.

scipy's reader crashes the process on some damaged files. This one checks all sizes first; see
docs/decisions/0017-readers-of-hostile-files.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clashsim.core.errors import DataError

# Types of elements, as the format numbers them.
_NUMBER_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_MATRIX = 14
_COMPRESSED = 15
# Classes of matrices.
_STRUCT_CLASS = 2
_NUMBER_CLASSES = range(6, 16)

_HEADER_BYTES = 128
_BYTE_ORDER_MARK = slice(126, 128)  # of the header: IM for little-endian, MI for big-endian
_MAX_DEPTH = 8  # of structures inside structures
_MAX_NAME_BYTES = 256  # of a field
_DAMAGED = "the file is not a MAT file of version 5 or 7.3, or it is cut off or damaged"


class _Element(NamedTuple):
    """One element of a file: the number of its type, and its data."""

    kind: int
    data: bytes


def read_mat5(path: Path, *, limit: int) -> dict[str, np.ndarray]:
    """Read the arrays of a MAT file.

    Args:
        path: The file.
        limit: Most bytes that the file may have, and that its compressed parts may unpack to.

    Returns:
        Arrays of numbers by name, fields of structures as `a.b`. Texts, cell arrays and objects are
        left out.
    """
    if path.stat().st_size > limit:
        raise DataError(f"the file has more than {limit / 1e9:.1f} GB")
    content = path.read_bytes()
    mark = content[_BYTE_ORDER_MARK]
    if len(content) < _HEADER_BYTES + 8 or mark not in (b"IM", b"MI"):
        raise DataError(_DAMAGED)
    byte_order = "<" if mark == b"IM" else ">"
    arrays: dict[str, np.ndarray] = {}
    try:
        for element in _elements(content, _HEADER_BYTES, byte_order, padded=False):
            inner = [element]
            if element.kind == _COMPRESSED:
                unpacked = zlib.decompressobj().decompress(element.data, limit + 1)
                limit -= len(unpacked)
                if limit < 0:
                    raise DataError("the file unpacks to more than is allowed")
                inner = list(_elements(unpacked, 0, byte_order))
            for item in inner:
                if item.kind == _MATRIX:
                    arrays |= _arrays_in_matrix(item.data, byte_order)
    except (struct.error, zlib.error, ValueError, StopIteration, RuntimeError):
        raise DataError(_DAMAGED) from None
    return arrays


def _elements(
    content: bytes, position: int, byte_order: str, *, padded: bool = True
) -> Iterator[_Element]:
    """The elements from a position on; each has its type, its size and its data.

    A short element has all three in eight bytes: the upper half of the type is its size then. The
    data of others are padded to a multiple of eight bytes, except for compressed ones.
    """
    while position + 8 <= len(content):
        kind, size = struct.unpack_from(f"{byte_order}II", content, position)
        is_short = kind >> 16 != 0
        if is_short:
            size = kind >> 16
            kind &= 0xFFFF
            if size > 4:
                raise ValueError
            start = position + 4
            step = 8
        else:
            padding = -size % 8 if padded and kind != _COMPRESSED else 0
            start = position + 8
            step = 8 + size + padding
        if start + size > len(content):
            raise ValueError
        yield _Element(kind, content[start : start + size])
        position += step


def _arrays_in_matrix(
    data: bytes, byte_order: str, *, prefix: str = "", depth: int = 0, name: str | None = None
) -> dict[str, np.ndarray]:
    """Arrays of one matrix element by name: one for numbers, several for a structure.

    Args:
        data: Data of the element.
        byte_order: < or >, as the module `struct` has it.
        prefix: Names of the structures around the matrix, with a dot.
        depth: Number of structures around the matrix.
        name: Name of the field that the matrix is; None to take the matrix's own name.
    """
    parts = _elements(data, 0, byte_order)
    flags = next(parts).data
    dimensions = next(parts).data
    label = next(parts).data
    matrix_class = struct.unpack_from(f"{byte_order}I", flags)[0] & 0xFF
    axes = len(dimensions) // 4
    shape = struct.unpack(f"{byte_order}{axes}i", dimensions[: 4 * axes])
    if name is None:
        name = label.decode("latin-1").rstrip("\0")
    name = prefix + name
    if matrix_class in _NUMBER_CLASSES:
        return {name: _numbers(next(parts), shape, byte_order)}
    is_single_structure = matrix_class == _STRUCT_CLASS and all(size == 1 for size in shape)
    if not is_single_structure or depth >= _MAX_DEPTH:
        return {}
    name_width = struct.unpack(f"{byte_order}i", next(parts).data)[0]
    names = next(parts).data
    if not 0 < name_width <= _MAX_NAME_BYTES:
        raise ValueError
    arrays: dict[str, np.ndarray] = {}
    for start, part in zip(range(0, len(names), name_width), parts, strict=False):
        field = names[start : start + name_width].split(b"\0")[0].decode("latin-1")
        if part.kind == _MATRIX and part.data:
            arrays |= _arrays_in_matrix(
                part.data, byte_order, prefix=f"{name}.", depth=depth + 1, name=field
            )
    return arrays


def _numbers(element: _Element, shape: tuple[int, ...], byte_order: str) -> np.ndarray:
    """The numbers of an element as an array; raises a ValueError if they do not fit the shape."""
    if element.kind not in _NUMBER_TYPES or any(size < 0 for size in shape):
        raise ValueError
    numbers = np.frombuffer(element.data, f"{byte_order}{_NUMBER_TYPES[element.kind]}")
    if numbers.size != int(np.prod(shape, dtype=object)):
        raise ValueError
    return numbers.reshape(shape, order="F")
