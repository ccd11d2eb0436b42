"""Section of the report on whether more impacts would help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.evaluate.data_efficiency import DataEfficiency
from clashsim.evaluate.metrics import accuracy
from clashsim.report.chart_frame import Axes, ChartLabels, Tooltip, draw_chart, line, mark
from clashsim.report.comparison import Comparison
from clashsim.report.content import ReportContent
from clashsim.report.markup import Markup, section, tag
from clashsim.report.units import keep_units

_HEADING = "Would more impacts help?"
# On the axis of the natural logarithm of the number of impacts:
_MIN_LABEL_DISTANCE = 0.12  # between two tick labels
_X_MARGIN = 0.12  # between the outermost marks and the frame
_ALPHA = 0.1  # relative error within which accuracies count impacts
_SIZE = (440.0, 290.0)  # px, width and height of the chart
_NEAR_TOP = 30  # px from the top of the chart, within which no text fits above a line
_TEXT_ABOVE = 5  # px from a line up to the base line of its text
_TEXT_BELOW = 14  # px from a line down to the base line of its text


@dataclass(frozen=True, eq=False)
class FittedErrors:
    """Relative errors (N,) on held-out impacts of a calibration on `num_impacts` impacts."""

    num_impacts: int
    errors: np.ndarray


@dataclass(frozen=True)
class _SizeSummary:
    """Median error and accuracy(0.1) of each subset of `num_impacts` impacts.

    `median` is that of the errors of all subsets together, which a single bad one hardly changes.
    """

    num_impacts: int
    median: float
    medians: list[float]
    accuracies: list[float]

    @property
    def x(self) -> float:
        """Position on the logarithmic axis."""
        return math.log(self.num_impacts)


def data_efficiency_section(content: ReportContent, compared: Comparison) -> Markup | None:
    """Errors of calibrations on fewer impacts, and advice on more; None without either."""
    efficiency = content.data_efficiency
    if efficiency is None and content.advice is None:
        return None
    sentences = []
    if content.advice:
        sentences.append(content.advice[0].upper() + content.advice[1:] + ".")
    if efficiency is None or not len(compared.measured):
        return section(_HEADING, tag("p", keep_units(" ".join(sentences))))
    # As the subsets, without outliers.
    usual = slice(None) if content.outlying is None else ~content.outlying
    num_fitted = content.num_fitted - efficiency.num_left_out
    whole = FittedErrors(num_fitted, compared.errors[compared.ours][usual])
    sentences.insert(0, efficiency_sentence(efficiency, whole))
    hint = (
        "The model was calibrated again on random subsets of the same impacts. Whiskers: lowest "
        "and highest median error of the subsets."
    )
    text = tag("div", tag("p", keep_units(" ".join(sentences))), tag("p", hint, class_="quiet"))
    unfitted = []
    for name, errors in compared.errors.items():
        if name.endswith("nominal"):  # a simulator with nominal parameters uses no impacts
            unfitted.append((name, errors[usual]))
    chart = efficiency_chart(efficiency, whole, unfitted[0] if unfitted else None)
    drawing = tag("div", chart, class_="plot drawing")
    return section(_HEADING, tag("div", text, drawing, class_="pair"))


def efficiency_sentence(efficiency: DataEfficiency, whole: FittedErrors) -> str:
    """Median errors of the smallest subsets and of all impacts, in words."""
    first = _pooled_median(efficiency.errors[0])
    last = float(np.median(whole.errors))
    without = ""
    if efficiency.num_left_out:
        outliers = "outlier" if efficiency.num_left_out == 1 else "outliers"
        without = f", without the {efficiency.num_left_out} {outliers}"
    return (
        f"From {efficiency.sizes[0]} to {whole.num_impacts} impacts the median error went from "
        f"{100 * first:.1f} to {100 * last:.1f} %{without}."
    )


def efficiency_chart(
    efficiency: DataEfficiency, whole: FittedErrors, unfitted: tuple[str, np.ndarray] | None
) -> Markup:
    """Median error over the number of fitted impacts, on a logarithmic axis.

    Args:
        efficiency: Errors of calibrations on subsets.
        whole: Errors of the calibration on all impacts.
        unfitted: Name and relative errors (N,) of a method that uses no impacts; drawn as a
            horizontal line.

    Returns:
        An SVG element.
    """
    summaries = [
        _summarise(size, errors)
        for size, errors in zip(efficiency.sizes, efficiency.errors, strict=True)
    ]
    summaries.append(_summarise(whole.num_impacts, (whole.errors,)))
    level = None if unfitted is None else float(np.median(unfitted[1]))
    axes = _axes(summaries, level)
    parts: list[Markup] = []
    if unfitted is not None and level is not None and math.isfinite(level):
        parts += _level_line(axes, level, f"{unfitted[0]}, no impacts")
    parts.append(line(axes, 0, [(s.x, s.median) for s in summaries]))
    for summary in summaries:
        parts += _summary_marks(axes, summary)
    last = summaries[-1]
    x_ticks = {}
    for summary in summaries:
        if summary is last or last.x - summary.x > _MIN_LABEL_DISTANCE:
            x_ticks[summary.x] = f"{summary.num_impacts:g}"
    labels = ChartLabels(
        "median error over the number of impacts", "fitted impacts", "median error"
    )
    return draw_chart(axes, labels, parts, percent=True, x_ticks=x_ticks)


def _summarise(num_impacts: int, errors: tuple[np.ndarray, ...]) -> _SizeSummary:
    medians = [float(np.median(of_subset)) for of_subset in errors]
    accuracies = [accuracy(of_subset, _ALPHA) for of_subset in errors]
    return _SizeSummary(num_impacts, _pooled_median(errors), medians, accuracies)


def _pooled_median(errors: Sequence[np.ndarray]) -> float:
    """Median of the errors of all subsets together."""
    return float(np.median(np.concatenate(errors)))


def _axes(summaries: list[_SizeSummary], level: float | None) -> Axes:
    shown = [median for summary in summaries for median in summary.medians]
    if level is not None:
        shown.append(level)
    highest = max((value for value in shown if math.isfinite(value)), default=0.5)
    top = min(1.0, 1.15 * highest) or 0.1
    x_bounds = (summaries[0].x - _X_MARGIN, summaries[-1].x + _X_MARGIN)
    return Axes(x_bounds, (0.0, top), *_SIZE)


def _level_line(axes: Axes, level: float, text: str) -> list[Markup]:
    y = axes.py(level)
    left, right = axes.px(axes.x[0]), axes.px(axes.x[1])
    text_y = y - _TEXT_ABOVE if y > _NEAR_TOP else y + _TEXT_BELOW
    return [
        tag("line", class_="agree", x1=left, x2=right, y1=y, y2=y),
        tag("text", text, x=right - 4, y=text_y, text_anchor="end"),
    ]


def _summary_marks(axes: Axes, summary: _SizeSummary) -> list[Markup]:
    """Whisker and mark of one size."""
    px = axes.px(summary.x)
    whisker = tag(
        "line",
        class_="whisker s0",
        x1=px,
        x2=px,
        y1=axes.py(min(summary.medians)),
        y2=axes.py(max(summary.medians)),
    )
    mean_accuracy = float(np.mean(summary.accuracies))
    text = (
        f"median error {100 * summary.median:.1f} %\n"
        f"within 10 %: {100 * mean_accuracy:.0f} % of the impacts"
    )
    label = f"{summary.num_impacts} impacts"
    if len(summary.medians) > 1:
        label += f", {len(summary.medians)} subsets"
    return [whisker, mark(axes, 0, (summary.x, summary.median), Tooltip(label, text))]
