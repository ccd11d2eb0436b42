"""Chooses the reader of a file: by its suffix, and for text files by the first line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from clashsim.core.errors import DataError
from clashsim.data.readers import (
    arrays,
    bags,
    c3d,
    motive,
    parquet,
    qualisys,
    tables,
    vicon,
    video,
)
from clashsim.data.readers.convert import log_from_columns
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.sources import VIDEO_SUFFIXES, is_bag
from clashsim.data.readers.streams import Columns, Log

_LogReader = Callable[[Path, LoggerMapping], Log]

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
_ARRAY_READERS: dict[str, Callable[..., Columns]] = {
    ".parquet": parquet.read_parquet,
    ".h5": arrays.read_hdf5,
    ".hdf5": arrays.read_hdf5,
    ".npz": arrays.read_npz,
    ".mat": arrays.read_mat,
}
_SELF_DESCRIBING_READERS: dict[str, _LogReader] = {
    ".c3d": c3d.read_c3d,
    ".bag": bags.read_bag,
    ".db3": bags.read_db3,
    ".mcap": bags.read_mcap,
}
SUFFIXES = (*_TEXT_SUFFIXES, *_ARRAY_READERS, *_SELF_DESCRIBING_READERS)


def describes_itself(path: Path) -> bool:
    """Whether a file names its own bodies, so that it needs no mapping."""
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in (*_SELF_DESCRIBING_READERS, *VIDEO_SUFFIXES):
        return True
    return suffix in _TEXT_SUFFIXES and _motion_capture_reader(path) is not None


def read_columns(
    path: Path,
    *,
    wanted: Sequence[str] | None = None,
    rows: int | None = None,
    header_lines: int = 0,
) -> tuple[Columns, Columns]:
    """Read a table or arrays.

    Args:
        path: The file.
        wanted: References to columns; None for all that hold numbers.
        rows: How many rows are read at most.
        header_lines: Lines of names and values before a table's header.

    Returns:
        Columns (N,) or (N, k) by name, and the values in the lines before the header by name.
    """
    _refuse_empty(path)
    suffix = path.suffix.lower()
    if suffix in _TEXT_SUFFIXES:
        return tables.read_csv(path, wanted=wanted, rows=rows, header_lines=header_lines)
    return _ARRAY_READERS[suffix](path, wanted=wanted, rows=rows), {}


def read_log(path: Path, logger: LoggerMapping) -> Log:
    """Read one file, the folder of a ROS 2 bag, or a folder of frames, by its mapping."""
    if path.is_dir():
        if is_bag(path):
            return bags.read_bag_folder(path, logger)
        return video.read_video(path, logger)
    _refuse_empty(path)
    suffix = path.suffix.lower()
    if suffix in VIDEO_SUFFIXES:
        return video.read_video(path, logger)
    if suffix in _SELF_DESCRIBING_READERS:
        return _SELF_DESCRIBING_READERS[suffix](path, logger)
    if suffix in _TEXT_SUFFIXES and not logger.header_lines:
        reader = _motion_capture_reader(path)
        if reader is not None:
            return reader(path, logger)
    has_position = any(body.position for body in logger.bodies)
    if not (has_position or logger.joints or logger.slides):
        raise DataError(
            "a table of numbers needs a mapping that says which columns are the position of"
            " which body, or the angles of which joints (or a guess)"
        )
    wanted = _referenced_columns(logger)
    columns, fields = read_columns(path, wanted=wanted, header_lines=logger.header_lines)
    return log_from_columns(columns, logger, header=fields)


def _referenced_columns(logger: LoggerMapping) -> list[str]:
    """All columns that a mapping names."""
    references: list[str] = []
    for body in logger.bodies:
        references += [*body.position, *body.quaternion, *body.matrix, *body.euler, body.yaw]
    references += [*logger.signals.values(), *logger.joints.values(), *logger.slides.values()]
    references.append(logger.time)
    return [reference for reference in references if reference]


def _motion_capture_reader(path: Path) -> _LogReader | None:
    """The reader of a text file that a motion-capture program exported; None for a plain table."""
    try:
        first_line = next(tables.lines_of(path), "").strip()
    except DataError:
        return None
    if first_line.startswith("Format Version"):
        return motive.read_motive
    if first_line.strip('",; \t').lower() in vicon.FIRST_LINES:
        return vicon.read_vicon
    if first_line.split("\t")[0] in qualisys.FIRST_WORDS:
        return qualisys.read_qualisys
    return None


def _refuse_empty(path: Path) -> None:
    """Raise a DataError for a file without content."""
    if path.stat().st_size == 0:
        raise DataError("the file is empty")
