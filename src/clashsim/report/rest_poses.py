"""Section of the report on where struck bodies come to rest, in millimetres and degrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.report import charts
from clashsim.report.accuracy_sections import legend, method_cell
from clashsim.report.comparison import Comparison
from clashsim.report.markup import Markup, section, tag

_OUTPUTS = (("displacement in x", "mm"), ("displacement in y", "mm"), ("rotation", "°"))
_TO_SHOWN_UNITS = np.array([1e3, 1e3, 180 / np.pi])  # m, m, rad to mm, mm, degrees
_HINT = (
    "From the pose at impact to the pose at rest: the twist after impact that each method "
    "predicts, followed by the same slide model for all of them."
)


@dataclass(frozen=True, eq=False)
class RestDisplacements:
    """Ways and turns (M, 3) from impact to rest, m and rad, measured and by each method; rows (M,):
    which of the impacts judged they follow.
    """

    rows: np.ndarray
    measured: np.ndarray
    predicted: Mapping[str, np.ndarray]

    def errors(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """How far (mm) and by which angle (degrees) bodies end from where a method says, (M,) each;
        infinite where it says nothing.
        """
        gap = self.predicted[name] - self.measured
        gap[:, 2] = wrap_angle(gap[:, 2])
        gap = np.nan_to_num(gap, nan=np.inf)
        return 1e3 * np.linalg.norm(gap[:, :2], axis=1), np.degrees(np.abs(gap[:, 2]))

    def sentence(self, ours: str, baseline: str | None) -> str:
        """The median error of ours and of the rival in metres' and degrees' terms."""
        far, turn = (float(np.median(e)) for e in self.errors(ours))
        said = f"With its slide model, struck bodies come to rest {far:.1f} mm and {turn:.1f}° from where it says (median of {len(self.rows)})"
        if baseline is None or baseline not in self.predicted:
            return f"{said}."
        theirs = [float(np.median(e)) for e in self.errors(baseline)]
        return f"{said}; with the collision of {baseline}, {theirs[0]:.1f} mm and {theirs[1]:.1f}°."


def table(rests: RestDisplacements, order: Sequence[str]) -> Markup:
    """Median and 90th percentile of both errors for each method, in the order of the page's series."""
    head = tag(
        "tr",
        tag("th", "method", scope="col"),
        [
            tag("th", f"{what}, median", tag("small", "90th percentile"), scope="col", class_="num")
            for what in ("position", "angle")
        ],
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
            percentile = float(np.quantile(error, 0.9, method="nearest"))
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
