"""A guess at the mapping of tables nobody described, from the names of their columns and a look at
their numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping as Table
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.checks.frames import falls, slides_about
from clashsim.data.readers.convert import from_columns
from clashsim.data.readers.mapping import BodyMapping, LoggerMapping, Mapping
from clashsim.data.readers.streams import Columns
from clashsim.data.readers.tables import cells_of, lines_of

Head = tuple[
    int, Columns, Columns
]  # lines before the header, the first rows of each column, fields of those lines
_TIME = re.compile(
    r"(.*[^a-z])?(t|time|timestamps?|stamp|ros_?time|secs?|seconds|elapsed|clock)([_ .\[(]*(s|ms|us|ns|sec|seconds)[\])]?)?",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"(?:[_ .]*[\[(]|[_ .])(mm|cm|m|deg|degrees|rad|s|ms|us|ns)[\])]?$", re.IGNORECASE
)
_POSITION = (
    "",
    "p",
    "pos",
    "position",
    "t",
    "trans",
    "translation",
    "loc",
    "location",
    "xyz",
    "c",
    "centre",
    "center",
)
_QUATERNION = ("q", "quat", "quaternion", "o", "ori", "orientation", "rot", "rotation", "r")
_LOOKED = 20  # files of a logger that are looked at for what is up
_YAW = ("yaw", "theta", "heading", "angle", "phi", "psi")


def header_lines(path: Path) -> int:
    """Lines of names and values before the header of a CSV file: those with another number of cells
    than the line below it.
    """
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        return 0
    lines = lines_of(path)
    counts = []
    for text in (next(lines, "") for _ in range(8)):
        counts.append(len(cells_of(text, max(",;\t", key=text.count))) if text.strip() else 0)
    return next(
        (i for i, (one, two) in enumerate(itertools.pairwise(counts)) if one > 1 and one == two), 0
    )


def guess(heads: Table[str, Head], rate: float = 0.0) -> Mapping:
    """A mapping for files by their heads: files with the same columns are one logger, and several
    loggers are joined by what varies in their names.

    rate: frames a second, where no column has times but one may count frames.
    """
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, (_, columns, _) in heads.items():
        kinds.setdefault(tuple(columns), []).append(name)
    found: list[tuple[LoggerMapping, list[str], Columns]] = []
    for names in kinds.values():
        lines, columns, fields = heads[names[0]]
        try:
            found.append(
                (
                    _log(
                        columns,
                        lines,
                        fields,
                        PurePosixPath(names[0]).stem if len(kinds) > 1 else "body",
                        rate,
                    ),
                    names,
                    columns,
                )
            )
        except DataError:
            if len(kinds) == 1:
                raise  # otherwise it is a table beside the logs, such as a list of trials
    if not found:
        raise DataError(
            "no file has columns that look like a time and a position; write a mapping file"
        )
    leans = [
        (_lean(columns[body.quaternion[0]]), body.order)
        for log, _, columns in found
        for body in log.bodies
        if len(body.quaternion) == 1
    ]
    order = max(leans, key=lambda lean: abs(lean[0]), default=(0.0, "wxyz"))[
        1
    ]  # of the clearest body: one laboratory has one convention
    logs = tuple(
        replace(
            _upright(log, order, [heads[name][1] for name in names]),
            files=_varying(names) if len(found) > 1 else "",
        )
        for log, names, _ in found
    )
    return Mapping(logs)


def _upright(log: LoggerMapping, order: str, files: list[Columns]) -> LoggerMapping:
    """A log with its quaternion order, and up as the axis against which a body falls in one of its
    files, or about which one turns as it slides.
    """
    log = replace(
        log,
        bodies=tuple(
            replace(body, order=order) if len(body.quaternion) == 1 else body for body in log.bodies
        ),
    )
    bare = replace(log, header={}, moments={})
    slid = ""
    for columns in files[:_LOOKED]:
        for stream in from_columns(columns, bare).streams:
            fall = falls(stream)
            if fall is not None and fall[0]:
                return (
                    log
                    if fall[0] == "-z"
                    else replace(log, up=fall[0][1] if fall[0][0] == "-" else f"-{fall[0][1]}")
                )
            pose = stream.pose[np.isfinite(stream.pose).all(1)]
            axis = slides_about(pose) if len(pose) >= 12 else None
            slid = slid or ("" if axis is None else "xyz"[axis])
    return log if slid in ("", "z") else replace(log, up=slid)


def _lean(quaternions: np.ndarray) -> float:
    """How much larger the first number of quaternions is than the last: the real part mostly is,
    for bodies that stand as they were defined.
    """
    size = np.nanmean(np.abs(quaternions), axis=0)
    return float(size[0] - size[3])


def _varying(names: list[str]) -> str:
    """The names of one logger's files with {trial} for the part that varies."""
    plain = [PurePosixPath(name).name for name in names]
    if len(set(plain)) == 1:
        found = list(re.finditer(r"\d+", plain[0]))
        return (
            f"{plain[0][: found[-1].start()]}{{trial}}{plain[0][found[-1].end() :]}"
            if found
            else f"{{trial}}{PurePosixPath(plain[0]).suffix}"
        )
    first, last = _common(plain), _common([name[::-1] for name in plain])[::-1]
    return f"{first.rstrip('0123456789')}{{trial}}{last.lstrip('0123456789')}"


def _common(words: list[str]) -> str:
    """The letters with which all words begin."""
    return "".join(
        letters[0]
        for letters in itertools.takewhile(
            lambda letters: len(set(letters)) == 1, zip(*words, strict=False)
        )
    )


def _log(
    columns: Columns, lines: int, fields: Columns, fallback: str, rate: float
) -> LoggerMapping:
    time = next(
        (
            name
            for name in columns
            if columns[name].ndim == 1
            and _TIME.fullmatch(name.split("/")[-1])
            and _rises(columns[name])
        ),
        "",
    )
    time = time or next(
        (
            name
            for name, values in columns.items()
            if values.ndim == 1 and _rises(values) and len(values) > 2
        ),
        "",
    )
    counts = bool(time) and _counts(time, columns[time])
    if (not time or counts) and not rate:
        said = (
            f"column {time!r} counts frames and has no times"
            if time
            else "no column looks like a time"
        )
        raise DataError(
            f"{said}: say how many frames there are in a second (--rate 120, or rate = 120.0 in a mapping file)"
        )
    rows = len(columns[time]) if time else max(map(len, columns.values()))
    bodies = _bodies(
        {name: values for name, values in columns.items() if name != time and len(values) == rows},
        fallback,
    )
    if not bodies:
        raise DataError(
            f"no columns look like a position (x, y, z); the columns are {', '.join(list(columns)[:12])}"
        )
    units = {} if counts or not time else {"time": _time_unit(time, columns[time])}
    places = np.concatenate(
        [np.column_stack([columns[name] for name in body.position]) for body in bodies], 1
    )
    units["length"] = _named_unit(bodies[0].position[0], ("mm", "cm", "m")) or (
        "mm" if float(np.nanmedian(np.abs(places).max(1))) > 30 else "m"
    )
    angles = [name for body in bodies for name in (*body.euler, body.yaw) if name]
    if angles:
        largest = max(float(np.nanmax(np.abs(columns[name]), initial=0)) for name in angles)
        named = _named_unit(angles[0], ("deg", "degrees", "rad"))
        units["angle"] = (named and named[:3]) or ("deg" if largest > 2 * np.pi + 0.1 else "rad")
    numbers = {
        "_".join(_words(name)): name
        for name, values in fields.items()
        if values.size == 1 and _words(name)
    }
    clock = {
        key
        for key, name in numbers.items()
        if time
        and np.nanmin(columns[time]) <= fields[name].item() <= np.nanmax(columns[time])
        and "time" in key
    }
    header, moments = (
        {k: v for k, v in numbers.items() if (k in clock) is inside} for inside in (False, True)
    )
    return LoggerMapping(
        tuple(bodies),
        time=time,
        rate=rate if counts or not time else 0.0,
        units=units,
        header_lines=lines,
        header=header,
        moments=moments,
    )


def _words(name: str) -> list[str]:
    """The words of a name written with blanks, underscores or capitals, in small letters."""
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])", name) if word]


def _bodies(columns: Columns, fallback: str) -> list[BodyMapping]:
    """Bodies whose columns share a stem: x y z (or one column of three), with a quaternion, three
    angles or a yaw where there are some.
    """
    split: dict[str, dict[str, str]] = {}
    for name, values in columns.items():
        bare = _UNIT.sub("", name) if len(name) > 2 else name
        lower = _words(bare)
        if not lower:
            continue
        keys: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = []
        if values.ndim == 2 and values.shape[1] in (3, 4):
            part = next(
                (
                    i
                    for i, w in enumerate(lower)
                    if w in (_POSITION if values.shape[1] == 3 else _QUATERNION) and w
                ),
                None,
            )
            if part is not None:
                keys = [
                    (
                        tuple(lower[:part]),
                        "position" if values.shape[1] == 3 else "quaternion",
                        tuple(lower[part + 1 :]),
                    )
                ]
        elif values.ndim == 1:
            joined = "_".join(lower[-2:])
            last = lower[-1]
            if joined in ("euler_x", "euler_y", "euler_z"):
                keys = [(tuple(lower[:-2]), f"r{last}", ())]
            elif last in ("roll", "pitch", *_YAW, "rx", "ry", "rz"):
                keys = [(tuple(lower[:-1]), last, ())]
            elif last in ("x", "y", "z", "w") and len(lower) > 1 and lower[-2] in _QUATERNION:
                keys = [(tuple(lower[:-2]), f"q{last}", ())]
            elif last in ("qx", "qy", "qz", "qw"):
                keys = [(tuple(lower[:-1]), last, ())]
            elif last in ("x", "y", "z"):
                keys = [
                    (
                        tuple(
                            lower[:-2] if len(lower) > 1 and lower[-2] in _POSITION else lower[:-1]
                        ),
                        last,
                        (),
                    )
                ]
            elif last in ("px", "py", "pz", "tx", "ty", "tz"):
                keys = [(tuple(lower[:-1]), last[1], ())]
        for before, what, after in keys:
            split.setdefault("_".join((*before, *after)), {}).setdefault(what, name)
    bodies = []
    for stem, parts in split.items():
        position = (
            (parts["position"],)
            if "position" in parts
            else tuple(parts[a] for a in "xyz" if a in parts)
        )
        if "position" not in parts and not {"x", "y"} <= parts.keys():
            continue
        bodies.append(_body(stem or fallback, position, parts, columns))
    return bodies


def _body(
    name: str, position: tuple[str, ...], parts: dict[str, str], columns: Columns
) -> BodyMapping:
    if {"qx", "qy", "qz", "qw"} <= parts.keys():
        return BodyMapping(name, position, quaternion=tuple(parts[f"q{a}"] for a in "wxyz"))
    if "quaternion" in parts:
        return BodyMapping(
            name,
            position,
            quaternion=(parts["quaternion"],),
            order="wxyz" if _lean(columns[parts["quaternion"]]) > 0 else "xyzw",
        )
    for three in (("roll", "pitch", "yaw"), ("rx", "ry", "rz")):
        if set(three) <= parts.keys():
            return BodyMapping(name, position, euler=tuple(parts[a] for a in three), sequence="xyz")
    yaw = next((parts[a] for a in _YAW if a in parts), "")
    return BodyMapping(name, position, yaw=yaw)


def _counts(name: str, values: np.ndarray) -> bool:
    """Whether a column counts frames: whole numbers, most one above the last, and no unit of time
    in its name.
    """
    seen = values[np.isfinite(values)]
    return (
        not _named_unit(name, ("s", "ms", "us", "ns"))
        and len(seen) > 2
        and bool((seen == np.round(seen)).all())
        and float((np.diff(seen) == 1).mean()) > 0.9
    )


def _rises(values: np.ndarray) -> bool:
    steps = np.diff(values[np.isfinite(values)])
    return steps.size > 0 and float((steps > 0).mean()) > 0.9


def _named_unit(name: str, choices: tuple[str, ...]) -> str:
    match = _UNIT.search(name)
    return match[1].lower() if match and match[1].lower() in choices else ""


def _time_unit(name: str, values: np.ndarray) -> str:
    step = float(np.median(np.diff(values[np.isfinite(values)])))
    likely = next(
        (unit for unit, least in (("ns", 5e4), ("us", 50), ("ms", 0.4)) if step > least), "s"
    )
    return _named_unit(name, ("s", "ms", "us", "ns")) or likely
