"""C3D files: labelled markers, and the rigid bodies they are on by least squares. Read here, since
a damaged file must not take the process with it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.data.readers.convert import chosen
from clashsim.data.readers.mapping import LENGTH, UP, LoggerMapping
from clashsim.data.readers.markers import follow
from clashsim.data.readers.streams import Log, Stream

BYTES = 1 << 30  # of the data of one file
_DAMAGED = "the file is not C3D, or it is cut off or damaged"
Params = Mapping[str, tuple[int, list[int], bytes]]  # "GROUP:NAME" to type, dimensions and data


def read(path: Path, log: LoggerMapping) -> Log:
    """Bodies of a C3D file: those of the mapping's markers, or one for each prefix of labels
    `body:marker`.
    """
    try:
        t, labels, points, length, up = _points(path)
    except (struct.error, ValueError, IndexError, OverflowError, ZeroDivisionError, TypeError):
        raise DataError(_DAMAGED) from None
    scale = log.unit("length", length)
    wanted = {body.source or body.name: dict(body.markers) for body in log.bodies}
    for name, markers in wanted.items():
        wanted[name] = markers or {
            label: () for label in labels if label.split(":")[0] == name and ":" in label
        }
    if not wanted:
        prefixes = [label.split(":")[0] for label in labels if ":" in label]
        wanted = {
            name: {label: () for label in labels if label.startswith(f"{name}:")}
            for name in dict.fromkeys(prefixes)
            if prefixes.count(name) >= 3
        }
    if not wanted:
        raise DataError(
            f"no body has three markers labelled body:marker; name the markers in the mapping (the labels are {', '.join(labels[:12])})"
        )
    bodies = {}
    for name, places in wanted.items():
        for label in places:
            if label not in labels:
                raise DataError(f"there is no marker {label[:60]!r}; {did_you_mean(label, labels)}")
        if len(places) < 3:
            raise DataError(f"body {name!r} has {len(places)} markers, where three are needed")
        seen = points[:, [labels.index(label) for label in places]]
        given = [place for place in places.values() if place]
        if given and len(given) < len(places):
            raise DataError(f"body {name!r} has places for some of its markers only")
        pose, mirrored = follow(
            seen * scale, np.array(given, float) * scale if given else None, name
        )
        pose[:, :3] /= scale
        bodies[name] = Stream(name, t, pose, mirrored=mirrored)
    return chosen(bodies, log, length=length, up=up)


def _points(path: Path) -> tuple[np.ndarray, list[str], np.ndarray, str, str]:
    """Times (T,) s, labels, points (T, M, 3) in the file's unit with NaN where not seen, that unit,
    and the axis that points up.
    """
    content = path.read_bytes() if path.stat().st_size <= BYTES else b""
    if not content:
        raise DataError(f"the file has more than {BYTES / 1e9:.1f} GB")
    if len(content) < 1024 or content[1] != 0x50:
        raise DataError(_DAMAGED)
    start = (content[0] - 1) * 512
    processor = content[start + 3]
    if processor not in (84, 85, 86):
        raise DataError(_DAMAGED)
    end = ">" if processor == 86 else "<"
    params = _params(content, start + 4, end)
    count, analog, first, last, _ = struct.unpack(f"{end}5H", content[2:12])
    frames = last - first + 1
    if (
        last == 0xFFFF
        and (longer := _numbers(params, "TRIAL:ACTUAL_END_FIELD", end, processor)) is not None
        and len(longer) == 2
    ):
        frames = int(longer[0]) % 65536 + 65536 * (int(longer[1]) % 65536) - first + 1
    scale = float(_real(content[12:16], end, processor)[0])
    data = (struct.unpack(f"{end}H", content[16:18])[0] - 1) * 512
    rate_param = _numbers(params, "POINT:RATE", end, processor)
    rate = (
        float(rate_param[0])
        if rate_param is not None and len(rate_param)
        else float(_real(content[20:24], end, processor)[0])
    )
    if not (0 < rate < 1e7 and count and frames > 0 and data > 0):
        raise DataError("the file holds no frames of markers")
    size = 4 if scale < 0 else 2
    width = count * 4 + analog
    if data + frames * width * size > len(content):
        raise DataError(f"the file is cut off: it promises {frames} frames of {count} markers")
    raw = content[data : data + frames * width * size]
    values = (
        (_real(raw, end, processor) if scale < 0 else np.frombuffer(raw, f"{end}i2").astype(float))
        .reshape(frames, width)[:, : count * 4]
        .reshape(frames, count, 4)
    )
    lost = (
        values[:, :, 3]
        if scale < 0
        else np.frombuffer(raw, f"{end}i2")
        .reshape(frames, width)[:, : count * 4]
        .reshape(frames, count, 4)[:, :, 3]
    ) < 0
    points = values[:, :, :3].astype(float) * (1.0 if scale < 0 else scale)
    points[lost | ~np.isfinite(points).all(2)] = np.nan
    labels = [
        label
        for suffix in ("", *map(str, range(2, 9)))
        for label in _strings(params, f"POINT:LABELS{suffix}")
    ][:count]
    units = (_strings(params, "POINT:UNITS") or ["mm"])[0].lower()
    screen = (_strings(params, "POINT:Y_SCREEN") or ["+Z"])[0].lower().removeprefix("+")
    if len(labels) != len(set(labels)):
        raise DataError(
            f"two markers are both called {next(a for a in labels if labels.count(a) > 1)!r}"
        )
    return (
        (np.arange(frames) + first - 1) / rate,
        labels,
        points[:, : len(labels)],
        units if units in LENGTH else "mm",
        screen if screen in UP else "z",
    )


def _params(content: bytes, place: int, end: str) -> Params:
    groups: dict[int, str] = {}
    found: dict[tuple[int, str], tuple[int, list[int], bytes]] = {}
    for _ in range(10_000):
        length, group = struct.unpack("bb", content[place : place + 2])
        name = content[place + 2 : place + 2 + abs(length)].decode("latin-1").upper()
        at = place + 2 + abs(length)
        step = struct.unpack(f"{end}h", content[at : at + 2])[0]
        if length == 0:
            break
        if group < 0:
            groups[-group] = name
        else:
            kind, dims = struct.unpack("bB", content[at + 2 : at + 4])
            sizes = list(content[at + 4 : at + 4 + dims])
            total = abs(kind) * int(np.prod(sizes, dtype=object)) if sizes else abs(kind)
            found[group, name] = (kind, sizes, content[at + 4 + dims : at + 4 + dims + total])
        if step <= 0:
            break
        place = at + step
    return {f"{groups.get(group, group)}:{name}": value for (group, name), value in found.items()}


def _strings(params: Params, name: str) -> list[str]:
    kind, sizes, data = params.get(name, (0, [], b""))
    if kind != -1 or not sizes or not sizes[0]:
        return []
    return [
        data[i : i + sizes[0]].decode("latin-1").strip("\0 ") for i in range(0, len(data), sizes[0])
    ]


def _numbers(params: Params, name: str, end: str, processor: int) -> np.ndarray | None:
    kind, _, data = params.get(name, (0, [], b""))
    if kind == 4:
        return _real(data, end, processor)
    return np.frombuffer(data, f"{end}i2").astype(float) if kind == 2 else None


def _real(data: bytes, end: str, processor: int) -> np.ndarray:
    """32-bit numbers; a DEC machine has the halves the other way round and an exponent that is two
    higher.
    """
    if processor != 85:
        return np.frombuffer(data, f"{end}f4").astype(float)
    halves = np.frombuffer(data, "<u2").reshape(-1, 2)[:, ::-1]
    return np.ascontiguousarray(halves).view("<f4").ravel().astype(float) / 4
