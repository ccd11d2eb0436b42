"""What a calibration was made from: trials, what the import found, how long each step took, with
which versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clashsim.report.markup import Markup, card, tag

SOURCES = {
    "real": ("recorded", "impacts recorded in {data}"),
    "lab": ("stand-in for reality", "the virtual laboratory, a stand-in for reality: {data}"),
    "simulated": ("stand-in for reality", "another simulation, a stand-in for reality: {data}"),
}
_SHOWN = 12  # notes and trials shown at once; the rest unfold


def data_card(
    data: str,
    source: str,
    fitted: int,
    held_out: int,
    *,
    trials: Sequence[Mapping[str, str]],
    findings: Sequence[str],
    notes: Sequence[str],
) -> Markup:
    """Which recordings, how many impacts, what was wrong with them and what was left out.

    trials: one row each, the same keys in all; findings: of the import; notes: of finding impacts
    and of fitting them.
    """
    facts = [
        ("data", data),
        ("source", SOURCES.get(source, (source, ""))[0]),
        *([("trials", str(len(trials)))] if trials else []),
        ("impacts fitted", str(fitted)),
        ("impacts held out", str(held_out)),
    ]
    body = [
        _facts(facts),
        _list(
            "Findings of the import",
            findings,
            "nothing was found wrong" if trials and source == "real" else None,
        ),
        _list("Impacts and slides", notes, None),
    ]
    if trials:
        body += [tag("h3", "Trials"), tag("div", _table(trials[:_SHOWN]), class_="scroll")]
        if len(trials) > _SHOWN:
            body.append(
                tag(
                    "details",
                    tag("summary", f"{len(trials) - _SHOWN} more"),
                    tag("div", _table(trials[_SHOWN:]), class_="scroll"),
                )
            )
    return card("The data", body)


def made_card(
    seconds: Mapping[str, float], rate: float | None, versions: Mapping[str, str]
) -> Markup | None:
    """How long each step took, how many impacts a second the result predicts, and the versions of
    all that took part.
    """
    facts = [
        (name, f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min")
        for name, value in seconds.items()
    ]
    facts += (
        [("predictions", f"{float(f'{rate:.2g}'):,.0f} impacts a second, contact frames included")]
        if rate
        else []
    )
    facts += (
        [("versions", ", ".join(f"{name} {value}" for name, value in versions.items()))]
        if versions
        else []
    )
    return card("Timing and versions", _facts(facts)) if facts else None


def _facts(facts: Sequence[tuple[str, str]]) -> Markup:
    return tag("dl", [(tag("dt", name), tag("dd", value)) for name, value in facts], class_="facts")


def _list(heading: str, notes: Sequence[str], without: str | None) -> Markup | None:
    """Notes under a heading, the first ones at once; what to say where there are none."""
    if not notes:
        return (
            None
            if without is None
            else tag("div", tag("h3", heading), tag("p", without, class_="quiet"))
        )
    first, rest = ([tag("li", note) for note in part] for part in (notes[:_SHOWN], notes[_SHOWN:]))
    return tag(
        "div",
        tag("h3", heading),
        tag("ul", first),
        tag("details", tag("summary", f"{len(rest)} more"), tag("ul", rest)) if rest else None,
    )


def _table(rows: Sequence[Mapping[str, str]]) -> Markup:
    names = list(rows[0])
    head = tag(
        "tr",
        [
            tag("th", name, scope="col", class_="num" if _numeric(rows, name) else None)
            for name in names
        ],
    )
    body = [
        tag(
            "tr",
            [
                tag("td", row.get(name, ""), class_="num" if _numeric(rows, name) else None)
                for name in names
            ],
        )
        for row in rows
    ]
    return tag("table", tag("thead", head), tag("tbody", body), class_="trials")


def _numeric(rows: Sequence[Mapping[str, str]], name: str) -> bool:
    return any(row.get(name, "")[:1].isdigit() for row in rows) and name != "trial"
