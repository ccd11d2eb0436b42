"""Arrays of the public files, with their shapes and types checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.npz import Npz
from clashsim.data.readers.mat5 import read_mat5

_MAX_BYTES = 1 << 29  # of all arrays in one file; the public files have a few million bytes
_TEXT_COLUMNS = ("dataset", "session")  # names of arrays of text; all others hold numbers


def read_npz_arrays(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Read some arrays of an .npz file.

    Args:
        path: The file.
        shapes: Names of the arrays, each with its shape without the first axis.

    Returns:
        The arrays by name.
    """
    arrays: dict[str, np.ndarray] = {}
    missing = None
    try:
        archive = Npz(path, limit=_MAX_BYTES)
        missing = next((name for name in shapes if name not in archive.names), None)
        if missing is None:
            arrays = {name: archive.array(name, kinds="fiuU") for name in shapes}
    except DataError as error:
        raise _unreadable(path, error) from None
    if missing is not None:
        hint = did_you_mean(missing, archive.names)
        raise DataError(f"{path.name} lacks the array {missing!r}; {hint}")
    for name, shape in shapes.items():
        check_array(path, name, arrays[name], shape)
    return arrays


def read_mat_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of numbers of a .mat file of version 5, fields of structures as `a.b`."""
    try:
        return read_mat5(path, limit=_MAX_BYTES)
    except DataError as error:
        raise _unreadable(path, error) from None


def check_array(path: Path, name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise a DataError for an array of another shape than (N, *shape), or of another type.

    Arrays named in `_TEXT_COLUMNS` must hold text, all others numbers.
    """
    is_text = name in _TEXT_COLUMNS
    kinds = "U" if is_text else "fiu"
    has_shape = array.ndim == 1 + len(shape) and array.shape[1:] == shape
    if not has_shape or array.dtype.kind not in kinds:
        needed = ", ".join(["N", *map(str, shape)])
        what = "text" if is_text else "numbers"
        raise DataError(
            f"{path.name}: {name!r} should hold {what} of shape ({needed}),"
            f" got {array.shape} of {array.dtype}"
        )


def _unreadable(path: Path, error: Exception) -> DataError:
    """The error to raise for a file that cannot be read."""
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return DataError(
        f"{path.name} cannot be read ({reason}): it is truncated or not the public file"
    )
