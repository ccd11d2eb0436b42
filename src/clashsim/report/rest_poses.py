"""Where struck bodies come to rest: measured beside predicted, in millimetres and degrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.evaluate.rest_poses import RestDisplacements
from clashsim.report import charts
from clashsim.report.markup import Markup, tag

_OUTPUTS = (("way in x", "mm"), ("way in y", "mm"), ("turn", "°"))
_SCALE = np.array([1e3, 1e3, 180 / np.pi])


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
    rows = []
    for i, name in enumerate(order):
        cells = []
        for error, unit in zip(rests.errors(name), (" mm", "°"), strict=True):
            middle, most = float(np.median(error)), float(np.quantile(error, 0.9, method="nearest"))
            cells.append(
                tag(
                    "td",
                    f"{middle:.1f}{unit}" if np.isfinite(middle) else "none",
                    tag("small", f"{most:.1f}{unit}" if np.isfinite(most) else "none"),
                    class_="num",
                )
            )
        rows.append(
            tag(
                "tr",
                tag(
                    "th", tag("span", charts.key(i), tag("span", name), class_="name"), scope="row"
                ),
                cells,
                class_="ours" if i == 0 else None,
            )
        )
    return tag("table", tag("thead", head), tag("tbody", rows), class_="rests")


def panels(rests: RestDisplacements, order: Sequence[str], labels: Sequence[str]) -> list[Markup]:
    """Predicted over measured way and turn, a chart each."""
    names, measured = [labels[int(i)] for i in rests.rows], rests.measured * _SCALE
    told, numbers = {m: rests.predicted[m] * _SCALE for m in order}, rests.rows.tolist()
    return [
        charts.against(
            measured[:, j],
            {m: p[:, j] for m, p in told.items()},
            names,
            name=name,
            unit=unit,
            indices=numbers,
        )
        for j, (name, unit) in enumerate(_OUTPUTS)
    ]
