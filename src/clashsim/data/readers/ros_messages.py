"""Poses, joints and forces in robots' messages.

Poses are in PoseStamped, TransformStamped, TFMessage and Odometry, joints in JointState, forces and
torques in WrenchStamped.

The messages may be coded as ROS 1 or ROS 2 does, or as JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from clashsim.core.errors import DataError
from clashsim.data.readers.bag_records import Message


class _Layout(NamedTuple):
    """Which fields stand before the seven numbers of a pose."""

    has_header: bool
    has_child_frame: bool


# By the name of the type without its package.
_LAYOUTS = {
    "PoseStamped": _Layout(has_header=True, has_child_frame=False),
    "PoseWithCovarianceStamped": _Layout(has_header=True, has_child_frame=False),
    "TransformStamped": _Layout(has_header=True, has_child_frame=True),
    "Odometry": _Layout(has_header=True, has_child_frame=True),
    "Pose": _Layout(has_header=False, has_child_frame=False),
    "Transform": _Layout(has_header=False, has_child_frame=False),
}
_TRANSFORM_LISTS = ("TFMessage", "tfMessage")
_JSON_TYPES = ("PoseInFrame", "FrameTransform", "PosesInFrame", "FrameTransforms")
_TRANSFORM_TYPES = (*_TRANSFORM_LISTS, "TransformStamped", "FrameTransform", "FrameTransforms")
_MAX_NAME_BYTES = 4096  # of a frame
_MAX_TRANSFORMS = 10_000  # in one message
_JOINT_STATE = "JointState"
_WRENCHES = {"WrenchStamped": True, "Wrench": False}  # whether they have a header
_MAX_JOINTS = 1000  # in one message
_DAMAGE_ERRORS = (
    struct.error,
    UnicodeDecodeError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,
)


class Pose(NamedTuple):
    """One pose.

    Attributes:
        stamp: Time in the message, s; 0 where it has none.
        parent: Name of the coordinate frame in which the pose is given.
        child: Name of the coordinate frame whose pose it is; empty where only the topic tells.
        values: Seven numbers: x y z in m, and the quaternion x y z w.
    """

    stamp: float
    parent: str
    child: str
    values: tuple[float, ...]


class JointPositions(NamedTuple):
    """Positions of joints.

    Attributes:
        stamp: Time in the message, s; 0 where it has none.
        positions: rad or m, by the name of the joint.
    """

    stamp: float
    positions: dict[str, float]


class Wrench(NamedTuple):
    """What a force sensor measured.

    Attributes:
        stamp: Time in the message, s; 0 where it has none.
        values: Force (N) and torque (N m), three numbers each, in the axes of the sensor.
    """

    stamp: float
    values: tuple[float, ...]


def is_read(kind: str) -> bool:
    """Whether messages of a type (`kind`) are read by this module."""
    if holds_joints(kind) or holds_wrench(kind):
        return True
    return _type_name(kind) in (*_LAYOUTS, *_JSON_TYPES, *_TRANSFORM_LISTS)


def holds_wrench(kind: str) -> bool:
    """Whether messages of a type hold a force and a torque."""
    return _type_name(kind) in _WRENCHES


def holds_joints(kind: str) -> bool:
    """Whether messages of a type hold the positions of joints."""
    return _type_name(kind) == _JOINT_STATE


def is_transform(kind: str) -> bool:
    """Whether messages of a type name the coordinate frame that moves; else the topic names it."""
    return _type_name(kind) in _TRANSFORM_TYPES


def _type_name(kind: str) -> str:
    """The name of a type without its package."""
    return kind.split("/")[-1].split(".")[-1]


def poses_in(message: Message) -> list[Pose]:
    """The poses of one message."""
    try:
        if message.coding == "json":
            return list(_poses_in_json(json.loads(message.data)))
        return _poses_in_bytes(message)
    except _DAMAGE_ERRORS:
        raise DataError(f"a message on {message.topic!r} is cut off or damaged") from None


def joints_in(message: Message) -> JointPositions:
    """The positions of joints in one message (JointState)."""
    try:
        if message.coding == "json":
            raw = json.loads(message.data)
            names = [str(name) for name in raw["name"]]
            positions = [float(value) for value in raw["position"]]
            stamp = _stamp_in_json(raw["header"].get("stamp", {}))
        else:
            fields = _fields_of(message)
            stamp = fields.read_stamp()
            fields.read_text()  # the coordinate frame, which means nothing here
            names = fields.read_texts(_MAX_JOINTS)
            positions = list(fields.read_doubles(fields.read_integer()))
    except _DAMAGE_ERRORS:
        raise DataError(f"a message on {message.topic!r} is cut off or damaged") from None
    if len(positions) != len(names):
        positions = []  # a message with velocities or efforts only
    return JointPositions(stamp, dict(zip(names, positions, strict=False)))


def wrench_in(message: Message) -> Wrench:
    """The force and torque in one message (WrenchStamped or Wrench)."""
    has_header = _WRENCHES[_type_name(message.kind)]
    try:
        if message.coding == "json":
            raw = json.loads(message.data)
            stamp = _stamp_in_json(raw["header"].get("stamp", {})) if has_header else 0.0
            wrench = raw["wrench"] if has_header else raw
            parts = (wrench["force"], wrench["torque"])
            return Wrench(stamp, tuple(float(part[axis]) for part in parts for axis in "xyz"))
        fields = _fields_of(message)
        stamp = 0.0
        if has_header:
            stamp = fields.read_stamp()
            fields.read_text()  # the coordinate frame: that of the sensor
        return Wrench(stamp, fields.read_doubles(6))
    except _DAMAGE_ERRORS:
        raise DataError(f"a message on {message.topic!r} is cut off or damaged") from None


def _fields_of(message: Message) -> _FieldReader:
    """A reader of a message that is coded as ROS 1 or CDR."""
    if message.coding not in ("cdr", "ros1"):
        coding = message.coding[:20]
        raise DataError(f"topic {message.topic!r} is coded as {coding!r}; choices: cdr, ros1, json")
    return _FieldReader(message.data, is_cdr=message.coding == "cdr")


def _poses_in_bytes(message: Message) -> list[Pose]:
    """The poses of a message that is coded as ROS 1 or CDR."""
    name = _type_name(message.kind)
    fields = _fields_of(message)
    if name in _TRANSFORM_LISTS:
        count = fields.read_integer()
        if count > _MAX_TRANSFORMS:
            raise DataError(f"a message on {message.topic!r} claims {count} transforms")
        layout = _LAYOUTS["TransformStamped"]
        return [_read_pose(fields, layout) for _ in range(count)]
    if name not in _LAYOUTS:
        kind = message.kind[:60]
        raise DataError(f"topic {message.topic!r} has type {kind!r}, which is read as JSON only")
    return [_read_pose(fields, _LAYOUTS[name])]


def _read_pose(fields: _FieldReader, layout: _Layout) -> Pose:
    """Read the next pose of a message."""
    stamp = 0.0
    parent = ""
    child = ""
    if layout.has_header:
        stamp = fields.read_stamp()
        parent = fields.read_text()
    if layout.has_child_frame:
        child = fields.read_text()
    return Pose(stamp, parent, child, fields.read_doubles(7))


class _FieldReader:
    """Reads the fields of a message in order; CDR aligns each to a multiple of its size."""

    def __init__(self, data: bytes, *, is_cdr: bool) -> None:
        self._data = data
        self._is_cdr = is_cdr
        self._position = 0
        self._byte_order = "<"
        if is_cdr:
            # Four bytes come first, of which the second tells the byte order.
            if len(data) < 4 or data[0] != 0 or data[1] not in (0, 1):
                raise ValueError
            self._byte_order = "<" if data[1] else ">"
            self._data = data[4:]

    def read_integer(self) -> int:
        """An unsigned 32-bit integer."""
        self._align(4)
        (value,) = struct.unpack_from(f"{self._byte_order}I", self._data, self._position)
        self._position += 4
        return int(value)

    def read_stamp(self) -> float:
        """The header's time in s; ROS 1 has a counter before it."""
        if not self._is_cdr:
            self.read_integer()
        seconds = self.read_integer()
        nanoseconds = self.read_integer()
        return seconds + 1e-9 * nanoseconds

    def read_text(self) -> str:
        """A text, such as the name of a coordinate frame."""
        size = self.read_integer()
        end = self._position + size
        if size > _MAX_NAME_BYTES or end > len(self._data):
            raise ValueError
        raw = self._data[self._position : end]
        self._position = end
        return raw.rstrip(b"\0").decode()

    def read_texts(self, most: int) -> list[str]:
        """A list of texts, of which there may not be more than a number."""
        count = self.read_integer()
        if count > most:
            raise ValueError
        return [self.read_text() for _ in range(count)]

    def read_doubles(self, count: int) -> tuple[float, ...]:
        """Floating-point numbers of 64 bits."""
        self._align(8)
        values = struct.unpack_from(f"{self._byte_order}{count}d", self._data, self._position)
        self._position += 8 * count
        return values

    def _align(self, size: int) -> None:
        if self._is_cdr:
            self._position += -self._position % size


def _poses_in_json(raw: Any) -> Iterator[Pose]:
    """Poses of a JSON message with the fields of ROS or of Foxglove."""
    for item in raw.get("transforms", [raw]):
        header = item.get("header", item)
        stamp = _stamp_in_json(header.get("stamp", item.get("timestamp", {})))
        pose = item.get("pose", item.get("transform", item))
        pose = pose.get("pose", pose)  # with a covariance beside it
        position = pose.get("position", pose.get("translation"))
        quaternion = pose.get("orientation", pose.get("rotation"))
        values = [position[axis] for axis in "xyz"] + [quaternion[axis] for axis in "xyzw"]
        yield Pose(
            stamp=stamp,
            parent=str(header.get("frame_id", item.get("parent_frame_id", ""))),
            child=str(item.get("child_frame_id", "")),
            values=tuple(float(value) for value in values),
        )


def _stamp_in_json(time: Any) -> float:
    """A time of a JSON message, s."""
    nanoseconds = time.get("nanosec", time.get("nsec", 0))
    return float(time.get("sec", 0)) + 1e-9 * float(nanoseconds)
