"""Tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from clashsim.core.params import Param

# Long words in the keys of benchmark rows, and their abbreviations in headers of tables.
_SHORT = {
    "accuracy": "acc",
    "position": "pos",
    "orientation": "orient",
    "rotation": "rot",
    "evaluations": "evals",
    "median": "med",
}
# Keys and rows of one table.
_Kind = tuple[list[str], list[Mapping[str, Any]]]
_GAP = 2  # spaces between two columns
_COMPARED = ("clashsim", "MuJoCo, identified")  # models in the table of pairs
_STATUS_COLOURS = {
    "fitted": "green",
    "at bound": "yellow",
    "unidentifiable": "red",
    "known": "cyan",
}


class Estimated(Protocol):
    """A parameter after calibration: value, 90 % interval and status."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def status(self) -> str: ...


def parameter_table(params: Sequence[Param], theta: Sequence[Estimated]) -> Table:
    """A table of nominal and identified values with intervals and status.

    Args:
        params: Parameters of a scene.
        theta: Estimates of these parameters, in the same order.
    """
    table = Table(
        title="Parameters (effective values: they make the model fit, not material constants)",
        title_justify="left",
    )
    numeric = ("nominal", "identified", "90 % interval")
    for name in ("parameter", "unit", *numeric, "status"):
        table.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    for param, estimate in zip(params, theta, strict=True):
        table.add_row(
            param.name,
            param.unit or "-",
            number(param.nominal),
            number(estimate.value),
            f"{number(estimate.low)} to {number(estimate.high)}",
            _coloured(str(estimate.status)),
        )
    return table


def restitution_table(nominal: Mapping[float, float], identified: Mapping[float, float]) -> Table:
    """A table of the restitution of a head-on impact.

    Args:
        nominal: Restitution by approach speed (m/s) at the nominal parameters.
        identified: Restitution by the same approach speeds at the identified parameters.
    """
    table = Table(
        title="What solref means: restitution of a head-on impact in MuJoCo", title_justify="left"
    )
    for name in ("approach speed, m/s", "nominal", "identified"):
        table.add_column(name, justify="right")
    for speed, restitution in nominal.items():
        table.add_row(f"{speed:.2f}", f"{restitution:.2f}", f"{identified[speed]:.2f}")
    return table


def ground_friction_table(friction: Mapping[str, Any]) -> Table:
    """A table of the ground's friction, as identified from slides, with standard errors.

    Args:
        friction: Part of a run's metrics.json with the keys "slides" (their number), "sliding",
            "torsional" (m), and the standard errors "sliding_error" and "torsional_error", which
            may be None.
    """
    table = Table(
        title=f"Friction of the ground, from {friction['slides']} slides", title_justify="left"
    )
    for name in ("coefficient", "unit", "value", "standard error"):
        table.add_column(name, justify="right" if name in ("value", "standard error") else "left")
    for name, unit in (("sliding", "-"), ("torsional", "m")):
        error = friction[f"{name}_error"]
        table.add_row(name, unit, number(friction[name]), "-" if error is None else number(error))
    return table


def slide_table(content: Mapping[str, Any], units: Mapping[str, str]) -> Table:
    """A table of the values of a slide model, with intervals and status if its fit is known.

    Args:
        content: Content of a run's slide.json.
        units: Units of the values, by name.
    """
    fit = content.get("fit", {"estimates": []})
    origin = ""
    if "slides" in fit:
        num_slides = fit["slides"]
        origin = f", from {num_slides} slides" if num_slides else ", from the given friction"
    table = Table(title=f"Slide model{origin}", title_justify="left")
    numeric = ("identified", "90 % interval")
    for name in ("value", "unit", *numeric, "status"):
        table.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    estimates = {estimate["name"]: estimate for estimate in fit["estimates"]}
    for name, value in content["values"].items():
        interval = "-"
        status = Text("-")
        if name in estimates:
            estimate = estimates[name]
            interval = f"{number(estimate['low'])} to {number(estimate['high'])}"
            status = _coloured(estimate["status"])
        table.add_row(name, units.get(name) or "-", number(value), interval, status)
    return table


def accuracy_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """A table with a row per model: accuracy(0.1), accuracy(0.2) and the median relative error.

    Args:
        title: Title of the table.
        rows: Figures by model, with the keys "accuracy_0.1", "accuracy_0.2" and "median".
    """
    table = Table(title=escape(title), title_justify="left")
    for name in ("model", "accuracy(0.1)", "accuracy(0.2)", "median error"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for name, row in rows.items():
        table.add_row(
            name,
            f"{row['accuracy_0.1']:.2f}",
            f"{row['accuracy_0.2']:.2f}",
            f"{row['median']:.3f}",
        )
    return table


def pairs_table(pairs: Mapping[str, Mapping[str, Any]], judgements: Mapping[str, str]) -> Table:
    """A table with a row per calibrated pair, the accuracies beside those of identified MuJoCo.

    Args:
        pairs: Content of metrics.json of each pair's run, by the pair's name.
        judgements: What each calibration is good for, in a few words, by the pair's name.
    """
    table = Table(
        title="Pairs, tested on impacts that were not fitted: clashsim / MuJoCo, identified",
        title_justify="left",
    )
    table.add_column("pair", overflow="fold")
    for name in ("impacts", "left out", "within 10 %", "median error, %"):
        table.add_column(name, justify="right")
    table.add_column("conclusion", overflow="fold")
    for name, metrics in pairs.items():
        models = metrics.get("models", {})
        figures = [models[model] for model in _COMPARED if model in models]
        shares = [f"{100 * row['accuracy_0.1']:.0f}" for row in figures]
        medians = [f"{100 * row['median']:.1f}" for row in figures]
        table.add_row(
            escape(name),
            str(metrics["impacts"] + metrics["held_out"]),
            str(metrics.get("num_left_out", 0)),
            " / ".join(shares) + " %" if shares else "-",
            " / ".join(medians) or "-",
            judgements[name],
        )
    return table


def tabulate_rows(title: str, rows: Sequence[Mapping[str, Any]], *, width: int) -> Group:
    """Rows of a benchmark as tables: one for each kind of row, with a column for each key.

    A kind is a set of keys. A row is shown in the first table that has all of the row's keys; rows
    without figures (with `why`) have tables of their own. Headers are the keys with some words
    abbreviated. So that no word is broken, columns that do not fit into the width follow in a table
    below, which repeats the columns before the first figure.

    Args:
        title: Title of the first table.
        rows: All rows of the benchmark, in order.
        width: Width of the terminal, in characters.
    """
    parts: list[Table | str] = []
    for keys, members in _fitting(_kinds(rows), width):
        headers = [_header(key) for key in keys]
        cells = [[_cell(row.get(key)) for row in members] for key in keys]
        texts = [_texts(key, members) for key in keys]
        table = Table(
            title=None if parts else title,
            title_justify="left",
            box=SIMPLE_HEAD,
            show_edge=False,
            padding=(0, _GAP - 1, 0, 0),
            pad_edge=False,
        )
        for key, header, column_width in zip(keys, headers, _widths(texts, width), strict=True):
            numeric = any(isinstance(row.get(key), int | float) for row in members)
            side: Literal["left", "right"] = "right" if numeric else "left"
            table.add_column(Text(header), justify=side, overflow="fold", width=column_width)
        for line in zip(*cells, strict=True):
            # As `Text`: rich would take the brackets of a string such as clashsim[mjx] for markup.
            table.add_row(*map(Text, line))
        parts += [table, ""]
    return Group(*parts)


def _fitting(kinds: Sequence[_Kind], width: int) -> list[_Kind]:
    """The kinds, those that are wider than `width` characters in several parts."""
    parts: list[_Kind] = []
    for keys, members in kinds:
        figures = [any(isinstance(row.get(key), float) for row in members) for key in keys]
        num_labels = figures.index(True) if any(figures) else len(keys)
        widths = {key: max(map(_longest_word, _texts(key, members))) + _GAP for key in keys}
        part = list(keys[:num_labels])
        for key in keys[num_labels:]:
            too_wide = sum(widths[k] for k in part) + widths[key] - _GAP > width
            if too_wide and len(part) > num_labels:
                parts.append((part, members))
                part = list(keys[:num_labels])
            part.append(key)
        parts.append((part, members))
    return parts


def _texts(key: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Header and cells of a column."""
    return [_header(key), *(_cell(row.get(key)) for row in rows)]


def _kinds(rows: Sequence[Mapping[str, Any]]) -> list[_Kind]:
    """Keys and rows of each kind, in the order in which kinds first appear.

    Lists and mappings are left out: they do not fit into a cell.
    """
    shown = [_printable(row) for row in rows]
    key_sets = list(dict.fromkeys(frozenset(row) for row in shown))
    largest = [keys for keys in key_sets if not _within_another(keys, key_sets)]
    kinds: dict[frozenset[str], list[Mapping[str, Any]]] = {}
    for row in shown:
        kind = next(keys for keys in largest if _within(frozenset(row), keys))
        kinds.setdefault(kind, []).append(row)
    out = []
    for members in kinds.values():
        keys_in_order = list(dict.fromkeys(key for row in members for key in row))
        out.append((keys_in_order, members))
    return out


def _printable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without lists and mappings."""
    return {key: value for key, value in row.items() if not isinstance(value, Mapping | list)}


def _within(keys: frozenset[str], other: frozenset[str]) -> bool:
    """Whether a row with the keys `keys` can be shown in a table with the keys `other`."""
    return keys <= other and ("why" in keys) == ("why" in other)


def _within_another(keys: frozenset[str], key_sets: Sequence[frozenset[str]]) -> bool:
    return any(keys != other and _within(keys, other) for other in key_sets)


def _header(key: str) -> str:
    """A key as words separated by spaces, where a line can be broken."""
    return " ".join(_SHORT.get(word, word) for word in key.split("_"))


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int | None]:
    """Widths of columns of texts, in characters.

    Each column is at least as wide as its longest word. Room that is left is given to columns with
    longer texts, from left to right.
    """
    least = [max(map(_longest_word, column)) for column in columns]
    most = [max(map(cell_len, column)) for column in columns]
    room = width - sum(least) - _GAP * (len(columns) - 1)
    if room < 0:
        return [None] * len(columns)  # rich chooses widths and breaks words
    widths: list[int | None] = []
    for narrow, wide in zip(least, most, strict=True):
        more = min(wide - narrow, room)
        room -= more
        widths.append(narrow + more)
    return widths


def _longest_word(text: str) -> int:
    """Length of the longest word, in characters."""
    return max(map(cell_len, text.split()), default=0)


def number(value: float) -> str:
    """A number to three significant digits, without an exponent where that reads better."""
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{float(f'{value:.3g}'):.10g}"
    return f"{value:.3g}"


def _coloured(status: str) -> Text:
    return Text(status, style=_STATUS_COLOURS.get(status, "white"))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else str(value)
