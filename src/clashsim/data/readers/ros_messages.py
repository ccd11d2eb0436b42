"""Poses in robots' messages: PoseStamped, TransformStamped, TFMessage and Odometry of ROS 1 and 2,
and the same as JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from clashsim.core.errors import DataError
from clashsim.data.readers.bag_records import Message

# Name of the type without its package: whether it has a header, names of frames after that, and how
# many.
_KINDS = {
    "PoseStamped": (True, 0),
    "PoseWithCovarianceStamped": (True, 0),
    "TransformStamped": (True, 1),
    "Odometry": (True, 1),
    "Pose": (False, 0),
    "Transform": (False, 0),
}
_JSON = ("PoseInFrame", "FrameTransform", "PosesInFrame", "FrameTransforms")
_TEXT = 4096  # bytes of a frame's name
_MANY = 10_000  # transforms in one message


class Pose(NamedTuple):
    """One pose. stamp: s, 0 where the message has none. child: the frame it is of, empty where only
    the topic says so. values: x y z qx qy qz qw.
    """

    stamp: float
    parent: str
    child: str
    values: tuple[float, ...]


def wanted(kind: str) -> bool:
    """Whether messages of a type hold poses that are read."""
    return kind.split("/")[-1].split(".")[-1] in (*_KINDS, *_JSON, "TFMessage", "tfMessage")


def is_transform(kind: str) -> bool:
    """Whether a type names the frame that moves, so that the topic does not."""
    return kind.split("/")[-1].split(".")[-1] in (
        "TFMessage",
        "tfMessage",
        "TransformStamped",
        "FrameTransform",
        "FrameTransforms",
    )


def poses(message: Message) -> list[Pose]:
    """Poses of one message."""
    name = message.kind.split("/")[-1].split(".")[-1]
    try:
        if message.coding == "json":
            return list(_from_json(json.loads(message.data)))
        if message.coding not in ("cdr", "ros1"):
            raise DataError(
                f"topic {message.topic!r} is coded as {message.coding[:20]!r}; choices: cdr, ros1, json"
            )
        read = _Fields(message.data, message.coding == "cdr")
        if name in ("TFMessage", "tfMessage"):
            count = read.integer()
            if count > _MANY:
                raise DataError(f"a message on {message.topic!r} claims {count} transforms")
            return [_one(read, True, 1) for _ in range(count)]
        if name not in _KINDS:
            raise DataError(
                f"topic {message.topic!r} has type {message.kind[:60]!r}, which is read as JSON only"
            )
        return [_one(read, *_KINDS[name])]
    except (
        struct.error,
        UnicodeDecodeError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ):
        raise DataError(f"a message on {message.topic!r} is cut off or damaged") from None


def _one(read: _Fields, header: bool, names: int) -> Pose:
    stamp, parent, child = 0.0, "", ""
    if header:
        stamp, parent = read.stamp(), read.text()
        child = read.text() if names else ""
    return Pose(stamp, parent, child, read.doubles(7))


class _Fields:
    """Reads the fields of a message one after the other; CDR keeps each at a multiple of its size."""

    def __init__(self, data: bytes, cdr: bool) -> None:
        self.data, self.cdr, self.at = data, cdr, 0
        self.end = "<"
        if cdr:
            if len(data) < 4 or data[0] != 0 or data[1] not in (0, 1):
                raise ValueError
            self.end = "<" if data[1] else ">"
            self.data = data[4:]

    def integer(self) -> int:
        """An unsigned integer of 32 bits."""
        self._align(4)
        value = struct.unpack_from(f"{self.end}I", self.data, self.at)[0]
        self.at += 4
        return int(value)

    def stamp(self) -> float:
        """A header's time in s; ROS 1 has a counter before it."""
        if not self.cdr:
            self.integer()
        sec, nsec = self.integer(), self.integer()
        return sec + 1e-9 * nsec

    def text(self) -> str:
        """A name."""
        size = self.integer()
        if size > _TEXT or self.at + size > len(self.data):
            raise ValueError
        raw = self.data[self.at : self.at + size]
        self.at += size
        return raw.rstrip(b"\0").decode()

    def doubles(self, count: int) -> tuple[float, ...]:
        """Numbers of 64 bits."""
        self._align(8)
        values = struct.unpack_from(f"{self.end}{count}d", self.data, self.at)
        self.at += 8 * count
        return values

    def _align(self, size: int) -> None:
        if self.cdr:
            self.at += -self.at % size


def _from_json(raw: Any) -> Iterator[Pose]:
    """Poses of a JSON message with the fields of ROS or of Foxglove."""
    for inner in raw.get("transforms", [raw]):
        header = inner.get("header", inner)
        time = header.get("stamp", inner.get("timestamp", {}))
        stamp = float(time.get("sec", 0)) + 1e-9 * float(time.get("nanosec", time.get("nsec", 0)))
        pose = inner.get("pose", inner.get("transform", inner))
        pose = pose.get("pose", pose)  # with a covariance beside it
        place, turn = (
            pose.get("position", pose.get("translation")),
            pose.get("orientation", pose.get("rotation")),
        )
        parent = str(header.get("frame_id", inner.get("parent_frame_id", "")))
        yield Pose(
            stamp,
            parent,
            str(inner.get("child_frame_id", "")),
            tuple(float(v) for v in (*(place[a] for a in "xyz"), *(turn[a] for a in "xyzw"))),
        )
