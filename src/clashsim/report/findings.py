"""What an import found wrong, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.table import Table

_COLOURS = {"stop": "red", "warn": "yellow"}
_NAMED = 4  # trials that a row names


class Wrong(Protocol):
    """One thing found wrong with a body (empty: with all) of a trial."""

    @property
    def name(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def trial(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def message(self) -> str: ...


def findings_table(findings: Sequence[Wrong]) -> Table:
    """One row a kind of finding and body, those that stop first; trials are counted, and the first
    one's sentence stands for the others'.
    """
    table = Table(title=f"{len(findings)} findings", title_justify="left")
    for name in ("finding", "", "body", "trials", "in the first of them"):
        table.add_column(name, overflow="fold")
    for (severity, name, body), same in _kinds(findings):
        trials = list(dict.fromkeys(_shown(f.trial) for f in same))
        more = f" and {len(trials) - _NAMED} more" if len(trials) > _NAMED else ""
        table.add_row(
            name,
            severity,
            _shown(body) or "-",
            ", ".join(trials[:_NAMED]) + more,
            _shown(same[0].message),
            style=_COLOURS.get(severity, ""),
        )
    return table


def finding_sentences(findings: Sequence[Wrong]) -> tuple[str, ...]:
    """The same as sentences, to be kept with the trials."""
    out = []
    for (_, name, body), same in _kinds(findings):
        trials = len({f.trial for f in same})
        where = f"{name}, {body}" if body else name
        out.append(
            _shown(
                f"{where}: {same[0].message}"
                + (
                    f" (trial {same[0].trial}, and {trials - 1} more)"
                    if trials > 1
                    else f" (trial {same[0].trial})"
                )
            )
        )
    return tuple(out)


def _kinds(findings: Sequence[Wrong]) -> list[tuple[tuple[str, str, str], list[Wrong]]]:
    """Findings by severity, name and body, those that stop first."""
    kinds: dict[tuple[str, str, str], list[Wrong]] = {}
    for finding in findings:
        kinds.setdefault((finding.severity, finding.name, finding.body), []).append(finding)
    return sorted(kinds.items(), key=lambda item: item[0][0] != "stop")


def _shown(text: str) -> str:
    """Text that a terminal shows as it is: names in a log may hold anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
