"""Section of the report on force sensors: measured impulses beside those that motions need."""

from __future__ import annotations

from collections.abc import Sequence

from clashsim.evaluate.recorded_forces import ForceComparison
from clashsim.report import charts
from clashsim.report.markup import Markup, section, tag

RECORDED = "recorded motion"
_HINT = (
    "Sizes of impulses: the integral of the sensor's force over each impact, and the change of the "
    "struck body's momentum, recorded and predicted. A sensor on a tool misses what accelerates "
    "the tool itself between sensor and contact."
)


def forces_section(
    comparisons: Sequence[ForceComparison], ours: str, labels: Sequence[str]
) -> Markup | None:
    """Charts of impulses over measured ones, and a sentence for each sensor.

    Args:
        comparisons: Of each sensor.
        ours: Name of the model that is reported on.
        labels: Name of each held-out impact, (N,).
    """
    if not comparisons:
        return None
    panels = []
    sentences = []
    for compared in comparisons:
        chart = charts.predicted_over_measured(
            compared.measured,
            {ours: compared.predicted[ours], RECORDED: compared.of_motion},
            [labels[int(row)] for row in compared.rows],
            name=f"impulse by {compared.sensor}",
            unit="N s",
            indices=compared.rows.tolist(),
        )
        panels.append(chart)
        sentences.append(tag("p", compared.sentence(ours)))
    return section(
        "Recorded forces",
        tag("div", panels, class_="panels plot"),
        sentences,
        tag("p", _HINT, class_="quiet"),
    )
