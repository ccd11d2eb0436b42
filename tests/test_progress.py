"""Progress where there is no terminal, and tables on a narrow one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from types import SimpleNamespace

from rich.console import Console

from clashsim.core import progress
from clashsim.core.params import Param
from clashsim.pipeline.durations import Stopwatch
from clashsim.report import tables
from clashsim.sim.contact import compiled


def test_a_log_gets_lines_now_and_then_with_the_time_that_is_left(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.bar("sampling", 100) as advance:
        advance(10)  # too soon
        now = 20.0
        advance(10)
        advance(10)
        now = 300.0
        advance(30)
        advance(40)
        now = 400.0
        advance(0)
    assert capsys.readouterr().err.splitlines() == [
        "sampling: 20 of 100, about 80 s left",
        "sampling: 60 of 100, about 3 minutes left",
        "sampling: 100 of 100",
    ]


def test_durations_are_said_in_round_words():
    words = [progress.about(seconds) for seconds in (2.0, 44.0, 150.0, 30_000.0)]
    assert words == ["10 s", "40 s", "2 minutes", "8 hours"]


def test_a_calibration_says_how_long_its_steps_take():
    said: list[str] = []
    stopwatch = Stopwatch(said.append)
    stopwatch.expect_fit(12)
    assert said == []  # done in a second
    stopwatch.expect_fit(500)
    stopwatch.seconds["calibration"] = 22.0
    stopwatch.expect_testing(held_out=False)
    stopwatch.expect_testing(held_out=True)
    assert said == [
        "fitting 500 impacts takes about 20 s",
        "testing on impacts that were not fitted takes about 90 s",
        "testing on impacts that were not fitted takes about 20 s",
    ]


def test_the_first_use_of_the_solver_is_announced(tmp_path):
    """In a process of its own, whose folder of compiled code is empty."""
    code = "from clashsim.commands.shared import announce; announce('planning')"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [
        "first use on this machine: compiling the contact solver takes 10 to 30 s, once",
        "planning",
    ]


def test_compiled_code_is_found(tmp_path):
    (tmp_path / "impact._solve_rows-143.py311.nbi").touch()

    stats = SimpleNamespace(cache_path=str(tmp_path))
    for name, known in (("_solve_rows", True), ("_solve_one", False)):
        function = SimpleNamespace(__name__=name, signatures=(), stats=stats)
        assert compiled.is_cached(function) == known
    loaded = SimpleNamespace(__name__="_solve_one", signatures=("f8",), stats=stats)
    assert compiled.is_cached(loaded)


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
