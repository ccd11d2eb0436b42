"""The friction formulas that describe what networks learned, for the report and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clashsim.report.markup import Markup, section, tag

FRICTION_HEADER = ("joint", "friction", "explains", "damping", "frictionloss", "these explain")
FRICTION_TITLE = "Friction as learned"
_HINT = (
    "Friction of each joint as its network and the identified damping have it together, over the "
    "states that were visited; v is the joint's speed (rad/s or m/s), N the force in its bearing "
    "(N). The formula has most evidence (BIC) among dry, viscous, Stribeck and load-dependent "
    "friction and their sums. damping and frictionloss are the nearest values for the MJCF, in "
    "place of those that are there; the last column is the share of the torque that they explain."
)
# Share of the learned torque below which no formula stands for it.
_GOOD = 0.8
_POOR = (
    "Where a formula explains little, the network learned something else than friction, such as a "
    "spring or a wrong mass."
)


def friction_rows(friction: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Rows of a table of suggested formulas.

    Args:
        friction: The entry "friction" of metrics.json.

    Returns:
        Texts under `FRICTION_HEADER`.
    """
    rows = []
    for entry in friction:
        mjcf = entry["mjcf"]
        rows.append(
            [
                entry["joint"],
                f"{entry['law']}: {entry['formula']}",
                f"{100 * entry['explained']:.0f} %",
                f"{mjcf['damping']:.3g}",
                f"{mjcf['frictionloss']:.3g}",
                f"{100 * mjcf['explained']:.0f} %",
            ]
        )
    return rows


def friction_section(friction: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The section of the report; None if no network learned anything.

    Args:
        friction: The entry "friction" of metrics.json.
    """
    if not friction:
        return None
    head = []
    for i, name in enumerate(FRICTION_HEADER):
        head.append(tag("th", name, scope="col", class_="num" if i > 1 else None))
    body = []
    for joint, formula, *numbers in friction_rows(friction):
        cells = [tag("td", text, class_="num") for text in numbers]
        body.append(tag("tr", tag("th", joint, scope="row"), tag("td", formula), cells))
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", body), class_="trials")
    is_poor = any(entry["explained"] < _GOOD for entry in friction)
    return section(
        FRICTION_TITLE,
        tag("div", table, class_="scroll"),
        tag("p", _HINT, class_="quiet"),
        tag("p", _POOR) if is_poor else None,
    )
