"""`clashsim plan` and `clashsim execute`: from a run folder to a strike in the laboratory, and what
goes wrong on the way.
"""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from clashsim import cli
from clashsim.bench.planning_methods import NUM_FITTED
from clashsim.bench.slide_sets import load as slide_set
from clashsim.fit.base import base_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.run_folder import save_run
from clashsim.slides.identify import delay, fit_slides


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of the semi-cylinder with a slide model, and one without."""
    data = slide_set("lab/semi-cylinder", None).subset(np.arange(NUM_FITTED))
    fit = fit_slides(data.slides, data.support_patch, twists=data.twist)
    model = fit.model.delayed(delay(fit.model, data.impacts.pose, data.impacts.after, data.rest))
    calibration = calibrate(base_model(data.scene), data.impacts, posterior_samples=2)
    folder = tmp_path_factory.mktemp("runs")
    save_run(folder / "whole", calibration, slide=model)
    save_run(folder / "no_slide", calibration)
    return folder


def said(capsys) -> str:
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and err.startswith("clashsim: ") and err.count("\n") == 1
    return err


def test_a_strike_is_planned_written_and_executed(runs, tmp_path, capsys):
    out = tmp_path / "plan"
    assert (
        cli.main(["plan", str(runs / "whole"), "--target", "-0.05", "-0.06", "-20", "-o", str(out)])
        == 0
    )
    text = capsys.readouterr().out
    assert "found" in text and "±" in text
    assert sorted(p.name for p in out.iterdir()) == [
        "manifest.json",
        "path-1.csv",
        "path-1.json",
        "plan.json",
        "plan.png",
    ]
    plan = json.loads((out / "plan.json").read_text())
    assert (
        plan["status"] == "found"
        and np.hypot(*(np.array(plan["strikes"][0]["to"]) - plan["target"])[:2]) < 0.005
    )
    rows = list(csv.DictReader((out / "path-1.csv").open()))
    assert {r["phase"] for r in rows} == {"approach", "hit", "retreat"}
    assert max(np.hypot(float(r["vx_m_s"]), float(r["vy_m_s"])) for r in rows) <= 0.8 + 1e-9
    assert (
        cli.main(["plan", str(runs / "whole"), "--target", "0", "-0.05", "0", "-o", str(out)]) == 2
    )  # nothing is overwritten unasked
    assert "exists" in said(capsys)
    pytest.importorskip("pydrake", reason="the laboratory needs Drake")
    assert cli.main(["execute", str(out), "-o", str(tmp_path / "outcome.png")]) == 0
    assert (
        cli.main(["execute", str(out), "-o", str(tmp_path / "outcome.png")]) == 2
    )  # nor is a picture
    first, err = capsys.readouterr()
    assert "exists" in err
    far = float(first.split("came to rest ")[1].split(" mm")[0]) if first else np.inf
    assert far < 10 and (tmp_path / "outcome.png").stat().st_size > 5000


def test_what_cannot_be_planned_is_said_in_a_sentence(runs, tmp_path, capsys):
    whole, target = str(runs / "whole"), ["--target", "-0.05", "-0.06", "-20"]
    for arguments, words in (
        (["plan", str(runs / "no_slide"), *target], "slide model"),
        (["plan", str(tmp_path / "none"), *target], "none"),
        (["plan", whole, "--target", "nan", "0", "0"], "finite"),
        (["plan", whole, *target, "--strikes", "9"], "one to three"),
        (["plan", whole, *target, "--limits.speed", "0.1"], "not above the slowest"),
        (["plan", whole, *target, "--seed", "4294967296"], "below 2^32"),
        (["plan", whole, *target, "--strikes", "0"], "one to three"),
        (["plan", whole, *target, "-o", "/"], "no folder"),
        (["execute", str(tmp_path / "none"), "-o", "outcome.txt"], "must end in"),
        (["plan", whole, *target, "--limits.jerk", "-1"], "jerk"),
        (["plan", whole, *target, "--workspace", "1", "0", "0", "1"], "workspace"),
        (["plan", whole, *target, "--seed", "-1"], "seed"),
        (["execute", str(tmp_path / "none")], "no plan"),
        (["execute", str(runs / "whole" / "scene.xml")], "no plan"),
    ):
        assert cli.main(arguments) == 2, arguments
        assert words in said(capsys), arguments


def test_many_targets_of_a_file_are_planned(runs, tmp_path, capsys):
    targets, whole = tmp_path / "targets.csv", str(runs / "whole")
    targets.write_text("x, y, yaw\n-0.05,-0.06,-20\n-0.03,-0.05,-10\n0.9,0.9,0\n")
    for out in ("plans.csv", "again.csv", "plans.json"):
        assert (
            cli.main(
                [
                    "plan",
                    whole,
                    "--targets",
                    str(targets),
                    "--strikes",
                    "1",
                    "-o",
                    str(tmp_path / out),
                ]
            )
            == 0
        )
    assert "2 of 3 targets are reached: 2 with 1 strike" in capsys.readouterr().out
    rows = (tmp_path / "plans.csv").read_text().splitlines()
    assert (
        len(rows) == 4
        and rows[0].startswith("start_x,start_y,start_yaw,x,y,yaw,status")
        and "out of reach" in rows[3]
    )
    assert (tmp_path / "plans.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    expected = np.array(rows[1].split(","), object)[
        np.isin(rows[0].split(","), ["expected_x", "expected_y", "expected_yaw"])
    ].astype(float)
    assert (np.abs(expected - [-0.05, -0.06, -20]) < [0.01, 0.01, 12]).all()
    assert len(json.loads((tmp_path / "plans.json").read_text())) == 3
    for text, words in (
        ("x,y\n1,2\n", "lacks the column yaw"),
        ("x,y,yaw\n", "1 to"),
        ("x,y,yaw\n1,b,0\n", "line 2"),
        ("x,y,yaw\nnan,0,0\n", "finite"),
        ("x,y,yaw,start_x\n0,0,0,0\n", "start_x alone"),
        ("x,y,yaw\n0,0\n", "line 2"),
        ("\x00", "targets"),
    ):
        targets.write_text(text)
        assert cli.main(["plan", whole, "--targets", str(targets)]) == 2 and words in said(
            capsys
        ), text
    for more, words in (
        ([], "--targets"),
        (["--target", "0", "0", "0", "--targets", str(targets)], "one of them"),
        (["--target", "0", "0", "0", "--executor", "ray"], "many targets"),
        (["--targets", str(tmp_path / "none.csv")], "cannot be read"),
        (["--target", "0", "0", "0", "--device", "tpu"], "no device"),
        (["--target", "0", "0", "0", "--device", "meta"], "no device"),
    ):
        assert cli.main(["plan", whole, *more]) == 2 and words in said(capsys), more


def test_a_target_out_of_reach_is_no_mistake(runs, capsys):
    assert (
        cli.main(["plan", str(runs / "whole"), "--target", "0.5", "0.5", "0", "--strikes", "1"])
        == 0
    )
    assert "out of reach" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_plan(runs, tmp_path):
    for name in ("one", "two"):
        assert (
            cli.main(
                [
                    "plan",
                    str(runs / "whole"),
                    "--target",
                    "-0.05",
                    "-0.06",
                    "-20",
                    "--method",
                    "cem",
                    "-o",
                    str(tmp_path / name),
                ]
            )
            == 0
        )
    assert (tmp_path / "one" / "plan.json").read_bytes() == (
        tmp_path / "two" / "plan.json"
    ).read_bytes()
