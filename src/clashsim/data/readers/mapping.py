"""The mapping file: which columns of a lab's logs hold the pose of which body, in which units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from clashsim.core.errors import DataError
from clashsim.core.parsing import TOML_BYTES, parse_toml, read_bounded
from clashsim.core.typed import build_dataclass

TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
LENGTH_UNITS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "in": 0.0254}
ANGLE_UNITS = {"rad": 1.0, "deg": 0.017453292519943295}
_UNITS = {"time": TIME_UNITS, "length": LENGTH_UNITS, "angle": ANGLE_UNITS}
UP_AXES = ("z", "y", "x", "-z", "-y", "-x")
QUATERNION_ORDERS = ("wxyz", "xyzw")
MATRIX_ORDERS = ("rows", "columns")

_MAX_HEADER_LINES = 100
_MAX_RATE = 1e7  # Hz
_MAX_OFFSET = 1e12  # s
_MAX_PATTERN_LENGTH = 200
_MAX_STARS = 4  # in a pattern: with more, matching could take very long


@dataclass(frozen=True)
class BodyMapping:
    """One body: its name in the trials, and the columns of a log that hold its pose.

    A column is given as `name`, or as `name[i]` or `name[i:j]` for some numbers of a column that
    holds vectors. At most one of quaternion, matrix, euler and yaw is given.

    Attributes:
        name: Name in the trials.
        position: Columns of 3 numbers, or of 2 on a plane.
        quaternion: Columns of 4 numbers.
        order: Order of the quaternion, wxyz or xyzw.
        matrix: Columns of the 9 numbers of a rotation matrix, whose columns are the body's axes in
            those of the world.
        matrix_order: Whether the 9 numbers are its rows or its columns one after the other.
        euler: Columns of 3 angles.
        sequence: Axes of those angles as in scipy: capitals for axes of the body, small letters for
            axes of the world.
        yaw: Column of 1 angle about the axis that points up.
        source: The name that a self-describing format (Motive, Vicon, bags) has for the body.
        markers: Positions of the C3D markers on the body by label, in the log's unit of length.
            With no numbers ([]), the body's axes are those of the world in the first frame of the
            recording that shows all markers.
    """

    name: str
    position: tuple[str, ...] = ()
    quaternion: tuple[str, ...] = ()
    order: str = "wxyz"
    matrix: tuple[str, ...] = ()
    matrix_order: str = "rows"
    euler: tuple[str, ...] = ()
    sequence: str = "XYZ"
    yaw: str = ""
    source: str = ""
    markers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def source_name(self) -> str:
        """The name of the body in a file that describes itself."""
        return self.source or self.name


@dataclass(frozen=True)
class LoggerMapping:
    """One logger.

    Attributes:
        bodies: The bodies it records.
        files: Pattern of its file names with {trial} (and * and ?); empty for all files.
        time: Column of the time.
        rate: Frames per second, where no column is the time or that column counts frames.
        offset: Time added to its clock, s.
        header_lines: Number of lines `name,value,name,value` before the names of the columns.
        header: Numbers taken from those lines: names in the file by name in the trial.
        moments: Times of events on the logger's clock, taken from those lines in the same way.
        signals: Further columns by name in the trial.
        joints: Columns of joint angles, in the unit of angles, by the joint's name in the scene.
        slides: Columns of joints that slide, in the unit of lengths, likewise.
        units: Units by kind: time, length and angle.
        up: The axis of the file that points up.
        flip: Axes whose positions are written with the wrong sign.
        camera: Camera file of videos and folders of frames; in a mapping file, its path from there.
    """

    bodies: tuple[BodyMapping, ...] = ()
    files: str = ""
    time: str = ""
    rate: float = 0.0
    offset: float = 0.0
    header_lines: int = 0
    header: Mapping[str, str] = field(default_factory=dict)
    moments: Mapping[str, str] = field(default_factory=dict)
    signals: Mapping[str, str] = field(default_factory=dict)
    joints: Mapping[str, str] = field(default_factory=dict)
    slides: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    up: str = ""
    flip: tuple[str, ...] = ()
    camera: str = ""

    def unit(self, kind: str, default: str) -> float:
        """Factor that turns numbers of a kind (`time`, `length` or `angle`) into SI units.

        Args:
            kind: The kind.
            default: Name of the unit, where the mapping does not give it.
        """
        return _UNITS[kind][self.units.get(kind, default)]


@dataclass(frozen=True)
class LogMapping:
    """How to read a lab's logs: one entry per logger, and numbers known for every trial."""

    logs: tuple[LoggerMapping, ...] = (LoggerMapping(),)
    known: Mapping[str, float] = field(default_factory=dict)


def load(path: Path | str) -> LogMapping:
    """Read a mapping from a TOML file."""
    path = Path(path)
    content = read_bounded(path, f"mapping file {str(path)!r}", limit=TOML_BYTES)
    try:
        mapping = loads(content)
    except DataError as error:
        raise DataError(f"in {path.name!r}: {error}") from None
    logs = [
        replace(logger, camera=str(path.parent / logger.camera)) if logger.camera else logger
        for logger in mapping.logs
    ]
    return replace(mapping, logs=tuple(logs))


def with_camera(camera: Path | str, mapping: LogMapping | None = None) -> LogMapping:
    """A mapping whose loggers have a camera file, where they have none yet.

    Args:
        camera: The camera file.
        mapping: The mapping; None where the names of bodies are those of the camera file.
    """
    mapping = LogMapping() if mapping is None else mapping
    logs = [replace(logger, camera=logger.camera or str(camera)) for logger in mapping.logs]
    return replace(mapping, logs=tuple(logs))


def loads(text: str | bytes) -> LogMapping:
    """Read a mapping from TOML text."""
    mapping: LogMapping = build_dataclass(LogMapping, parse_toml(text, "the mapping"))
    for logger in mapping.logs:
        _check_logger(logger)
    has_trial = all("{trial}" in logger.files for logger in mapping.logs)
    if len(mapping.logs) > 1 and not has_trial:
        raise DataError("with several logs, each needs `files`, a pattern with {trial} in it")
    if not mapping.logs:
        raise DataError("the mapping has no [[logs]]")
    return mapping


def dump(mapping: LogMapping) -> str:
    """Write a mapping as TOML text that `loads` reads back as the same mapping."""
    return "\n".join(_toml_lines(mapping, "")).strip() + "\n"


def _check_logger(logger: LoggerMapping) -> None:
    """Raise a DataError for a value in the mapping that is not valid."""
    for kind, choices in _UNITS.items():
        unit = logger.units.get(kind)
        if unit is not None and unit not in choices:
            raise DataError(f"the unit of {kind} is {unit!r}; choices: {', '.join(choices)}")
    unknown = sorted(set(logger.units) - set(_UNITS))
    if unknown:
        raise DataError(f"units has {unknown[0]!r}; choices: {', '.join(_UNITS)}")
    if logger.up and logger.up not in UP_AXES:
        raise DataError(f"up is {logger.up!r}; choices: {', '.join(UP_AXES)}")
    if any(axis not in ("x", "y", "z") for axis in logger.flip):
        raise DataError(f"flip is {list(logger.flip)}; choices: x, y, z")
    numbers_fit = (
        0 <= logger.header_lines <= _MAX_HEADER_LINES
        and 0 <= logger.rate < _MAX_RATE
        and abs(logger.offset) < _MAX_OFFSET
    )
    if not numbers_fit:
        raise DataError(
            f"header_lines must be 0 to {_MAX_HEADER_LINES}, rate 0 to 1e7 Hz"
            " and offset a number of seconds"
        )
    if len(logger.files) > _MAX_PATTERN_LENGTH or logger.files.count("*") > _MAX_STARS:
        raise DataError(f"files is {logger.files[:40]!r}; it may have 200 letters and four *")
    if logger.files.count("{trial}") > 1:
        raise DataError(f"files is {logger.files!r}; it needs {{trial}} once")
    names = [body.name for body in logger.bodies]
    if "" in names:
        raise DataError("a body needs a name that is not empty")
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise DataError(f"two bodies of one log are both called {duplicate!r}")
    signals = [*logger.signals, *logger.joints, *logger.slides]
    duplicate = next((name for name in signals if signals.count(name) > 1), None)
    if duplicate is not None:
        raise DataError(
            f"{duplicate!r} is in two of signals, joints and slides: name it in one of them"
        )
    for body in logger.bodies:
        _check_body(body)


def _check_body(body: BodyMapping) -> None:
    """Raise a DataError for an orientation or markers that the mapping describes wrongly."""
    orientations = [body.quaternion, body.matrix, body.euler, body.yaw]
    if sum(bool(columns) for columns in orientations) > 1:
        raise DataError(f"body {body.name!r} has more than one of quaternion, matrix, euler, yaw")
    if body.matrix_order not in MATRIX_ORDERS:
        choices = ", ".join(MATRIX_ORDERS)
        order = body.matrix_order
        raise DataError(f"body {body.name!r} has matrix_order {order!r}; choices: {choices}")
    if body.order not in QUATERNION_ORDERS:
        choices = ", ".join(QUATERNION_ORDERS)
        raise DataError(f"body {body.name!r} has order {body.order!r}; choices: {choices}")
    if not _is_euler_sequence(body.sequence):
        raise DataError(
            f"body {body.name!r} has sequence {body.sequence!r};"
            " it needs three axes such as XYZ or zyx"
        )
    if any(len(position) not in (0, 3) for position in body.markers.values()):
        raise DataError(
            f"body {body.name!r} needs three numbers for the place of each marker, or none"
        )


def _is_euler_sequence(sequence: str) -> bool:
    """Whether three axes are all small letters or all capitals, and no two in a row are equal."""
    if len(sequence) != 3 or not set(sequence.lower()) <= set("xyz"):
        return False
    if sequence not in (sequence.lower(), sequence.upper()):
        return False
    return sequence[0] != sequence[1] and sequence[1] != sequence[2]


def _toml_lines(item: Any, prefix: str) -> list[str]:
    """The lines of a dataclass as TOML: plain entries first, then the tables inside it.

    Values that are the default are left out. `prefix` is the path of the table, with a dot.
    """
    plain: list[str] = []
    nested: list[str] = []
    for entry in fields(type(item)):
        value = getattr(item, entry.name)
        default = entry.default if entry.default is not entry.default_factory else None
        if isinstance(value, tuple) and value and isinstance(value[0], LoggerMapping | BodyMapping):
            name = f"{prefix}{entry.name}"
            for table in value:
                nested += ["", f"[[{name}]]", *_toml_lines(table, f"{name}.")]
        elif value != () and value != {} and value != default:
            plain.append(f"{entry.name} = {_toml_value(value)}")
    return plain + nested


def _toml_value(value: object) -> str:
    """A value as TOML; a list of one text is written as that text."""
    if isinstance(value, dict):
        pairs = [f"{_toml_value(str(key))} = {_toml_value(item)}" for key, item in value.items()]
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, str):
        return f'"{_escaped(value)}"'
    if isinstance(value, Sequence):
        if len(value) == 1 and isinstance(value[0], str):
            return _toml_value(value[0])
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)


def _escaped(text: str) -> str:
    """Text as it stands between the quotation marks of TOML."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(
        f"\\u{ord(letter):04x}" if ord(letter) < 32 or ord(letter) == 127 else letter
        for letter in text
    )
