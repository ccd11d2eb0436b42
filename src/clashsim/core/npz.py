"""Reads NPZ archives safely: no Python objects, and a bound on the size when unpacked."""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from clashsim.core.errors import DataError

MAX_RATIO = 20  # of unpacked to packed bytes; archives of recorded numbers have 1 to 5
MIN_ROOM = 64 << 20  # bytes that may always be unpacked, whatever the ratio
_MAX_ARRAYS = 10_000
# Size that an array's header must not exceed. Numpy also refuses longer headers, but only after it
# has read them.
_MAX_HEADER_BYTES = 1 << 14
_BLOCK_BYTES = 1 << 20
# Errors that zipfile and numpy raise on damaged bytes.
_DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    TypeError,
    SyntaxError,
    LookupError,
    OverflowError,
    AttributeError,
    MemoryError,
    AssertionError,
)


class Npz:
    """An open NPZ archive whose arrays are read by name, with a bound on their total size."""

    def __init__(self, source: Path | bytes, *, limit: int) -> None:
        """Open an archive.

        Args:
            source: The file, or its content.
            limit: Maximum number of bytes of all arrays that are read, together.
        """
        with _damage_as_data_error():
            if isinstance(source, bytes):
                size = len(source)
                self._archive = zipfile.ZipFile(io.BytesIO(source))
            else:
                size = source.stat().st_size
                self._archive = zipfile.ZipFile(source)
        members = self._archive.infolist()
        if len(members) > _MAX_ARRAYS:
            raise DataError(
                f"the archive holds {len(members)} arrays, more than the {_MAX_ARRAYS} allowed"
            )
        self._members = {member.filename.removesuffix(".npy"): member for member in members}
        self._limit = limit
        self._bytes_allowed = min(limit, max(MIN_ROOM, MAX_RATIO * size))
        self._bytes_left = self._bytes_allowed

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        return list(self._members)

    def array(self, name: str, *, kinds: str = "fiu") -> np.ndarray:
        """Read an array.

        Args:
            name: Name of the array.
            kinds: Accepted kinds, as letters of `numpy.dtype.kind`: f for floating-point numbers, i
                and u for integers.

        Returns:
            The array.

        Raises:
            DataError: The array is damaged, too large or of another kind.
        """
        found = self.array_if(name, kinds=kinds)
        if isinstance(found, np.ndarray):
            return found
        held = "Python objects, which are never loaded" if found.hasobject else f"{found} values"
        raise DataError(f"array {name!r} holds {held}; save plain numbers")

    def array_if(self, name: str, *, kinds: str = "fiu") -> np.ndarray | np.dtype:
        """Read an array if it is of a certain kind.

        Args:
            name: Name of the array.
            kinds: Accepted kinds, as letters of `numpy.dtype.kind`: f for floating-point numbers, i
                and u for integers.

        Returns:
            The array; where it is of another kind, only its dtype.
        """
        member = self._members[name]
        # Other compression methods unpack without a bound, and numpy never writes them.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"array {name!r} is packed in a way that numpy does not use")
        with _damage_as_data_error(), self._archive.open(member) as stream:
            return self._read(name, stream, member.file_size, kinds)

    def _read(
        self, name: str, stream: IO[bytes], claimed: int, kinds: str
    ) -> np.ndarray | np.dtype:
        """Read an array in blocks, so that a false size in its header reserves no memory."""
        self._check_size(name, claimed)
        start = stream.read(_MAX_HEADER_BYTES)
        header = io.BytesIO(start)
        version = np.lib.format.read_magic(header)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(header)
        else:
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(header)
        if dtype.hasobject or dtype.kind not in kinds:
            return dtype
        size = dtype.itemsize
        for length in shape:
            size *= length
        self._check_size(name, size)
        content = bytearray(start[header.tell() :])
        while len(content) <= size and (block := stream.read(_BLOCK_BYTES)):
            content += block
        if len(content) != size:
            raise DataError(
                f"array {name!r} is cut off or damaged: its header promises {size} bytes"
            )
        self._bytes_left -= size
        return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")

    def _check_size(self, name: str, size: int) -> None:
        """Raise a `DataError` where `size` further bytes would exceed the bound."""
        if size <= self._bytes_left:
            return
        total = (self._bytes_allowed - self._bytes_left + size) / 1e6
        allowed = self._bytes_allowed / 1e6
        message = f"with array {name!r} the archive unpacks to {total:.4g} MB"
        message += f", more than the {allowed:.4g} MB allowed"
        if self._bytes_allowed < self._limit:
            message += (
                " for an archive of this size; one that is not packed (numpy.savez) may hold more"
            )
        raise DataError(message)


@contextmanager
def _damage_as_data_error() -> Iterator[None]:
    """Turn all errors that damaged bytes can cause into a `DataError`."""
    try:
        yield
    except _DAMAGE_ERRORS:
        raise DataError("the file is not an NPZ archive, or it is cut off or damaged") from None
