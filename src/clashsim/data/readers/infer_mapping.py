"""Guesses the mapping of tables without a description, from names and values of their columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.checks.motion_axes import MIN_FRAMES, find_free_fall, find_slide_axis
from clashsim.data.readers.column_names import (
    JointColumns,
    find_bodies,
    find_joints,
    is_order_open,
    scalar_first_evidence,
    unit_in_name,
    words_of,
)
from clashsim.data.readers.convert import column_of, log_from_columns, pick_columns
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, LogMapping
from clashsim.data.readers.streams import Columns
from clashsim.data.readers.tables import cells_of, lines_of

_TIME_NAME = re.compile(
    r"(.*[^a-z])?(t|time|timestamps?|stamp|ros_?time|secs?|seconds|elapsed|clock)"
    r"([_ .\[(]*(s|ms|us|ns|sec|seconds)[\])]?)?",
    re.IGNORECASE,
)
_TIME_UNITS = ("s", "ms", "us", "ns")
# Units of time, and the step between rows above which each is likely; the first that fits is taken.
_LIKELY_TIME_UNITS = (("ns", 5e4), ("us", 50), ("ms", 0.4))
_HEADER_SEARCH_LINES = 8  # of a file in which its header is searched
_MAX_FILES = 20  # of a logger that are searched for the axis that points up
_MIN_RISING_SHARE = 0.9  # of the steps of a time or a counter
_MIN_EVIDENCE = (
    0.05  # of the mean sizes of a quaternion's first and last number, to tell which is w
)
_MAX_METRES = 30.0  # a position beyond is in millimetres
_MAX_SIGNALS = 32  # further columns that are kept, such as controls; of a larger table none are
_MAX_RADIANS = 2 * np.pi + 0.1  # an angle of a body beyond is in degrees
_MAX_JOINT_RADIANS = 4 * np.pi  # likewise of a joint, which may turn more than once


@dataclass(frozen=True, eq=False)
class TableHead:
    """The beginning of a file.

    Attributes:
        header_lines: Lines before the header.
        columns: The first rows of each column.
        fields: Values in the lines before the header, by name.
    """

    header_lines: int
    columns: Columns
    fields: Columns


@dataclass(frozen=True, eq=False)
class _Logger:
    """Files with the same columns, which are taken as those of one logger.

    Attributes:
        mapping: The mapping of these files as far as it is known.
        files: Names of the files.
        columns: First rows of each column of the first file.
    """

    mapping: LoggerMapping
    files: list[str]
    columns: Columns


def count_header_lines(path: Path) -> int:
    """Count the lines of names and values before the header of a CSV file.

    The header is the first line with as many cells as the line below it; the lines before it have
    other numbers of cells. The delimiter is the one with which it comes first: numbers with decimal
    commas have more commas than delimiters.
    """
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        return 0
    lines = lines_of(path)
    head = [next(lines, "") for _ in range(_HEADER_SEARCH_LINES)]
    return min(_header_line(head, delimiter) for delimiter in ",;\t") % _HEADER_SEARCH_LINES


def _header_line(head: Sequence[str], delimiter: str) -> int:
    """Index of the header among the first lines, cut by one delimiter; their number if none is."""
    counts = [len(cells_of(line, delimiter)) if line.strip() else 0 for line in head]
    for i, (count, next_count) in enumerate(itertools.pairwise(counts)):
        if count > 1 and count == next_count:
            return i
    return len(head)


def infer_mapping(
    heads: Mapping[str, TableHead], rate: float = 0.0, *, order: str = ""
) -> LogMapping:
    """Guess a mapping for files.

    Files with the same columns are taken as those of one logger. Files of several loggers belong to
    one trial where the part of their names that varies is the same.

    Args:
        heads: The beginnings of files by name.
        rate: Frames per second, needed where no column has times; 0 if it is not known.
        order: Order of quaternions whose columns do not name it; empty to find it.

    Returns:
        The mapping.
    """
    loggers = _find_loggers(heads, rate)
    if not loggers:
        raise DataError(
            "no file has columns that look like a time and a position; write a mapping file"
        )
    order = order or _quaternion_order(loggers)
    logs = []
    for logger in loggers:
        mapping = _with_quaternion_order(logger.mapping, order)
        up = _find_up_axis(mapping, [heads[name].columns for name in logger.files[:_MAX_FILES]])
        pattern = _file_pattern(logger.files) if len(loggers) > 1 else ""
        logs.append(replace(mapping, up=up or mapping.up, files=pattern))
    return LogMapping(tuple(logs))


def _find_loggers(heads: Mapping[str, TableHead], rate: float) -> list[_Logger]:
    """Group files with the same columns, and leave out those that look like no log."""
    files_by_columns: dict[tuple[str, ...], list[str]] = {}
    for name, head in heads.items():
        files_by_columns.setdefault(tuple(head.columns), []).append(name)
    is_only_kind = len(files_by_columns) == 1
    loggers = []
    for files in files_by_columns.values():
        head = heads[files[0]]
        fallback = "body" if is_only_kind else PurePosixPath(files[0]).stem
        try:
            mapping = _guess_logger(head, fallback, rate)
        except DataError:
            if is_only_kind:
                raise
            continue  # a table beside the logs, such as a list of trials
        loggers.append(_Logger(mapping, files, head.columns))
    return loggers


def _quaternion_order(loggers: Sequence[_Logger]) -> str:
    """The quaternion order of the body with the clearest evidence.

    It is used for all bodies, since one laboratory has one convention.
    """
    candidates: list[tuple[float, str]] = []
    open_names: list[str] = []
    for logger in loggers:
        for body in logger.mapping.bodies:
            if is_order_open(body):
                numbers = pick_columns(logger.columns, body.quaternion, 4)
                evidence = scalar_first_evidence(numbers)
                candidates.append((abs(evidence), body.order))
                open_names.append(", ".join(body.quaternion))
    clearest, order = max(candidates, key=lambda candidate: candidate[0], default=(1.0, "wxyz"))
    if clearest < _MIN_EVIDENCE:
        raise DataError(
            f"the numbers of {open_names[0]} do not tell whether this quaternion is wxyz or xyzw:"
            " say so with --order wxyz or --order xyzw, or in a mapping file"
        )
    return order


def _with_quaternion_order(logger: LoggerMapping, order: str) -> LoggerMapping:
    """The logger with this order for all quaternions whose columns do not name it."""
    bodies = []
    for body in logger.bodies:
        bodies.append(replace(body, order=order) if is_order_open(body) else body)
    return replace(logger, bodies=tuple(bodies))


def _find_up_axis(logger: LoggerMapping, files: Sequence[Columns]) -> str:
    """The axis that points up: a body falls against it, or else turns about it as it slides.

    Empty where that is z, or where no motion in the files shows it.
    """
    without_header = replace(logger, header={}, moments={})
    slide_axis = ""
    for columns in files:
        for stream in log_from_columns(columns, without_header).streams:
            fall = find_free_fall(stream)
            if fall is not None and fall.axis:
                axis = fall.axis[1]
                up = axis if fall.axis.startswith("-") else f"-{axis}"
                return "" if up == "z" else up
            pose = stream.pose[np.isfinite(stream.pose).all(1)]
            axis_number = find_slide_axis(pose) if len(pose) >= MIN_FRAMES else None
            if not slide_axis and axis_number is not None:
                slide_axis = "xyz"[axis_number]
    return "" if slide_axis == "z" else slide_axis


def _file_pattern(files: Sequence[str]) -> str:
    """The names of one logger's files with {trial} for the part that varies.

    Where all names are the same, {trial} stands for the last number, or the name but its suffix.
    """
    names = [PurePosixPath(name).name for name in files]
    if len(set(names)) == 1:
        numbers = list(re.finditer(r"\d+", names[0]))
        if not numbers:
            return f"{{trial}}{PurePosixPath(names[0]).suffix}"
        last = numbers[-1]
        return f"{names[0][: last.start()]}{{trial}}{names[0][last.end() :]}"
    prefix = _common_prefix(names)
    suffix = _common_prefix([name[::-1] for name in names])[::-1]
    return f"{prefix.rstrip('0123456789')}{{trial}}{suffix.lstrip('0123456789')}"


def _common_prefix(words: Sequence[str]) -> str:
    """The letters with which all words begin."""
    prefix = ""
    for letters in zip(*words, strict=False):
        if len(set(letters)) > 1:
            break
        prefix += letters[0]
    return prefix


def _guess_logger(head: TableHead, fallback: str, rate: float) -> LoggerMapping:
    """Guess time, bodies, units and header fields of one logger.

    Args:
        head: The beginning of one of its files.
        fallback: Name of a body that the columns do not name.
        rate: Frames per second, or 0.
    """
    columns = head.columns
    time = _find_time(columns)
    is_counter = bool(time) and _counts_frames(time, columns[time])
    has_times = bool(time) and not is_counter
    if not has_times and not rate:
        problem = "no column looks like a time"
        if time:
            problem = f"column {time!r} counts frames and has no times"
        raise DataError(
            f"{problem}: give the number of frames per second"
            " (--rate 120, or rate = 120.0 in a mapping file)"
        )
    rows = len(columns[time]) if time else max(map(len, columns.values()))
    others = {
        name: values for name, values in columns.items() if name != time and len(values) == rows
    }
    bodies = find_bodies(others, fallback)
    of_bodies = {name for body in bodies for name in _columns_of(body)}
    found = find_joints({name: others[name] for name in others if name not in of_bodies})
    if not (bodies or found.joints or found.slides):
        names = ", ".join(list(columns)[:12])
        raise DataError(
            "no columns look like a position (x, y, z) or like joints (joint1, q1, elbow); "
            f"the columns are {names}; write a mapping file that names them, with a line such as "
            f'joints = {{ "hinge" = "{next(iter(others), "q1")}" }} below [[logs]]'
        )
    units = {"time": _time_unit(time, columns[time])} if has_times else {}
    used = of_bodies | {
        column_of(c, columns) for c in (*found.joints.values(), *found.slides.values())
    }
    signals = {name: name for name in others if name not in used and others[name].ndim == 1}
    if len(signals) > _MAX_SIGNALS:
        signals = {}
    header, moments = _header_fields(head.fields, columns[time] if time else None)
    return LoggerMapping(
        tuple(bodies),
        time=time,
        rate=0.0 if has_times else rate,
        joints=found.joints,
        slides=found.slides,
        signals=signals,
        units=units | _length_and_angle_units(bodies, found, columns),
        header_lines=head.header_lines,
        header=header,
        moments=moments,
    )


def _find_time(columns: Columns) -> str:
    """Name of the column of the time: the first that is named as one and rises, else that rises.

    Empty where no column rises.
    """
    for name, values in columns.items():
        is_named = _TIME_NAME.fullmatch(name.split("/")[-1]) is not None
        if values.ndim == 1 and is_named and _rises(values):
            return name
    for name, values in columns.items():
        if values.ndim == 1 and _rises(values) and len(values) > 2:
            return name
    return ""


def _rises(values: np.ndarray) -> bool:
    """Whether nearly all steps of a column (N,) are upwards."""
    steps = np.diff(values[np.isfinite(values)])
    return steps.size > 0 and float((steps > 0).mean()) > _MIN_RISING_SHARE


def _counts_frames(name: str, values: np.ndarray) -> bool:
    """Whether a column counts frames: whole numbers, most one above the last, no unit of time."""
    seen = values[np.isfinite(values)]
    if unit_in_name(name, _TIME_UNITS) or len(seen) <= 2:
        return False
    is_whole = bool((seen == np.round(seen)).all())
    return is_whole and float((np.diff(seen) == 1).mean()) > _MIN_RISING_SHARE


def _time_unit(name: str, values: np.ndarray) -> str:
    """The unit of a time, by its name, else by the usual step."""
    named = unit_in_name(name, _TIME_UNITS)
    if named:
        return named
    step = float(np.median(np.diff(values[np.isfinite(values)])))
    for unit, smallest_step in _LIKELY_TIME_UNITS:
        if step > smallest_step:
            return unit
    return "s"


def _columns_of(body: BodyMapping) -> list[str]:
    """Names of the columns of a body."""
    return [*body.position, *body.quaternion, *body.matrix, *body.euler, body.yaw]


def _length_and_angle_units(
    bodies: Sequence[BodyMapping], found: JointColumns, columns: Columns
) -> dict[str, str]:
    """Units of lengths and angles, by the names of columns, else by the size of the numbers."""
    lengths = [name for body in bodies for name in body.position] + list(found.slides.values())
    units = {}
    if lengths:
        length = unit_in_name(lengths[0], ("mm", "cm", "m"))
        if not length:
            ways = [np.atleast_2d(columns[name].T).T for name in lengths]
            usual_size = float(np.nanmedian(np.abs(np.concatenate(ways, 1)).max(1)))
            length = "mm" if usual_size > _MAX_METRES else "m"
        units["length"] = length
    angles = [name for body in bodies for name in (*body.euler, body.yaw) if name]
    angles += list(found.joints.values())
    if angles:
        named = unit_in_name(angles[0].split("[")[0], ("deg", "degrees", "rad"))
        largest = 0.0
        for name in angles:
            values = columns[column_of(name, columns)]
            largest = max(largest, float(np.nanmax(np.abs(values), initial=0)))
        only_joints = len(angles) == len(found.joints)
        likely = "deg" if largest > (_MAX_JOINT_RADIANS if only_joints else _MAX_RADIANS) else "rad"
        units["angle"] = named[:3] or likely  # "degrees" becomes "deg"
    return units


def _header_fields(
    fields: Columns, times: np.ndarray | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Fields before the header that hold one number: plain numbers, and times of the log.

    A field is a time if its name says so and its value is among `times` (N,). Both results map the
    name in the trial to the name in the file.
    """
    numbers: dict[str, str] = {}
    for name, values in fields.items():
        words = words_of(name)
        if values.size == 1 and words:
            numbers["_".join(words)] = name
    header: dict[str, str] = {}
    moments: dict[str, str] = {}
    for key, name in numbers.items():
        is_moment = False
        if times is not None and "time" in key:
            is_moment = bool(np.nanmin(times) <= fields[name].item() <= np.nanmax(times))
        if is_moment:
            moments[key] = name
        else:
            header[key] = name
    return header, moments
