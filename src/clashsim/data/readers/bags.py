"""Bags: what robots publish.

Poses are one stream for each topic or each frame that moves; positions of joints, forces and
torques are signals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.data.readers.bag_records import (
    Message,
    db3_messages,
    mcap_messages,
    ros1_messages,
)
from clashsim.data.readers.convert import select_bodies
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.ros_messages import (
    Pose,
    Wrench,
    holds_joints,
    holds_wrench,
    is_read,
    is_transform,
    joints_in,
    poses_in,
    wrench_in,
)
from clashsim.data.readers.streams import Log, Stream

MAX_POSES = 1 << 23  # of one recording: 10 hours at 200 Hz
_MAX_METADATA_BYTES = 1 << 20
_COMPRESSED = re.compile(r"compression_mode:\s*['\"]?(file|message)", re.IGNORECASE)
# Last words of a topic that do not name the body.
_TOPIC_ENDS = ("pose", "wrench", "odom", "odometry", "transform", "tf", "ground_truth")
# Indices that turn a position and a quaternion xyzw into a position and a quaternion wxyz.
_SCALAR_FIRST = [0, 1, 2, 6, 3, 4, 5]


class _TimedPose(NamedTuple):
    """A pose, and the time (s) at which its message was recorded."""

    time: float
    pose: Pose


def read_bag(path: Path, logger: LoggerMapping) -> Log:
    """Read the bodies of a ROS 1 bag."""
    return _collect(ros1_messages(path, is_read), logger)


def read_db3(path: Path, logger: LoggerMapping) -> Log:
    """Read the bodies of a ROS 2 bag's SQLite file."""
    return _collect(db3_messages(path, is_read), logger)


def read_mcap(path: Path, logger: LoggerMapping) -> Log:
    """Read the bodies of an MCAP file."""
    return _collect(mcap_messages(path, is_read), logger)


def read_bag_folder(path: Path, logger: LoggerMapping) -> Log:
    """Read the bodies of a ROS 2 bag, which is a folder with its parts and a description."""
    with (path / "metadata.yaml").open("rb") as file:
        metadata = file.read(_MAX_METADATA_BYTES).decode("utf-8", "replace")
    if _COMPRESSED.search(metadata):
        raise DataError(
            "the bag is compressed as a whole; unpack it first (ros2 bag convert),"
            " or record MCAP with compressed chunks"
        )
    parts = [part for part in path.iterdir() if part.suffix in (".db3", ".mcap") and part.is_file()]
    if not parts:
        raise DataError("the bag holds no .db3 or .mcap file")
    parts.sort(key=_last_number)
    messages = chain.from_iterable(_messages_of_part(part) for part in parts)
    return _collect(messages, logger)


def _last_number(part: Path) -> list[int]:
    """The last number in a name, by which the parts of a bag are ordered."""
    return [int(number) for number in re.findall(r"\d{1,18}", part.stem)][-1:]


def _messages_of_part(part: Path) -> Iterator[Message]:
    if part.suffix == ".db3":
        return db3_messages(part, is_read)
    return mcap_messages(part, is_read)


def _collect(messages: Iterable[Message], logger: LoggerMapping) -> Log:
    """The bodies of a recording, by topic or by the frame that moves, and its joints by name."""
    recording = _sorted_out(messages)
    signals = _wrench_signals(recording.wrenches, logger)
    signals |= _joint_signals(recording.joints, logger)
    streams = _streams(recording.poses, logger)
    names = _short_names(streams)
    if not logger.bodies:
        if not streams:
            return Log((), signals)
        bodies = {name: streams[source] for source, name in names.items()}
        return replace(select_bodies(bodies, logger, length="m", up="z"), signals=signals)
    # A mapping may name a body by its topic or by the short name.
    bodies = streams | {name: streams[source] for source, name in names.items()}
    for body in logger.bodies:
        if body.source_name not in bodies:
            hint = did_you_mean(body.source_name, streams)
            raise DataError(
                f"there is no topic or frame {body.source_name[:60]!r} with poses; {hint}"
            )
    return replace(select_bodies(bodies, logger, length="m", up="z"), signals=signals)


class _Recording(NamedTuple):
    """What the messages of a recording hold.

    Attributes:
        poses: By source: the moving coordinate frame where the message names it, else the topic.
        joints: Times (s) and positions, by the name of the joint.
        wrenches: Times (s) with force and torque, by topic.
    """

    poses: dict[str, list[_TimedPose]]
    joints: dict[str, list[tuple[float, float]]]
    wrenches: dict[str, list[tuple[float, Wrench]]]


def _sorted_out(messages: Iterable[Message]) -> _Recording:
    """The poses, joints and forces in messages."""
    found = _Recording({}, {}, {})
    count = 0
    for message in messages:
        if holds_joints(message.kind):
            stamp, positions = joints_in(message)
            for joint, position in positions.items():
                found.joints.setdefault(joint, []).append((stamp or message.time, position))
            count += len(positions)
        elif holds_wrench(message.kind):
            wrench = wrench_in(message)
            at = wrench.stamp or message.time
            found.wrenches.setdefault(message.topic, []).append((at, wrench))
            count += 1
        else:
            for pose in poses_in(message):
                source = message.topic
                if is_transform(message.kind) and pose.child:
                    source = pose.child.strip("/")
                found.poses.setdefault(source, []).append(_TimedPose(message.time, pose))
                count += 1
        if count > MAX_POSES:
            raise DataError(f"the recording holds more than {MAX_POSES} poses; cut it into trials")
    if not found.poses and not found.joints:
        raise DataError(
            "the recording holds no poses (PoseStamped, TransformStamped, TFMessage or Odometry) "
            "and no joints (JointState)"
        )
    return found


def _joint_signals(
    joints: Mapping[str, Sequence[tuple[float, float]]], logger: LoggerMapping
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Times (N,) and positions (N,) of joints, under the names that the mapping gives them.

    Messages have radians and metres.
    """
    names = {joint: joint for joint in joints}
    for name, source in {**logger.joints, **logger.slides}.items():
        if source not in joints:
            raise DataError(f"there is no joint {source[:60]!r}; {did_you_mean(source, joints)}")
        names[source] = name
    signals = {}
    for joint, rows in joints.items():
        table = np.array(rows)
        signals[names[joint]] = (table[:, 0] + logger.offset, table[:, 1])
    return signals


def _wrench_signals(
    wrenches: Mapping[str, Sequence[tuple[float, Wrench]]], logger: LoggerMapping
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Times (N,) and values (N, 3) of forces (N) and torques (N m), by short name of the topic."""
    signals = {}
    names = _short_names(wrenches)
    for topic, rows in wrenches.items():
        t = np.array([at for at, _ in rows]) + logger.offset
        values = np.array([wrench.values for _, wrench in rows])
        signals[f"{names[topic]}_force"] = (t, values[:, :3])
        signals[f"{names[topic]}_torque"] = (t, values[:, 3:])
    return signals


def _streams(poses: Mapping[str, Sequence[_TimedPose]], logger: LoggerMapping) -> dict[str, Stream]:
    """One stream per source, which is a topic or a coordinate frame.

    Poses relative to a frame that moves itself are left out, unless the mapping names them.
    """
    moving_frames = {timed[0].pose.child for timed in poses.values()} - {""}
    named = {name for body in logger.bodies for name in (body.source, body.name)}
    streams = {}
    for source, timed in poses.items():
        parents = {item.pose.parent for item in timed}
        if len(parents) > 1:
            frames = ", ".join(sorted(parents)[:4])
            raise DataError(f"the poses of {source!r} are in several frames: {frames}")
        if parents & moving_frames and source not in named:
            continue
        t = np.array([item.pose.stamp for item in timed])
        if not (t > 0).all():  # some messages have no stamp
            t = np.array([item.time for item in timed])
        values = np.array([item.pose.values for item in timed])
        streams[source] = Stream(source, t, values[:, _SCALAR_FIRST])
    return streams


def _short_names(sources: Iterable[str]) -> dict[str, str]:
    """A short name for each source; its own name where two short names would be the same."""
    short = {source: _short_name(source) for source in sources}
    names = list(short.values())
    return {source: source if names.count(name) > 1 else name for source, name in short.items()}


def _short_name(topic: str) -> str:
    """The part of a topic that names the body, such as `box` in /vrpn/box/pose."""
    parts = [part for part in topic.split("/") if part]
    while len(parts) > 1 and parts[-1].lower() in _TOPIC_ENDS:
        parts.pop()
    return parts[-1] if parts else topic
