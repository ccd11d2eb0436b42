"""Section of the report on where a calibration is confident, as maps over strikes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.evaluate.trust_map import TrustMap
from clashsim.report.chart_frame import Axes, ChartLabels, Tooltip, draw_chart, legend_key, mark
from clashsim.report.markup import Markup, section, tag
from clashsim.report.units import keep_units

_NUM_COLUMNS = 22  # of cells in a map
_NUM_ROWS = 12
# Relative standard deviations at which the colour changes; the same on all pages, so that pages can
# be compared.
_LEVELS = (0.03, 0.05, 0.075, 0.1, 0.2)
_LEVEL_NAMES = (
    "below 3 %",
    "3 to 5 %",
    "5 to 7.5 %",
    "7.5 to 10 %",
    "10 to 20 %",
    "above 20 %",
)
_MAX_MARKS = 500  # fitted impacts that are drawn
_WIDE_GAP = 20.0  # degrees; a gap this wide between bearings means that only one side is struck
_SIZE = (520.0, 300.0)  # px, width and height of a map
_OVERLAP = 0.3  # px by which cells overlap, so that no gaps show
_HINT = (
    "Each cell: the median over the strikes in it, whatever their other conditions. Blank: no such "
    "strike is within the scene's [strikes], so the model was not trained there."
)


@dataclass(frozen=True, eq=False)
class _MapAxis:
    """A condition of strikes along one axis of a map.

    Attributes:
        name: Name of the condition, with its unit.
        strikes: Values of the condition for all strikes, (N,).
        fitted: Values of the condition for the fitted impacts, (M,).
        num_cells: Number of cells along the axis.
    """

    name: str
    strikes: np.ndarray
    fitted: np.ndarray
    num_cells: int

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest value of the map, with a margin."""
        values = np.concatenate([self.strikes, self.fitted])
        low, high = float(values.min()), float(values.max())
        margin = 0.02 * (high - low) or 0.5
        return low - margin, high + margin

    @property
    def cell_size(self) -> float:
        """Width of a cell, in the unit of the condition."""
        low, high = self.bounds
        return (high - low) / self.num_cells

    def cells(self) -> np.ndarray:
        """Number of the cell that each strike lies in, (N,)."""
        low, high = self.bounds
        cells = ((self.strikes - low) / (high - low) * self.num_cells).astype(int)
        return np.clip(cells, 0, self.num_cells - 1)

    def cell_start(self, cell: int) -> float:
        """Lowest value of a cell."""
        return self.bounds[0] + cell * self.cell_size

    def describe(self, cell: int) -> str:
        """Name of the condition and range of a cell, in words."""
        start = self.cell_start(cell)
        return f"{self.name} {start:.3g} to {start + self.cell_size:.3g}"


def trust_section(trust_map: TrustMap) -> Markup:
    """Section with maps of the predicted standard deviation over all strikes of the scene."""
    return section(
        "Where the model is confident",
        tag("p", keep_units(trust_map.sentence())),
        _colour_key(),
        tag("div", draw_maps(trust_map), class_="panels wide plot maps"),
        tag("p", _HINT, class_="quiet"),
    )


def draw_maps(trust_map: TrustMap) -> list[Markup]:
    """A map for each condition but the first, which is the horizontal axis of all maps.

    The first condition is the position on the struck body. The colour of a cell is the median
    standard deviation of the strikes in it; marks are the impacts that were fitted.
    """
    (position, position_values), *others = trust_map.axes.items()
    position_fitted = trust_map.fitted[position]
    if position.startswith("bearing"):
        position_values, position_fitted = _unwrap_bearings(position_values, position_fitted)
    x = _MapAxis(position, position_values, position_fitted, _NUM_COLUMNS)
    maps = []
    for name, values in others:
        y = _MapAxis(name, values, trust_map.fitted[name], _NUM_ROWS)
        maps.append(_draw_map(trust_map, x, y))
    return maps


def _draw_map(trust_map: TrustMap, x: _MapAxis, y: _MapAxis) -> Markup:
    """A map of the median standard deviation in cells of two conditions."""
    axes = Axes(x.bounds, y.bounds, *_SIZE)
    columns, rows = x.cells(), y.cells()
    cells = []
    for column, row in sorted(set(zip(columns.tolist(), rows.tolist(), strict=True))):
        in_cell = (columns == column) & (rows == row)
        std = float(np.median(trust_map.std[in_cell]))
        level = int(np.searchsorted(_LEVELS, std, side="right"))
        mostly_inside = trust_map.inside[in_cell].mean() >= 0.5
        outside = "" if mostly_inside else " outside"
        left = axes.px(x.cell_start(column))
        right = axes.px(x.cell_start(column) + x.cell_size)
        top = axes.py(y.cell_start(row) + y.cell_size)
        bottom = axes.py(y.cell_start(row))
        num_strikes = int(in_cell.sum())
        cell = tag(
            "rect",
            class_=f"cell t{level}{outside}",
            x=left,
            y=top,
            width=right - left + _OVERLAP,
            height=bottom - top + _OVERLAP,
            data_l=f"standard deviation {100 * std:.1f} % (median of {num_strikes} strikes)",
            data_t=f"{x.describe(column)}\n{y.describe(row)}",
        )
        cells.append(cell)
    marks = []
    for i, (x_fitted, y_fitted) in enumerate(zip(x.fitted, y.fitted, strict=True)):
        text = f"{x.name} {x_fitted:.3g}\n{y.name} {y_fitted:.3g}"
        tooltip = Tooltip(f"fitted impact {i}", text)
        marks.append(mark(axes, 0, (float(x_fitted), float(y_fitted)), tooltip))
    labels = ChartLabels(f"standard deviation over {x.name} and {y.name}", x.name, y.name)
    return draw_chart(axes, labels, cells, marks[:_MAX_MARKS])


def _colour_key() -> Markup:
    """A legend of the colours and marks of the maps."""
    levels = []
    for level, name in enumerate(_LEVEL_NAMES):
        rectangle = tag("rect", class_=f"cell t{level}", width=14, height=12)
        sample = tag("svg", rectangle, width=14, height=12, aria_hidden="true")
        levels.append(tag("span", sample, name))
    return tag(
        "p",
        tag("span", "predicted standard deviation:"),
        levels,
        tag("span", legend_key(0), "fitted impacts"),
        class_="scale quiet",
    )


def _unwrap_bearings(strikes: np.ndarray, fitted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift bearings by full turns so that a struck side is drawn in one piece.

    Args:
        strikes: Bearings of all strikes, degrees, (N,).
        fitted: Bearings of the fitted impacts, degrees, (M,).

    Returns:
        Bearings of strikes (N,) and of fitted impacts (M,), degrees. The range of 360 degrees
        begins and ends in the widest gap between strikes.
    """
    ordered = np.sort(strikes)
    gaps = np.diff(np.append(ordered, ordered[0] + 360))
    widest = gaps.max()
    if widest < _WIDE_GAP:  # struck all around
        return strikes, fitted
    cut = ordered[int(gaps.argmax())] + 0.5 * widest
    start = cut - 360 if cut > 180 else cut
    strikes = (strikes - start) % 360 + start
    fitted = (fitted - start) % 360 + start
    full_turns = 360 * round(
        float(np.median(strikes)) / 360
    )  # degrees, so that bearings are near 0
    return strikes - full_turns, fitted - full_turns
