"""Few-shot accuracy as a figure: one panel per data set, one line per method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.bench.rows import Row
from clashsim.evaluate.methods import METHODS
from clashsim.report.figure_files import write_figure

_MAX_COLUMNS = 4
_PANEL_SIZE = (4.2, 3.6)  # inches
_LEGEND_HEIGHT = 0.9  # inches
_LEGEND_COLUMNS = 6


def plot(rows: Sequence[Row], path: Path, *, draw: str = "random") -> None:
    """Plot accuracy(0.1) over the number of impacts.

    A method that uses no impacts is a dotted horizontal line.

    Args:
        rows: Rows that `clashsim.bench.few_shot.measure` returned.
        path: Where the picture is written; its suffix gives the format.
        draw: Which rows are shown: `random` or `block`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [r for r in rows if r["draw"] == draw and r.get("accuracy_0.1") is not None]
    sets = list(dict.fromkeys(r["set"] for r in shown))
    columns = min(_MAX_COLUMNS, max(1, len(sets)))
    panel_rows = max(1, -(-len(sets) // columns))
    size = (_PANEL_SIZE[0] * columns, _PANEL_SIZE[1] * panel_rows + _LEGEND_HEIGHT)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, and without pyplot's global state
    panels = figure.subplots(panel_rows, columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for i, axes in enumerate(panels):
        axes.set_visible(i < len(sets))
        if i < len(sets):
            handles |= _draw_panel(axes, sets[i], shown)
    if handles:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=min(_LEGEND_COLUMNS, len(handles)),
            frameon=False,
        )
    write_figure(path, figure, dpi=150)


def _draw_panel(axes: Any, name: str, shown: Sequence[Row]) -> dict[str, Any]:
    """Draw the lines of one data set; returns them by method, for the legend."""
    methods = [m for m in METHODS if any(r["method"] == m for r in shown)]
    numbers_used = sorted({r["n"] for r in shown if r["n"]})
    handles = {}
    for i, method in enumerate(methods):
        of_method = [r for r in shown if r["set"] == name and r["method"] == method]
        of_method.sort(key=lambda r: r["n"])
        if of_method:
            handles[method] = _draw_method(axes, of_method, _line_style(method, i))
    axes.set(
        title=name,
        xscale="log",
        ylim=(0, 1.02),
        xlabel="real impacts used",
        ylabel="accuracy(0.1)",
    )
    axes.set_xticks(numbers_used, [str(n) for n in numbers_used])
    axes.minorticks_off()
    return handles


def _line_style(method: str, index: int) -> dict[str, Any]:
    if method == "clashsim":
        return {"color": "black", "linewidth": 2.2, "zorder": 5}
    return {"color": f"C{index % 10}", "linewidth": 1.2}


def _draw_method(axes: Any, rows: Sequence[Row], style: dict[str, Any]) -> Any:
    """Draw one method with a band of one standard deviation over seeds; returns its line."""
    if rows[0]["n"] == 0:
        return axes.axhline(rows[0]["accuracy_0.1"], linestyle=":", **style)
    n = np.array([r["n"] for r in rows])
    mean = np.array([r["accuracy_0.1"] for r in rows])
    std = np.array([r["sd_0.1"] for r in rows])
    line = axes.plot(n, mean, marker="o", markersize=3, label=rows[0]["method"], **style)[0]
    top = np.minimum(mean + std, 1)
    axes.fill_between(n, mean - std, top, color=style["color"], alpha=0.08, linewidth=0)
    return line
