"""Impacts in files: CSV, NPZ and JSON with one column per name, and clashsim's own safetensors, which keeps theta and the ends too."""

from __future__ import annotations

import csv
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from clashsim.core.errors import DataError, nearest
from clashsim.core.files import write_atomic
from clashsim.core.impacts import Impacts, after_columns, columns, from_columns, to_columns

LIMIT = 4 << 30  # bytes of a file, or of what a compressed file unpacks to: more than 10 million impacts, and still fits a laptop
_FORMAT = 1
Table = Mapping[str, np.ndarray]


def read_impacts(path: Path | str, *, known: Sequence[str] = ()) -> Impacts:
    """Impacts from a file, by its suffix; `known` names further columns that may be there (parameters measured with each impact)."""
    path = Path(path)
    if path.suffix not in _READERS:
        raise DataError(f"impacts {str(path)!r} must be a file ending in {', '.join(_READERS)}")
    if path.is_dir():
        raise DataError(f"impacts {str(path)!r} is a folder, not a file")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} with impacts")
    try:
        size = path.stat().st_size
        if size == 0:
            raise DataError(f"impacts file {path.name!r} is empty")
        if size > LIMIT:
            raise DataError(f"impacts file {path.name!r} has {size / 1e9:.1f} GB, more than the {LIMIT / 1e9:.1f} GB allowed")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"impacts file {path.name!r} cannot be read: {error.strerror}") from None
    try:
        return _finite(_READERS[path.suffix](content, tuple(known)))
    except DataError as error:
        raise DataError(f"in {path.name!r}: {error}") from None
    except RecursionError:
        raise DataError(f"in {path.name!r}: the JSON is nested too deeply to be impacts") from None


def write_impacts(path: Path | str, impacts: Impacts) -> None:
    """Write impacts to .csv (real ones: no theta) or .safetensors; the same impacts give the same bytes."""
    path = Path(path)
    if path.suffix not in _WRITERS:
        raise DataError(f"impacts can be written to files ending in {' or '.join(_WRITERS)}, not to {path.name!r}")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder, not a file to write impacts to")
    try:
        write_atomic(path, _WRITERS[path.suffix](impacts))
    except OSError as error:
        raise DataError(f"impacts cannot be written to {str(path)!r}: {error.strerror}") from None


def to_bytes(impacts: Impacts) -> bytes:
    """Impacts as safetensors."""
    tensors = {"before": impacts.before, "after": impacts.after} | {f"known/{k}": np.asarray(v, float) for k, v in impacts.known.items()}
    if impacts.theta is not None:
        tensors["theta"] = impacts.theta
    about = {"format": _FORMAT, "planar": impacts.planar, "source": impacts.source, "ends": dict(impacts.ends)}
    # One key only: safetensors writes several in an order that changes from run to run.
    return save({k: np.ascontiguousarray(v) for k, v in tensors.items()}, {"clashsim": json.dumps(about, sort_keys=True)})


def _csv_bytes(impacts: Impacts) -> bytes:
    if impacts.theta is not None:
        raise DataError("a CSV file has no place for the theta of simulated impacts; write them to a file ending in .safetensors")
    table = to_columns(impacts)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    writer.writerows([repr(float(v)) for v in row] for row in zip(*table.values(), strict=True))
    return out.getvalue().encode()


def _from_csv(content: bytes, known: Sequence[str]) -> Impacts:
    rows = csv.reader(io.StringIO(_text(content), newline=""))
    try:
        header = [c.strip() for c in next(rows, [])]
        body = [(rows.line_num, row) for row in rows if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise DataError(f"the CSV is damaged at line {rows.line_num}: {error}") from None
    if len(set(header)) != len(header):
        raise DataError(f"the header names the column {next(c for c in header if header.count(c) > 1)!r} twice")
    _names(header, known)
    values = np.empty((len(body), len(header)))
    for i, (line, row) in enumerate(body):
        if len(row) != len(header):
            raise DataError(f"line {line} has {len(row)} cells where the header has {len(header)}")
        for j, cell in enumerate(row):
            try:
                values[i, j] = float(cell)
            except ValueError:
                raise DataError(f"line {line} has {cell.strip()[:40]!r} in column {header[j]!r}, where a number is needed") from None
    return _impacts(dict(zip(header, values.T, strict=True)), known)


def _from_json(content: bytes, known: Sequence[str]) -> Impacts:
    try:
        raw = json.loads(_text(content))
    except json.JSONDecodeError as error:
        raise DataError(f"the JSON is damaged or cut off: {error}") from None
    if isinstance(raw, list) and raw and all(isinstance(row, dict) for row in raw):  # one object per impact
        for i, row in enumerate(raw):
            if row.keys() != raw[0].keys():
                raise DataError(f"impact {i} has other names than impact 0")
        raw = {name: [row[name] for row in raw] for name in raw[0]}
    if not isinstance(raw, dict):
        raise DataError("the JSON must be an object of columns, or a list of objects with one impact each")
    _names(raw, known)
    return _impacts({name: _numbers(name, values) for name, values in raw.items()}, known)


def _from_npz(content: bytes, known: Sequence[str]) -> Impacts:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            total = sum(m.file_size for m in members)
            if total > LIMIT:
                raise DataError(f"the archive unpacks to {total / 1e9:.1f} GB, more than the {LIMIT / 1e9:.1f} GB allowed")
            _names([m.filename.removesuffix(".npy") for m in members], known)
            table = {m.filename.removesuffix(".npy"): _array(m.filename.removesuffix(".npy"), archive.read(m)) for m in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError):
        raise DataError("the file is not an NPZ archive, or it is cut off or damaged") from None
    return _impacts(table, known)


def _array(name: str, content: bytes) -> np.ndarray:
    """One array of an NPZ archive; its header is held against the bytes there are before any memory is asked for."""
    try:
        stream = io.BytesIO(content)
        version = np.lib.format.read_magic(stream)
        shape, _, dtype = (np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0)(stream)
        if dtype.hasobject:
            raise DataError(f"column {name!r} holds Python objects, which are never loaded; save plain numbers")
        if len(shape) != 1 or shape[0] * dtype.itemsize != len(content) - stream.tell():
            raise DataError(f"column {name!r} must be one number per impact, got an array of shape {shape} in {len(content)} bytes")
        stream.seek(0)
        return _numbers(name, np.lib.format.read_array(stream, allow_pickle=False))
    except (ValueError, TypeError, SyntaxError, MemoryError):
        raise DataError(f"array {name!r} is cut off or damaged") from None


def _from_safetensors(content: bytes, known: Sequence[str]) -> Impacts:
    try:
        length = struct.unpack("<Q", content[:8])[0]
        about = json.loads(json.loads(content[8 : 8 + length]).get("__metadata__", {}).get("clashsim", "null"))
        tensors = load(content)
    except (SafetensorError, struct.error, json.JSONDecodeError, UnicodeDecodeError, AttributeError, TypeError, KeyError, ValueError, OverflowError):
        raise DataError("the safetensors file is cut off or damaged") from None
    if not isinstance(about, dict):
        _names(tensors, known)
        return _impacts({k: _numbers(k, v) for k, v in tensors.items()}, known)
    if about.get("format") != _FORMAT:
        raise DataError(f"the impacts have format {about.get('format')!r}, this version reads format {_FORMAT}")
    ends = about.get("ends")
    if not ({"before", "after"} <= tensors.keys() and isinstance(about.get("planar"), bool) and isinstance(ends, dict)):
        raise DataError("the safetensors file lacks parts of clashsim's impacts (before, after, planar, ends)")
    if any(not np.issubdtype(v.dtype, np.floating) for v in tensors.values()):
        raise DataError("the safetensors file holds other types than floating-point numbers")
    theta = tensors.get("theta")
    if tensors["before"].ndim != 2 or tensors["after"].ndim != 2 or (theta is not None and (theta.ndim != 2 or len(theta) != len(tensors["before"]))):
        raise DataError("before, after and theta must be tables with one row per impact")
    extra = {k.removeprefix("known/"): v for k, v in tensors.items() if k.startswith("known/")}
    return Impacts(about["planar"], tensors["before"], tensors["after"], theta, extra, str(about.get("source", "real")), {str(k): int(v) for k, v in ends.items()})


def _impacts(table: Table, known: Sequence[str]) -> Impacts:
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        first, *_ = lengths
        other = next(name for name in lengths if lengths[name] != lengths[first])
        raise DataError(f"columns differ in length: {first!r} has {lengths[first]} values, {other!r} has {lengths[other]}")
    if not table or not lengths[next(iter(table))]:
        raise DataError("there are no impacts, only names of columns")
    return from_columns(table, known=known)


def _names(names: Sequence[str] | Mapping[str, object], known: Sequence[str]) -> None:
    """Refuse a table none of whose columns is an impact's, before its cells are looked at: that is another kind of file."""
    expected = {*columns(True), *columns(False), *after_columns(True), *after_columns(False), *known}
    if not expected.intersection(names):
        raise DataError(f"no column is one of an impact (vx, vy, w, vx_after, vy_after, w_after, ...); the first is {next(iter(names), '')[:40]!r}")
    for name in names:
        if name not in expected:
            raise DataError(f"impacts have an unknown column {name[:40]!r}; {nearest(name[:40], expected)}")


def _numbers(name: str, values: object) -> np.ndarray:
    """A column (N,) of floating-point numbers, or a sentence on why it is none."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise DataError(f"column {name!r} must be a list of numbers of one length") from None
    if array.ndim != 1:
        raise DataError(f"column {name!r} must be one number per impact, got an array of shape {array.shape}")
    if array.dtype.kind not in "fiu":
        if array.dtype.kind in "UOS" and isinstance(values, list):
            bad = next((i for i, v in enumerate(values) if isinstance(v, bool) or not isinstance(v, int | float)), 0)
            raise DataError(f"impact {bad} has {str(values[bad])[:40]!r} in column {name!r}, where a number is needed")
        raise DataError(f"column {name!r} holds {array.dtype} values, where numbers are needed")
    return array.astype(float)


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError("the file is not UTF-8 text") from None


def _finite(impacts: Impacts) -> Impacts:
    bad = ~(np.isfinite(impacts.before).all(1) & np.isfinite(impacts.after).all(1))
    for values in impacts.known.values():
        bad |= ~np.isfinite(values)
    if bad.any():
        rows = np.flatnonzero(bad)
        raise DataError(f"impacts {', '.join(map(str, rows[:8]))}{f' and {len(rows) - 8} more' if len(rows) > 8 else ''} (counted from 0) hold NaN or infinite values")
    return impacts


_READERS: dict[str, Callable[[bytes, Sequence[str]], Impacts]] = {".csv": _from_csv, ".npz": _from_npz, ".json": _from_json, ".safetensors": _from_safetensors}
_WRITERS: dict[str, Callable[[Impacts], bytes]] = {".csv": _csv_bytes, ".safetensors": to_bytes}
