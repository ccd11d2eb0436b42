"""How the error falls with the number of impacts, as a chart and as a sentence."""

from __future__ import annotations

import math

import numpy as np

from clashsim.evaluate.data_efficiency import DataEfficiency
from clashsim.evaluate.metrics import accuracy
from clashsim.report import charts
from clashsim.report.markup import Markup, tag


def chart(
    fewer: DataEfficiency, whole: tuple[int, np.ndarray], floor: tuple[str, np.ndarray] | None
) -> Markup:
    """Median error over the number of impacts fitted, on a logarithmic axis, with the least and
    greatest of the draws.

    whole: the number of impacts of the calibration itself and its errors (N,); floor: name and
    errors (N,) of a method that used none.
    """
    points = [*zip(fewer.sizes, fewer.errors, strict=True), (whole[0], (whole[1],))]
    medians = [
        (n, [float(np.median(e)) for e in draws], [accuracy(e, 0.1) for e in draws])
        for n, draws in points
    ]
    level = None if floor is None else float(np.median(floor[1]))
    shown = [m for _, ms, _ in medians for m in ms] + ([] if level is None else [level])
    top = min(1.0, 1.15 * max((m for m in shown if math.isfinite(m)), default=0.5)) or 0.1
    ends = math.log(medians[0][0]), math.log(medians[-1][0])
    axes = charts.Axes((ends[0] - 0.12, ends[1] + 0.12), (0.0, top), 440.0, 290.0)
    parts: list[Markup] = []
    if level is not None and math.isfinite(level):
        y = axes.py(level)
        parts += [
            tag("line", class_="agree", x1=axes.px(axes.x[0]), x2=axes.px(axes.x[1]), y1=y, y2=y),
            tag(
                "text",
                f"{floor[0]}, no impacts",
                x=axes.px(axes.x[1]) - 4,
                y=y - 5 if y > 30 else y + 14,
                text_anchor="end",
            ),
        ]  # type: ignore[index]
    parts.append(charts.line(axes, 0, [(math.log(n), float(np.mean(ms))) for n, ms, _ in medians]))
    for n, ms, shares in medians:
        x = axes.px(math.log(n))
        parts.append(
            tag("line", class_="whisker s0", x1=x, x2=x, y1=axes.py(min(ms)), y2=axes.py(max(ms)))
        )
        said = f"median error {100 * float(np.mean(ms)):.1f} %\nwithin 10 %: {100 * float(np.mean(shares)):.0f} % of the impacts"
        draws = f"{n} impacts" + (f", {len(ms)} draws" if len(ms) > 1 else "")
        parts.append(charts.mark(axes, 0, math.log(n), float(np.mean(ms)), draws, said, None))
    places = {
        math.log(n): f"{n:g}"
        for n, *_ in medians
        if n == medians[-1][0] or math.log(medians[-1][0] / n) > 0.12
    }
    return charts.drawn(
        axes,
        "median error over the number of impacts",
        "impacts fitted",
        "median error",
        parts,
        percent=True,
        xticks=places,
    )


def sentence(fewer: DataEfficiency, whole: tuple[int, np.ndarray]) -> str:
    """What the curve says, in words."""
    first, last = (
        float(np.mean([np.median(e) for e in fewer.errors[0]])),
        float(np.median(whole[1])),
    )
    return f"From {fewer.sizes[0]} to {whole[0]} impacts the median error went from {100 * first:.1f} to {100 * last:.1f} %."
