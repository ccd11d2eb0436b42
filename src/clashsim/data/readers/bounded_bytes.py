"""Reads bytes of recordings in bounded memory.

The sizes that a recording states may be wrong. Each is compared with a bound, and with the bytes
that are really there, before memory is allocated.
"""

from __future__ import annotations

import bz2
import importlib
import struct
from pathlib import Path
from typing import Any, BinaryIO

from clashsim.core.errors import DataError
from clashsim.core.extras import needs

MAX_RECORD_BYTES = 1 << 28  # of one record, packed or not: a chunk usually has about 1 MB
MAX_UNPACK_RATIO = 100  # unpacked bytes that a file may have for each of its packed bytes
FREE_UNPACKED_BYTES = 256 << 20  # unpacked bytes that are allowed whatever the ratio
CUT_OFF = "the recording is cut off or damaged"


class ByteReader:
    """Bytes in memory that are read like a file, without a second copy of all of them."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer at the end."""
        piece = bytes(self._data[self._position : self._position + size])
        self._position += len(piece)
        return piece


class ChunkUnpacker:
    """Unpacks the chunks of one recording, and limits the sum of their unpacked sizes."""

    def __init__(self, path: Path) -> None:
        self._bytes_left = max(FREE_UNPACKED_BYTES, MAX_UNPACK_RATIO * path.stat().st_size)

    def unpack(self, data: bytes, compression: str, size: int) -> bytes:
        """Unpack a chunk.

        Args:
            data: The packed bytes.
            compression: none, bz2, lz4 or zstd.
            size: Number of unpacked bytes that the chunk states; any other raises a DataError.

        Returns:
            The unpacked bytes.
        """
        if compression == "none":
            return data
        if size > MAX_RECORD_BYTES or size > self._bytes_left:
            raise DataError(
                f"a part of the recording unpacks to {size / 1e6:.0f} MB,"
                " which is too much for its size"
            )
        self._bytes_left -= size
        try:
            unpacked = _decompress(data, compression, size)
        except DataError:
            raise
        except Exception:  # three libraries, each with errors of its own
            raise DataError(CUT_OFF) from None
        if len(unpacked) != size:
            raise DataError(CUT_OFF)
        return unpacked


def _decompress(data: bytes, compression: str, size: int) -> bytes:
    """At most `size` unpacked bytes."""
    if compression == "bz2":
        return bz2.BZ2Decompressor().decompress(data, size)
    if compression == "lz4":
        return bytes(_library("lz4.frame").LZ4FrameDecompressor().decompress(data, size))
    if compression == "zstd":
        return bytes(_library("zstandard").ZstdDecompressor().stream_reader(data).read(size))
    raise DataError(
        f"a part of the recording is packed by {compression[:20]!r}; choices: none, bz2, lz4, zstd"
    )


def _library(name: str) -> Any:
    with needs(name, "io"):
        return importlib.import_module(name)


def read_exactly(file: BinaryIO | ByteReader, size: int) -> bytes:
    """The next `size` bytes of a file; raises a DataError where there are fewer."""
    if size > MAX_RECORD_BYTES:
        raise DataError(f"{CUT_OFF}: a record claims {size / 1e6:.0f} MB")
    data = file.read(size)
    if len(data) != size:
        raise DataError(CUT_OFF)
    return data


def unpack_integers(layout: str, data: bytes, position: int = 0) -> tuple[int, ...]:
    """Integers at a position, in a layout of the module `struct`."""
    try:
        return struct.unpack_from(layout, data, position)
    except struct.error:
        raise DataError(CUT_OFF) from None


def unpack_uint32(data: bytes) -> int:
    """The little-endian 32-bit integer at the start of bytes."""
    return unpack_integers("<I", data)[0]


def unpack_text(data: bytes, position: int) -> tuple[str, int]:
    """The text at a position, where its length (4 bytes) comes first; and the position after it."""
    size = unpack_uint32(data[position : position + 4])
    start = position + 4
    if start + size > len(data):
        raise DataError(CUT_OFF)
    return data[start : start + size].decode("utf-8", "replace"), start + size
