"""Tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from clashsim.core.params import Param

_COLOURS = {"fitted": "green", "at bound": "yellow", "unidentifiable": "red", "known": "cyan"}


class Estimated(Protocol):
    """A parameter after calibration."""

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


def parameters(params: Sequence[Param], theta: Sequence[Estimated]) -> Table:
    """One row a parameter: nominal and identified value, interval, verdict."""
    table = Table(title="Parameters (effective values: what makes the model fit, not material constants)", title_justify="left")
    for name in ("parameter", "unit", "nominal", "identified", "90 % interval", "verdict"):
        table.add_column(name, justify="right" if name in ("nominal", "identified", "90 % interval") else "left", overflow="fold")
    for param, estimate in zip(params, theta, strict=True):
        interval = f"{number(estimate.low)} to {number(estimate.high)}"
        table.add_row(param.name, param.unit or "-", number(param.nominal), number(estimate.value), interval, _coloured(str(estimate.status)))
    return table


def readings(nominal: Mapping[float, float], identified: Mapping[float, float]) -> Table:
    """Restitution of a head-on impact at some speeds, before and after."""
    table = Table(title="What solref means: restitution of a head-on impact in MuJoCo", title_justify="left")
    for name in ("approach speed, m/s", "nominal", "identified"):
        table.add_column(name, justify="right")
    for speed, before in nominal.items():
        table.add_row(f"{speed:.2f}", f"{before:.2f}", f"{identified[speed]:.2f}")
    return table


def ground(found: Mapping[str, Any]) -> Table:
    """Friction of the ground as the slides after the impacts tell it, with standard errors."""
    table = Table(title=f"Friction of the ground, from {found['slides']} slides", title_justify="left")
    for name in ("coefficient", "unit", "value", "standard error"):
        table.add_column(name, justify="right" if name in ("value", "standard error") else "left")
    for name, unit in (("sliding", "-"), ("torsional", "m")):
        error = found[f"{name}_error"]
        table.add_row(name, unit, number(found[name]), "-" if error is None else number(error))
    return table


def slide(content: Mapping[str, Any], units: Mapping[str, str]) -> Table:
    """Values of a slide model, with intervals and verdicts where its fit is known: `content` as a run's slide.json has it, units by name."""
    fit = content.get("fit", {"estimates": []})
    table = Table(title="Slide model" + (f", from {fit['slides']} slides" if "slides" in fit else ""), title_justify="left")
    for name in ("value", "unit", "identified", "90 % interval", "verdict"):
        table.add_column(name, justify="right" if name in ("identified", "90 % interval") else "left", overflow="fold")
    told = {e["name"]: e for e in fit["estimates"]}
    for name, value in content["values"].items():
        e = told.get(name)
        interval, status = "-", Text("-")
        if e is not None:
            interval = f"{number(e['low'])} to {number(e['high'])}"
            status = _coloured(e["status"])
        table.add_row(name, units.get(name) or "-", number(value), interval, status)
    return table


def accuracies(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row a model: accuracy at 0.1 and 0.2, and the median relative error."""
    table = Table(title=escape(title), title_justify="left")
    for name in ("model", "accuracy(0.1)", "accuracy(0.2)", "median error"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for name, row in rows.items():
        table.add_row(name, *(f"{row[key]:.2f}" for key in ("accuracy_0.1", "accuracy_0.2")), f"{row['median']:.3f}")
    return table


def plain(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of a bench, one column a key."""
    table = Table(title=title, title_justify="left")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for key in keys:
        numeric = any(isinstance(row.get(key), int | float) for row in rows)
        table.add_column(key, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in keys))
    return table


def number(value: float) -> str:
    """A number to three significant digits, without an exponent where that reads better."""
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{float(f'{value:.3g}'):.10g}"
    return f"{value:.3g}"


def _coloured(status: str) -> Text:
    return Text(status, style=_COLOURS.get(status, "white"))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else str(value)
