"""Arrays by name: HDF5, NPZ and MAT files as columns; nothing in them is ever run, and sizes are
checked before memory is asked for.
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

NUMBERS = (
    1 << 26
)  # numbers kept of one file: half a GiB, and a few times that while they are checked
_BYTES = 8 * NUMBERS
_ITEMS = 10_000
_WIDTH = 256  # numbers a row: a longer row is an image, or an array that lies on its side


def read_hdf5(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Columns of an HDF5 file (and of MAT 7.3, which is one): each dataset of numbers by its path,
    as in `mocap/box/position`.
    """
    with needs("h5py", "io"):
        import h5py
    try:
        with h5py.File(path, "r", locking=False) as file:
            sets = dict(_datasets(file, h5py))
            matlab = "MATLAB_class" in {key for item in sets.values() for key in item.attrs}
            names = _chosen(list(sets), wanted)
            total = sum(int(np.prod(sets[name].shape, dtype=float)) for name in names)
            if total > NUMBERS:
                raise DataError(
                    f"the arrays hold {total / 1e6:.0f} million numbers, more than the {NUMBERS / 1e6:.0f} million allowed"
                )
            found = {}
            for name in names:
                item = sets[name]
                # MATLAB writes its arrays the other way round.
                values = item[()] if rows is None or matlab or item.ndim == 0 else item[:rows]
                found[name] = values.T if matlab else values
    except DataError:
        raise
    except Exception:  # the library raises many kinds on damaged bytes
        raise DataError("the file is not HDF5, or it is cut off or damaged") from None
    return _columns(found, wanted, rows)


def _datasets(file: Any, h5py: Any) -> Iterator[tuple[str, Any]]:
    """Datasets of numbers; links out of the file are not followed, and a group that contains itself
    is entered once.
    """
    waiting, entered, count = [("", file)], {file.id}, 0
    while waiting:
        prefix, group = waiting.pop()
        for name in group:
            count += 1
            if count > _ITEMS:
                raise DataError(f"the file holds more than {_ITEMS} arrays and groups")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group.get(name)
            if isinstance(item, h5py.Group) and name != "#refs#" and item.id not in entered:
                entered.add(item.id)
                waiting.append((f"{prefix}{name}/", item))
            elif (
                isinstance(item, h5py.Dataset)
                and item.dtype.kind in "fiu"
                and item.external is None
                and not item.is_virtual
            ):
                yield f"{prefix}{name}", item


def read_npz(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Columns of an NPZ archive; without names asked for, those of its arrays that are numbers."""
    found = {}
    with Npz(path, limit=_BYTES) as archive:
        for name in _chosen(archive.names, wanted):
            array = archive.array_if(name) if wanted is None else archive.array(name)
            if isinstance(array, np.ndarray):
                found[name] = array
    return _columns(found, wanted, rows)


def read_mat(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Columns of a MAT file: version 5 (fields of structures are `a.b`) or 7.3."""
    with path.open("rb") as file:
        head = file.read(512 + 8)
    if (
        head.startswith(b"MATLAB 7.3")
        or head[512:520] == b"\x89HDF\r\n\x1a\n"
        or head[:8] == b"\x89HDF\r\n\x1a\n"
    ):
        table = read_hdf5(
            path,
            wanted=None if wanted is None else [w.replace(".", "/") for w in wanted],
            rows=rows,
        )
        return {name.replace("/", "."): values for name, values in table.items()}
    found = mat5.load(path, limit=_BYTES)
    return _columns({name: found[name] for name in _chosen(list(found), wanted)}, wanted, rows)


def _chosen(names: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    return (
        list(names)
        if wanted is None
        else list(dict.fromkeys(column_of(reference, names) for reference in wanted))
    )


def _columns(
    found: dict[str, np.ndarray], wanted: Sequence[str] | None, rows: int | None
) -> Columns:
    """Arrays (N,) and (N, k); without names asked for, those of any other shape are left out."""
    table = {}
    for name, array in found.items():
        array = np.asarray(array)
        if array.ndim == 2 and array.shape[0] <= 7 < array.shape[1]:
            array = array.T  # one column a time, as MATLAB users write it
        array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        if array.ndim in (1, 2) and array.size and (array.ndim == 1 or array.shape[1] <= _WIDTH):
            table[name] = array[:rows].astype(float)
        elif wanted is not None:
            raise DataError(
                f"array {name!r} has shape {array.shape}, where one number or one short row a time is needed"
            )
    if not table:
        raise DataError("there are no arrays of numbers")
    return table
