"""Changes to valid files: of their bytes, of words in texts, and of values in each format."""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
import re
import struct
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

Mutation = Callable[[bytes, random.Random, Sequence[bytes]], bytes]

_BYTES = (0, 1, 0x0A, 0x20, 0x22, 0x2E, 0x7F, 0x80, 0xFE, 0xFF)
_INTEGERS = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    1000,
    65535,
    65536,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
_FLOATS = (0.0, -0.0, -1.0, 1e-320, 1e38, 1e300, float("inf"), float("-inf"), float("nan"))
_WORDS = (
    "",
    "0",
    "-1",
    "1",
    "3",
    "0.5",
    "1e308",
    "-1e308",
    "1e999",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "null",
    "true",
    "false",
    "None",
    "[]",
    "{}",
    "[[",
    "]]",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    '"""',
    "#",
    "=",
    ",",
    ";",
    ":",
    ".",
    "/",
    "\\",
    "*",
    "?",
    "{trial}",
    "%s",
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b[31m",
    "é",
    "\u202e",
    "\U0001f986",
    "../../../etc/passwd",
    "/dev/zero",
    "x",
    "time",
    "name",
    "9" * 30,
    "9" * 400,
    "9" * 5000,
    "0x" + "f" * 6000,
    "a" * 2000,
    ".a" * 200,
    "1979-05-27T07:32:00Z",
)
# Values that JSON and TOML writers refuse to write: put into the text in place of a mark.
_RAW_JSON = (
    "9" * 400,
    "-" + "9" * 5000,
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "[" * 40 + "]" * 40,
    "[" * 3000 + "]" * 3000,
    '{"a":' * 900 + "1" + "}" * 900,
    '"\\ud800"',
)
_RAW_TOML = (
    "9" * 400,
    "-" + "9" * 5000,
    "0x" + "f" * 5000,
    "nan",
    "inf",
    "-inf",
    "1e999",
    "[" * 40 + "]" * 40,
    "[" * 3000 + "]" * 3000,
    "1979-05-27",
    "'''a\nb'''",
)
_VALUES: tuple[Any, ...] = (
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    0.5,
    -2.5,
    1e308,
    1e-320,
    1 << 31,
    1 << 63,
    "",
    "x",
    "1",
    "nan",
    "../x",
    "\x1b[31mred",
    "a\nb",
    "y" * 3000,
    [],
    {},
    [1],
    ["a"],
    [1, 2],
    ["a", 1],
    [[1, 2], [3, 4]],
    {"a": 1},
    [{}],
    [None],
    None,
)
_ELEMENTS = (
    '<include file="/etc/hostname"/>',
    '<include file="../x.xml"/>',
    '<include file="scene.xml"/>',
    '<asset><mesh name="m" file="/etc/hostname"/></asset>',
    '<asset><model name="m" file="scene.xml"/></asset>',
    '<asset><texture name="t" type="2d" file="../../x.png"/></asset>',
    '<size memory="1000G"/>',
    '<size nuser_geom="100000000"/>',
    '<size njmax="2000000000"/>',
    '<option timestep="0"/>',
    '<option timestep="nan"/>',
    '<option iterations="2000000000"/>',
    '<worldbody><replicate count="3000000"><geom size="1"/></replicate></worldbody>',
    '<worldbody><replicate count="2000"><replicate count="2000"><geom size="1"/></replicate>'
    "</replicate></worldbody>",
    '<worldbody><body><flexcomp name="f" type="grid" count="300 300 300" spacing=".1 .1 .1"/>'
    "</body></worldbody>",
    '<worldbody><body name="b"><composite type="cable" count="100000 1 1" size="1">'
    '<geom size=".1"/></composite></body></worldbody>',
    '<asset><texture name="t" type="2d" builtin="flat" width="60000" height="60000"/></asset>',
    '<asset><hfield name="h" nrow="60000" ncol="60000" size="1 1 1 1"/></asset>',
    "<worldbody>" * 3000,
    "<plugin/>",
    '<extension><plugin plugin="x"/></extension>',
    "<worldbody><body><freejoint/></body></worldbody>",
    '<worldbody><geom size="0"/></worldbody>',
    '<worldbody><body mocap="true"><geom size="1"/></body></worldbody>',
    '<!DOCTYPE a [<!ENTITY b "c">]>',
    "&b;",
    "<!--",
)
_LONG = 200_000  # characters: repeated lines of repeated lines would take all of the time
_MARK = "\x02raw\x02"


def mutate(name: str, content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A changed copy of a file: mostly in the terms of its format, else of its bytes.

    Args:
        name: The name of the file, whose suffix tells its format.
        content: What a valid file holds.
        rng: Decides everything.
        others: Other valid files, to take pieces of.
    """
    suffix = PurePosixPath(name).suffix
    in_its_terms = _BY_SUFFIX.get(suffix, (change_bytes,))
    how = rng.choice((*in_its_terms, *in_its_terms, change_bytes))
    try:
        return how(content, rng, others)
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        UnicodeError,
        struct.error,
        zipfile.BadZipFile,
        OSError,
    ):
        return change_bytes(
            content, rng, others
        )  # a valid file of a kind that this change does not know


def change_bytes(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Flip, overwrite, cut, repeat or insert bytes."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not out:
            break
        start = _position(len(out), rng)
        stop = min(len(out), start + rng.choice((1, 2, 4, 8, 32, 200, 5000)))
        kind = rng.randrange(12)
        if kind == 0:
            out[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[start] = rng.choice((*_BYTES, rng.randrange(256)))
        elif kind in (2, 3):
            width = rng.choice((2, 4, 8))
            number = rng.choice((*_INTEGERS, len(out), len(out) - start)) % (1 << 8 * width)
            out[start : start + width] = number.to_bytes(width, rng.choice(("little", "big")))
        elif kind == 4:
            out[start : start + 8] = struct.pack("<d", rng.choice(_FLOATS))
        elif kind == 5:
            del out[start:]
        elif kind == 6:
            del out[: rng.choice((1, 2, 4, 8, start))]
        elif kind == 7:
            del out[start:stop]
        elif kind == 8:
            out[start:start] = out[start:stop] * rng.choice((1, 1, 2, 50))
        elif kind == 9:
            out[start:stop] = bytes(stop - start)
        elif kind == 10:
            out[start:start] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 3, 20))))
        else:
            other = rng.choice(others)
            piece = _position(max(len(other), 1), rng)
            out[start:stop] = other[piece : piece + rng.choice((4, 50, 1000, len(other)))]
    return bytes(out)


def change_words(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Replace, remove, repeat or exchange words and lines of a text."""
    text = content.decode()
    for _ in range(rng.choice((1, 1, 2, 5))):
        if len(text) > _LONG:
            break
        kind = rng.randrange(6)
        if kind < 4:
            words = re.findall(r"[\w.+-]+|\s+|.", text, re.DOTALL) or [""]
            i, j = rng.randrange(len(words)), rng.randrange(len(words))
            if kind == 0:
                words[i] = rng.choice(_WORDS)
            elif kind == 1:
                words[i] = words[j]
            elif kind == 2:
                words[i] = ""
            else:
                words[i] += rng.choice(_WORDS)
            text = "".join(words)
        else:
            lines = text.splitlines(keepends=True) or [""]
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            if kind == 4:
                lines[i] *= rng.choice((0, 2, 2, 300))
            else:
                lines[i], lines[j] = lines[j], lines[i]
            text = "".join(lines)
    return text.encode(errors="surrogatepass")


def change_json(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Change values and names of a JSON text."""
    value, raw = _changed(json.loads(content), rng, _RAW_JSON)
    return json.dumps(value).replace(json.dumps(_MARK), raw).encode(errors="surrogatepass")


def change_toml(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Change values and names of a TOML text."""
    value, raw = _changed(tomllib.loads(content.decode()), rng, _RAW_TOML)
    if not isinstance(value, dict):
        value = {"a": value}
    lines = [f"{_toml(name)} = {_toml(item)}" for name, item in value.items()]
    return ("\n".join(lines) + "\n").replace(_toml(_MARK), raw).encode(errors="surrogatepass")


def change_elements(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Insert elements into an XML text, or give its attributes other values."""
    text = content.decode()
    if rng.random() < 0.5:
        places = [match.end() for match in re.finditer(">", text)]
        at = rng.choice(places)
        return (text[:at] + rng.choice(_ELEMENTS) + text[at:]).encode()
    values = list(re.finditer(r'"[^"]*"', text))
    value = rng.choice(values)
    other = rng.choice(
        (
            rng.choice(values).group(),
            f'"{rng.choice(_WORDS)}"',
            '"0 0 0"',
            '"1e9 1e9 1e9"',
            '"-1 -1 -1"',
        )
    )
    return (text[: value.start()] + other + text[value.end() :]).encode(errors="surrogatepass")


def change_header(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Change the header of a safetensors file, or the JSON in its metadata, and its length."""
    size = struct.unpack("<Q", content[:8])[0]
    header, data = content[8 : 8 + size], content[8 + size :]
    value = json.loads(header)
    metadata = value.get("__metadata__", {})
    if metadata and rng.random() < 0.6:
        name = rng.choice(sorted(metadata))
        metadata[name] = change_json(metadata[name].encode(), rng, others).decode()
        header = json.dumps(value).encode()
    else:
        header = change_json(header, rng, others)
    return struct.pack("<Q", len(header)) + header + data


def change_numbers(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Overwrite a few numbers behind the header of a safetensors file."""
    size = struct.unpack("<Q", content[:8])[0]
    out = bytearray(content)
    for _ in range(rng.choice((1, 3, 30))):
        form = rng.choice(("<f", "<d"))
        at = rng.randrange(8 + size, max(len(out) - 8, 9 + size)) // 4 * 4
        number = rng.choice(_FLOATS)
        if form == "<f" and abs(number) > 1e38:
            number = float("inf")
        out[at : at + struct.calcsize(form)] = struct.pack(form, number)
    return bytes(out)


def change_member(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Change a file inside a zip archive and pack it again, with checksums that fit."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    name = rng.choice(sorted(members))
    kind = rng.randrange(8)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[rng.choice(("x.npy", "../x.npy", "/x.npy", "", "é.npy", name + "2"))] = members[
            name
        ]
    elif kind == 2:
        members[name] = members[rng.choice(sorted(members))]
    else:
        members[name] = mutate(name, members[name], rng, others)
    out = io.BytesIO()
    method = rng.choice(
        (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
            zipfile.ZIP_DEFLATED,
            zipfile.ZIP_BZIP2,
            zipfile.ZIP_LZMA,
        )
    )
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, compress_type=method)
    return out.getvalue()


def change_array(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Change the text header of an NPY file; its length is made to fit."""
    size = struct.unpack("<H", content[8:10])[0]
    header, data = content[10 : 10 + size], content[10 + size :]
    header = change_words(header, rng, others)[:60_000]
    return content[:8] + struct.pack("<H", len(header)) + header + data


def bomb(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """An archive or a gzip file that unpacks to a thousand times its size."""
    return _npz_bomb() if content.startswith(b"PK") else _gzip_bomb()


@lru_cache(maxsize=1)
def _npz_bomb() -> bytes:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3000000,), }".ljust(117) + b"\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("time.npy", "box.npy", "vx.npy", "a.csv", "b.csv", "c.csv"):
            with archive.open(name, "w") as member:
                member.write(start)
                for _ in range(24):
                    member.write(bytes(1_000_000))
    return out.getvalue()


@lru_cache(maxsize=1)
def _gzip_bomb() -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as file:
        file.write(b"time,box_x\n")
        for _ in range(80):
            file.write(b"0,0\n" * 250_000)
    return out.getvalue()


def change_packed(content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Change what a gzip file holds."""
    return gzip.compress(change_words(gzip.decompress(content), rng, others), mtime=0)


def _position(size: int, rng: random.Random) -> int:
    """A place in a file: anywhere, or near its start or end, where headers and directories are."""
    where = rng.random()
    if where < 0.4:
        return rng.randrange(min(size, 600))
    if where < 0.55:
        return size - 1 - rng.randrange(min(size, 300))
    return rng.randrange(size)


def _changed(value: Any, rng: random.Random, raw: Sequence[str]) -> tuple[Any, str]:
    """A tree of JSON or TOML with a few of its nodes changed, and what the mark stands for."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(rng.choice(_VALUES)), rng.choice(raw)
        parent, key = rng.choice(places)
        kind = rng.randrange(12)
        if kind < 3:
            parent[key] = copy.deepcopy(rng.choice(_VALUES))
        elif (
            kind < 5
        ):  # of the same type, so that checks of the type do not hide what comes after them
            same = [other for other in _VALUES if type(other) is type(parent[key])]
            parent[key] = copy.deepcopy(rng.choice(same or _VALUES))
        elif kind < 8:
            parent[key] = _MARK
        elif kind == 8:
            other, name = rng.choice(places)
            parent[key] = copy.deepcopy(other[name])
        elif kind == 9:
            parent[key] = rng.choice(([parent[key]], {"a": parent[key]}))
        elif kind == 10:
            del parent[key]
        elif isinstance(parent, dict):
            parent[rng.choice(_WORDS)] = parent.pop(key)
        else:
            parent.extend(copy.deepcopy(parent[: rng.choice((1, 5, 200))]))
    return value, rng.choice(raw)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Each (container, key) of a tree."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            items = list(node.items())
        elif isinstance(node, list):
            items = list(enumerate(node[:200]))
        else:
            continue
        found += [(node, key) for key, _ in items]
        waiting += [item for _, item in items]
    return found


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_toml(str(name))} = {_toml(item)}" for name, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) else repr(value)


_BY_SUFFIX: dict[str, tuple[Mutation, ...]] = {
    ".json": (change_json, change_json, change_words),
    ".toml": (change_toml, change_toml, change_words),
    ".csv": (change_words,),
    ".xml": (change_elements, change_elements, change_words),
    ".yaml": (change_words,),
    ".txt": (change_words,),
    ".safetensors": (change_header, change_header, change_numbers),
    ".npz": (*(change_member,) * 20, bomb),
    ".zip": (*(change_member,) * 20, bomb),
    ".npy": (change_array, change_bytes),
    ".gz": (*(change_packed,) * 20, bomb),
}
