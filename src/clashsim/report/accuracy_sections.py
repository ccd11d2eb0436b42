"""Sections of the report on how well held-out impacts are predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clashsim.core.impacts import after_columns
from clashsim.evaluate.metrics import ALPHAS, accuracy
from clashsim.report import charts
from clashsim.report.chart_frame import legend_key, series_class
from clashsim.report.comparison import EXPECTED_COVERAGE, Comparison, coverage_sentence
from clashsim.report.markup import Markup, section, tag

_UNITS = {"v": "m/s", "w": "rad/s"}  # of an output, by the first letter of its name
_CURVE_ALPHAS = np.linspace(0.0, 0.5, 101)  # thresholds of the curve of accuracies
_ERROR_DEFINITION = (
    "Error: |predicted - measured| / |measured| of the twist, with the angular velocity times the "
    "radius of gyration. Small figures: 90 % interval."
)


def accuracy_section(
    compared: Comparison,
    test_description: str | None,
    *,
    title: str = "Accuracy on held-out impacts",
) -> Markup:
    """A table of accuracies and median errors, and a chart of accuracy over the threshold.

    Args:
        compared: Predictions of all methods.
        test_description: How impacts were held out, as in "on 20 impacts held out".
        title: Heading of the section.
    """
    header = [tag("th", "method", scope="col")]
    for alpha in ALPHAS:
        note = tag("small", f"accuracy({alpha:g})")
        header.append(tag("th", f"within {100 * alpha:g} %", note, scope="col", class_="num"))
    note = tag("small", "relative")
    header.append(tag("th", "median error", note, scope="col", class_="num"))
    rows = []
    for series, (name, error) in enumerate(compared.errors.items()):
        row_class = "ours" if name == compared.ours else None
        cells = [method_cell(series, name), *_accuracy_cells(compared, series, error)]
        rows.append(tag("tr", cells, class_=row_class))
    table = tag("table", tag("thead", tag("tr", header)), tag("tbody", rows), class_="methods")
    tested = test_description or f"on {len(compared.measured)} impacts held out"
    hint = tag(
        "p", f"Tested {tested}. ", _ERROR_DEFINITION, " ", compared.missing(), class_="quiet"
    )
    shares = {}
    for name, error in compared.errors.items():
        shares[name] = np.array([accuracy(error, alpha) for alpha in _CURVE_ALPHAS])
    curves = charts.accuracy_curves(_CURVE_ALPHAS, shares, marked=ALPHAS)
    chart = tag("div", curves, class_="plot drawing")
    return section(title, tag("div", tag("div", table, hint), chart, class_="pair"))


def _accuracy_cells(compared: Comparison, series: int, error: np.ndarray) -> list[Markup]:
    """Cells of one method: a share with its interval per threshold, and the median error."""
    cells = []
    for alpha in ALPHAS:
        share = accuracy(error, alpha)
        low, high = compared.interval(share)
        interval = tag("small", f"{100 * low:.0f} to {100 * high:.0f}")
        meter = _meter(share, series)
        cells.append(tag("td", f"{100 * share:.0f} %", interval, meter, class_="num"))
    median = float(np.median(error))
    text = f"{100 * median:.1f} %" if np.isfinite(median) else "none"
    cells.append(tag("td", text, class_="num"))
    return cells


def method_cell(series: int, name: str) -> Markup:
    """The first cell of a method's row: its legend key and name."""
    content = tag("span", legend_key(series), tag("span", name), class_="name")
    return tag("th", content, scope="row")


def _meter(share: float, series: int) -> Markup:
    """A thin bar of a share."""
    width = f"{100 * share:.1f}%"
    return tag(
        "svg",
        tag("rect", class_="track", width="100%", height=4, rx=2),
        tag("rect", class_=f"fill {series_class(series)}", width=width, height=4, rx=2),
        class_="meter",
        height=4,
        aria_hidden="true",
    )


def legend(compared: Comparison) -> Markup:
    """Buttons that show and hide the marks of each method."""
    buttons = []
    for series, name in enumerate(compared.errors):
        button = tag(
            "button",
            legend_key(series),
            tag("span", name),
            type="button",
            data_s=series_class(series),
            aria_pressed="true",
        )
        buttons.append(button)
    return tag("div", buttons, class_="legend")


def agreement_section(compared: Comparison, labels: Sequence[str]) -> Markup:
    """Charts of predicted over measured values, one per output.

    Args:
        compared: Predictions of all methods.
        labels: Name of each impact, (N,).
    """
    panels = []
    for column, name in zip(compared.measured_outputs, _output_names(compared), strict=True):
        rows = np.flatnonzero(~np.isnan(compared.measured[:, column])).tolist()
        predicted = {method: twist[rows, column] for method, twist in compared.predicted.items()}
        chart = charts.predicted_over_measured(
            compared.measured[rows, column],
            predicted,
            [labels[row] for row in rows],
            name=name,
            unit=_UNITS[name[0]],
            indices=rows,
        )
        panels.append(chart)
    hint = "On the line, prediction and measurement agree. Hollow marks lie outside the chart."
    num_drawn = len(charts.select_drawn(len(labels)))
    if num_drawn < len(labels):
        hint += f" {num_drawn} of {len(labels)} impacts are drawn."
    return section(
        "Predicted against measured",
        legend(compared),
        tag("div", panels, class_="panels plot"),
        tag("p", hint, class_="quiet"),
    )


def conditions_section(
    compared: Comparison, labels: Sequence[str], conditions: Mapping[str, np.ndarray]
) -> Markup:
    """Charts of errors over conditions of the impact, such as the approach speed.

    Args:
        compared: Predictions of all methods.
        labels: Name of each impact, (N,).
        conditions: Values (N,) by a name with its unit.
    """
    panels = []
    for name, values in conditions.items():
        x = np.asarray(values, float)
        panels.append(charts.errors_over_condition(x, compared.errors, labels, name=name))
    hint = "Lines: the median of each fifth of the impacts, from low to high."
    return section(
        "Error by condition of the impact",
        legend(compared),
        tag("div", panels, class_="panels wide plot"),
        tag("p", hint, class_="quiet"),
    )


def coverage_section(compared: Comparison, half_widths: np.ndarray) -> Markup:
    """A table of how many outcomes lie within the predicted intervals.

    Args:
        compared: Predictions of all methods.
        half_widths: Half-widths of the intervals of our method's outputs, (2, N, k).
    """
    shares = compared.coverage(half_widths)
    header = [tag("th", "output", scope="col")]
    for expected in EXPECTED_COVERAGE:
        header.append(tag("th", f"within the {expected:.0%} interval", scope="col"))
    mean_shares = shares.mean(1)
    rows = [_coverage_row("all", mean_shares, row_class="ours")]
    for name, output_shares in zip(_output_names(compared), shares.T, strict=True):
        rows.append(_coverage_row(name, output_shares))
    sentence = coverage_sentence(mean_shares, len(compared.measured))
    table = tag("table", tag("thead", tag("tr", header)), tag("tbody", rows), class_="coverage")
    hint = f"{sentence} Tick: the share that the interval states."
    return section("Are the predicted intervals right?", table, tag("p", hint, class_="quiet"))


def _coverage_row(name: str, shares: np.ndarray, row_class: str | None = None) -> Markup:
    cells = []
    for share, expected in zip(shares, EXPECTED_COVERAGE, strict=True):
        figure = tag("span", f"{100 * share:.0f} %", class_="figure")
        cells.append(tag("td", figure, _gauge(float(share), float(expected)), class_="gauged"))
    return tag("tr", tag("th", name, scope="row"), cells, class_=row_class)


def _gauge(share: float, expected: float) -> Markup:
    """A bar of a share with a tick at the expected share."""
    tick = f"{100 * expected:.1f}%"
    return tag(
        "svg",
        tag("rect", class_="track", y=5, width="100%", height=8, rx=2),
        tag("rect", class_="fill s0", y=5, width=f"{100 * share:.1f}%", height=8, rx=2),
        tag("line", class_="nominal", x1=tick, x2=tick, y1=1, y2=17),
        class_="gauge",
        height=18,
        aria_hidden="true",
    )


def _output_names(compared: Comparison) -> list[str]:
    """Names of the components of a twist that were measured, such as "vx"."""
    names = after_columns(compared.measured.shape[1] == 3)
    return [names[i].removesuffix("_after") for i in compared.measured_outputs]
