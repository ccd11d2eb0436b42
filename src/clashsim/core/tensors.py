"""Reads arrays and metadata of safetensors files, and refuses damaged ones."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from clashsim.core.errors import DataError
from clashsim.core.parsing import JSON_BYTES, parse_json

_LENGTH_BYTES = 8  # at the start of a file, which hold the length of the header after them
_DAMAGED = "the safetensors file is cut off or damaged"
# Errors that loading raises on damaged bytes; KeyError is for a type that numpy does not have.
_LOAD_ERRORS = (SafetensorError, KeyError, ValueError, TypeError, OverflowError)


def read_tensors(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a safetensors file.

    Args:
        content: Bytes of the file.

    Returns:
        The arrays by name, and the metadata.

    Raises:
        DataError: The bytes are not a safetensors file, or a damaged one.
    """
    metadata = tensor_metadata(content)
    try:
        tensors = load(content)
    except _LOAD_ERRORS:
        raise DataError(_DAMAGED) from None
    return tensors, metadata


def tensor_metadata(content: bytes) -> dict[str, str]:
    """Read the metadata of a safetensors file without its arrays."""
    header_end = _LENGTH_BYTES + header_size(content[:_LENGTH_BYTES])
    if header_end > len(content):
        raise DataError(_DAMAGED)
    header: Any = parse_json(
        content[_LENGTH_BYTES:header_end], "the header of the safetensors file"
    )
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict):
        raise DataError(_DAMAGED)
    if not all(isinstance(text, str) for text in metadata.values()):
        raise DataError(_DAMAGED)
    return metadata


def header_size(start: bytes) -> int:
    """Read the size in bytes of the header from the first 8 bytes of a file."""
    if len(start) < _LENGTH_BYTES:
        raise DataError(_DAMAGED)
    size: int = struct.unpack("<Q", start)[0]  # little-endian, 8 bytes, without a sign
    if size > JSON_BYTES:
        raise DataError(_DAMAGED)
    return size
