"""The report of several calibrated pairs: a section for each, with a link to its own report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clashsim.core.params import Param
from clashsim.report.markup import Markup, section, tag
from clashsim.report.page import fill_template
from clashsim.report.parameters import parameters_table
from clashsim.report.tables import Estimated

_SHARES = {"accuracy_0.1": "within 10 %", "accuracy_0.2": "within 20 %"}
_OWN = "clashsim"


@dataclass(frozen=True, eq=False)
class PairSection:
    """What the report shows of one pair.

    Attributes:
        name: The pair's name.
        conclusion: What its calibration is good for.
        lines: Sentences on its data and its prior.
        judged: How the accuracies were measured; None where they were not.
        models: Figures as in `Accuracy` of `clashsim.fit.notes`, by the name of the model.
        params: Parameters of the pair's scene.
        estimates: Estimates of these parameters, in the same order.
        page: Path of the pair's own report, relative to this page.
    """

    name: str
    conclusion: str
    lines: Sequence[str]
    judged: str | None
    models: Mapping[str, Mapping[str, Any]]
    params: Sequence[Param]
    estimates: Sequence[Estimated]
    page: str


def pairs_report(
    title: str, conclusion: str, *, pairs: Sequence[PairSection], notes: Sequence[str]
) -> str:
    """The HTML page as text; the same content always gives the same text.

    Args:
        title: Title of the page.
        conclusion: What the calibration of all pairs is good for.
        pairs: The pairs, in order.
        notes: Sentences on all pairs.
    """
    head = tag(
        "header",
        tag("p", "clashsim report", class_="over"),
        tag("h1", title),
        tag("p", conclusion, class_="headline"),
        [tag("p", note, class_="quiet") for note in notes],
    )
    return fill_template(title, [head, *(_pair_section(pair) for pair in pairs)])


def _pair_section(pair: PairSection) -> Markup:
    """One pair: conclusion, accuracy, parameters, and a link to more."""
    parts = [tag("p", pair.conclusion, class_="lead"), *(tag("p", line) for line in pair.lines)]
    if pair.models:
        parts.append(tag("h3", f"Accuracy {pair.judged}"))
        parts.append(_accuracy_table(pair.models))
    if pair.params:
        parts.append(tag("h3", "Parameters"))
        parts.append(parameters_table(pair.params, pair.estimates))
    parts.append(tag("p", tag("a", f"All results of {pair.name}", href=pair.page)))
    return section(pair.name, parts)


def _accuracy_table(models: Mapping[str, Mapping[str, Any]]) -> Markup:
    """A row per model: shares of impacts with small errors, and the median error."""
    names = ["model", *_SHARES.values(), "median error"]
    head = [
        tag("th", name, scope="col", class_="num" if i else None) for i, name in enumerate(names)
    ]
    rows = []
    for name, figures in models.items():
        cells = [tag("td", f"{100 * figures[key]:.0f} %", class_="num") for key in _SHARES]
        cells.append(tag("td", f"{100 * figures['median']:.1f} %", class_="num"))
        row_class = "ours" if name == _OWN else None
        rows.append(tag("tr", tag("th", name, scope="row"), cells, class_=row_class))
    return tag("table", tag("thead", tag("tr", head)), tag("tbody", rows), class_="methods")
