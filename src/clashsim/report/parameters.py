"""Sections of the report on identified values: parameters, restitution and the slide model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from clashsim.core.params import Param, to_unit
from clashsim.report import charts
from clashsim.report.chart_frame import legend_key
from clashsim.report.markup import Markup, section, tag
from clashsim.report.tables import Estimated, number

_STATUS_MEANINGS = {
    "fitted": "the impacts determine the value",
    "at bound": (
        "the best value lies at an end of the range: widen the range, or suspect an effect that "
        "the scene lacks"
    ),
    "unidentifiable": (
        "these impacts hardly narrow the prior; do not interpret the value on its own"
    ),
    "known": "measured with each impact; the bar spans the measured values",
}
_PARAMETERS_HINT = (
    "Bar: the interval within the allowed range; dot: the identified value; tick: the nominal "
    "value. Values are effective: they make the model fit, and are not material constants."
)
_SLIDE_HINT = (
    "How the struck body slides to rest: friction of its whole support patch, fitted to the slides "
    "after the impacts."
)
_RESTITUTION_HINT = (
    "What the contact parameters mean: speed after over speed before a head-on impact in MuJoCo. "
    "0: the bodies do not separate; 1: no speed is lost."
)


# Of a range bar: the ends of the range lie this far inside the ends of the drawing, in percent.
_BAR_MARGIN = 1


def parameters_section(params: Sequence[Param], estimates: Sequence[Estimated]) -> Markup | None:
    """A table with a row per parameter, and what it means; None if there are no parameters.

    Args:
        params: Parameters of the scene.
        estimates: Estimates of these parameters, in the same order.
    """
    if not params:
        return None
    statuses = {str(estimate.status) for estimate in estimates}
    meanings = []
    for status, meaning in _STATUS_MEANINGS.items():
        if status in statuses:
            meanings += [tag("dt", _status_chip(status)), tag("dd", meaning)]
    return section(
        "Parameters",
        parameters_table(params, estimates),
        tag("dl", meanings, class_="meanings"),
        tag("p", _PARAMETERS_HINT, class_="quiet"),
    )


def parameters_table(params: Sequence[Param], estimates: Sequence[Estimated]) -> Markup:
    """A table with a row per parameter; arguments as for `parameters_section`."""
    columns = (
        ("parameter", None),
        ("identified", "num"),
        ("90 % interval", "num"),
        ("within its range", "bar"),
        ("status", None),
    )
    rows = []
    for param, estimate in zip(params, estimates, strict=True):
        rows.append(_parameter_row(param, estimate))
    return tag("table", _table_head(columns), tag("tbody", rows), class_="params")


def _parameter_row(param: Param, estimate: Estimated) -> Markup:
    unit = " " + param.unit.replace("^2", "²").replace("^3", "³") if param.unit else ""
    status = str(estimate.status)
    interval = f"{_short_number(estimate.low)} to {_short_number(estimate.high)}"
    value = tag("b", _short_number(estimate.value))
    cells = [
        tag("th", param.name, tag("small", param.target, class_="mono"), scope="row"),
        tag("td", value, unit, class_="num", data_h="identified"),
        tag("td", interval, class_="num", data_h="90 % interval"),
        tag("td", _range_bar(param, estimate), class_="bar"),
        tag("td", _status_chip(status), data_h="status"),
    ]
    return tag("tr", cells)


def slide_section(estimates: Sequence[Estimated], units: Mapping[str, str]) -> Markup | None:
    """A table of the slide model's values; None if there is no slide model.

    Args:
        estimates: Estimates of the slide model's values.
        units: Units of these values, by name.
    """
    if not estimates:
        return None
    columns = (("value", None), ("identified", "num"), ("90 % interval", "num"), ("status", None))
    rows = []
    for estimate in estimates:
        unit = units.get(estimate.name)
        interval = f"{_short_number(estimate.low)} to {_short_number(estimate.high)}"
        value = tag("b", _short_number(estimate.value))
        cells = [
            tag("th", estimate.name, scope="row"),
            tag("td", value, f" {unit}" if unit else "", class_="num"),
            tag("td", interval, class_="num"),
            tag("td", _status_chip(str(estimate.status))),
        ]
        rows.append(tag("tr", cells))
    table = tag("table", _table_head(columns), tag("tbody", rows), class_="trials slide")
    return section(
        "Slide model", tag("div", table, class_="scroll"), tag("p", _SLIDE_HINT, class_="quiet")
    )


def restitution_section(
    restitution: Mapping[str, Sequence[float]] | None,
) -> Markup | None:
    """A table and a chart of restitution over approach speed; None without restitution.

    Args:
        restitution: Lists by the keys "speeds" (approach speeds, m/s), "nominal" and "identified"
            (restitution at these speeds with nominal and with identified parameters).
    """
    if not restitution or not len(restitution["speeds"]):
        return None
    speeds = [float(speed) for speed in restitution["speeds"]]
    values = {}
    header = [tag("th", "approach speed, m/s", scope="col", class_="num")]
    for series, name in enumerate(("identified", "nominal")):
        values[name] = [float(value) for value in restitution[name]]
        header.append(tag("th", legend_key(series), name, scope="col", class_="num"))
    rows = []
    for i, speed in enumerate(speeds):
        cells = [tag("td", f"{speed:.2f}", class_="num")]
        for restitutions in values.values():
            cells.append(tag("td", f"{restitutions[i]:.2f}", class_="num"))
        rows.append(tag("tr", cells))
    table = tag("table", tag("thead", tag("tr", header)), tag("tbody", rows))
    hint = tag("p", _RESTITUTION_HINT, class_="quiet")
    chart = tag("div", charts.restitution_curves(speeds, values), class_="drawing")
    return section("Restitution", tag("div", tag("div", table, hint), chart, class_="pair"))


def _table_head(columns: Sequence[tuple[str, str | None]]) -> Markup:
    """The head of a table, from pairs of a column's name and style-sheet class."""
    cells = [tag("th", name, scope="col", class_=class_) for name, class_ in columns]
    return tag("thead", tag("tr", cells))


def _status_class(status: str) -> str:
    """The style-sheet class of a status."""
    return status.replace(" ", "-") if status in _STATUS_MEANINGS else "other"


def _status_chip(status: str) -> Markup:
    return tag("span", status, class_=f"chip {_status_class(status)}")


def _range_bar(param: Param, estimate: Estimated) -> tuple[Markup, Markup]:
    """A bar of the parameter's range, with interval, value and nominal value; and its two ends.

    Positions are on the parameter's own scale, linear or logarithmic.
    """
    values = np.array([[estimate.low], [estimate.value], [estimate.high], [param.nominal]])
    in_unit_range = to_unit([param], values)[:, 0]  # from -1 to 1
    fractions = np.clip((in_unit_range + 1) / 2, 0, 1)
    length = 100 - 2 * _BAR_MARGIN
    low, value, high, nominal = (f"{_BAR_MARGIN + length * float(f):.1f}%" for f in fractions)
    range_low, range_high = _short_number(param.low), _short_number(param.high)
    bar = tag(
        "svg",
        tag("line", class_="track", x1=f"{_BAR_MARGIN}%", x2=f"{100 - _BAR_MARGIN}%", y1=9, y2=9),
        tag("line", class_="span", x1=low, x2=high, y1=9, y2=9),
        tag("line", class_="nominal", x1=nominal, x2=nominal, y1=2, y2=16),
        tag("circle", class_="value", cx=value, cy=9, r=4.5),
        class_=f"range {_status_class(str(estimate.status))}",
        height=18,
        role="img",
        aria_label=f"{_short_number(estimate.value)} in {range_low} to {range_high}",
    )
    scale = tag("span", "log scale") if param.scale == "log" else None
    ends = tag("span", tag("span", range_low), scale, tag("span", range_high), class_="ends")
    return bar, ends


def _short_number(value: float) -> str:
    """A number to three significant digits, with an exponent such as e5 instead of e+05."""
    return re.sub(r"e([+-])0*", lambda found: "e" + found[1].strip("+"), number(value))
