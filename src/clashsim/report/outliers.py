"""Section of the report on fitted impacts that are far from what the others predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clashsim.evaluate.outliers import Outlier
from clashsim.report.markup import Markup, section, tag

_HINT = (
    "Each impact was predicted from the others. The error is in standard deviations of that "
    "prediction; the weight is that of the impact in the fit, where a usual impact has 1. Remove "
    "impacts whose recording was wrong, and calibrate again."
)
_UNITS = {"v": "m/s", "w": "rad/s"}  # of a component, by the first letter of its name


@dataclass(frozen=True, eq=False)
class OutlierRow:
    """An outlier as it is shown.

    Attributes:
        name: Name of the impact.
        columns: Names of the components (k,) of its twists, as in an impacts file.
        outlier: The outlier.
    """

    name: str
    columns: Sequence[str]
    outlier: Outlier


def outliers_section(rows: Sequence[OutlierRow], num_fitted: int) -> Markup | None:
    """A table with a row per outlier; None if there are none.

    Args:
        rows: The outliers, the farthest first.
        num_fitted: Number of fitted impacts.
    """
    if not rows:
        return None
    columns = rows[0].columns
    names = [column.removesuffix("_after") for column in columns]
    twist = f"{', '.join(names)}, {_UNITS['v']} and {_UNITS['w']}"
    heads = [
        tag("th", "impact", scope="col"),
        tag("th", "error", tag("small", "standard deviations"), scope="col", class_="num"),
        tag("th", "weight", scope="col", class_="num"),
        tag("th", "measured", tag("small", twist), scope="col", class_="num"),
        tag("th", "predicted", tag("small", "by the others"), scope="col", class_="num"),
        tag("th", "likely cause", scope="col"),
    ]
    body = []
    for row in rows:
        outlier = row.outlier
        cells = [
            tag("td", f"{outlier.deviation:.1f}", class_="num"),
            tag("td", f"{outlier.weight:.2f}", class_="num"),
            tag("td", _twist(outlier.measured), class_="num"),
            tag("td", _twist(outlier.predicted), class_="num"),
            tag("td", outlier.cause or "not recognised"),
        ]
        body.append(tag("tr", tag("th", row.name, scope="row"), cells))
    table = tag("table", tag("thead", tag("tr", heads)), tag("tbody", body), class_="trials")
    return section(
        f"Outliers: {len(rows)} of {num_fitted} fitted impacts",
        tag("div", table, class_="scroll"),
        tag("p", _HINT, class_="quiet"),
    )


def _twist(twist: np.ndarray) -> str:
    """Components of a twist; a dash for what was not measured."""
    return ", ".join("-" if np.isnan(value) else f"{value:.2f}" for value in twist)
