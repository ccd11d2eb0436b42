"""A guess at the mapping of tables nobody described, from the names of their columns and a look at their numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping as Table
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.mapping import BodyMap, LogMap, Mapping
from clashsim.data.streams import Columns
from clashsim.data.tables import cells_of, lines_of

Head = tuple[int, Columns, Columns]  # lines before the header, the first rows of each column, fields of those lines
_TIME = re.compile(r"(.*[^a-z])?(t|time|timestamps?|stamp|ros_?time|secs?|seconds|elapsed|clock)([_ .\[(]*(s|ms|us|ns|sec|seconds)[\])]?)?", re.IGNORECASE)
_UNIT = re.compile(r"(?:[_ .]*[\[(]|[_ .])(mm|cm|m|deg|degrees|rad|s|ms|us|ns)[\])]?$", re.IGNORECASE)
_POSITION = ("", "p", "pos", "position", "t", "trans", "translation", "loc", "location", "xyz", "c", "centre", "center")
_QUATERNION = ("q", "quat", "quaternion", "o", "ori", "orientation", "rot", "rotation", "r")
_YAW = ("yaw", "theta", "heading", "angle", "phi", "psi")


def header_lines(path: Path) -> int:
    """Lines of names and values before the header of a CSV file: those with another number of cells than the line below it."""
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        return 0
    lines = lines_of(path)
    counts = []
    for text in (next(lines, "") for _ in range(8)):
        counts.append(len(cells_of(text, max(",;\t", key=text.count))) if text.strip() else 0)
    return next((i for i, (one, two) in enumerate(itertools.pairwise(counts)) if one > 1 and one == two), 0)


def guess(heads: Table[str, Head]) -> Mapping:
    """A mapping for files by their heads: files with the same columns are one logger, and several loggers are joined by what varies in their names."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, (_, columns, _) in heads.items():
        kinds.setdefault(tuple(columns), []).append(name)
    logs = []
    for names in kinds.values():
        lines, columns, _ = heads[names[0]]
        try:
            log = _log(columns, lines, f"{PurePosixPath(names[0]).stem}" if len(kinds) > 1 else "")
        except DataError:
            if len(kinds) == 1:
                raise
            continue  # a table beside the logs, such as a list of trials
        logs.append((log, names))
    if not logs:
        raise DataError("no file has columns that look like a time and a position; write a mapping file")
    if len(logs) == 1:
        return Mapping((logs[0][0],))
    return Mapping(tuple(replace(log, files=_varying(names)) for log, names in logs))


def _varying(names: list[str]) -> str:
    """The names of one logger's files with {trial} for the part that varies."""
    plain = [PurePosixPath(name).name for name in names]
    if len(set(plain)) == 1:
        found = list(re.finditer(r"\d+", plain[0]))
        return f"{plain[0][: found[-1].start()]}{{trial}}{plain[0][found[-1].end() :]}" if found else f"{{trial}}{PurePosixPath(plain[0]).suffix}"
    first, last = _common(plain), _common([name[::-1] for name in plain])[::-1]
    return f"{first.rstrip('0123456789')}{{trial}}{last.lstrip('0123456789')}"


def _common(words: list[str]) -> str:
    """The letters with which all words begin."""
    return "".join(letters[0] for letters in itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*words, strict=False)))


def _log(columns: Columns, lines: int, fallback: str) -> LogMap:
    time = next((name for name in columns if columns[name].ndim == 1 and _TIME.fullmatch(name.split("/")[-1]) and _rises(columns[name])), "")
    time = time or next((name for name, values in columns.items() if values.ndim == 1 and _rises(values) and len(values) > 2), "")
    if not time:
        raise DataError("no column looks like a time; write a mapping file")
    rows = len(columns[time])
    bodies = _bodies({name: values for name, values in columns.items() if name != time and len(values) == rows}, fallback or "body")
    if not bodies:
        raise DataError(f"no columns look like a position (x, y, z); the columns are {', '.join(list(columns)[:12])}")
    units = {"time": _time_unit(time, columns[time])}
    places = np.concatenate([np.column_stack([columns[name] for name in body.position]) for body in bodies], 1)
    units["length"] = _named_unit(bodies[0].position[0], ("mm", "cm", "m")) or ("mm" if float(np.nanmedian(np.abs(places).max(1))) > 30 else "m")
    angles = [name for body in bodies for name in (*body.euler, body.yaw) if name]
    if angles:
        largest = max(float(np.nanmax(np.abs(columns[name]), initial=0)) for name in angles)
        named = _named_unit(angles[0], ("deg", "degrees", "rad"))
        units["angle"] = (named and named[:3]) or ("deg" if largest > 2 * np.pi + 0.1 else "rad")
    return LogMap(tuple(bodies), time=time, units=units, header_lines=lines)


def _bodies(columns: Columns, fallback: str) -> list[BodyMap]:
    """Bodies whose columns share a stem: x y z (or one column of three), with a quaternion, three angles or a yaw where there are some."""
    split: dict[str, dict[str, str]] = {}
    for name, values in columns.items():
        bare = _UNIT.sub("", name) if len(name) > 2 else name
        words = [w for w in re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])", bare) if w]
        if not words:
            continue
        lower = [w.lower() for w in words]
        keys: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = []
        if values.ndim == 2 and values.shape[1] in (3, 4):
            part = next((i for i, w in enumerate(lower) if w in (_POSITION if values.shape[1] == 3 else _QUATERNION) and w), None)
            if part is not None:
                keys = [(tuple(lower[:part]), "position" if values.shape[1] == 3 else "quaternion", tuple(lower[part + 1 :]))]
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
                keys = [(tuple(lower[:-2] if len(lower) > 1 and lower[-2] in _POSITION else lower[:-1]), last, ())]
            elif last in ("px", "py", "pz", "tx", "ty", "tz"):
                keys = [(tuple(lower[:-1]), last[1], ())]
        for before, what, after in keys:
            split.setdefault("_".join((*before, *after)), {}).setdefault(what, name)
    bodies = []
    for stem, parts in split.items():
        position = (parts["position"],) if "position" in parts else tuple(parts[a] for a in "xyz" if a in parts)
        if "position" not in parts and not {"x", "y"} <= parts.keys():
            continue
        bodies.append(_body(stem or fallback, position, parts, columns))
    return bodies


def _body(name: str, position: tuple[str, ...], parts: dict[str, str], columns: Columns) -> BodyMap:
    if {"qx", "qy", "qz", "qw"} <= parts.keys():
        return BodyMap(name, position, quaternion=tuple(parts[f"q{a}"] for a in "wxyz"))
    if "quaternion" in parts:
        q = np.abs(np.nanmean(np.abs(columns[parts["quaternion"]]), axis=0))
        return BodyMap(name, position, quaternion=(parts["quaternion"],), order="wxyz" if q[0] > q[3] else "xyzw")
    for three in (("roll", "pitch", "yaw"), ("rx", "ry", "rz")):
        if set(three) <= parts.keys():
            return BodyMap(name, position, euler=tuple(parts[a] for a in three), sequence="xyz")
    yaw = next((parts[a] for a in _YAW if a in parts), "")
    return BodyMap(name, position, yaw=yaw)


def _rises(values: np.ndarray) -> bool:
    steps = np.diff(values[np.isfinite(values)])
    return steps.size > 0 and float((steps > 0).mean()) > 0.9


def _named_unit(name: str, choices: tuple[str, ...]) -> str:
    match = _UNIT.search(name)
    return match[1].lower() if match and match[1].lower() in choices else ""


def _time_unit(name: str, values: np.ndarray) -> str:
    step = float(np.median(np.diff(values[np.isfinite(values)])))
    likely = next((unit for unit, least in (("ns", 5e4), ("us", 50), ("ms", 0.4)) if step > least), "s")
    return _named_unit(name, ("s", "ms", "us", "ns")) or likely
