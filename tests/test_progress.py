"""Progress where there is no terminal, and tables on a narrow one."""

from __future__ import annotations

import io

from rich.console import Console

from clashsim.core import progress
from clashsim.core.params import Param
from clashsim.report import tables


def test_a_log_gets_lines_now_and_then(monkeypatch, capsys):
    with progress.bar("sampling", 100) as advance:
        advance(50)
    assert capsys.readouterr().err == ""  # too soon
    monkeypatch.setattr(progress, "_REPORT_INTERVAL", 0.0)
    with progress.bar("sampling", 100) as advance:
        advance(40)
        advance(60)
    assert capsys.readouterr().err.splitlines() == ["sampling: 40 of 100", "sampling: 100 of 100"]


def test_no_status_is_cut_off_on_a_narrow_terminal():
    class Estimate:
        name, value, low, high, status = "ground_friction", 0.269, 0.263, 0.275, "unidentifiable"

    out = Console(file=io.StringIO(), width=60)
    out.print(
        tables.parameter_table(
            [Param("ground_friction", "pair/ground/friction[0:2]", 0.3, 0.05, 1.0)], [Estimate()]
        )
    )
    text = out.file.getvalue()
    assert "…" not in text and "0.269" in text
