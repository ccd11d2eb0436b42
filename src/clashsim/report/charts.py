"""Charts as inline SVG: drawn here, so that a page needs no library and no network, and coloured by
the page's style sheet.

A series is named by its class: s0 is ours, s1, s2, ... are the others; marks differ in shape as
well, for print and for eyes that do not tell the colours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.report.markup import Markup, tag

SERIES = 6  # colours in the style sheet; further series share the last
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 10.0, 42.0
_MOST = 500  # marks of one series in one chart: more cover each other, and make the page heavy
# Of the measured span that predictions may widen a chart by; what lies beyond is drawn on its edge
_ROOM = 0.5


@dataclass(frozen=True)
class Axes:
    """A plane of a width and height (px) over ranges of x and y."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 340.0
    height: float = 320.0

    def px(self, x: float) -> float:
        """Where x lies, px from the left; at the edge if beyond."""
        return _LEFT + _share(x, self.x) * (self.width - _LEFT - _RIGHT)

    def py(self, y: float) -> float:
        """Where y lies, px from the top; at the edge if beyond."""
        return self.height - _BOTTOM - _share(y, self.y) * (self.height - _BOTTOM - _TOP)

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies within."""
        return self.x[0] <= x <= self.x[1] and self.y[0] <= y <= self.y[1]


def series(i: int) -> str:
    """Class of the i-th series."""
    return f"s{min(i, SERIES - 1)}"


def thinned(n: int) -> np.ndarray:
    """Which of n impacts are drawn: all, or evenly chosen ones."""
    return (
        np.arange(n) if n <= _MOST else np.unique(np.linspace(0, n - 1, _MOST).round().astype(int))
    )


def against(
    measured: np.ndarray,
    predicted: Mapping[str, np.ndarray],
    labels: Sequence[str],
    *,
    name: str,
    unit: str,
    indices: Sequence[int] | None = None,
) -> Markup:
    """Predicted over measured values (N,) of one output, with the line on which they agree;
    indices: numbers of the impacts on the page, if not 0 to N.
    """
    low, high = float(measured.min()), float(measured.max())
    room = _ROOM * (high - low) or 1.0
    finite = np.concatenate([p[np.isfinite(p)] for p in predicted.values()] + [measured])
    low, high = max(low - room, float(finite.min())), min(high + room, float(finite.max()))
    pad = 0.04 * (high - low) or 0.5
    axes = Axes((low - pad, high + pad), (low - pad, high + pad))
    agree = tag(
        "line",
        class_="agree",
        x1=axes.px(axes.x[0]),
        y1=axes.py(axes.x[0]),
        x2=axes.px(axes.x[1]),
        y2=axes.py(axes.x[1]),
    )
    numbers = range(len(measured)) if indices is None else indices
    marks = [
        mark(
            axes,
            i,
            float(measured[j]),
            float(p[j]),
            labels[j],
            f"{method}: {name} {_short(p[j])} {unit}, measured {_short(measured[j])}",
            numbers[j],
        )
        for i, (method, p) in _backwards(predicted)
        for j in thinned(len(measured))
        if np.isfinite(p[j])
    ]
    return drawn(
        axes,
        f"{name}: predicted over measured",
        f"measured {name}, {unit}",
        f"predicted {name}, {unit}",
        agree,
        marks,
    )


def over(
    x: np.ndarray, errors: Mapping[str, np.ndarray], labels: Sequence[str], *, name: str
) -> Markup:
    """Relative errors (N,) of each method over a circumstance x (N,), with the median of each fifth
    of the impacts.
    """
    finite = np.concatenate([e[np.isfinite(e)] for e in errors.values()] + [np.zeros(1)])
    pad = 0.03 * float(np.ptp(x)) or 0.5
    axes = Axes(
        (float(x.min()) - pad, float(x.max()) + pad),
        (0.0, max(0.3, min(1.0, float(np.quantile(finite, 0.95))))),
        440.0,
        290.0,
    )
    marks = [
        mark(
            axes,
            i,
            float(x[j]),
            float(e[j]),
            labels[j],
            f"{method}: error {100 * e[j]:.3g} %",
            int(j),
        )
        for i, (method, e) in _backwards(errors)
        for j in thinned(len(x))
        if np.isfinite(e[j])
    ]
    parts = np.array_split(np.argsort(x, kind="stable"), min(5, max(1, len(x) // 5)))
    lines = [
        line(axes, i, [(float(np.median(x[p])), float(np.median(e[p]))) for p in parts])
        for i, (_, e) in _backwards(errors)
    ]
    return drawn(
        axes, f"relative error over {name}", name, "relative error", marks, lines, percent=True
    )


def curves(
    x: np.ndarray, shares: Mapping[str, np.ndarray], *, marked: Sequence[float] = ()
) -> Markup:
    """Accuracy (M,) of each method over the threshold alpha x (M,); the page's script reads the
    values out.
    """
    axes = Axes((float(x[0]), float(x[-1])), (0.0, 1.0), 440.0, 290.0)
    marks = [
        tag("line", class_="mark", x1=axes.px(m), x2=axes.px(m), y1=axes.py(0), y2=axes.py(1))
        for m in marked
    ]
    lines = [
        line(axes, i, list(zip(x.tolist(), y.tolist(), strict=True)))
        for i, (_, y) in _backwards(shares)
    ]
    data = {
        "x": [round(axes.px(v), 1) for v in x.tolist()],
        "alpha": [round(v, 4) for v in x.tolist()],
        "series": [
            {"name": n, "class": series(i), "y": [round(v, 4) for v in y.tolist()]}
            for i, (n, y) in enumerate(shares.items())
        ],
    }
    cursor = tag("line", class_="cursor", y1=axes.py(0), y2=axes.py(1))
    return drawn(
        axes,
        "accuracy over alpha",
        "threshold alpha",
        "accuracy(alpha)",
        marks,
        lines,
        cursor,
        percent=True,
        data_curve=json.dumps(data, separators=(",", ":")),
    )


def restitutions(speeds: Sequence[float], values: Mapping[str, Sequence[float]]) -> Markup:
    """Restitution over approach speed (m/s), one line a set of parameters; the first is ours."""
    pad = 0.06 * (max(speeds) - min(speeds)) or 0.1
    every = [v for y in values.values() for v in y if np.isfinite(v)]
    axes = Axes(
        (min(speeds) - pad, max(speeds) + pad),
        (0.0, max(1.0, *(1.05 * v for v in every)) if every else 1.0),
        440.0,
        240.0,
    )
    shown = []
    for i, (name, y) in _backwards(values):
        points = [(s, v) for s, v in zip(speeds, y, strict=True) if np.isfinite(v)]
        shown += [
            line(axes, i, points),
            *(
                mark(axes, i, s, v, name, f"restitution {v:.2f} at {s:.2f} m/s", None)
                for s, v in points
            ),
        ]
    return drawn(
        axes, "restitution over approach speed", "approach speed, m/s", "restitution", shown
    )


def key(i: int) -> Markup:
    """The mark of a series, for legends and tables."""
    return tag(
        "svg",
        tag("path", d=_shape(i, 6.0, 6.0, 1.5), class_="dot"),
        class_=f"key {series(i)}",
        width=12,
        height=12,
        viewBox="0 0 12 12",
        aria_hidden="true",
    )


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within a range, at most `most` steps apart."""
    step = 10.0 ** np.floor(np.log10((high - low) / most))
    step *= next(f for f in (1, 2, 2.5, 5, 10) if f * step * most >= (high - low) * (1 - 1e-9))
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(float(i * step), 12) for i in range(first, last + 1)]


def drawn(
    axes: Axes,
    title: str,
    xlabel: str,
    ylabel: str,
    *parts: object,
    percent: bool = False,
    xticks: Mapping[float, str] | None = None,
    **attributes: str,
) -> Markup:
    """A chart: frame, grid, round numbers on both axes (or `xticks`, words by place) and the parts
    over them.
    """
    left, right, top, bottom = _LEFT, axes.width - _RIGHT, _TOP, axes.height - _BOTTOM
    grid = [
        tag("line", class_="grid", x1=left, x2=right, y1=axes.py(v), y2=axes.py(v))
        for v in ticks(*axes.y)
    ]
    across = xticks if xticks is not None else {v: f"{v:g}" for v in ticks(*axes.x)}
    grid += [
        tag("line", class_="grid", x1=axes.px(v), x2=axes.px(v), y1=top, y2=bottom) for v in across
    ]
    texts = [
        tag(
            "text",
            f"{100 * v:g} %" if percent else f"{v:g}",
            x=left - 7,
            y=axes.py(v) + 4,
            text_anchor="end",
        )
        for v in ticks(*axes.y)
    ]
    texts += [
        tag("text", words, x=axes.px(v), y=bottom + 17, text_anchor="middle")
        for v, words in across.items()
    ]
    middle = (top + bottom) / 2
    texts += [
        tag(
            "text",
            xlabel,
            class_="label",
            x=(left + right) / 2,
            y=axes.height - 6,
            text_anchor="middle",
        ),
        tag(
            "text",
            ylabel,
            class_="label",
            x=0,
            y=0,
            transform=f"translate(11 {middle:g}) rotate(-90)",
            text_anchor="middle",
        ),
    ]
    frame = tag("rect", class_="frame", x=left, y=top, width=right - left, height=bottom - top)
    return tag(
        "svg",
        frame,
        grid,
        texts,
        parts,
        class_="chart",
        viewBox=f"0 0 {axes.width:g} {axes.height:g}",
        role="img",
        aria_label=title,
        **attributes,
    )  # type: ignore[arg-type]


def mark(axes: Axes, i: int, x: float, y: float, label: str, tip: str, index: int | None) -> Markup:
    """A point that says what it is when hovered; hollow where the point itself lies beyond the
    chart.
    """
    return tag(
        "path",
        class_=f"dot {series(i)}" + ("" if axes.holds(x, y) else " out"),
        d=_shape(i, axes.px(x), axes.py(y)),
        data_i=index,
        data_l=label,
        data_t=tip,
    )


def _shape(i: int, x: float, y: float, scale: float = 1.0) -> str:
    """Circle, square, triangle, diamond, in turn."""
    a = (2.9, 2.5, 3.2, 3.3)[i % 4] * scale
    at = f"M{x - a:.1f} {y:.1f}"
    if i % 4 == 0:
        return f"{at}a{a:.2g} {a:.2g} 0 1 0 {2 * a:.2g} 0a{a:.2g} {a:.2g} 0 1 0 {-2 * a:.2g} 0z"
    if i % 4 == 1:
        return f"M{x - a:.1f} {y - a:.1f}h{2 * a:.2g}v{2 * a:.2g}h{-2 * a:.2g}z"
    if i % 4 == 2:
        return f"M{x - a:.1f} {y + a:.1f}h{2 * a:.2g}l{-a:.2g} {-1.8 * a:.2g}z"
    return f"{at}l{a:.2g} {-a:.2g} {a:.2g} {a:.2g} {-a:.2g} {a:.2g}z"


def line(axes: Axes, i: int, points: Sequence[tuple[float, float]]) -> Markup:
    """A line of the i-th series through points; what is not finite is left out."""
    return tag(
        "polyline",
        class_=f"curve {series(i)}",
        points=" ".join(f"{axes.px(x):.1f},{axes.py(y):.1f}" for x, y in points if np.isfinite(y)),
    )


def _backwards(methods: Mapping[str, object]) -> list:
    """Numbered methods, the first one last, so that it is drawn on top."""
    return list(enumerate(methods.items()))[::-1]


def _share(value: float, ends: tuple[float, float]) -> float:
    return float(np.clip((value - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0))


def _short(value: float) -> str:
    return f"{float(value):.3g}"
