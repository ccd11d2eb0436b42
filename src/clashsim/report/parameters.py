"""What was identified: parameters with intervals and verdicts, and what they mean as a restitution."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from clashsim.core.params import Param, to_unit
from clashsim.report import charts
from clashsim.report.markup import Markup, card, tag
from clashsim.report.tables import Estimated, number

_VERDICTS = {
    "fitted": "the impacts decide the value",
    "at bound": "the best value lies at an end of the range: widen the range, or suspect an effect that the scene lacks",
    "unidentifiable": "these impacts hardly narrow what was expected beforehand; do not read the value on its own",
    "known": "measured with each impact; the bar spans the values measured",
}


def parameters(params: Sequence[Param], estimates: Sequence[Estimated]) -> Markup | None:
    """One row a parameter; nothing where there is none."""
    if not params:
        return None
    head = tag(
        "tr",
        [
            tag("th", name, scope="col", class_=c)
            for name, c in (
                ("parameter", None),
                ("identified", "num"),
                ("90 % interval", "num"),
                ("within its range", "bar"),
                ("verdict", None),
            )
        ],
    )
    rows = []
    for p, e in zip(params, estimates, strict=True):
        unit = " " + p.unit.replace("^2", "²").replace("^3", "³") if p.unit else ""
        status = str(e.status)
        kind = status.replace(" ", "-") if status in _VERDICTS else "other"
        rows.append(
            tag(
                "tr",
                tag("th", p.name, tag("small", p.target, class_="mono"), scope="row"),
                tag("td", tag("b", _number(e.value)), unit, class_="num", data_h="identified"),
                tag(
                    "td",
                    f"{_number(e.low)} to {_number(e.high)}",
                    class_="num",
                    data_h="90 % interval",
                ),
                tag("td", _range(p, e, kind), class_="bar"),
                tag("td", tag("span", status, class_=f"chip {kind}"), data_h="verdict"),
            )
        )
    met = [s for s in _VERDICTS if any(str(e.status) == s for e in estimates)]
    meaning = tag(
        "dl",
        [
            (
                tag("dt", tag("span", s, class_=f"chip {s.replace(' ', '-')}")),
                tag("dd", _VERDICTS[s]),
            )
            for s in met
        ],
        class_="verdicts",
    )
    hint = "Bar: the interval within the range allowed; dot: the identified value; tick: the nominal value. Effective values: what makes the model fit, not material constants."
    return card(
        "Parameters",
        tag("table", tag("thead", head), tag("tbody", rows), class_="params"),
        meaning,
        tag("p", hint, class_="quiet"),
    )


def slide(estimates: Sequence[Estimated], units: Mapping[str, str]) -> Markup | None:
    """The values of a slide model, with intervals and verdicts; nothing where there is none."""
    if not estimates:
        return None
    head = tag(
        "tr",
        [
            tag("th", name, scope="col", class_=c)
            for name, c in (
                ("value", None),
                ("identified", "num"),
                ("90 % interval", "num"),
                ("verdict", None),
            )
        ],
    )
    rows = []
    for e in estimates:
        status = str(e.status)
        kind = status.replace(" ", "-") if status in _VERDICTS else "other"
        unit = f" {units[e.name]}" if units.get(e.name) else ""
        rows.append(
            tag(
                "tr",
                tag("th", e.name, scope="row"),
                tag("td", tag("b", _number(e.value)), unit, class_="num"),
                tag("td", f"{_number(e.low)} to {_number(e.high)}", class_="num"),
                tag("td", tag("span", status, class_=f"chip {kind}")),
            )
        )
    said = "How the struck body slides to rest: friction of its whole sole, fitted to the slides after the impacts."
    return card(
        "Slide model",
        tag(
            "div",
            tag("table", tag("thead", head), tag("tbody", rows), class_="trials slide"),
            class_="scroll",
        ),
        tag("p", said, class_="quiet"),
    )


def _range(p: Param, e: Estimated, kind: str) -> tuple[Markup, Markup]:
    """Interval, value and nominal value on the parameter's own scale, from low to high."""
    low, value, high, nominal = (
        f"{1 + 98 * float(np.clip((u + 1) / 2, 0, 1)):.1f}%"
        for u in to_unit([p], np.array([[e.low], [e.value], [e.high], [p.nominal]]))[:, 0]
    )
    drawn = tag(
        "svg",
        tag("line", class_="track", x1="1%", x2="99%", y1=9, y2=9),
        tag("line", class_="span", x1=low, x2=high, y1=9, y2=9),
        tag("line", class_="nominal", x1=nominal, x2=nominal, y1=2, y2=16),
        tag("circle", class_="value", cx=value, cy=9, r=4.5),
        class_=f"range {kind}",
        height=18,
        role="img",
        aria_label=f"{_number(e.value)} in {_number(p.low)} to {_number(p.high)}",
    )
    ends = tag(
        "span",
        tag("span", _number(p.low)),
        tag("span", "log scale") if p.scale == "log" else None,
        tag("span", _number(p.high)),
        class_="ends",
    )
    return drawn, ends


def restitution(reading: Mapping[str, Sequence[float]] | None) -> Markup | None:
    """Speed after over speed before at some approach speeds, nominal and identified; nothing where
    it was not read.
    """
    if not reading or not len(reading["speeds"]):
        return None
    speeds, sets = (
        [float(s) for s in reading["speeds"]],
        {name: [float(v) for v in reading[name]] for name in ("identified", "nominal")},
    )
    head = tag(
        "tr",
        tag("th", "approach speed, m/s", scope="col", class_="num"),
        [tag("th", charts.key(i), name, scope="col", class_="num") for i, name in enumerate(sets)],
    )
    rows = [
        tag(
            "tr",
            tag("td", f"{s:.2f}", class_="num"),
            [tag("td", f"{v[j]:.2f}", class_="num") for v in sets.values()],
        )
        for j, s in enumerate(speeds)
    ]
    said = "What the contact parameters mean: speed after over speed before of a head-on impact in MuJoCo. 0 sticks, 1 loses nothing."
    table = tag(
        "div", tag("table", tag("thead", head), tag("tbody", rows)), tag("p", said, class_="quiet")
    )
    return card(
        "Restitution",
        tag(
            "div",
            table,
            tag("div", charts.restitutions(speeds, sets), class_="drawing"),
            class_="pair",
        ),
    )


def _number(value: float) -> str:
    """A number to three significant digits, its exponent written short."""
    return re.sub(r"e([+-])0*", lambda m: "e" + m[1].strip("+"), number(value))
