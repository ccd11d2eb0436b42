"""Where struck bodies come to rest: measured beside predicted, in millimetres and degrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.report import charts
from clashsim.report.markup import Markup, tag

_OUTPUTS = (("way in x", "mm"), ("way in y", "mm"), ("turn", "°"))
_SCALE = np.array([1e3, 1e3, 180 / np.pi])


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
