"""Parquet files as columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.extras import needs
from clashsim.data.readers.convert import column_of
from clashsim.data.readers.streams import Columns
from clashsim.data.readers.tables import MAX_NUMBERS

_TOO_MANY = (
    f"the file holds more than {MAX_NUMBERS / 1e6:.0f} million numbers;"
    " name fewer columns, or cut it into trials"
)
_NO_ROWS = "there are no rows, only names of columns"
_BATCH_ROWS = 1 << 13  # read at a time
_NUMBER_BYTES = 8
_MAX_DEPTH = 8  # of structures inside structures
_TIMESTAMP_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def read_parquet(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Read a Parquet file.

    Args:
        path: The file.
        wanted: References to columns, fields of structures as `a.b`; None for all with numbers.
        rows: How many rows are read at most.

    Returns:
        Columns (N,), or (N, k) for lists of one length; time stamps become seconds.
    """
    with needs("pyarrow", "io"):
        import pyarrow as arrow  # type: ignore[import-untyped]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]
    try:
        file = parquet.ParquetFile(path, memory_map=False, pre_buffer=False)
        names = _number_columns(file.schema_arrow, wanted, arrow)
        # The metadata of single columns is not used: pyarrow 26 crashes the process where it is
        # damaged.
        if file.metadata.num_rows * len(names) > MAX_NUMBERS:
            raise DataError(_TOO_MANY)
        batches = _read_batches(file, names, rows)
        table = arrow.Table.from_batches(batches).slice(0, rows)
        for _ in range(_MAX_DEPTH):
            if not any(arrow.types.is_struct(field.type) for field in table.schema):
                break
            table = table.flatten()
        if not table.num_rows:
            raise DataError(_NO_ROWS)
        return {name: _as_numpy(name, table.column(name), arrow) for name in table.column_names}
    except DataError:
        raise
    except Exception:  # a library may raise anything on damaged bytes
        raise DataError("the file is not Parquet, or it is cut off or damaged") from None


def _number_columns(schema: Any, wanted: Sequence[str] | None, arrow: Any) -> list[str]:
    """Names of the columns at the top level that hold numbers, or of those wanted.

    Columns of text are refused by their type, before they are read: few packed bytes may unpack to
    very many.
    """
    names = list(schema.names)
    if len(set(names)) != len(names):
        raise DataError("two columns have the same name")
    chosen = names
    if wanted is not None:
        chosen = list(dict.fromkeys(_top_level_column(reference, names) for reference in wanted))
    numeric = [name for name in chosen if _is_numeric(schema.field(name).type, arrow)]
    others = [name for name in chosen if name not in numeric]
    if wanted is not None and others:
        kind = schema.field(others[0]).type
        raise DataError(f"column {others[0]!r} holds {kind} values, where numbers are needed")
    return numeric


def _read_batches(file: Any, names: Sequence[str], rows: int | None) -> list[Any]:
    """Read a file in batches until there are enough rows, or too many numbers."""
    batches = []
    size = 0
    count = 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False):
        batches.append(batch)
        size += batch.nbytes
        count += batch.num_rows
        if size > _NUMBER_BYTES * MAX_NUMBERS:
            raise DataError(_TOO_MANY)
        if rows is not None and count >= rows:
            break
    if not batches:
        raise DataError(_NO_ROWS)
    return batches


def _top_level_column(reference: str, names: Sequence[str]) -> str:
    """Name of the column at the file's top level that a reference such as `a.b` is in."""
    for name in names:
        if reference == name or reference.startswith((f"{name}.", f"{name}[")):
            return name
    return column_of(reference, names)


def _is_numeric(kind: Any, arrow: Any, depth: int = 0) -> bool:
    """Whether a type is of numbers, time stamps, or lists and structures of them."""
    types = arrow.types
    if types.is_struct(kind):
        if depth >= _MAX_DEPTH or kind.num_fields == 0:
            return False
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        return all(_is_numeric(field, arrow, depth + 1) for field in inner)
    if _is_list(kind, arrow):
        return bool(types.is_integer(kind.value_type) or types.is_floating(kind.value_type))
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_timestamp(kind))


def _is_list(kind: Any, arrow: Any) -> bool:
    types = arrow.types
    return bool(types.is_list(kind) or types.is_fixed_size_list(kind) or types.is_large_list(kind))


def _as_numpy(name: str, column: Any, arrow: Any) -> np.ndarray:
    """A column as floating-point numbers (N,) or (N, k); missing lists are NaN."""
    if arrow.types.is_timestamp(column.type):
        unit = _TIMESTAMP_UNITS[column.type.unit]
        return column.cast(arrow.int64()).to_numpy().astype(float) * unit
    if not _is_list(column.type, arrow):
        return column.to_numpy().astype(float)
    rows = column.to_pylist()
    widths = {len(row) for row in rows if row is not None}
    if len(widths) != 1 or widths == {0}:
        raise DataError(f"column {name!r} holds lists of several lengths")
    missing = [np.nan] * widths.pop()
    return np.array([missing if row is None else row for row in rows], float)
