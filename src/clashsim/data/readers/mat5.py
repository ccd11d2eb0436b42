"""MAT files of version 5: arrays of numbers, and fields of structures. Read here, since a damaged
file must not take the process with it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError

_TYPES = {
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
}  # of elements
_MATRIX, _COMPRESSED, _STRUCT, _NUMBERS = 14, 15, 2, range(6, 16)
_DEPTH = 8
_DAMAGED = "the file is not a MAT file of version 5 or 7.3, or it is cut off or damaged"


def load(path: Path, *, limit: int) -> dict[str, np.ndarray]:
    """Arrays by name, fields of structures as `a.b`; the file, and what it unpacks to, may have
    `limit` bytes.
    """
    if path.stat().st_size > limit:
        raise DataError(f"the file has more than {limit / 1e9:.1f} GB")
    content = path.read_bytes()
    if len(content) < 136 or content[126:128] not in (b"IM", b"MI"):
        raise DataError(_DAMAGED)
    end = "<" if content[126:128] == b"IM" else ">"
    found: dict[str, np.ndarray] = {}
    try:
        for kind, data in _elements(content, 128, end, padded=False):
            if kind == _COMPRESSED:
                unpack = zlib.decompressobj()
                whole = unpack.decompress(data, limit + 1)
                limit -= len(whole)
                if limit < 0:
                    raise DataError("the file unpacks to more than is allowed")
                inner = list(_elements(whole, 0, end))
            else:
                inner = [(kind, data)]
            for inside, values in inner:
                if inside == _MATRIX:
                    found |= _matrix(values, end, "", 0)
    except (struct.error, zlib.error, ValueError, StopIteration, RuntimeError):
        raise DataError(_DAMAGED) from None
    return found


def _elements(
    content: bytes, at: int, end: str, *, padded: bool = True
) -> Iterator[tuple[int, bytes]]:
    """Type and data of each element; a short one has both in eight bytes. Compressed elements are
    not padded.
    """
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(f"{end}II", content, at)
        if kind >> 16:
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
            if size > 4:
                raise ValueError
        else:
            start, step = at + 8, 8 + size + (0 if kind == _COMPRESSED or not padded else -size % 8)
        if start + size > len(content):
            raise ValueError
        yield kind, content[start : start + size]
        at += step


def _matrix(
    data: bytes, end: str, prefix: str, depth: int, name: str | None = None
) -> dict[str, np.ndarray]:
    """Arrays in one matrix, by name; words, cells and objects are passed over."""
    parts = _elements(data, 0, end)
    flags, dims, label = (part for _, part in (next(parts), next(parts), next(parts)))
    kind = struct.unpack_from(f"{end}I", flags)[0] & 0xFF
    shape = tuple(struct.unpack(f"{end}{len(dims) // 4}i", dims[: len(dims) // 4 * 4]))
    name = prefix + (label.decode("latin-1").rstrip("\0") if name is None else name)
    if kind in _NUMBERS:
        coded, values = next(parts)
        if coded not in _TYPES or any(n < 0 for n in shape):
            raise ValueError
        numbers = np.frombuffer(values, f"{end}{_TYPES[coded]}")
        if numbers.size != int(np.prod(shape, dtype=object)):
            raise ValueError
        return {name: numbers.reshape(shape, order="F")}
    if kind == _STRUCT and depth < _DEPTH and all(n == 1 for n in shape):
        (_, size), (_, names) = next(parts), next(parts)
        width = struct.unpack(f"{end}i", size)[0]
        if not 0 < width <= 256:
            raise ValueError
        fields = [
            names[i : i + width].split(b"\0")[0].decode("latin-1")
            for i in range(0, len(names), width)
        ]
        found: dict[str, np.ndarray] = {}
        for field, (inside, values) in zip(fields, parts, strict=False):
            if inside == _MATRIX and values:
                found |= _matrix(values, end, f"{name}.", depth + 1, field)
        return found
    return {}
