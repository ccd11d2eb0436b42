"""NPZ archives, read within bounds: no Python objects, and not much more than their own size."""

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

MAX_RATIO = 20  # of unpacked to packed bytes; recorded numbers have 1 to 5
MIN_ROOM = 64 << 20  # bytes that may be unpacked whatever the ratio
_MAX_ARRAYS = 10_000
# Bytes at the start of an array that its header must fit in: numpy refuses longer ones too, but
# reads them first.
_HEADER = 1 << 14
_BLOCK = 1 << 20
# What zipfile and numpy raise on damaged bytes.
_DAMAGE = (
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
    """An open NPZ archive whose arrays are read by name, all of them within one bound."""

    def __init__(self, source: Path | bytes, *, limit: int) -> None:
        """Open an archive.

        Args:
            source: The file, or its content.
            limit: Most bytes that the arrays read may have, together.
        """
        with _damage_is_one_sentence():
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
        self._room = min(limit, max(MIN_ROOM, MAX_RATIO * size))
        self._left = self._room

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
            name: Its name.
            kinds: Letters of numpy's dtype kinds that are accepted.

        Returns:
            The array.

        Raises:
            DataError: It is damaged, too large or of another kind.
        """
        found = self.array_if(name, kinds=kinds)
        if isinstance(found, np.ndarray):
            return found
        held = "Python objects, which are never loaded" if found.hasobject else f"{found} values"
        raise DataError(f"array {name!r} holds {held}; save plain numbers")

    def array_if(self, name: str, *, kinds: str = "fiu") -> np.ndarray | np.dtype:
        """Read an array if it is of a certain kind.

        Args:
            name: Its name.
            kinds: Letters of numpy's dtype kinds that are accepted.

        Returns:
            The array; only its dtype where that is of another kind.
        """
        member = self._members[name]
        # Other methods unpack without a bound, and numpy does not write them.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"array {name!r} is packed in a way that numpy does not use")
        with _damage_is_one_sentence(), self._archive.open(member) as stream:
            return self._read(name, stream, member.file_size, kinds)

    def _read(
        self, name: str, stream: IO[bytes], claimed: int, kinds: str
    ) -> np.ndarray | np.dtype:
        """An array, whose header is believed only as far as the bytes that follow bear it out."""
        self._refuse_more(name, claimed)
        start = stream.read(_HEADER)
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
        self._refuse_more(name, size)
        content = bytearray(start[header.tell() :])
        while len(content) <= size and (block := stream.read(_BLOCK)):
            content += block
        if len(content) != size:
            raise DataError(
                f"array {name!r} is cut off or damaged: its header promises {size} bytes"
            )
        self._left -= size
        return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")

    def _refuse_more(self, name: str, size: int) -> None:
        """Raise a `DataError` where so many further bytes would exceed the bound."""
        if size <= self._left:
            return
        total = (self._room - self._left + size) / 1e6
        allowed = self._room / 1e6
        message = f"with array {name!r} the archive unpacks to {total:.4g} MB"
        message += f", more than the {allowed:.4g} MB allowed"
        if self._room < self._limit:
            message += (
                " for an archive of this size; one that is not packed (numpy.savez) may hold more"
            )
        raise DataError(message)


@contextmanager
def _damage_is_one_sentence() -> Iterator[None]:
    """Turn whatever damaged bytes raise into one `DataError`."""
    try:
        yield
    except _DAMAGE:
        raise DataError("the file is not an NPZ archive, or it is cut off or damaged") from None
