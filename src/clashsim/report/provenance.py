"""Sections of the report on where a calibration comes from: data, timing, versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clashsim.report.content import ReportContent
from clashsim.report.markup import Markup, section, tag

# Badge and sentence of each source of data.
SOURCES = {
    "real": ("recorded", "impacts recorded in {data}"),
    "lab": ("stand-in for reality", "the virtual laboratory, a stand-in for reality: {data}"),
    "simulated": ("stand-in for reality", "another simulation, a stand-in for reality: {data}"),
}
_NUM_SHOWN = 12  # notes or trials of a list that are visible at once; the reader unfolds the rest
_MINUTES_FROM = 120  # s; from this duration on, minutes are shown


def data_section(content: ReportContent) -> Markup:
    """Name and source of the data, numbers of impacts, findings, notes and a table of trials."""
    trials = content.trials
    source_badge = SOURCES.get(content.source, (content.source, ""))[0]
    facts = [("data", content.data), ("source", source_badge)]
    if trials:
        facts.append(("trials", str(len(trials))))
    facts.append(("impacts fitted", str(content.num_fitted)))
    facts.append(("impacts held out", str(len(content.measured))))
    no_findings = "no problems were found" if trials and content.source == "real" else None
    parts = [
        _fact_list(facts),
        _note_list("Findings of the import", content.findings, if_empty=no_findings),
        _note_list("Impacts and slides", content.notes, if_empty=None),
    ]
    if trials:
        parts.append(tag("h3", "Trials"))
        parts.append(tag("div", _table(trials[:_NUM_SHOWN]), class_="scroll"))
        more = trials[_NUM_SHOWN:]
        if more:
            summary = tag("summary", f"{len(more)} more")
            parts.append(tag("details", summary, tag("div", _table(more), class_="scroll")))
    return section("Data", parts)


def timing_section(content: ReportContent) -> Markup | None:
    """Duration of each step, rate of predictions, and versions; None if nothing is known."""
    facts = [(step, _duration(seconds)) for step, seconds in content.durations.items()]
    rate = content.predictions_per_second
    if rate:
        rounded = float(f"{rate:.2g}")
        facts.append(("predictions", f"{rounded:,.0f} impacts per second, with contact frames"))
    if content.versions:
        versions = ", ".join(f"{name} {version}" for name, version in content.versions.items())
        facts.append(("versions", versions))
    if not facts:
        return None
    return section("Timing and versions", _fact_list(facts))


def _duration(seconds: float) -> str:
    if seconds < _MINUTES_FROM:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"


def _fact_list(facts: Sequence[tuple[str, str]]) -> Markup:
    items = [(tag("dt", name), tag("dd", value)) for name, value in facts]
    return tag("dl", items, class_="facts")


def _note_list(heading: str, notes: Sequence[str], *, if_empty: str | None) -> Markup | None:
    """Notes under a heading, of which the first `_NUM_SHOWN` are visible at once.

    Without notes, the text `if_empty` is shown; if that is None, there is no list.
    """
    if not notes:
        if if_empty is None:
            return None
        return tag("div", tag("h3", heading), tag("p", if_empty, class_="quiet"))
    items = [tag("li", note) for note in notes]
    parts = [tag("h3", heading), tag("ul", items[:_NUM_SHOWN])]
    more = items[_NUM_SHOWN:]
    if more:
        parts.append(tag("details", tag("summary", f"{len(more)} more"), tag("ul", more)))
    return tag("div", parts)


def _table(rows: Sequence[Mapping[str, str]]) -> Markup:
    """A table of rows with the same keys; numeric columns are aligned to the right."""
    classes = {name: "num" if _is_numeric(rows, name) else None for name in rows[0]}
    header = [tag("th", name, scope="col", class_=class_) for name, class_ in classes.items()]
    body = []
    for row in rows:
        cells = [tag("td", row.get(name, ""), class_=class_) for name, class_ in classes.items()]
        body.append(tag("tr", cells))
    return tag("table", tag("thead", tag("tr", header)), tag("tbody", body), class_="trials")


def _is_numeric(rows: Sequence[Mapping[str, str]], name: str) -> bool:
    """Whether a column holds numbers; names of trials are text even if they begin with a digit."""
    return name != "trial" and any(row.get(name, "")[:1].isdigit() for row in rows)
