"""Bags: the poses that robots publish, as one stream for each topic or each frame that moves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.data.readers.bag_records import Message, bag_messages, db3_messages, mcap_messages
from clashsim.data.readers.convert import chosen
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.ros_messages import Pose, is_transform, poses, wanted
from clashsim.data.readers.streams import Log, Stream

POSES = 1 << 23  # poses kept of one recording: 10 hours at 200 Hz
_ENDS = ("pose", "odom", "odometry", "transform", "tf", "ground_truth")


def read_bag(path: Path, log: LoggerMapping) -> Log:
    """Bodies of a ROS 1 bag."""
    return _collect(bag_messages(path, wanted), log)


def read_db3(path: Path, log: LoggerMapping) -> Log:
    """Bodies of a ROS 2 bag's SQLite file."""
    return _collect(db3_messages(path, wanted), log)


def read_mcap(path: Path, log: LoggerMapping) -> Log:
    """Bodies of an MCAP file."""
    return _collect(mcap_messages(path, wanted), log)


def read_folder(path: Path, log: LoggerMapping) -> Log:
    """Bodies of a ROS 2 bag, which is a folder with its parts and a description."""
    with (path / "metadata.yaml").open("rb") as file:
        about = file.read(1 << 20).decode("utf-8", "replace")
    if re.search(r"compression_mode:\s*['\"]?(file|message)", about, re.IGNORECASE):
        raise DataError(
            "the bag is compressed as a whole; unpack it first (ros2 bag convert), or record MCAP with compressed chunks"
        )
    parts = sorted(
        (p for p in path.iterdir() if p.suffix in (".db3", ".mcap") and p.is_file()),
        key=lambda p: [int(n) for n in re.findall(r"\d{1,18}", p.stem)][-1:],
    )
    if not parts:
        raise DataError("the bag holds no .db3 or .mcap file")
    return _collect(
        chain.from_iterable(
            (db3_messages if p.suffix == ".db3" else mcap_messages)(p, wanted) for p in parts
        ),
        log,
    )


def _collect(messages: Iterable[Message], log: LoggerMapping) -> Log:
    rows: dict[str, list[tuple[float, Pose]]] = {}
    for count, (source, time, pose) in enumerate(_sources(messages)):
        rows.setdefault(source, []).append((time, pose))
        if count >= POSES:
            raise DataError(f"the recording holds more than {POSES} poses; cut it into trials")
    if not rows:
        raise DataError(
            "the recording holds no poses (PoseStamped, TransformStamped, TFMessage or Odometry)"
        )
    children = {pose.child for items in rows.values() for _, pose in items[:1] if pose.child}
    streams = {}
    for source, items in rows.items():
        parents = {pose.parent for _, pose in items}
        if len(parents) > 1:
            raise DataError(
                f"the poses of {source!r} are in several frames: {', '.join(sorted(parents)[:4])}"
            )
        if parents & children and source not in {
            name for body in log.bodies for name in (body.source, body.name)
        }:
            continue  # the pose is relative to another body that moves
        stamps = np.array([pose.stamp for _, pose in items])
        t = stamps if (stamps > 0).all() else np.array([time for time, _ in items])
        values = np.array([pose.values for _, pose in items])
        streams[source] = Stream(source, t, values[:, [0, 1, 2, 6, 3, 4, 5]])
    short = {source: _short(source) for source in streams}
    names = {
        source if list(short.values()).count(name) > 1 else name: streams[source]
        for source, name in short.items()
    }
    if log.bodies:
        for body in log.bodies:
            if (body.source or body.name) not in {**streams, **names}:
                raise DataError(
                    f"there is no topic or frame {(body.source or body.name)[:60]!r} with poses; {did_you_mean(body.source or body.name, streams)}"
                )
    return chosen({**streams, **names} if log.bodies else names, log, length="m", up="z")


def _sources(messages: Iterable[Message]) -> Iterator[tuple[str, float, Pose]]:
    """Poses by topic, or by frame where the message names the one that moves."""
    for message in messages:
        for pose in poses(message):
            yield (
                pose.child.strip("/")
                if is_transform(message.kind) and pose.child
                else message.topic,
                message.time,
                pose,
            )


def _short(topic: str) -> str:
    """The part of a topic that names the body, as box of /vrpn/box/pose."""
    parts = [part for part in topic.split("/") if part]
    while len(parts) > 1 and parts[-1].lower() in _ENDS:
        parts.pop()
    return parts[-1] if parts else topic
