"""The charts of the report: predictions over measurements, errors, accuracies, restitution."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from clashsim.report.chart_frame import (
    Axes,
    ChartLabels,
    Tooltip,
    draw_chart,
    line,
    mark,
    series_class,
)
from clashsim.report.markup import Markup, tag

# Marks of one series in one chart: more would cover each other and make the page heavy.
_MAX_MARKS = 500
# Predictions may widen a chart by this fraction of the measured range on each side; predictions
# farther out are drawn on the frame.
_MAX_WIDENING = 0.5
# The line in a chart of errors connects the medians of groups of impacts.
_MAX_GROUPS = 5
_MIN_GROUP = 5  # impacts in a group
_ERROR_QUANTILE = 0.95  # of the errors, at the top of a chart of errors
_TOP_ERRORS = (0.3, 1.0)  # least and greatest error at the top of a chart of errors
_WIDE_SIZE = (440.0, 290.0)  # px, width and height of a chart that is not square
_LOW_SIZE = (440.0, 240.0)  # px, width and height of the chart of restitution

_Value = TypeVar("_Value")


def select_drawn(n: int) -> np.ndarray:
    """Indices of the impacts that are drawn, of n: all, or `_MAX_MARKS` evenly spaced ones."""
    if n <= _MAX_MARKS:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, _MAX_MARKS).round().astype(int))


def predicted_over_measured(
    measured: np.ndarray,
    predicted: Mapping[str, np.ndarray],
    labels: Sequence[str],
    *,
    name: str,
    unit: str,
    indices: Sequence[int] | None = None,
) -> Markup:
    """Chart of predicted over measured values, with the line on which they agree.

    Args:
        measured: Values of one output, (N,).
        predicted: Values that each method predicts, (N,); not finite where a method predicts
            nothing.
        labels: Name of each impact, (N,).
        name: Name of the output.
        unit: Unit of the output.
        indices: Number of each impact, the same in all charts of the page; 0 to N - 1 if not
            given.

    Returns:
        An SVG element.
    """
    bounds = _scatter_bounds(measured, predicted)
    axes = Axes(bounds, bounds)
    low, high = bounds
    agreement = tag(
        "line",
        class_="agree",
        x1=axes.px(low),
        y1=axes.py(low),
        x2=axes.px(high),
        y2=axes.py(high),
    )
    numbers = range(len(measured)) if indices is None else indices
    marks = []
    for series, method, values in _in_drawing_order(predicted):
        for i in select_drawn(len(measured)):
            if np.isfinite(values[i]):
                text = (
                    f"{method}: {name} {_three_digits(values[i])} {unit}, "
                    f"measured {_three_digits(measured[i])}"
                )
                point = (float(measured[i]), float(values[i]))
                marks.append(mark(axes, series, point, Tooltip(labels[i], text, numbers[i])))
    chart_labels = ChartLabels(
        f"{name}: predicted over measured", f"measured {name}, {unit}", f"predicted {name}, {unit}"
    )
    return draw_chart(axes, chart_labels, agreement, marks)


def _scatter_bounds(
    measured: np.ndarray, predicted: Mapping[str, np.ndarray]
) -> tuple[float, float]:
    """Lowest and highest value of a chart, with all measured values and most predictions inside."""
    measured_low, measured_high = float(measured.min()), float(measured.max())
    widening = _MAX_WIDENING * (measured_high - measured_low) or 1.0
    finite = [values[np.isfinite(values)] for values in predicted.values()]
    everything = np.concatenate([*finite, measured])
    low = max(measured_low - widening, float(everything.min()))
    high = min(measured_high + widening, float(everything.max()))
    padding = 0.04 * (high - low) or 0.5
    return low - padding, high + padding


def errors_over_condition(
    x: np.ndarray, errors: Mapping[str, np.ndarray], labels: Sequence[str], *, name: str
) -> Markup:
    """Chart of relative errors over a condition of the impact, with medians of groups.

    Args:
        x: Values of the condition, (N,).
        errors: Relative errors of each method, (N,).
        labels: Name of each impact, (N,).
        name: Name of the condition, with its unit.

    Returns:
        An SVG element.
    """
    finite = [error[np.isfinite(error)] for error in errors.values()]
    at_least_one = [*finite, np.zeros(1)]  # a quantile of no errors does not exist
    high_error = float(np.quantile(np.concatenate(at_least_one), _ERROR_QUANTILE))
    padding = 0.03 * float(np.ptp(x)) or 0.5
    x_bounds = (float(x.min()) - padding, float(x.max()) + padding)
    least_top, greatest_top = _TOP_ERRORS
    axes = Axes(x_bounds, (0.0, max(least_top, min(greatest_top, high_error))), *_WIDE_SIZE)
    num_groups = min(_MAX_GROUPS, max(1, len(x) // _MIN_GROUP))
    groups = np.array_split(np.argsort(x, kind="stable"), num_groups)
    marks = []
    lines = []
    for series, method, error in _in_drawing_order(errors):
        for i in select_drawn(len(x)):
            if np.isfinite(error[i]):
                tooltip = Tooltip(labels[i], f"{method}: error {100 * error[i]:.3g} %", int(i))
                marks.append(mark(axes, series, (float(x[i]), float(error[i])), tooltip))
        medians = [(float(np.median(x[rows])), float(np.median(error[rows]))) for rows in groups]
        lines.append(line(axes, series, medians))
    chart_labels = ChartLabels(f"relative error over {name}", name, "relative error")
    return draw_chart(axes, chart_labels, marks, lines, percent=True)


def accuracy_curves(
    alphas: np.ndarray, shares: Mapping[str, np.ndarray], *, marked: Sequence[float] = ()
) -> Markup:
    """Chart of accuracy(alpha) over the threshold alpha.

    The page's script shows the values under the pointer.

    Args:
        alphas: Thresholds of the relative error, (M,).
        shares: Accuracy of each method, (M,).
        marked: Thresholds with a vertical line.

    Returns:
        An SVG element.
    """
    axes = Axes((float(alphas[0]), float(alphas[-1])), (0.0, 1.0), *_WIDE_SIZE)
    thresholds = []
    for alpha in marked:
        px = axes.px(alpha)
        thresholds.append(tag("line", class_="mark", x1=px, x2=px, y1=axes.py(0), y2=axes.py(1)))
    lines = []
    for series, _, share in _in_drawing_order(shares):
        lines.append(line(axes, series, list(zip(alphas.tolist(), share.tolist(), strict=True))))
    cursor = tag("line", class_="cursor", y1=axes.py(0), y2=axes.py(1))
    return draw_chart(
        axes,
        ChartLabels("accuracy over alpha", "threshold alpha", "accuracy(alpha)"),
        thresholds,
        lines,
        cursor,
        percent=True,
        data_curve=_curve_data(axes, alphas, shares),
    )


def _curve_data(axes: Axes, alphas: np.ndarray, shares: Mapping[str, np.ndarray]) -> str:
    """The values of the curves as JSON, for the page's script."""
    curves = []
    for series, (name, share) in enumerate(shares.items()):
        values = [round(value, 4) for value in share.tolist()]
        curves.append({"name": name, "class": series_class(series), "y": values})
    data = {
        "x": [round(axes.px(alpha), 1) for alpha in alphas.tolist()],
        "alpha": [round(alpha, 4) for alpha in alphas.tolist()],
        "series": curves,
    }
    return json.dumps(data, separators=(",", ":"))


def restitution_curves(
    speeds: Sequence[float], restitutions: Mapping[str, Sequence[float]]
) -> Markup:
    """Chart of restitution over approach speed, a line per set of parameters.

    Args:
        speeds: Approach speeds, m/s, (S,).
        restitutions: Restitution at these speeds, (S,), by the name of the set of parameters.

    Returns:
        An SVG element.
    """
    padding = 0.06 * (max(speeds) - min(speeds)) or 0.1
    everything = np.concatenate([np.asarray(values, float) for values in restitutions.values()])
    highest = float(np.max(everything, initial=0.0, where=np.isfinite(everything)))
    x_bounds = (min(speeds) - padding, max(speeds) + padding)
    axes = Axes(x_bounds, (0.0, max(1.0, 1.05 * highest)), *_LOW_SIZE)
    drawn = []
    for series, name, values in _in_drawing_order(restitutions):
        points = []
        for speed, value in zip(speeds, values, strict=True):
            if np.isfinite(value):
                points.append((speed, value))
        drawn.append(line(axes, series, points))
        for speed, value in points:
            tooltip = Tooltip(name, f"restitution {value:.2f} at {speed:.2f} m/s")
            drawn.append(mark(axes, series, (speed, value), tooltip))
    labels = ChartLabels("restitution over approach speed", "approach speed, m/s", "restitution")
    return draw_chart(axes, labels, drawn)


def _in_drawing_order(methods: Mapping[str, _Value]) -> list[tuple[int, str, _Value]]:
    """Number, name and value of each method; the first method comes last, to be drawn on top."""
    numbered = [(series, name, value) for series, (name, value) in enumerate(methods.items())]
    return numbered[::-1]


def _three_digits(value: float) -> str:
    return f"{float(value):.3g}"
