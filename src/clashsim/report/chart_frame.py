"""The parts that all charts of the report share: axes, frame, marks, lines, legend keys.

Charts are inline SVG, so that the page needs no library and no network, and are coloured by the
page's style sheet. A series has a class: s0 is the reported method, s1, s2, ... are the others.
Marks also differ in shape, for print and for readers who cannot tell the colours apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.report.markup import Markup, tag

NUM_SERIES = 6  # colours in the style sheet; further series share the last
# Margins between the edges of a chart and its frame, px.
_LEFT = 58.0
_RIGHT = 12.0
_TOP = 10.0
_BOTTOM = 42.0
_SHAPE_RADII = (2.9, 2.5, 3.2, 3.3)  # px, of circle, square, triangle and diamond
_MAX_STEPS = 5  # between the ticks of an axis
_ROUND_STEPS = (1, 2, 2.5, 5, 10)  # times a power of ten
_ROUNDING_ERROR = 1e-9  # relative, that ticks at the ends of an axis may have
# Distances of texts from the frame or from the edge of the chart, px.
_Y_TICK_GAP = 7
_X_TICK_GAP = 17
_HALF_TEXT = 4  # from the middle of a digit to its base line
_X_LABEL_GAP = 6
_Y_LABEL_GAP = 11
_KEY_SIZE = 12  # px, width and height of a legend key
_KEY_SCALE = 1.5  # size of a legend key's mark, relative to marks in charts


@dataclass(frozen=True)
class Axes:
    """Ranges of x and y, and the size of the chart that shows them.

    Attributes:
        x: Lowest and highest x.
        y: Lowest and highest y.
        width: Width of the chart with its margins, px.
        height: Height of the chart with its margins, px.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 340.0
    height: float = 320.0

    def px(self, x: float) -> float:
        """Pixels from the left edge to x; a value outside the range is moved to the frame."""
        return _LEFT + _fraction(x, self.x) * (self.width - _LEFT - _RIGHT)

    def py(self, y: float) -> float:
        """Pixels from the top edge to y; a value outside the range is moved to the frame."""
        return self.height - _BOTTOM - _fraction(y, self.y) * (self.height - _BOTTOM - _TOP)

    def contains(self, x: float, y: float) -> bool:
        """Whether a point lies within both ranges."""
        return self.x[0] <= x <= self.x[1] and self.y[0] <= y <= self.y[1]


@dataclass(frozen=True)
class ChartLabels:
    """Title of a chart, for screen readers, and labels of its axes with their units."""

    title: str
    x: str
    y: str


@dataclass(frozen=True)
class Tooltip:
    """What a mark shows when the pointer is over it.

    Attributes:
        label: First line: what the mark stands for.
        text: The lines below.
        index: Number of the impact, if any; all marks of one impact are highlighted together.
    """

    label: str
    text: str
    index: int | None = None


def series_class(series: int) -> str:
    """The style-sheet class of a series."""
    return f"s{min(series, NUM_SERIES - 1)}"


def draw_chart(
    axes: Axes,
    labels: ChartLabels,
    *parts: object,
    percent: bool = False,
    x_ticks: Mapping[float, str] | None = None,
    **attributes: str,
) -> Markup:
    """Draw frame, grid, tick labels and the given parts over them.

    Args:
        axes: Ranges and size of the chart.
        labels: Title and labels of the axes.
        *parts: Marks, lines and other elements.
        percent: Whether tick labels of y are percentages.
        x_ticks: Texts by x; round numbers if not given.
        **attributes: Further attributes of the SVG element.

    Returns:
        An SVG element.
    """
    if x_ticks is None:
        x_ticks = {x: f"{x:g}" for x in ticks(*axes.x)}
    y_ticks = {y: f"{100 * y:g} %" if percent else f"{y:g}" for y in ticks(*axes.y)}
    left, right = _LEFT, axes.width - _RIGHT
    top, bottom = _TOP, axes.height - _BOTTOM
    grid = []
    texts = []
    for y, text in y_ticks.items():
        py = axes.py(y)
        grid.append(tag("line", class_="grid", x1=left, x2=right, y1=py, y2=py))
        texts.append(tag("text", text, x=left - _Y_TICK_GAP, y=py + _HALF_TEXT, text_anchor="end"))
    for x, text in x_ticks.items():
        px = axes.px(x)
        grid.append(tag("line", class_="grid", x1=px, x2=px, y1=top, y2=bottom))
        texts.append(tag("text", text, x=px, y=bottom + _X_TICK_GAP, text_anchor="middle"))
    frame = tag("rect", class_="frame", x=left, y=top, width=right - left, height=bottom - top)
    children: list[object] = [frame, grid, texts, _axis_labels(axes, labels), parts]
    return tag(
        "svg",
        children,  # type: ignore[arg-type]
        class_="chart",
        viewBox=f"0 0 {axes.width:g} {axes.height:g}",
        role="img",
        aria_label=labels.title,
        **attributes,
    )


def _axis_labels(axes: Axes, labels: ChartLabels) -> list[Markup]:
    centre_x = (_LEFT + axes.width - _RIGHT) / 2
    centre_y = (_TOP + axes.height - _BOTTOM) / 2
    x_label_y = axes.height - _X_LABEL_GAP
    x_label = tag("text", labels.x, class_="label", x=centre_x, y=x_label_y, text_anchor="middle")
    y_label = tag(
        "text",
        labels.y,
        class_="label",
        x=0,
        y=0,
        transform=f"translate({_Y_LABEL_GAP} {centre_y:g}) rotate(-90)",
        text_anchor="middle",
    )
    return [x_label, y_label]


def mark(axes: Axes, series: int, point: tuple[float, float], tooltip: Tooltip) -> Markup:
    """A point of a series with its tooltip; hollow if the point lies outside the axes."""
    x, y = point
    outside = "" if axes.contains(x, y) else " out"
    return tag(
        "path",
        class_=f"dot {series_class(series)}{outside}",
        d=_shape_path(series, axes.px(x), axes.py(y)),
        data_i=tooltip.index,
        data_l=tooltip.label,
        data_t=tooltip.text,
    )


def line(axes: Axes, series: int, points: Sequence[tuple[float, float]]) -> Markup:
    """A line of a series through points; points that are not finite are left out."""
    finite = [(x, y) for x, y in points if np.isfinite(y)]
    return tag(
        "polyline",
        class_=f"curve {series_class(series)}",
        points=" ".join(f"{axes.px(x):.1f},{axes.py(y):.1f}" for x, y in finite),
    )


def legend_key(series: int) -> Markup:
    """The mark of a series, for legends and tables."""
    centre = _KEY_SIZE / 2
    return tag(
        "svg",
        tag("path", d=_shape_path(series, centre, centre, scale=_KEY_SCALE), class_="dot"),
        class_=f"key {series_class(series)}",
        width=_KEY_SIZE,
        height=_KEY_SIZE,
        viewBox=f"0 0 {_KEY_SIZE} {_KEY_SIZE}",
        aria_hidden="true",
    )


def ticks(low: float, high: float) -> list[float]:
    """Evenly spaced round numbers within a range, with at most five steps between them."""
    span = high - low
    power = 10.0 ** np.floor(np.log10(span / _MAX_STEPS))
    least_span = span * (1 - _ROUNDING_ERROR)
    wide_enough = (f for f in _ROUND_STEPS if f * power * _MAX_STEPS >= least_span)
    step = power * next(wide_enough)
    first = int(np.ceil(low / step - _ROUNDING_ERROR))
    last = int(np.floor(high / step + _ROUNDING_ERROR))
    return [round(float(i * step), 12) for i in range(first, last + 1)]


def _shape_path(series: int, x: float, y: float, *, scale: float = 1.0) -> str:
    """SVG path of a circle, square, triangle or diamond around a point, px."""
    shape = series % len(_SHAPE_RADII)
    r = _SHAPE_RADII[shape] * scale
    if shape == 0:
        arc = f"a{r:.2g} {r:.2g} 0 1 0"
        return f"M{x - r:.1f} {y:.1f}{arc} {2 * r:.2g} 0{arc} {-2 * r:.2g} 0z"
    if shape == 1:
        return f"M{x - r:.1f} {y - r:.1f}h{2 * r:.2g}v{2 * r:.2g}h{-2 * r:.2g}z"
    if shape == 2:
        return f"M{x - r:.1f} {y + r:.1f}h{2 * r:.2g}l{-r:.2g} {-1.8 * r:.2g}z"
    return f"M{x - r:.1f} {y:.1f}l{r:.2g} {-r:.2g} {r:.2g} {r:.2g} {-r:.2g} {r:.2g}z"


def _fraction(value: float, bounds: tuple[float, float]) -> float:
    """Where a value lies between two bounds, from 0 to 1; values outside are moved to a bound."""
    low, high = bounds
    return float(np.clip((value - low) / (high - low), 0.0, 1.0))
