"""Where a calibration is trusted, as maps of its spread over the strikes that it was made for."""

from __future__ import annotations


import numpy as np

from clashsim.evaluate.trust_map import TrustMap
from clashsim.report import charts
from clashsim.report.markup import Markup, tag

_COLUMNS, _ROWS = 22, 12
_STEPS = (
    0.03,
    0.05,
    0.075,
    0.1,
    0.2,
)  # relative spreads between which the colours change; the same on all pages, so that pages can be compared
_WORDS = ("below 3 %", "3 to 5 %", "5 to 7.5 %", "7.5 to 10 %", "10 to 20 %", "above 20 %")


def maps(space: TrustMap) -> list[Markup]:
    """One map for each circumstance beside the first: the median spread of the strikes in each
    cell, and the impacts that were fitted.
    """
    (place, x), *others = space.axes.items()
    x, mine = (
        _joined(x, space.fitted[place]) if place.startswith("bearing") else (x, space.fitted[place])
    )
    return [_map(space, (place, x, mine), (name, y, space.fitted[name])) for name, y in others]


def key() -> Markup:
    """What the colours and marks of the maps mean."""
    steps = [
        tag(
            "span",
            tag(
                "svg",
                tag("rect", class_=f"cell t{i}", width=14, height=12),
                width=14,
                height=12,
                aria_hidden="true",
            ),
            words,
        )
        for i, words in enumerate(_WORDS)
    ]
    return tag(
        "p",
        tag("span", "stated spread:"),
        steps,
        tag("span", charts.key(0), "impacts fitted"),
        class_="scale quiet",
    )


def _map(
    space: TrustMap, x: tuple[str, np.ndarray, np.ndarray], y: tuple[str, np.ndarray, np.ndarray]
) -> Markup:
    (xname, xs, fx), (yname, ys, fy) = x, y
    ends = [_ends(np.concatenate(both)) for both in ((xs, fx), (ys, fy))]
    axes = charts.Axes(ends[0], ends[1], 520.0, 300.0)
    columns, rows = (
        np.clip(((v - e[0]) / (e[1] - e[0]) * k).astype(int), 0, k - 1)
        for v, e, k in ((xs, ends[0], _COLUMNS), (ys, ends[1], _ROWS))
    )
    wide, tall = ((e[1] - e[0]) / k for e, k in ((ends[0], _COLUMNS), (ends[1], _ROWS)))
    cells = []
    for column, row in sorted(set(zip(columns.tolist(), rows.tolist(), strict=True))):
        here = (columns == column) & (rows == row)
        value, left, low = (
            float(np.median(space.std[here])),
            ends[0][0] + column * wide,
            ends[1][0] + row * tall,
        )
        left_px, top_px, right_px = axes.px(left), axes.py(low + tall), axes.px(left + wide)
        shade = int(np.searchsorted(_STEPS, value, side="right"))
        said = f"{xname} {left:.3g} to {left + wide:.3g}\n{yname} {low:.3g} to {low + tall:.3g}"
        cells.append(
            tag(
                "rect",
                class_=f"cell t{shade}" + ("" if space.inside[here].mean() >= 0.5 else " outside"),
                x=left_px,
                y=top_px,
                width=right_px - left_px + 0.3,
                height=axes.py(low) - top_px + 0.3,
                data_l=f"spread {100 * value:.1f} % (median of {int(here.sum())} strikes)",
                data_t=said,
            )
        )
    marks = [
        charts.mark(
            axes,
            0,
            float(a),
            float(b),
            f"fitted impact {j}",
            f"{xname} {a:.3g}\n{yname} {b:.3g}",
            None,
        )
        for j, (a, b) in enumerate(zip(fx, fy, strict=True))
    ]
    return charts.drawn(axes, f"spread over {xname} and {yname}", xname, yname, cells, marks[:500])


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    pad = 0.02 * (high - low) or 0.5
    return low - pad, high + pad


def _joined(drawn: np.ndarray, fitted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bearings in degrees on a turn that is cut where fewest strikes are, so that a side at 180
    degrees is drawn in one piece.
    """
    order = np.sort(drawn)
    gaps = np.diff(np.append(order, order[0] + 360))
    cut = order[int(gaps.argmax())] + 0.5 * gaps.max()
    if gaps.max() < 20:  # struck all around
        return drawn, fitted
    start = cut - 360 if cut > 180 else cut
    both = [(v - start) % 360 + start for v in (drawn, fitted)]
    turns = 360 * round(float(np.median(both[0])) / 360)
    return both[0] - turns, both[1] - turns
