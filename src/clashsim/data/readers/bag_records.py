"""Messages in the files robots record: ROS 1 bags, ROS 2 databases and MCAP, read record by record
with bounds.
"""

from __future__ import annotations

import bz2
import sqlite3
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from clashsim.core.errors import DataError
from clashsim.core.extras import needs

RECORD = 1 << 28  # bytes of one record, packed or not: a chunk has about one MB
RATIO, FREE = (
    100,
    256 << 20,
)  # as for archives: bytes a file may unpack to for each of its own, and those that need no reason
_CUT = "the recording is cut off or damaged"


@dataclass(frozen=True)
class Message:
    """One message as it was recorded. time: s, when it was recorded. coding: ros1, cdr or json."""

    topic: str
    kind: str
    coding: str
    time: float
    data: bytes


Wanted = Callable[[str], bool]  # whether messages of a kind are wanted; the others are not copied


def bag_messages(path: Path, wanted: Wanted) -> Iterator[Message]:
    """Messages of a ROS 1 bag, in the order of the file."""
    room = _Room(path)
    connections: dict[bytes, tuple[str, str]] = {}
    with path.open("rb") as file:
        if not file.readline(32).startswith(b"#ROSBAG V2.0"):
            raise DataError("the file is not a ROS 1 bag of version 2.0, or it is damaged")
        for header, data in _ros1_records(file):
            if header.get(b"op") == b"\x03":
                (index,) = _unpack("<Q", header.get(b"index_pos", b""))
                if not index:
                    raise DataError("the bag was never closed; mend it with: rosbag reindex")
                if index > path.stat().st_size:
                    raise DataError(_CUT)
            if header.get(b"op") == b"\x05":
                data = room.unpack(
                    data,
                    header.get(b"compression", b"none").decode("latin-1"),
                    _number(header.get(b"size", b"")),
                )
                records: Iterator[tuple[dict[bytes, bytes], bytes]] = _ros1_records(_Bytes(data))
            else:
                records = iter([(header, data)])
            for inner, content in records:
                if inner.get(b"op") == b"\x07":
                    about = _ros1_fields(content)
                    connections[inner.get(b"conn", b"")] = (
                        inner.get(b"topic", b"").decode("utf-8", "replace"),
                        about.get(b"type", b"").decode("latin-1"),
                    )
                elif inner.get(b"op") == b"\x02":
                    topic, kind = connections.get(inner.get(b"conn", b""), ("", ""))
                    if wanted(kind):
                        stamp = inner.get(b"time", b"")
                        if len(stamp) != 8:
                            raise DataError(_CUT)
                        sec, nsec = struct.unpack("<II", stamp)
                        yield Message(topic, kind, "ros1", sec + 1e-9 * nsec, content)


def db3_messages(path: Path, wanted: Wanted) -> Iterator[Message]:
    """Messages of a ROS 2 bag's SQLite file, in the order in which they were written."""
    try:
        base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error:
        raise DataError("the file is not a ROS 2 bag, or it is cut off or damaged") from None
    try:
        base.execute("PRAGMA trusted_schema=OFF")
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, RECORD)
        tables = {
            name for (name,) in base.execute("select name from sqlite_master where type='table'")
        }  # a view could compute for ever
        if not {"topics", "messages"} <= tables:
            raise DataError(
                "the database has no tables topics and messages, so it is not a ROS 2 bag"
            )
        topics = {
            key: (str(name), str(kind), str(coding))
            for key, name, kind, coding in base.execute(
                "select id, name, type, serialization_format from topics"
            )
        }
        keep = [
            key for key, (_, kind, _) in topics.items() if isinstance(key, int) and wanted(kind)
        ]
        for key, time, data in base.execute(
            f"select topic_id, timestamp, data from messages where topic_id in ({','.join(map(str, keep))}) order by id"
        ):
            if not isinstance(time, int) or not isinstance(data, bytes):
                raise DataError(_CUT)
            topic, kind, coding = topics[key]
            yield Message(topic, kind, coding, time * 1e-9, data)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError, ValueError):
        raise DataError("the file is not a ROS 2 bag, or it is cut off or damaged") from None
    finally:
        base.close()


def mcap_messages(path: Path, wanted: Wanted) -> Iterator[Message]:
    """Messages of an MCAP file, in the order of the file."""
    room = _Room(path)
    schemas: dict[int, str] = {}
    channels: dict[int, tuple[str, int, str]] = {}
    ended = False
    with path.open("rb") as file:
        if file.read(8) != b"\x89MCAP0\r\n":
            raise DataError("the file is not MCAP, or it is damaged")
        for code, data in _mcap_records(file):
            ended = ended or code in (0x02, 0x0F)
            if code == 0x02:
                break
            records: Iterator[tuple[int, bytes]] = iter([(code, data)])
            if code == 0x06:
                (size,) = _unpack("<Q", data, 16)
                how, at = _text(data, 28)
                if _unpack("<Q", data, at)[0] != len(data) - at - 8:
                    raise DataError(_CUT)
                records = _mcap_records(_Bytes(room.unpack(data[at + 8 :], how or "none", size)))
            for inner, content in records:
                if inner == 0x03:
                    schemas[_unpack("<H", content)[0]] = _text(content, 2)[0]
                elif inner == 0x04:
                    key, schema = _unpack("<HH", content)
                    topic, at = _text(content, 4)
                    channels[key] = (topic, schema, _text(content, at)[0])
                elif inner == 0x05:
                    key, _, time, _ = _unpack("<HIQQ", content)
                    topic, schema, coding = channels.get(key, ("", 0, ""))
                    if wanted(kind := schemas.get(schema, "")):
                        yield Message(topic, kind, coding, time * 1e-9, content[22:])
    if not ended:
        raise DataError(f"{_CUT}: it has no end")


class _Bytes:
    """A file in memory that does not copy what it holds."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = memoryview(data), 0

    def read(self, size: int) -> bytes:
        """The next bytes, fewer at the end."""
        piece = bytes(self.data[self.at : self.at + size])
        self.at += len(piece)
        return piece


class _Room:
    """Unpacks chunks and counts what they come to."""

    def __init__(self, path: Path) -> None:
        self.left = max(FREE, RATIO * path.stat().st_size)

    def unpack(self, data: bytes, how: str, size: int) -> bytes:
        """A chunk unpacked; it may have `size` bytes and no more."""
        if how == "none":
            return data
        if size > RECORD or size > self.left:
            raise DataError(
                f"a part of the recording unpacks to {size / 1e6:.0f} MB, which is too much for its size"
            )
        self.left -= size
        try:
            if how == "bz2":
                out = bz2.BZ2Decompressor().decompress(data, size)
            elif how == "lz4":
                out = _library("lz4.frame").LZ4FrameDecompressor().decompress(data, size)
            elif how == "zstd":
                out = _library("zstandard").ZstdDecompressor().stream_reader(data).read(size)
            else:
                raise DataError(
                    f"a part of the recording is packed by {how[:20]!r}; choices: none, bz2, lz4, zstd"
                )
        except DataError:
            raise
        except Exception:  # three libraries, each with errors of its own
            raise DataError(_CUT) from None
        if len(out) != size:
            raise DataError(_CUT)
        return bytes(out)


def _library(name: str) -> Any:
    import importlib

    with needs(name, "io"):
        return importlib.import_module(name)


def _ros1_records(file: BinaryIO | _Bytes) -> Iterator[tuple[dict[bytes, bytes], bytes]]:
    while head := file.read(4):
        header = _exactly(file, _number(head))
        yield _ros1_fields(header), _exactly(file, _number(file.read(4)))


def _ros1_fields(header: bytes) -> dict[bytes, bytes]:
    fields, at = {}, 0
    while at < len(header):
        size = _number(header[at : at + 4])
        if at + 4 + size > len(header):
            raise DataError(_CUT)
        name, _, value = header[at + 4 : at + 4 + size].partition(b"=")
        fields[name] = value
        at += 4 + size
    return fields


def _mcap_records(file: BinaryIO | _Bytes) -> Iterator[tuple[int, bytes]]:
    while head := file.read(1):
        yield head[0], _exactly(file, _unpack("<Q", file.read(8))[0])


def _exactly(file: BinaryIO | _Bytes, size: int) -> bytes:
    if size > RECORD:
        raise DataError(f"{_CUT}: a record claims {size / 1e6:.0f} MB")
    data = file.read(size)
    if len(data) != size:
        raise DataError(_CUT)
    return data


def _number(raw: bytes) -> int:
    return int(_unpack("<I", raw)[0])


def _unpack(form: str, raw: bytes, at: int = 0) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, raw, at)
    except struct.error:
        raise DataError(_CUT) from None


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A text that begins with its length, and the place after it."""
    size = _number(data[at : at + 4])
    if at + 4 + size > len(data):
        raise DataError(_CUT)
    return data[at + 4 : at + 4 + size].decode("utf-8", "replace"), at + 4 + size
