"""Benches of planned strikes, search time and routes, in short form."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pydrake", reason="the laboratory needs Drake, the extra lab")
pytest.importorskip("stable_baselines3", reason="training needs Stable-Baselines3, the extra rl")

from clashsim import cli
from clashsim.bench import planning, routes, search_time
from clashsim.bench.options import BenchOptions
from clashsim.core.errors import ClashError


@pytest.mark.slow
def test_planned_strikes_end_near_their_targets(tmp_path):
    out, resume = tmp_path / "out.json", tmp_path / "rows.jsonl"
    assert (
        cli.main(
            [
                "bench",
                "planning",
                "--quick",
                "--methods",
                "clashsim",
                "--resume",
                str(resume),
                "--json",
                str(out),
            ]
        )
        == 0
    )
    content = json.loads(out.read_text())
    rows = content["rows"]
    assert content["bench"] == "planning" and rows[0]["shape"] == "semi-cylinder"
    assert [r["method"] for r in rows] == ["clashsim"] and rows[0]["executed"] == 2
    assert rows[0]["position_m"] < 0.02 and rows[0]["orientation_rad"] < 0.3
    assert len(rows[0]["probabilities"]) == len(rows[0]["reached"]) == 2
    options = BenchOptions(quick=True, methods=["clashsim"], resume=tmp_path / "rows.jsonl")
    assert planning.run(options) == rows  # from the file, not made again
    with pytest.raises(ClashError, match="no shape 'cube'"):
        planning.run(BenchOptions(sets=["cube"]))


@pytest.mark.slow
def test_policies_are_trained_executed_and_kept(tmp_path):
    rows = routes.run(BenchOptions(quick=True, workers=1, resume=tmp_path / "rows.jsonl"))
    assert rows[0]["route"] == "1" and rows[0]["trials"] == 1 and rows[0]["subgoals_of"] == 1
    assert (tmp_path / "rows-clashsim-0.safetensors").is_file()


@pytest.mark.slow
def test_search_times_have_their_rows(tmp_path):
    rows = search_time.run(BenchOptions(quick=True))
    assert [row["method"] for row in rows[:2]] == ["MuJoCo, steps chosen", "MuJoCo"]
    assert len(rows) == 6 and rows[1]["ratio"] < 0.5
    assert rows[4]["ratio"] > rows[2]["ratio"] and rows[4]["ratio"] > 10
