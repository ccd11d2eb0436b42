"""Section of the report on where struck bodies come to rest, in millimetres and degrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.evaluate.rest_poses import RestDisplacements
from clashsim.report import charts
from clashsim.report.accuracy_sections import legend, method_cell
from clashsim.report.comparison import Comparison
from clashsim.report.markup import Markup, section, tag

_OUTPUTS = (("displacement in x", "mm"), ("displacement in y", "mm"), ("rotation", "°"))
_TO_SHOWN_UNITS = np.array([1e3, 1e3, 180 / np.pi])  # m, m, rad to mm, mm, degrees
_HIGH_QUANTILE = 0.9  # of the errors, shown beside the median
_HINT = (
    "From the pose at impact to the pose at rest: the twist after impact that each method "
    "predicts, followed by the same slide model for all of them."
)


def rest_section(
    displacements: RestDisplacements, compared: Comparison, labels: Sequence[str]
) -> Markup:
    """Charts of predicted over measured displacements, and a table of errors.

    Args:
        displacements: From impact to rest, measured and predicted.
        compared: The methods, the reported one first.
        labels: Name of each held-out impact, (N,).
    """
    methods = list(compared.predicted)
    panels = tag("div", _charts(displacements, methods, labels), class_="panels plot")
    return section(
        "Rest poses",
        legend(compared),
        panels,
        _error_table(displacements, methods),
        tag("p", _HINT, class_="quiet"),
    )


def _error_table(displacements: RestDisplacements, methods: Sequence[str]) -> Markup:
    """Median and 90th percentile of the errors of each method, the reported one first."""
    header = [tag("th", "method", scope="col")]
    for quantity in ("position", "angle"):
        note = tag("small", "90th percentile")
        header.append(tag("th", f"{quantity}, median", note, scope="col", class_="num"))
    rows = []
    for series, name in enumerate(methods):
        cells = [method_cell(series, name)]
        for error, unit in zip(displacements.errors(name), (" mm", "°"), strict=True):
            median = float(np.median(error))
            # "nearest", because interpolation between infinite errors would give NaN.
            percentile = float(np.quantile(error, _HIGH_QUANTILE, method="nearest"))
            note = tag("small", _with_unit(percentile, unit))
            cells.append(tag("td", _with_unit(median, unit), note, class_="num"))
        rows.append(tag("tr", cells, class_="ours" if series == 0 else None))
    return tag("table", tag("thead", tag("tr", header)), tag("tbody", rows), class_="rests")


def _with_unit(value: float, unit: str) -> str:
    return f"{value:.1f}{unit}" if np.isfinite(value) else "none"


def _charts(
    displacements: RestDisplacements, methods: Sequence[str], labels: Sequence[str]
) -> list[Markup]:
    """A chart for each of x, y and rotation."""
    row_labels = [labels[int(row)] for row in displacements.rows]
    measured = displacements.measured * _TO_SHOWN_UNITS
    predicted = {name: displacements.predicted[name] * _TO_SHOWN_UNITS for name in methods}
    panels = []
    for column, (name, unit) in enumerate(_OUTPUTS):
        chart = charts.predicted_over_measured(
            measured[:, column],
            {method: values[:, column] for method, values in predicted.items()},
            row_labels,
            name=name,
            unit=unit,
            indices=displacements.rows.tolist(),
        )
        panels.append(chart)
    return panels
