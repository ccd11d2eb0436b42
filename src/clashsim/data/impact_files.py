"""Impacts in files: CSV, NPZ and JSON with one column per name, and clashsim's own safetensors.

Only clashsim's safetensors also keep the theta of simulated impacts, and how many ended in which
way.
"""

from __future__ import annotations

import csv
import io
import json
import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from clashsim.core.errors import DataError, did_you_mean, quoted
from clashsim.core.files import write_atomic
from clashsim.core.impacts import (
    BODY_COLUMNS,
    Impacts,
    after_columns,
    before_columns,
    from_columns,
    striker_after_columns,
    to_columns,
)
from clashsim.core.npz import Npz
from clashsim.core.parsing import parse_json
from clashsim.core.tensors import read_tensors

# Most bytes of a file, or of what a compressed file unpacks to: more than 10 million impacts, which
# still fit into the memory of a laptop.
LIMIT = 4 << 30
_FORMAT = 1
# The only key of the metadata: safetensors writes several keys in an order that changes from run to
# run, and the same impacts should give the same bytes.
_METADATA = "clashsim"
_KNOWN_PREFIX = "known/"  # of tensors with parameters measured with each impact
_JOINT_PREFIX = "joint/"  # of tensors with joint coordinates of each impact
_MAX_LISTED = 8  # impacts that an error message lists
_MAX_NAME = 200  # characters of a body's name
Known = Sequence[str] | None  # names of columns that were measured; None takes every further one
Table = Mapping[str, np.ndarray]  # columns (N,) by name


def read_impacts(path: Path | str, *, known: Known = (), incomplete: bool = False) -> Impacts:
    """Read impacts from a file, whose suffix says its format.

    Args:
        path: The file.
        known: Names of further columns that the file may have (parameters measured with each
            impact); None takes every further column as one.
        incomplete: Whether rows may lack numbers (NaN, or an empty cell), such as those that a
            logger lost; `Impacts.unusable` finds them.

    Returns:
        The impacts; all their numbers are finite but those of outcomes that were not measured, and
        what `incomplete` allows.
        Columns "struck" and "striker" give `bodies`.
    """
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
            found = f"{size / 1e9:.1f} GB"
            allowed = f"{LIMIT / 1e9:.1f} GB"
            raise DataError(
                f"impacts file {path.name!r} has {found}, more than the {allowed} allowed"
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"impacts file {path.name!r} cannot be read: {error.strerror}") from None
    try:
        impacts = _READERS[path.suffix](content, known)
        return impacts if incomplete else _check_finite(impacts)
    except DataError as error:
        raise DataError(f"in {path.name!r}: {error}") from None


def write_impacts(path: Path | str, impacts: Impacts) -> None:
    """Write impacts to .csv (real ones: no theta) or .safetensors.

    The same impacts give the same bytes.
    """
    path = Path(path)
    if path.suffix not in _WRITERS:
        endings = " or ".join(_WRITERS)
        raise DataError(
            f"impacts can be written to files ending in {endings}, not to {path.name!r}"
        )
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder, not a file to write impacts to")
    try:
        write_atomic(path, _WRITERS[path.suffix](impacts))
    except OSError as error:
        raise DataError(f"impacts cannot be written to {str(path)!r}: {error.strerror}") from None


def to_bytes(impacts: Impacts) -> bytes:
    """Impacts as the content of a safetensors file."""
    tensors = {"before": impacts.before, "after": impacts.after}
    if impacts.striker_after is not None:
        tensors["striker_after"] = impacts.striker_after
    for name, values in impacts.known.items():
        tensors[f"{_KNOWN_PREFIX}{name}"] = np.asarray(values, float)
    for name, values in impacts.joints.items():
        tensors[f"{_JOINT_PREFIX}{name}"] = np.asarray(values, float)
    if impacts.theta is not None:
        tensors["theta"] = impacts.theta
    description = {"format": _FORMAT, "planar": impacts.planar, "source": impacts.source}
    description["ends"] = dict(impacts.end_counts)
    if impacts.bodies is not None:
        description["bodies"] = impacts.bodies.tolist()
    contiguous = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    return save(contiguous, {_METADATA: json.dumps(description, sort_keys=True)})


def _csv_bytes(impacts: Impacts) -> bytes:
    """Real impacts as CSV, with all digits, so that reading gives exactly the same numbers."""
    if impacts.theta is not None:
        raise DataError(
            "a CSV file has no place for the theta of simulated impacts; "
            "write them to a file ending in .safetensors"
        )
    table = to_columns(impacts)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    columns = []
    for name, values in table.items():
        columns.append(values if name in BODY_COLUMNS else [_cell(value) for value in values])
    writer.writerows(zip(*columns, strict=True))
    return out.getvalue().encode()


def _cell(value: float) -> str:
    """A number with all digits; empty for a component that was not measured."""
    return "" if np.isnan(value) else repr(float(value))


def _from_csv(content: bytes, known: Known) -> Impacts:
    """Impacts from CSV: a header with names, and one line per impact."""
    rows = csv.reader(io.StringIO(_text(content), newline=""))
    values = array("d")
    bodies: dict[str, list[str]] = {}
    try:
        header = [cell.strip() for cell in next(rows, [])]
        if len(set(header)) != len(header):
            duplicate = next(name for name in header if header.count(name) > 1)
            raise DataError(f"the header names the column {duplicate!r} twice")
        _check_names(header, known)
        bodies = {name: [] for name in header if name in BODY_COLUMNS}
        for row in rows:
            if any(cell.strip() for cell in row):
                values.extend(_line_numbers(row, header, rows.line_num))
                for name, cells in bodies.items():
                    cells.append(row[header.index(name)])
    except csv.Error as error:
        raise DataError(f"the CSV is damaged at line {rows.line_num}: {error}") from None
    numbers = [name for name in header if name not in BODY_COLUMNS]
    table = dict(zip(numbers, np.array(values).reshape(-1, len(numbers)).T, strict=True))
    table |= {name: _names(name, cells) for name, cells in bodies.items()}
    return _impacts_of_table(table, known)


def _line_numbers(row: Sequence[str], header: Sequence[str], line: int) -> list[float]:
    """The numbers of one line."""
    if len(row) != len(header):
        raise DataError(f"line {line} has {len(row)} cells where the header has {len(header)}")
    numbers = []
    for cell, name in zip(row, header, strict=True):
        if name in BODY_COLUMNS:
            continue
        if not cell.strip():
            numbers.append(math.nan)  # not measured, or lost
            continue
        try:
            numbers.append(float(cell))
        except ValueError:
            found = f"line {line} has {quoted(cell.strip())} in column {name!r}"
            raise DataError(f"{found}, where a number is needed") from None
    return numbers


def _from_json(content: bytes, known: Known) -> Impacts:
    """Impacts from JSON: an object of columns, or a list with one object per impact."""
    raw = parse_json(content, "the text")
    if isinstance(raw, list) and raw and all(isinstance(row, dict) for row in raw):
        for i, row in enumerate(raw):
            if row.keys() != raw[0].keys():
                raise DataError(f"impact {i} has other names than impact 0")
        raw = {name: [row[name] for row in raw] for name in raw[0]}
    if not isinstance(raw, dict):
        raise DataError(
            "the JSON must be an object of columns, or a list of objects with one impact each"
        )
    _check_names(raw, known)
    table = {name: _column(name, values) for name, values in raw.items()}
    return _impacts_of_table(table, known)


def _from_npz(content: bytes, known: Known) -> Impacts:
    """Impacts from NPZ: one array per column."""
    with Npz(content, limit=LIMIT) as archive:
        _check_names(archive.names, known)
        table = {}
        for name in archive.names:
            kinds = "U" if name in BODY_COLUMNS else "fiu"
            table[name] = _column(name, archive.array(name, kinds=kinds))
    return _impacts_of_table(table, known)


def _from_safetensors(content: bytes, known: Known) -> Impacts:
    """Impacts from safetensors: clashsim's own, or one tensor per column."""
    tensors, metadata = read_tensors(content)
    if _METADATA in metadata:
        description = parse_json(metadata[_METADATA], "the description in the safetensors file")
        return _impacts_of_tensors(tensors, description)
    _check_names(tensors, known)
    table = {name: _column(name, values) for name, values in tensors.items()}
    return _impacts_of_table(table, known)


def _impacts_of_tensors(tensors: Mapping[str, np.ndarray], description: object) -> Impacts:
    """Impacts from the tensors and the description that `to_bytes` wrote."""
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        found = description.get("format") if isinstance(description, dict) else description
        raise DataError(
            f"the impacts have format {quoted(found)}, this version reads format {_FORMAT}"
        )
    has_planar = isinstance(description.get("planar"), bool)
    if not ({"before", "after"} <= tensors.keys() and has_planar):
        raise DataError(
            "the safetensors file lacks parts of clashsim's impacts (before, after, planar)"
        )
    ends = description.get("ends")
    if not isinstance(ends, dict) or not all(type(count) is int for count in ends.values()):
        raise DataError(f"each way that impacts ended needs a count, got ends = {quoted(ends)}")
    if any(not np.issubdtype(values.dtype, np.floating) for values in tensors.values()):
        raise DataError("the safetensors file holds other types than floating-point numbers")
    before = tensors["before"]
    after = tensors["after"]
    theta = tensors.get("theta")
    striker_after = tensors.get("striker_after")
    is_table = before.ndim == 2 and after.ndim == 2
    if theta is not None:
        is_table = is_table and theta.ndim == 2 and len(theta) == len(before)
    if not is_table:
        raise DataError("before, after and theta must be tables with one row per impact")
    known = _named(tensors, _KNOWN_PREFIX)
    joints = _named(tensors, _JOINT_PREFIX)
    source = str(description.get("source", "real"))
    bodies = _bodies_of(description, len(before))
    return Impacts(
        description["planar"],
        before,
        after,
        theta,
        known,
        source,
        ends,
        bodies,
        striker_after,
        joints,
    )


def _named(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The tensors whose names have a prefix, by the rest of the name."""
    found = {}
    for name, values in tensors.items():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = values
    return found


def _bodies_of(description: Mapping[str, object], n: int) -> np.ndarray | None:
    """Names (n, 2) of the bodies of each impact from the description that `to_bytes` wrote."""
    rows = description.get("bodies")
    if rows is None:
        return None
    if not isinstance(rows, list) or len(rows) != n:
        raise DataError(f"bodies must be two names for each of the {n} impacts")
    if not all(isinstance(row, list) and len(row) == len(BODY_COLUMNS) for row in rows):
        raise DataError(f"bodies must be two names for each of the {n} impacts")
    columns = []
    for i, name in enumerate(BODY_COLUMNS):
        columns.append(_names(name, [row[i] for row in rows]))
    return np.column_stack(columns)


def _impacts_of_table(table: Table, known: Known) -> Impacts:
    """Impacts from columns by name, which must all have the same length."""
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        first = next(iter(lengths))
        other = next(name for name in lengths if lengths[name] != lengths[first])
        found = f"{first!r} has {lengths[first]} values, {other!r} has {lengths[other]}"
        raise DataError(f"columns differ in length: {found}")
    if not table or not lengths[next(iter(table))]:
        raise DataError("there are no impacts, only names of columns")
    if known is None:
        planar = not {"vz_after", "striker_vz_after"} & table.keys()
        own = {*before_columns(planar), *after_columns(planar), *BODY_COLUMNS}
        own |= set(striker_after_columns(planar))
        known = [name for name in table if name not in own]
    return from_columns(table, known=known)


def _check_names(names: Collection[str], known: Known) -> None:
    """Raise a DataError for a column that impacts do not have, before any cell is parsed."""
    expected = {*(known or ()), *BODY_COLUMNS}
    for planar in (True, False):
        expected.update(before_columns(planar), after_columns(planar))
        expected.update(striker_after_columns(planar))
    of_joints = known is None and any(name.endswith("_velocity_after") for name in names)
    if not expected.intersection(names) and not of_joints:
        first = quoted(next(iter(names), ""))
        examples = "vx, vy, w, vx_after, vy_after, w_after, ..."
        raise DataError(f"no column is one of an impact ({examples}); the first is {first}")
    for name in () if known is None else names:
        if name not in expected:
            hint = did_you_mean(name[:40], expected)
            raise DataError(f"impacts have an unknown column {quoted(name)}; {hint}")


def _column(name: str, values: object) -> np.ndarray:
    """Values (N,) as floating-point numbers, or as text where they are names of bodies."""
    if name in BODY_COLUMNS:
        return _names(name, values)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise DataError(
                f"column {name!r} must be one number per impact,"
                f" got an array of shape {values.shape}"
            )
        if values.dtype.kind not in "fiu":
            raise DataError(
                f"column {name!r} holds {values.dtype} values, where numbers are needed"
            )
        return values.astype(float)
    if not isinstance(values, list):
        raise DataError(f"column {name!r} must be a list of numbers, got {quoted(values)}")
    # Checked one by one: where one value is a text, numpy would take its memory for every row.
    values = [math.nan if value is None else value for value in values]  # not measured, or lost
    for i, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            found = f"impact {i} has {quoted(value)} in column {name!r}"
            raise DataError(f"{found}, where a number is needed")
    try:
        return np.array(values, float)
    except OverflowError:
        raise DataError(f"column {name!r} holds a whole number that is too large") from None


def _names(column: str, values: object) -> np.ndarray:
    """Names of bodies (N,); raises a DataError where they are not text."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"column {column!r} must have the name of a body for each impact")
    # numpy takes the memory of the longest text for every row.
    too_long = [value for value in values if len(value) > _MAX_NAME]
    if too_long:
        raise DataError(
            f"column {column!r} has a name of {len(too_long[0])} characters, "
            f"more than the {_MAX_NAME} allowed"
        )
    return np.array([value.strip() for value in values], str)


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError("the file is not UTF-8 text") from None


def _check_finite(impacts: Impacts) -> Impacts:
    """Return the impacts unchanged; raises a DataError that lists those with NaN or infinity.

    Components of the outcome that were not measured are NaN.
    """
    finite = np.isfinite(impacts.before).all(1) & ~np.isinf(impacts.after).any(1)
    if impacts.striker_after is not None:
        finite &= ~np.isinf(impacts.striker_after).any(1)
    for values in (*impacts.known.values(), *impacts.joints.values()):
        finite &= np.isfinite(values)
    if impacts.theta is not None:
        finite &= np.isfinite(impacts.theta).all(1)
    if not finite.all():
        rows = np.flatnonzero(~finite)
        listed = ", ".join(map(str, rows[:_MAX_LISTED]))
        more = f" and {len(rows) - _MAX_LISTED} more" if len(rows) > _MAX_LISTED else ""
        raise DataError(
            f"impacts {listed}{more} (counted from 0) lack a number, or hold NaN or infinite values"
        )
    return impacts


_READERS: dict[str, Callable[[bytes, Known], Impacts]] = {
    ".csv": _from_csv,
    ".npz": _from_npz,
    ".json": _from_json,
    ".safetensors": _from_safetensors,
}
_WRITERS: dict[str, Callable[[Impacts], bytes]] = {".csv": _csv_bytes, ".safetensors": to_bytes}
