"""Reader of tables of numbers as text.

It reads blocks of lines, so a file of many GB needs only the memory of the columns asked for.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.convert import column_of
from clashsim.data.readers.streams import Columns

# Most numbers kept of one file: half a GiB, and a few times that while they are checked. That is 8
# million rows of a time and a pose.
MAX_NUMBERS = 1 << 26
_BLOCK_LINES = 1 << 14  # read at a time
_MAX_LINE_BYTES = 1 << 20  # a row of a thousand vectors has far less
_BLANK_CELLS = frozenset(("", "nan", "na", "n/a", "null", "none"))


class _Line(NamedTuple):
    """A line of text and its number in the file, counted from 1."""

    number: int
    text: str


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a text file; a line of `_MAX_LINE_BYTES` or more raises a DataError."""
    with path.open("rb") as file:
        for number in itertools.count(1):
            raw = file.readline(_MAX_LINE_BYTES)
            if not raw:
                return
            if len(raw) == _MAX_LINE_BYTES:
                limit = f"{_MAX_LINE_BYTES >> 20} MB"
                raise DataError(f"line {number} is longer than {limit}, so this is no table")
            try:
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise DataError(f"line {number} is not UTF-8 text") from None


def cells_of(line: str, delimiter: str = ",") -> list[str]:
    """Cells of one line."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error as error:
        raise DataError(f"the CSV is damaged: {error}") from None


def read_csv(
    path: Path,
    *,
    wanted: Sequence[str] | None = None,
    header_lines: int = 0,
    rows: int | None = None,
) -> tuple[Columns, Columns]:
    """Read a CSV file.

    Args:
        path: The file.
        wanted: References to columns; None for all that hold numbers.
        header_lines: Lines of names and values before the header.
        rows: How many rows are read at most.

    Returns:
        Columns by name, (N,), or (N, k) where a cell has several numbers separated by blanks; and
        the values (1, k) in the lines before the header by name.
    """
    lines = lines_of(path)
    fields: dict[str, np.ndarray] = {}
    for number in range(1, header_lines + 1):
        cells = cells_of(next(lines, ""))
        for name, cell in zip(cells[::2], cells[1::2], strict=False):
            numbers = _numbers_in(cell)
            if name and numbers is not None:
                fields[name] = numbers[None]
        if not cells:
            raise DataError(f"line {number} should hold names and numbers, but is empty")
    header = next(lines, "")
    delimiter = max(",;\t", key=header.count)
    names = cells_of(header, delimiter)
    _check_header(names, header)
    keep = None
    if wanted is not None:
        wanted_names = dict.fromkeys(column_of(reference, names) for reference in wanted)
        keep = [names.index(name) for name in wanted_names]
    first_line = header_lines + 2
    table = parse_rows(
        lines, names, keep=keep, delimiter=delimiter, first_line=first_line, rows=rows
    )
    columns = {names[i]: values for i, values in table.items() if names[i]}
    return columns, fields


def _check_header(names: Sequence[str], header: str) -> None:
    """Raise a DataError for a header without names, with one name twice, or with numbers only."""
    if not any(names):
        raise DataError("there is no header with the names of the columns")
    duplicate = next((name for name in names if name and names.count(name) > 1), None)
    if duplicate is not None:
        raise DataError(f"the header names the column {duplicate!r} twice")
    if all(_numbers_in(name) is not None for name in names):
        raise DataError(
            f"the first line holds numbers ({header.strip()[:40]!r}),"
            " where the names of the columns are needed"
        )


def parse_rows(
    lines: Iterator[str],
    names: Sequence[str],
    *,
    keep: Sequence[int] | None,
    delimiter: str = ",",
    first_line: int = 1,
    rows: int | None = None,
) -> dict[int, np.ndarray]:
    """Read the numbers below a header.

    Args:
        lines: Lines of text.
        names: Names of all columns.
        keep: Indices of the columns to read; None for all that hold nothing but numbers.
        delimiter: The letter between cells.
        first_line: Number of the first of the lines in its file, for error messages.
        rows: How many rows are read at most.

    Returns:
        Columns (N,) or (N, k) by index.
    """
    blocks: list[dict[int, np.ndarray]] = []
    widths: dict[int, int] = {}
    count = 0
    line_number = first_line
    while True:
        size = _BLOCK_LINES if rows is None else min(_BLOCK_LINES, rows - count)
        texts = list(itertools.islice(lines, size))
        if not texts:
            break
        block = [_Line(i, text) for i, text in enumerate(texts, line_number) if text.strip()]
        line_number += len(texts)
        if not block:
            continue
        if not widths:
            widths = _column_widths(
                (_number_cells(line.text, delimiter) for line in block), len(names), keep
            )
            if not widths:
                raise DataError("no column holds numbers")
        blocks.append(_parse_block(block, names, widths, delimiter))
        count += len(block)
        if count * sum(widths.values()) > MAX_NUMBERS:
            raise DataError(
                f"the file holds more than {MAX_NUMBERS / 1e6:.0f} million numbers;"
                " name fewer columns, or cut it into trials"
            )
        if rows is not None and count >= rows:
            break
    if not count:
        raise DataError("there are no rows, only names of columns")
    return {j: np.concatenate([block[j] for block in blocks]) for j in widths}


def _column_widths(
    rows: Iterable[list[str]], count: int, keep: Sequence[int] | None
) -> dict[int, int]:
    """How many numbers each cell of a column has, by the column's index.

    Args:
        rows: Cells of the first lines; the first cell of a column that is not blank decides.
        count: Number of columns.
        keep: Indices of the columns; None for all that hold nothing but numbers.
    """
    widths: dict[int, int] = {}
    not_numbers: set[int] = set()
    for row in rows:
        if keep is None:
            candidates = list(range(min(count, len(row))))
        else:
            candidates = [j for j in keep if j not in widths and j < len(row)]
        for j in candidates:
            numbers = _numbers_in(row[j])
            if numbers is None:
                not_numbers.add(j)
                continue
            if len(numbers) and widths.setdefault(j, len(numbers)) != len(numbers):
                not_numbers.add(j)
        if keep is not None and all(j in widths or j in not_numbers for j in keep):
            break
    if keep is not None:
        return {j: widths.get(j, 1) for j in keep}
    return {j: width for j, width in sorted(widths.items()) if j not in not_numbers}


def _parse_block(
    block: Sequence[_Line], names: Sequence[str], widths: dict[int, int], delimiter: str
) -> dict[int, np.ndarray]:
    """The columns of some lines by index; by the faster `_parse_plain_numbers` where it can.

    Args:
        block: The lines.
        names: Names of all columns.
        widths: How many numbers a cell has, by index of the columns to read.
        delimiter: The letter between cells.
    """
    table = _parse_plain_numbers(block, names, widths, delimiter)
    if table is not None:
        return table
    rows = [_number_cells(line.text, delimiter) for line in block]
    for line, row in zip(block, rows, strict=True):
        ends_with_delimiter = len(row) == len(names) + 1 and not row[-1]
        if len(row) != len(names) and not ends_with_delimiter:
            raise DataError(
                f"line {line.number} has {len(row)} cells where the header has {len(names)}"
            )
    columns = {}
    for j, width in widths.items():
        column = np.full((len(rows), width), np.nan)
        for i, row in enumerate(rows):
            numbers = _numbers_in(row[j])
            if numbers is None or len(numbers) not in (0, width):
                needed = "a number is" if width == 1 else f"{width} numbers are"
                raise DataError(
                    f"line {block[i].number} has {row[j][:40]!r} in column {names[j][:40]!r},"
                    f" where {needed} needed"
                )
            if len(numbers):
                column[i] = numbers
        columns[j] = column[:, 0] if width == 1 else column
    return columns


def _number_cells(line: str, delimiter: str) -> list[str]:
    """Cells of a line of numbers; where the delimiter is no comma, they may have decimal commas."""
    cells = cells_of(line, delimiter)
    return cells if delimiter == "," else [cell.replace(",", ".") for cell in cells]


def _parse_plain_numbers(
    block: Sequence[_Line], names: Sequence[str], widths: dict[int, int], delimiter: str
) -> dict[int, np.ndarray] | None:
    """Columns of lines with one plain number per cell; None where a line may have more or less."""
    if set(widths.values()) != {1} or delimiter != ",":
        return None
    texts = [line.text for line in block]
    if any('"' in text or text.count(delimiter) != len(names) - 1 for text in texts):
        return None
    try:
        table = np.loadtxt(texts, delimiter=delimiter, usecols=list(widths), ndmin=2, comments=None)
    except ValueError:  # a blank or a word, which `_parse_block` tells apart
        return None
    return dict(zip(widths, table.T, strict=True))


def _numbers_in(cell: str) -> np.ndarray | None:
    """Numbers (k,) of a cell, separated by blanks; (0,) for an empty cell, None for a word."""
    if cell.lower() in _BLANK_CELLS:
        return np.empty(0)
    try:
        return np.array([float(part) for part in cell.split()])
    except ValueError:
        return None
