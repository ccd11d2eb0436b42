"""Which reader reads which file: by suffix, and by the first line where one suffix has several
formats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from clashsim.core.errors import DataError
from clashsim.data.readers import arrays, bags, c3d, motive, parquet, tables, vicon
from clashsim.data.readers.convert import from_columns
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.streams import Columns, Log

_TEXT = (".csv", ".tsv", ".txt")
_ARRAYS: dict[str, Callable[..., Columns]] = {
    ".parquet": parquet.read_parquet,
    ".h5": arrays.read_hdf5,
    ".hdf5": arrays.read_hdf5,
    ".npz": arrays.read_npz,
    ".mat": arrays.read_mat,
}
_SELF: dict[str, Callable[[Path, LoggerMapping], Log]] = {
    ".c3d": c3d.read,
    ".bag": bags.read_bag,
    ".db3": bags.read_db3,
    ".mcap": bags.read_mcap,
}
SUFFIXES = (*_TEXT, *_ARRAYS, *_SELF)


def describes_itself(path: Path) -> bool:
    """Whether a file names its own bodies, so that it needs no mapping."""
    if path.is_dir() or path.suffix.lower() in _SELF:
        return True
    return path.suffix.lower() in _TEXT and _own(path) is not None


def read_columns(
    path: Path,
    *,
    wanted: Sequence[str] | None = None,
    rows: int | None = None,
    header_lines: int = 0,
) -> tuple[Columns, Columns]:
    """Columns of a table or of arrays, and the fields of the lines before a table's header."""
    _size(path)
    if path.suffix.lower() in _TEXT:
        return tables.read_csv(path, wanted=wanted, rows=rows, header_lines=header_lines)
    return _ARRAYS[path.suffix.lower()](path, wanted=wanted, rows=rows), {}


def read_log(path: Path, log: LoggerMapping) -> Log:
    """One file, by its mapping."""
    if path.is_dir():
        return bags.read_folder(path, log)
    _size(path)
    suffix = path.suffix.lower()
    if suffix in _SELF:
        return _SELF[suffix](path, log)
    if suffix in _TEXT and not log.header_lines and (own := _own(path)) is not None:
        return own(path, log)
    if not any(body.position for body in log.bodies):
        raise DataError(
            "a table of numbers needs a mapping that says which columns are the position of which body (or a guess)"
        )
    wanted = (
        [
            r
            for body in log.bodies
            for r in (*body.position, *body.quaternion, *body.euler, body.yaw)
            if r
        ]
        + [*log.signals.values()]
        + [log.time] * bool(log.time)
    )
    columns, fields = read_columns(path, wanted=wanted, header_lines=log.header_lines)
    return from_columns(columns, log, header=fields)


def _own(path: Path) -> Callable[[Path, LoggerMapping], Log] | None:
    """The reader of a text file that is more than a table."""
    try:
        first = next(tables.lines_of(path), "").strip()
    except DataError:
        return None
    if first.startswith("Format Version"):
        return motive.read
    return vicon.read if first.strip('",; \t').lower() in vicon.FIRST else None


def _size(path: Path) -> None:
    if path.stat().st_size == 0:
        raise DataError("the file is empty")
