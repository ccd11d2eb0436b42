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
from clashsim.data.readers.tables import NUMBERS

_MANY = f"the file holds more than {NUMBERS / 1e6:.0f} million numbers; name fewer columns, or cut it into trials"


def read_parquet(
    path: Path, *, wanted: Sequence[str] | None = None, rows: int | None = None
) -> Columns:
    """Columns of a Parquet file; fields of structures are `a.b`, lists of one length make columns
    (N, k), time stamps become seconds.
    """
    with needs("pyarrow", "io"):
        import pyarrow as arrow  # type: ignore[import-untyped]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]
    try:
        file = parquet.ParquetFile(path, memory_map=False, pre_buffer=False)
        tops = list(dict.fromkeys(name for name in file.schema_arrow.names))
        if len(tops) != len(file.schema_arrow.names):
            raise DataError("two columns have the same name")
        keep = (
            tops
            if wanted is None
            else list(dict.fromkeys(_top(reference, tops) for reference in wanted))
        )
        # Words are refused by their type, before they are read: a few bytes may stand for many.
        numeric = [name for name in keep if _numeric(file.schema_arrow.field(name).type, arrow)]
        if wanted is not None and (words := [name for name in keep if name not in numeric]):
            raise DataError(
                f"column {words[0]!r} holds {file.schema_arrow.field(words[0]).type} values, where numbers are needed"
            )
        keep = numeric
        if (
            file.metadata.num_rows * len(keep) > NUMBERS
        ):  # what it says of each column is not asked for: pyarrow 26 ends the process where that is damaged
            raise DataError(_MANY)
        batches, size, count = [], 0, 0
        for batch in file.iter_batches(batch_size=1 << 13, columns=keep, use_threads=False):
            batches.append(batch)
            size, count = size + batch.nbytes, count + batch.num_rows
            if size > 8 * NUMBERS:
                raise DataError(_MANY)
            if rows is not None and count >= rows:
                break
        if not batches:
            raise DataError("there are no rows, only names of columns")
        table = arrow.Table.from_batches(batches).slice(0, rows)
        for _ in range(8):
            if not any(arrow.types.is_struct(f.type) for f in table.schema):
                break
            table = table.flatten()
        if not table.num_rows:
            raise DataError("there are no rows, only names of columns")
        found = {name: _arrow(name, table.column(name), arrow) for name in table.column_names}
    except DataError:
        raise
    except Exception:  # a library may raise anything on damaged bytes
        raise DataError("the file is not Parquet, or it is cut off or damaged") from None
    return found


def _top(reference: str, tops: Sequence[str]) -> str:
    """The column of the file's top level that holds what a reference means."""
    return next(
        (top for top in tops if reference == top or reference.startswith((f"{top}.", f"{top}["))),
        None,
    ) or column_of(reference, tops)


def _numeric(kind: Any, arrow: Any, depth: int = 0) -> bool:
    """Whether a type is of numbers, time stamps, or lists and structures of them."""
    is_ = arrow.types
    if is_.is_struct(kind):
        return (
            depth < 8
            and kind.num_fields > 0
            and all(_numeric(kind.field(i).type, arrow, depth + 1) for i in range(kind.num_fields))
        )
    if is_.is_list(kind) or is_.is_fixed_size_list(kind) or is_.is_large_list(kind):
        return bool(is_.is_integer(kind.value_type) or is_.is_floating(kind.value_type))
    return bool(is_.is_integer(kind) or is_.is_floating(kind) or is_.is_timestamp(kind))


def _arrow(name: str, column: Any, arrow: Any) -> np.ndarray:
    kind = column.type
    if arrow.types.is_timestamp(kind):
        scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[kind.unit]
        return column.cast(arrow.int64()).to_numpy().astype(float) * scale
    if (
        arrow.types.is_list(kind)
        or arrow.types.is_fixed_size_list(kind)
        or arrow.types.is_large_list(kind)
    ):
        rows = column.to_pylist()
        widths = {len(row) for row in rows if row is not None}
        if len(widths) == 1 and (width := widths.pop()):
            return np.array([row if row is not None else [np.nan] * width for row in rows], float)
        raise DataError(f"column {name!r} holds lists of several lengths")
    return column.to_numpy().astype(float)
