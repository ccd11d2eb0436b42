"""Problems that an import found, as a table for the terminal and as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.table import Table

_COLOURS = {"stop": "red", "warn": "yellow"}  # by severity
_MAX_NAMED = 4  # the most trials that a row names


class ImportFinding(Protocol):
    """One problem with a body of a trial; an empty body stands for all bodies."""

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


def findings_table(findings: Sequence[ImportFinding]) -> Table:
    """A table with a row per kind of finding and body, those that stop the import first.

    A row names the first few trials with the finding, and has the message of the first trial.
    """
    table = Table(title=f"{len(findings)} findings", title_justify="left")
    for name in ("finding", "", "body", "trials", "in the first of them"):
        table.add_column(name, overflow="fold")
    for (severity, name, body), same_kind in _by_kind(findings):
        trials = list(dict.fromkeys(_printable(finding.trial) for finding in same_kind))
        trial_names = ", ".join(trials[:_MAX_NAMED])
        if len(trials) > _MAX_NAMED:
            trial_names += f" and {len(trials) - _MAX_NAMED} more"
        table.add_row(
            name,
            severity,
            _printable(body) or "-",
            trial_names,
            _printable(same_kind[0].message),
            style=_COLOURS.get(severity, ""),
        )
    return table


def finding_sentences(findings: Sequence[ImportFinding]) -> tuple[str, ...]:
    """A sentence per kind of finding and body, which the trials' file keeps."""
    sentences = []
    for (_, name, body), same_kind in _by_kind(findings):
        first = same_kind[0]
        kind = f"{name}, {body}" if body else name
        num_trials = len({finding.trial for finding in same_kind})
        more = f", and {num_trials - 1} more" if num_trials > 1 else ""
        sentences.append(_printable(f"{kind}: {first.message} (trial {first.trial}{more})"))
    return tuple(sentences)


def _by_kind(
    findings: Sequence[ImportFinding],
) -> list[tuple[tuple[str, str, str], list[ImportFinding]]]:
    """Findings by severity, name and body, those that stop the import first."""
    kinds: dict[tuple[str, str, str], list[ImportFinding]] = {}
    for finding in findings:
        kind = (finding.severity, finding.name, finding.body)
        kinds.setdefault(kind, []).append(finding)
    return sorted(kinds.items(), key=lambda item: item[0][0] != "stop")


def _printable(text: str) -> str:
    """Text without control characters: names in a log may contain anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
