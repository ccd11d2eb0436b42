"""The mapping file: which columns of a lab's logs are the time, position and orientation of which
body, and in what units.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from clashsim.core.errors import DataError
from clashsim.core.parsing import TOML_BYTES, parse_toml, read_bounded
from clashsim.core.typed import build_dataclass

TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
LENGTH = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "in": 0.0254}
ANGLE = {"rad": 1.0, "deg": 0.017453292519943295}
UP = ("z", "y", "x", "-z", "-y", "-x")
ORDERS = ("wxyz", "xyzw")


@dataclass(frozen=True)
class BodyMapping:
    """One body: its name in the trials and where a log has it.

    A column is `name`, `name[i]` or `name[i:j]` where a column holds vectors. position: 3 numbers,
    or 2 on a plane. Of quaternion (4 numbers in `order`), euler (3 angles turned in `sequence`,
    capitals about the body's axes as in scipy) and yaw (1 angle about up) at most one is given.
    source: the name a self-describing format (Motive, Vicon, bags) has for it. markers: C3D labels
    with their places on the body, in the log's unit of length, or none ([]) to take the body's
    frame from the first whole frame.
    """

    name: str
    position: tuple[str, ...] = ()
    quaternion: tuple[str, ...] = ()
    order: str = "wxyz"
    euler: tuple[str, ...] = ()
    sequence: str = "XYZ"
    yaw: str = ""
    source: str = ""
    markers: Table[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class LoggerMapping:
    """One logger. files: a pattern with {trial} (and * and ?), empty for all files; offset: s added
    to its clock.

    rate: Hz, where no column is the time, or where that column counts frames.
    header_lines: lines of `name,value,name,value` before the names of the columns; header and
    moments take numbers from them, by name in the trial, moments being times of the logger's clock.
    units: time, length and angle. up: the file's axis that points up; flip: axes whose positions
    are written with the wrong sign.
    """

    bodies: tuple[BodyMapping, ...] = ()
    files: str = ""
    time: str = ""
    rate: float = 0.0
    offset: float = 0.0
    header_lines: int = 0
    header: Table[str, str] = field(default_factory=dict)
    moments: Table[str, str] = field(default_factory=dict)
    signals: Table[str, str] = field(default_factory=dict)
    units: Table[str, str] = field(default_factory=dict)
    up: str = ""
    flip: tuple[str, ...] = ()

    def unit(self, kind: str, default: str) -> float:
        """SI value of the unit of `time`, `length` or `angle`."""
        return {"time": TIME, "length": LENGTH, "angle": ANGLE}[kind][self.units.get(kind, default)]


@dataclass(frozen=True)
class Mapping:
    """How to read a lab's logs: one entry per logger, and numbers known for every trial."""

    logs: tuple[LoggerMapping, ...] = (LoggerMapping(),)
    known: Table[str, float] = field(default_factory=dict)


def load(path: Path | str) -> Mapping:
    """A mapping from a TOML file."""
    path = Path(path)
    content = read_bounded(path, f"mapping file {str(path)!r}", limit=TOML_BYTES)
    try:
        return loads(content)
    except DataError as error:
        raise DataError(f"in {path.name!r}: {error}") from None


def loads(text: str | bytes) -> Mapping:
    """A mapping from TOML text."""
    mapping: Mapping = build_dataclass(Mapping, parse_toml(text, "the mapping"))
    for log in mapping.logs:
        _check(log)
    if len(mapping.logs) > 1 and any("{trial}" not in log.files for log in mapping.logs):
        raise DataError("with several logs, each needs `files`, a pattern with {trial} in it")
    if not mapping.logs:
        raise DataError("the mapping has no [[logs]]")
    return mapping


def dump(mapping: Mapping) -> str:
    """A mapping as TOML text that `loads` reads back as the same mapping."""
    lines = _lines(mapping, "")
    return "\n".join(lines).strip() + "\n"


def _check(log: LoggerMapping) -> None:
    for kind, choices in (("time", TIME), ("length", LENGTH), ("angle", ANGLE)):
        if log.units.get(kind, next(iter(choices))) not in choices:
            raise DataError(
                f"the unit of {kind} is {log.units[kind]!r}; choices: {', '.join(choices)}"
            )
    if unknown := set(log.units) - {"time", "length", "angle"}:
        raise DataError(f"units has {sorted(unknown)[0]!r}; choices: time, length, angle")
    if log.up and log.up not in UP:
        raise DataError(f"up is {log.up!r}; choices: {', '.join(UP)}")
    if any(axis not in ("x", "y", "z") for axis in log.flip):
        raise DataError(f"flip is {list(log.flip)}; choices: x, y, z")
    if not 0 <= log.header_lines <= 100 or not 0 <= log.rate < 1e7 or not abs(log.offset) < 1e12:
        raise DataError(
            "header_lines must be 0 to 100, rate 0 to 1e7 Hz and offset a number of seconds"
        )
    if len(log.files) > 200 or log.files.count("*") > 4:  # more could take for ever to match
        raise DataError(f"files is {log.files[:40]!r}; it may have 200 letters and four *")
    if log.files.count("{trial}") > 1:
        raise DataError(f"files is {log.files!r}; it needs {{trial}} once")
    names = [body.name for body in log.bodies]
    if "" in names:
        raise DataError("a body needs a name that is not empty")
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise DataError(f"two bodies of one log are both called {twice!r}")
    for body in log.bodies:
        if sum(map(bool, (body.quaternion, body.euler, body.yaw))) > 1:
            raise DataError(f"body {body.name!r} has more than one of quaternion, euler and yaw")
        if body.order not in ORDERS:
            raise DataError(
                f"body {body.name!r} has order {body.order!r}; choices: {', '.join(ORDERS)}"
            )
        if (
            len(body.sequence) != 3
            or len(set(body.sequence.lower()) - set("xyz"))
            or body.sequence not in (body.sequence.lower(), body.sequence.upper())
            or any(a == b for a, b in zip(body.sequence, body.sequence[1:], strict=False))
        ):
            raise DataError(
                f"body {body.name!r} has sequence {body.sequence!r}; it needs three axes such as XYZ or zyx"
            )
        if any(len(place) not in (0, 3) for place in body.markers.values()):
            raise DataError(
                f"body {body.name!r} needs three numbers for the place of each marker, or none"
            )


def _lines(item: Any, place: str) -> list[str]:
    """A dataclass as TOML: plain entries first, then the tables inside it."""
    kind = type(item)
    plain: list[str] = []
    nested: list[str] = []
    for f in fields(kind):
        value = getattr(item, f.name)
        default = f.default if f.default is not f.default_factory else None
        if isinstance(value, tuple) and value and isinstance(value[0], LoggerMapping | BodyMapping):
            for entry in value:
                nested += ["", f"[[{place}{f.name}]]", *_lines(entry, f"{place}{f.name}.")]
        elif value != () and value != {} and value != default:
            plain.append(f"{f.name} = {_text(value)}")
    return plain + nested


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_text(str(k))} = {_text(v)}" for k, v in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return (
            _text(value[0])
            if len(value) == 1 and isinstance(value[0], str)
            else "[" + ", ".join(map(_text, value)) + "]"
        )
    if isinstance(value, str):
        escaped = "".join(
            f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c
            for c in value.replace("\\", "\\\\").replace('"', '\\"')
        )
        return f'"{escaped}"'
    return repr(value)
