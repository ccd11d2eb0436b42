"""Messages in the files robots record: ROS 1 bags, ROS 2 databases and MCAP, record by record.

The usual libraries for these formats trust the sizes that a file claims, which may exhaust the
memory, so this project has readers of its own; see docs/decisions/0017-readers-of-hostile-files.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from clashsim.core.errors import DataError
from clashsim.data.readers.bounded_bytes import (
    CUT_OFF,
    MAX_RECORD_BYTES,
    ByteReader,
    ChunkUnpacker,
    read_exactly,
    unpack_integers,
    unpack_text,
    unpack_uint32,
)

# Kinds of records of a ROS 1 bag.
_ROS1_MESSAGE = b"\x02"
_ROS1_BAG_HEADER = b"\x03"
_ROS1_CHUNK = b"\x05"
_ROS1_CONNECTION = b"\x07"
# Kinds of records of an MCAP file.
_MCAP_MAGIC = b"\x89MCAP0\r\n"
_MCAP_FOOTER = 0x02
_MCAP_SCHEMA = 0x03
_MCAP_CHANNEL = 0x04
_MCAP_MESSAGE = 0x05
_MCAP_CHUNK = 0x06
_MCAP_DATA_END = 0x0F
# Positions in the data of MCAP records, bytes.
_MCAP_SCHEMA_NAME = 2
_MCAP_CHANNEL_TOPIC = 4
_MCAP_MESSAGE_BODY = 22
_MCAP_CHUNK_UNPACKED_SIZE = 16
_MCAP_CHUNK_COMPRESSION = 28

_NOT_A_DATABASE = "the file is not a ROS 2 bag, or it is cut off or damaged"


@dataclass(frozen=True)
class Message:
    """One message as it was recorded.

    Attributes:
        topic: Its topic.
        kind: The name of its type, such as geometry_msgs/PoseStamped.
        coding: How its bytes are coded: ros1, cdr or json.
        time: When it was recorded, s.
        data: Its bytes.
    """

    topic: str
    kind: str
    coding: str
    time: float
    data: bytes


# Tells for the name of a message type whether its messages are wanted; others are not copied.
IsWanted = Callable[[str], bool]


class _Ros1Record(NamedTuple):
    """Header fields and data of a record."""

    header: dict[bytes, bytes]
    data: bytes

    @property
    def kind(self) -> bytes:
        """The code of the record's kind, such as `_ROS1_CHUNK`."""
        return self.header.get(b"op", b"")

    @property
    def connection(self) -> bytes:
        """The number of the connection that the record belongs to."""
        return self.header.get(b"conn", b"")


class _McapRecord(NamedTuple):
    """Kind and data of a record."""

    kind: int
    data: bytes


class _Channel(NamedTuple):
    """The topic of messages, the number of their schema, and how they are coded."""

    topic: str
    schema: int
    coding: str


def ros1_messages(path: Path, is_wanted: IsWanted) -> Iterator[Message]:
    """Messages of a ROS 1 bag, in the order of the file."""
    unpacker = ChunkUnpacker(path)
    connections: dict[bytes, tuple[str, str]] = {}  # topic and type by number of the connection
    with path.open("rb") as file:
        if not file.readline(32).startswith(b"#ROSBAG V2.0"):
            raise DataError("the file is not a ROS 1 bag of version 2.0, or it is damaged")
        for record in _ros1_records_and_chunks(file, unpacker, file_size=path.stat().st_size):
            if record.kind == _ROS1_CONNECTION:
                fields = _ros1_fields(record.data)
                topic = record.header.get(b"topic", b"").decode("utf-8", "replace")
                kind = fields.get(b"type", b"").decode("latin-1")
                connections[record.connection] = (topic, kind)
            elif record.kind == _ROS1_MESSAGE:
                topic, kind = connections.get(record.connection, ("", ""))
                if is_wanted(kind):
                    stamp = record.header.get(b"time", b"")
                    if len(stamp) != 8:
                        raise DataError(CUT_OFF)
                    seconds, nanoseconds = unpack_integers("<II", stamp)
                    time = seconds + 1e-9 * nanoseconds
                    yield Message(topic, kind, "ros1", time, record.data)


def _ros1_records_and_chunks(
    file: BinaryIO, unpacker: ChunkUnpacker, *, file_size: int
) -> Iterator[_Ros1Record]:
    """Records of a bag, including those inside chunks."""
    for record in _ros1_records(file):
        if record.kind == _ROS1_BAG_HEADER:
            (index_position,) = unpack_integers("<Q", record.header.get(b"index_pos", b""))
            if not index_position:
                raise DataError("the bag was never closed; repair it with: rosbag reindex")
            if index_position > file_size:
                raise DataError(CUT_OFF)
        if record.kind == _ROS1_CHUNK:
            compression = record.header.get(b"compression", b"none").decode("latin-1")
            size = unpack_uint32(record.header.get(b"size", b""))
            yield from _ros1_records(ByteReader(unpacker.unpack(record.data, compression, size)))
        else:
            yield record


def _ros1_records(file: BinaryIO | ByteReader) -> Iterator[_Ros1Record]:
    """Records of a bag or of a chunk: header and data, each after its length."""
    while header_size := file.read(4):
        header = read_exactly(file, unpack_uint32(header_size))
        data = read_exactly(file, unpack_uint32(file.read(4)))
        yield _Ros1Record(_ros1_fields(header), data)


def _ros1_fields(header: bytes) -> dict[bytes, bytes]:
    """Values by name of the fields in a header; each is `name=value` after its length."""
    fields = {}
    position = 0
    while position < len(header):
        size = unpack_uint32(header[position : position + 4])
        start = position + 4
        position = start + size
        if position > len(header):
            raise DataError(CUT_OFF)
        name, _, value = header[start:position].partition(b"=")
        fields[name] = value
    return fields


def db3_messages(path: Path, is_wanted: IsWanted) -> Iterator[Message]:
    """Messages of a ROS 2 bag's SQLite file, in the order in which they were written."""
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error:
        raise DataError(_NOT_A_DATABASE) from None
    try:
        database.execute("PRAGMA trusted_schema=OFF")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_RECORD_BYTES)
        # Views are refused: reading one could run a query that never ends.
        rows = database.execute("select name from sqlite_master where type='table'")
        tables = {name for (name,) in rows}
        if not {"topics", "messages"} <= tables:
            raise DataError(
                "the database has no tables topics and messages, so it is not a ROS 2 bag"
            )
        topics = {}
        query = "select id, name, type, serialization_format from topics"
        for key, name, kind, coding in database.execute(query):
            if isinstance(key, int) and is_wanted(str(kind)):
                topics[key] = (str(name), str(kind), str(coding))
        keys = ",".join(str(key) for key in topics)
        query = (
            f"select topic_id, timestamp, data from messages where topic_id in ({keys}) order by id"
        )
        for key, nanoseconds, data in database.execute(query):
            if not isinstance(nanoseconds, int) or not isinstance(data, bytes):
                raise DataError(CUT_OFF)
            topic, kind, coding = topics[key]
            yield Message(topic, kind, coding, nanoseconds * 1e-9, data)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError, ValueError):
        raise DataError(_NOT_A_DATABASE) from None
    finally:
        database.close()


def mcap_messages(path: Path, is_wanted: IsWanted) -> Iterator[Message]:
    """Messages of an MCAP file, in the order of the file."""
    unpacker = ChunkUnpacker(path)
    schemas: dict[int, str] = {}
    channels: dict[int, _Channel] = {}
    with path.open("rb") as file:
        if file.read(len(_MCAP_MAGIC)) != _MCAP_MAGIC:
            raise DataError("the file is not MCAP, or it is damaged")
        for record in _mcap_records_and_chunks(file, unpacker):
            data = record.data
            if record.kind == _MCAP_SCHEMA:
                (key,) = unpack_integers("<H", data)
                schemas[key], _ = unpack_text(data, _MCAP_SCHEMA_NAME)
            elif record.kind == _MCAP_CHANNEL:
                key, schema = unpack_integers("<HH", data)
                topic, position = unpack_text(data, _MCAP_CHANNEL_TOPIC)
                coding, _ = unpack_text(data, position)
                channels[key] = _Channel(topic, schema, coding)
            elif record.kind == _MCAP_MESSAGE:
                key, _, nanoseconds, _ = unpack_integers("<HIQQ", data)
                channel = channels.get(key, _Channel("", 0, ""))
                kind = schemas.get(channel.schema, "")
                if is_wanted(kind):
                    body = data[_MCAP_MESSAGE_BODY:]
                    time = nanoseconds * 1e-9
                    yield Message(channel.topic, kind, channel.coding, time, body)


def _mcap_records_and_chunks(file: BinaryIO, unpacker: ChunkUnpacker) -> Iterator[_McapRecord]:
    """Records of an MCAP file up to its footer, including those inside chunks."""
    has_end = False
    for record in _mcap_records(file):
        if record.kind in (_MCAP_FOOTER, _MCAP_DATA_END):
            has_end = True
        if record.kind == _MCAP_FOOTER:
            break
        if record.kind == _MCAP_CHUNK:
            yield from _mcap_records(ByteReader(_mcap_chunk(record.data, unpacker)))
        else:
            yield record
    if not has_end:
        raise DataError(f"{CUT_OFF}: it has no end")


def _mcap_chunk(data: bytes, unpacker: ChunkUnpacker) -> bytes:
    """The records inside a chunk, unpacked."""
    (unpacked_size,) = unpack_integers("<Q", data, _MCAP_CHUNK_UNPACKED_SIZE)
    compression, position = unpack_text(data, _MCAP_CHUNK_COMPRESSION)
    (packed_size,) = unpack_integers("<Q", data, position)
    packed = data[position + 8 :]  # after the 8 bytes of its size
    if packed_size != len(packed):
        raise DataError(CUT_OFF)
    return unpacker.unpack(packed, compression or "none", unpacked_size)


def _mcap_records(file: BinaryIO | ByteReader) -> Iterator[_McapRecord]:
    """Records of a file or of a chunk: one byte of the kind, eight of the size, and the data."""
    while kind := file.read(1):
        (size,) = unpack_integers("<Q", file.read(8))
        yield _McapRecord(kind[0], read_exactly(file, size))
