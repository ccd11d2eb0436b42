"""Arrays by name: HDF5, NPZ and MAT files as columns.

Nothing in these files is ever run, and sizes are checked before memory is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.extras import needs
from clashsim.core.npz import Npz
from clashsim.data.readers import mat5
from clashsim.data.readers.convert import column_of
from clashsim.data.readers.streams import Columns

# Numbers kept of one file: half a GiB, and a few times that while they are checked.
MAX_NUMBERS = 1 << 26
_MAX_BYTES = 8 * MAX_NUMBERS
_MAX_ITEMS = 10_000  # arrays and groups of a file
_MAX_ROW = 256  # numbers: a longer row is an image, or an array with one row per quantity
_MAX_POSE_NUMBERS = 7  # an array with no more rows, but more columns, has one column per time
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MAT_HEADER_BYTES = 512  # before the HDF5 part of a MAT file of version 7.3


def read_hdf5(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Read an HDF5 file, or a MAT file of version 7.3, which is one.

    Args:
        path: The file.
        wanted: References to datasets by their path, as in `mocap/box/position`; None for all.
        rows: How many rows are read at most.

    Returns:
        Columns (N,) or (N, k) by path.
    """
    with needs("h5py", "io"):
        import h5py
    try:
        with h5py.File(path, "r", locking=False) as file:
            datasets = dict(_number_datasets(file, h5py))
            # MATLAB writes its arrays transposed.
            is_matlab = any("MATLAB_class" in dataset.attrs for dataset in datasets.values())
            names = _chosen_names(list(datasets), wanted)
            total = sum(int(np.prod(datasets[name].shape, dtype=float)) for name in names)
            if total > MAX_NUMBERS:
                raise DataError(
                    f"the arrays hold {total / 1e6:.0f} million numbers,"
                    f" more than the {MAX_NUMBERS / 1e6:.0f} million allowed"
                )
            arrays = {}
            for name in names:
                dataset = datasets[name]
                read_all = rows is None or is_matlab or dataset.ndim == 0
                values = dataset[()] if read_all else dataset[:rows]
                arrays[name] = values.T if is_matlab else values
    except DataError:
        raise
    except Exception:  # the library raises many kinds on damaged bytes
        raise DataError("the file is not HDF5, or it is cut off or damaged") from None
    return _as_columns(arrays, wanted, rows)


def _number_datasets(file: Any, h5py: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and the dataset of each array of numbers in an HDF5 file.

    Links to other files are not followed, and a group that contains itself is entered only once.
    """
    waiting = [("", file)]
    entered = {file.id}
    count = 0
    while waiting:
        prefix, group = waiting.pop()
        for name in group:
            count += 1
            if count > _MAX_ITEMS:
                raise DataError(f"the file holds more than {_MAX_ITEMS} arrays and groups")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group.get(name)
            # "#refs#" is where MATLAB keeps the content of cell arrays.
            if isinstance(item, h5py.Group) and name != "#refs#" and item.id not in entered:
                entered.add(item.id)
                waiting.append((f"{prefix}{name}/", item))
            elif isinstance(item, h5py.Dataset):
                is_inside = item.external is None and not item.is_virtual
                if item.dtype.kind in "fiu" and is_inside:
                    yield f"{prefix}{name}", item


def read_npz(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Read an NPZ archive.

    Args:
        path: The file.
        wanted: References to arrays; None for those that hold numbers.
        rows: How many rows are kept at most.

    Returns:
        Columns (N,) or (N, k) by name.
    """
    arrays = {}
    with Npz(path, limit=_MAX_BYTES) as archive:
        for name in _chosen_names(archive.names, wanted):
            array = archive.array_if(name) if wanted is None else archive.array(name)
            if isinstance(array, np.ndarray):
                arrays[name] = array
    return _as_columns(arrays, wanted, rows)


def read_mat(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Read a MAT file of version 5 or 7.3.

    Args:
        path: The file.
        wanted: References to arrays, fields of structures as `a.b`; None for all that hold numbers.
        rows: How many rows are kept at most.

    Returns:
        Columns (N,) or (N, k) by name.
    """
    with path.open("rb") as file:
        head = file.read(_MAT_HEADER_BYTES + len(_HDF5_SIGNATURE))
    is_hdf5 = (
        head.startswith((b"MATLAB 7.3", _HDF5_SIGNATURE))
        or head[_MAT_HEADER_BYTES:] == _HDF5_SIGNATURE
    )
    if is_hdf5:
        paths = None if wanted is None else [name.replace(".", "/") for name in wanted]
        table = read_hdf5(path, wanted=paths, rows=rows)
        return {name.replace("/", "."): values for name, values in table.items()}
    arrays = mat5.read_mat5(path, limit=_MAX_BYTES)
    chosen = {name: arrays[name] for name in _chosen_names(list(arrays), wanted)}
    return _as_columns(chosen, wanted, rows)


def _chosen_names(names: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Names of the arrays that the references `wanted` mean, each once; all names for None."""
    if wanted is None:
        return list(names)
    return list(dict.fromkeys(column_of(reference, names) for reference in wanted))


def _as_columns(
    arrays: dict[str, np.ndarray], wanted: Sequence[str] | None, rows: int | None
) -> Columns:
    """Arrays as columns (N,) and (N, k).

    Arrays of other shapes are left out, or raise a DataError if they were asked for by name.
    """
    columns = {}
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.ndim == 2 and array.shape[0] <= _MAX_POSE_NUMBERS < array.shape[1]:
            array = array.T  # it has one column per time, as MATLAB users write it
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        is_column = array.ndim == 1 or (array.ndim == 2 and array.shape[1] <= _MAX_ROW)
        if is_column and array.size:
            columns[name] = array[:rows].astype(float)
        elif wanted is not None:
            raise DataError(
                f"array {name!r} has shape {array.shape},"
                " where one number or one short row per time is needed"
            )
    if not columns:
        raise DataError("there are no arrays of numbers")
    return columns
