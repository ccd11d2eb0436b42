"""Section of the report on which parameters were freed, and why."""

from __future__ import annotations

from collections.abc import Sequence

from clashsim.evaluate.freed_parameters import Candidate
from clashsim.report.markup import Markup, section, tag

_HINT = (
    "Candidates are groups of parameters that a fit may free or leave at their nominal values. Log "
    "evidence: by how much it is larger with them free, in nats; above 1 the impacts ask for "
    "them, and below -1 they speak for the nominal values. Weight: of the fits in the "
    "prediction in which they are free."
)


def freed_section(candidates: Sequence[Candidate]) -> Markup | None:
    """A table with a row per candidate; None without candidates.

    Args:
        candidates: As `clashsim.evaluate.freed_parameters.weigh_candidates` returns them.
    """
    if not candidates:
        return None
    heads = [
        tag("th", "candidate", scope="col"),
        tag("th", "log evidence", scope="col", class_="num"),
        tag("th", "weight", scope="col", class_="num"),
        tag("th", "what the impacts say", scope="col"),
    ]
    rows = []
    for found in candidates:
        evidence = "-" if found.log_evidence is None else f"{found.log_evidence:+.1f}"
        name = tag("th", found.name, tag("small", ", ".join(found.params)), scope="row")
        cells = [
            tag("td", evidence, class_="num"),
            tag("td", f"{100 * found.free_share:.0f} %", class_="num"),
            tag("td", found.freedom),
        ]
        rows.append(tag("tr", name, cells))
    table = tag("table", tag("thead", tag("tr", heads)), tag("tbody", rows), class_="trials")
    return section(
        "Which parameters were freed, and why",
        tag("div", table, class_="scroll"),
        tag("p", _HINT, class_="quiet"),
    )
