"""Arrays and metadata of safetensors files, also of damaged ones."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from clashsim.core.errors import DataError
from clashsim.core.parsing import JSON_BYTES, parse_json

_DAMAGED = "the safetensors file is cut off or damaged"
# What loading raises on damaged bytes; KeyError is for a type that numpy does not have.
_LOAD_ERRORS = (SafetensorError, KeyError, ValueError, TypeError, OverflowError)


def read_tensors(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a safetensors file.

    Args:
        content: Its bytes.

    Returns:
        The arrays by name, and the metadata.

    Raises:
        DataError: It is no safetensors file, or a damaged one.
    """
    metadata = tensor_metadata(content)
    try:
        tensors = load(content)
    except _LOAD_ERRORS:
        raise DataError(_DAMAGED) from None
    return tensors, metadata


def tensor_metadata(content: bytes) -> dict[str, str]:
    """Read the metadata of a safetensors file, for which its header is enough."""
    size = header_size(content[:8])
    if size > len(content) - 8:
        raise DataError(_DAMAGED)
    header: Any = parse_json(content[8 : 8 + size], "the header of the safetensors file")
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict):
        raise DataError(_DAMAGED)
    if not all(isinstance(text, str) for text in metadata.values()):
        raise DataError(_DAMAGED)
    return metadata


def header_size(start: bytes) -> int:
    """Read the size in bytes of the header from the first 8 bytes of a file."""
    if len(start) < 8:
        raise DataError(_DAMAGED)
    size: int = struct.unpack("<Q", start)[0]
    if size > JSON_BYTES:
        raise DataError(_DAMAGED)
    return size
