"""The bytes of a C3D file: its parameters, and labelled markers frame by frame."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.mapping import LENGTH_UNITS, UP_AXES

MAX_BYTES = 1 << 30  # of one file
_BLOCK_BYTES = 512  # positions in a file are given as numbers of blocks, counted from 1
_SIGNATURE = 0x50  # second byte of every file
_POINT_NUMBERS = 4  # of a marker in a frame: x, y, z, and a number that is negative if it is lost
_MAX_PARAMETERS = 10_000
# Kinds of processors that wrote a file, which decide how its numbers are represented.
_LITTLE_ENDIAN = 84
_DEC = 85
_BIG_ENDIAN = 86
_PROCESSORS = (_LITTLE_ENDIAN, _DEC, _BIG_ENDIAN)
# Types of parameters.
_TEXT = -1
_INTEGER = 2
_REAL = 4
# Number of the last frame in a header that is too small for it; a parameter gives it then.
_NO_LAST_FRAME = 0xFFFF
_MAX_RATE = 1e7  # Hz
_LABEL_PARAMETERS = ("POINT:LABELS", *(f"POINT:LABELS{i}" for i in range(2, 9)))
_DAMAGED = "the file is not C3D, or it is cut off or damaged"


@dataclass(frozen=True, eq=False)
class MarkerRecording:
    """The markers of a C3D file.

    Attributes:
        t: Times (T,), s.
        labels: Labels of the M markers.
        points: Positions (T, M, 3) in the unit `length`; NaN where a marker is not seen.
        length: Unit of length.
        up: The axis that points up.
    """

    t: np.ndarray
    labels: list[str]
    points: np.ndarray
    length: str
    up: str


class _Parameter(NamedTuple):
    """Type, dimensions and data of a parameter."""

    kind: int
    sizes: list[int]
    data: bytes


_NO_PARAMETER = _Parameter(0, [], b"")


@dataclass(frozen=True)
class _NumberFormat:
    """How the processor that wrote a file represents numbers."""

    processor: int

    @property
    def byte_order(self) -> str:
        """< or >, as struct and numpy have it."""
        return ">" if self.processor == _BIG_ENDIAN else "<"

    def integers(self, data: bytes) -> np.ndarray:
        """16-bit integers (n,)."""
        return np.frombuffer(data, f"{self.byte_order}i2")

    def reals(self, data: bytes) -> np.ndarray:
        """32-bit floating-point numbers (n,).

        A DEC machine stores the two 16-bit halves in reverse order, and an exponent that is higher
        by two, so its numbers come out four times too large.
        """
        if self.processor != _DEC:
            return np.frombuffer(data, f"{self.byte_order}f4").astype(float)
        halves = np.frombuffer(data, "<u2").reshape(-1, 2)[:, ::-1]
        return np.ascontiguousarray(halves).view("<f4").ravel().astype(float) / 4

    def unpack(self, layout: str, data: bytes) -> tuple[int, ...]:
        """Integers in a layout of the module `struct`, without its byte order."""
        return struct.unpack(f"{self.byte_order}{layout}", data)


class _Parameters:
    """Parameters of a file by "GROUP:NAME"."""

    def __init__(self, values: Mapping[str, _Parameter], numbers: _NumberFormat) -> None:
        self._values = values
        self._numbers = numbers

    def texts(self, name: str) -> list[str]:
        """Texts of a parameter; none where it is absent."""
        parameter = self._values.get(name, _NO_PARAMETER)
        if parameter.kind != _TEXT or not parameter.sizes or not parameter.sizes[0]:
            return []
        width = parameter.sizes[0]
        data = parameter.data
        pieces = [data[i : i + width] for i in range(0, len(data), width)]
        return [piece.decode("latin-1").strip("\0 ") for piece in pieces]

    def first_text(self, name: str, default: str) -> str:
        """The first text of a parameter, or a default; in lower case."""
        return (self.texts(name) or [default])[0].lower()

    def numbers(self, name: str) -> np.ndarray:
        """Numbers (n,) of a parameter; none where it is absent."""
        parameter = self._values.get(name, _NO_PARAMETER)
        if parameter.kind == _REAL:
            return self._numbers.reals(parameter.data)
        if parameter.kind == _INTEGER:
            return self._numbers.integers(parameter.data).astype(float)
        return np.empty(0)


class _Header(NamedTuple):
    """What the first block of a file says of its frames.

    Attributes:
        markers: Number of markers.
        analog: Number of analog values after the markers of each frame.
        first_frame: Number of the first frame.
        last_frame: Number of the last frame.
        scale: Factor of positions that are integers; negative where they are real numbers.
        data_start: Position of the first frame in the file, bytes.
        rate: Frames per second.
    """

    markers: int
    analog: int
    first_frame: int
    last_frame: int
    scale: float
    data_start: int
    rate: float


def read_markers(path: Path) -> MarkerRecording:
    """Read the markers of a C3D file; raises a DataError for a damaged one."""
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"the file has more than {MAX_BYTES / 1e9:.1f} GB")
    content = path.read_bytes()
    try:
        return _parse(content)
    except (struct.error, ValueError, IndexError, OverflowError, ZeroDivisionError, TypeError):
        raise DataError(_DAMAGED) from None


def _parse(content: bytes) -> MarkerRecording:
    """Parse a file: a header block, blocks of parameters, and blocks of frames."""
    if len(content) < 2 * _BLOCK_BYTES or content[1] != _SIGNATURE:
        raise DataError(_DAMAGED)
    parameters_start = (content[0] - 1) * _BLOCK_BYTES
    numbers = _NumberFormat(processor=content[parameters_start + 3])
    if numbers.processor not in _PROCESSORS:
        raise DataError(_DAMAGED)
    parameters = _read_parameters(content, parameters_start + 4, numbers)
    header = _read_header(content, numbers)
    frames = _count_frames(header, parameters)
    rates = parameters.numbers("POINT:RATE")
    rate = float(rates[0]) if len(rates) else header.rate
    has_frames = header.markers and frames > 0 and header.data_start > 0
    if not (0 < rate < _MAX_RATE and has_frames):
        raise DataError("the file holds no frames of markers")
    points = _read_points(content, header, frames, numbers)
    labels: list[str] = []
    for name in _LABEL_PARAMETERS:
        labels += parameters.texts(name)
    labels = labels[: header.markers]
    duplicate = next((label for label in labels if labels.count(label) > 1), None)
    if duplicate is not None:
        raise DataError(f"two markers are both called {duplicate!r}")
    length = parameters.first_text("POINT:UNITS", "mm")
    up = parameters.first_text("POINT:Y_SCREEN", "+Z").removeprefix("+")
    return MarkerRecording(
        t=(np.arange(frames) + header.first_frame - 1) / rate,
        labels=labels,
        points=points[:, : len(labels)],
        length=length if length in LENGTH_UNITS else "mm",
        up=up if up in UP_AXES else "z",
    )


def _read_header(content: bytes, numbers: _NumberFormat) -> _Header:
    markers, analog, first_frame, last_frame, _ = numbers.unpack("5H", content[2:12])
    (data_block,) = numbers.unpack("H", content[16:18])
    return _Header(
        markers=markers,
        analog=analog,
        first_frame=first_frame,
        last_frame=last_frame,
        scale=float(numbers.reals(content[12:16])[0]),
        data_start=(data_block - 1) * _BLOCK_BYTES,
        rate=float(numbers.reals(content[20:24])[0]),
    )


def _count_frames(header: _Header, parameters: _Parameters) -> int:
    """How many frames a file claims to have."""
    last_frame = header.last_frame
    if last_frame == _NO_LAST_FRAME:
        halves = parameters.numbers("TRIAL:ACTUAL_END_FIELD")  # low and high 16 bits
        if len(halves) == 2:
            last_frame = int(halves[0]) % 65536 + 65536 * (int(halves[1]) % 65536)
    return last_frame - header.first_frame + 1


def _read_points(
    content: bytes, header: _Header, frames: int, numbers: _NumberFormat
) -> np.ndarray:
    """Positions (T, M, 3) in the file's unit, NaN where a marker is not seen."""
    is_real = header.scale < 0
    number_bytes = 4 if is_real else 2
    marker_numbers = header.markers * _POINT_NUMBERS
    frame_numbers = marker_numbers + header.analog
    data_end = header.data_start + frames * frame_numbers * number_bytes
    if data_end > len(content):
        raise DataError(
            f"the file is cut off: it promises {frames} frames of {header.markers} markers"
        )
    raw = content[header.data_start : data_end]
    values = numbers.reals(raw) if is_real else numbers.integers(raw)
    markers = values.reshape(frames, frame_numbers)[:, :marker_numbers]
    markers = markers.reshape(frames, header.markers, _POINT_NUMBERS)
    is_lost = markers[:, :, 3] < 0
    points = markers[:, :, :3].astype(float) * (1.0 if is_real else header.scale)
    points[is_lost | ~np.isfinite(points).all(2)] = np.nan
    return points


def _read_parameters(content: bytes, position: int, numbers: _NumberFormat) -> _Parameters:
    """All parameters of a file, whose entries begin at `position`.

    An entry with a negative number is a group; its parameters have the same number, positive.
    """
    groups: dict[int, str] = {}
    found: dict[tuple[int, str], _Parameter] = {}
    for _ in range(_MAX_PARAMETERS):
        name_length, group = struct.unpack("bb", content[position : position + 2])
        name_end = position + 2 + abs(name_length)
        name = content[position + 2 : name_end].decode("latin-1").upper()
        (step,) = numbers.unpack("h", content[name_end : name_end + 2])  # to the next entry, bytes
        if name_length == 0:
            break
        if group < 0:
            groups[-group] = name
        else:
            kind, dimensions = struct.unpack("bB", content[name_end + 2 : name_end + 4])
            data_start = name_end + 4 + dimensions
            sizes = list(content[name_end + 4 : data_start])
            size = abs(kind) * int(np.prod(sizes, dtype=object))
            data = content[data_start : data_start + size]
            found[group, name] = _Parameter(kind, sizes, data)
        if step <= 0:
            break
        position = name_end + step
    values = {}
    for (group, name), parameter in found.items():
        values[f"{groups.get(group, group)}:{name}"] = parameter
    return _Parameters(values, numbers)
