"""Tables of numbers as text, read in blocks, so that a file of many GB needs only the memory of the
columns asked for.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.data.readers.convert import column_of
from clashsim.data.readers.streams import Columns

NUMBERS = (
    1 << 26
)  # numbers kept of one file: half a GiB, and a few times that while they are checked; 8 million rows of a body with its time
_BLOCK = 1 << 14  # lines read at a time
_LINE = 1 << 20  # bytes of a line: a row of a thousand vectors has far less
_BLANK = frozenset(("", "nan", "na", "n/a", "null", "none"))


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a text file; a line without an end is refused rather than gathered in memory."""
    with path.open("rb") as file:
        for number in itertools.count(1):
            raw = file.readline(_LINE)
            if not raw:
                return
            if len(raw) == _LINE:
                raise DataError(
                    f"line {number} is longer than {_LINE >> 20} MB, so this is no table"
                )
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
    """Columns of a CSV file, and the fields of the lines before its header; `wanted` are references
    to columns, None for all that hold numbers.

    A cell with several numbers between blanks makes a column (N, k). `rows` reads the first ones
    only.
    """
    lines = lines_of(path)
    fields: dict[str, np.ndarray] = {}
    for number in range(1, header_lines + 1):
        cells = cells_of(next(lines, ""))
        for name, cell in zip(cells[::2], cells[1::2], strict=False):
            numbers = _vector(cell)
            if name and numbers is not None:
                fields[name] = numbers[None]
        if not cells:
            raise DataError(f"line {number} should hold names and numbers, but is empty")
    first = next(lines, "")
    delimiter = max(",;\t", key=first.count)
    names = cells_of(first, delimiter)
    if not any(names):
        raise DataError("there is no header with the names of the columns")
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise DataError(f"the header names the column {twice!r} twice")
    if all(_vector(name) is not None for name in names):
        raise DataError(
            f"the first line holds numbers ({first.strip()[:40]!r}), where the names of the columns are needed"
        )
    keep = (
        None
        if wanted is None
        else [
            names.index(name)
            for name in dict.fromkeys(column_of(reference, names) for reference in wanted)
        ]
    )
    table = parse(lines, names, keep, delimiter=delimiter, line=header_lines + 2, rows=rows)
    return {names[i]: values for i, values in table.items() if names[i]}, fields


def parse(
    lines: Iterator[str],
    names: Sequence[str],
    keep: Sequence[int] | None,
    *,
    delimiter: str = ",",
    line: int = 1,
    rows: int | None = None,
) -> dict[int, np.ndarray]:
    """Numbers of the columns `keep` (None: those that hold nothing else) by place, from lines of
    which the first is number `line` of its file.
    """
    blocks: list[dict[int, np.ndarray]] = []
    widths: dict[int, int] = {}
    count = 0
    while block := list(
        itertools.islice(lines, _BLOCK if rows is None else min(_BLOCK, rows - count))
    ):
        start, line = line, line + len(block)
        numbered = [(i, text) for i, text in enumerate(block, start) if text.strip()]
        if not numbered:
            continue
        if not widths:
            widths = _widths((cells_of(text, delimiter) for _, text in numbered), len(names), keep)
            if not widths:
                raise DataError("no column holds numbers")
        blocks.append(_block(numbered, names, widths, delimiter))
        count += len(numbered)
        if count * sum(widths.values()) > NUMBERS:
            raise DataError(
                f"the file holds more than {NUMBERS / 1e6:.0f} million numbers; name fewer columns, or cut it into trials"
            )
        if rows is not None and count >= rows:
            break
    if not count:
        raise DataError("there are no rows, only names of columns")
    return {j: np.concatenate([b[j] for b in blocks]) for j in widths}


def _widths(rows: Iterable[list[str]], count: int, keep: Sequence[int] | None) -> dict[int, int]:
    """Numbers in a cell of each column, by the first that is not blank; without `keep`, of those
    columns that hold nothing but numbers.
    """
    widths: dict[int, int] = {}
    words: set[int] = set()
    for row in rows:
        for j in (
            range(min(count, len(row)))
            if keep is None
            else [j for j in keep if j not in widths and j < len(row)]
        ):
            numbers = _vector(row[j])
            if numbers is None or (len(numbers) and len(numbers) != widths.get(j, len(numbers))):
                words.add(j)
            elif len(numbers):
                widths[j] = len(numbers)
        if keep is not None and all(j in widths or j in words for j in keep):
            break
    return (
        {j: widths.get(j, 1) for j in keep}
        if keep is not None
        else {j: width for j, width in sorted(widths.items()) if j not in words}
    )


def _block(
    numbered: list[tuple[int, str]], names: Sequence[str], widths: dict[int, int], delimiter: str
) -> dict[int, np.ndarray]:
    texts = [text for _, text in numbered]
    plain = (
        set(widths.values()) == {1} and delimiter == "," and not any('"' in text for text in texts)
    )
    if plain and all(text.count(delimiter) == len(names) - 1 for text in texts):
        try:
            table = np.loadtxt(
                texts, delimiter=delimiter, usecols=list(widths), ndmin=2, comments=None
            )
            return dict(zip(widths, table.T, strict=True))
        except ValueError:
            pass  # a blank or a word: the slow way below tells them apart
    cells = [cells_of(text, delimiter) for text in texts]
    for (number, _), row in zip(numbered, cells, strict=True):
        if len(row) != len(names) and not (len(row) == len(names) + 1 and not row[-1]):
            raise DataError(f"line {number} has {len(row)} cells where the header has {len(names)}")
    found = {}
    for j, width in widths.items():
        column = np.full((len(cells), width), np.nan)
        for i, row in enumerate(cells):
            cell = row[j] if delimiter == "," else row[j].replace(",", ".")
            numbers = _vector(cell)
            if numbers is None or len(numbers) not in (0, width):
                raise DataError(
                    f"line {numbered[i][0]} has {cell[:40]!r} in column {names[j][:40]!r}, where {'a number is' if width == 1 else f'{width} numbers are'} needed"
                )
            if len(numbers):
                column[i] = numbers
        found[j] = column[:, 0] if width == 1 else column
    return found


def _vector(cell: str) -> np.ndarray | None:
    """Numbers of a cell: several between blanks, none when it is blank, None when there is a word."""
    if cell.lower() in _BLANK:
        return np.empty(0)
    try:
        return np.array([float(part) for part in cell.split()])
    except ValueError:
        return None
