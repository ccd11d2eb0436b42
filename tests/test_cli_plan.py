"""`clashsim plan` and `clashsim execute`: from a run folder to a strike in the laboratory.

Every mistake on the way is one sentence and exit code 2.
"""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from clashsim import cli
from clashsim.bench.planning_methods import NUM_FITTED
from clashsim.bench.slide_sets import load as slide_set
from clashsim.fit.base import distilled_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.run_folder import save_run
from clashsim.slides.identify import delay, fit_slides


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of the semi-cylinder with a slide model, and one without."""
    data = slide_set("lab/semi-cylinder", None).subset(np.arange(NUM_FITTED))
    fit = fit_slides(data.slides, data.support_patch, twists=data.twist)
    model = fit.model.delayed(delay(fit.model, data.impacts.pose, data.impacts.after, data.rest))
    calibration = calibrate(distilled_model(data.scene), data.impacts)
    folder = tmp_path_factory.mktemp("runs")
    save_run(folder / "whole", calibration, slide=model)
    save_run(folder / "no_slide", calibration)
    return folder


TARGET = ["--target", "-0.05", "-0.06", "-20"]


def error_message(capsys) -> str:
    """What a failed command printed: one sentence on standard error."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert err.startswith("clashsim: ") and err.count("\n") == 1
    return err


def test_a_strike_is_planned_and_written(runs, tmp_path, capsys):
    out = tmp_path / "plan"
    assert cli.main(["plan", str(runs / "whole"), *TARGET, "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "found" in text and "±" in text
    assert "probability of ending within 10 mm and 11.5 degrees of the target: 0." in text
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        "path-1.csv",
        "path-1.json",
        "plan.json",
        "plan.png",
    ]
    plan = json.loads((out / "plan.json").read_text())
    assert plan["status"] == "found"
    assert 0.3 < plan["probability"] < 1
    error = np.array(plan["strikes"][0]["to"]) - plan["target"]
    assert np.hypot(error[0], error[1]) < 0.005
    with (out / "path-1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["phase"] for row in rows} == {"approach", "hit", "retreat"}
    speeds = [np.hypot(float(row["vx_m_s"]), float(row["vy_m_s"])) for row in rows]
    assert max(speeds) <= 0.8 + 1e-9
    # Nothing is overwritten unless --overwrite is given.
    other_target = ["--target", "0", "-0.05", "0"]
    assert cli.main(["plan", str(runs / "whole"), *other_target, "-o", str(out)]) == 2
    assert "exists" in error_message(capsys)


def test_a_plan_is_executed_in_the_laboratory(runs, tmp_path, capsys):
    pytest.importorskip("pydrake", reason="the laboratory needs Drake")
    plan = str(tmp_path / "plan")
    picture = tmp_path / "outcome.png"
    assert cli.main(["plan", str(runs / "whole"), *TARGET, "-o", plan]) == 0
    capsys.readouterr()
    assert cli.main(["execute", plan, "-o", str(picture)]) == 0
    out = capsys.readouterr().out
    distance_mm = float(out.split("came to rest ")[1].split(" mm")[0])
    assert distance_mm < 10
    assert picture.stat().st_size > 5000
    assert cli.main(["execute", plan, "-o", str(picture)]) == 2
    assert "exists" in error_message(capsys)


def test_what_cannot_be_planned_is_one_sentence(runs, tmp_path, capsys):
    whole = str(runs / "whole")
    for arguments, expected in (
        (["plan", str(runs / "no_slide"), *TARGET], "slide model"),
        (["plan", str(tmp_path / "none"), *TARGET], "none"),
        (["plan", whole, "--target", "nan", "0", "0"], "finite"),
        (["plan", whole, *TARGET, "--tolerance", "0", "5"], "tolerances must be above zero"),
        (["plan", whole, *TARGET, "--repeatability.speed", "-1"], "repeatability of the speed"),
        (["plan", whole, *TARGET, "--strikes", "9"], "one to three"),
        (["plan", whole, *TARGET, "--limits.speed", "0.1"], "not above the slowest"),
        (["plan", whole, *TARGET, "--seed", "4294967296"], "below 2^32"),
        (["plan", whole, *TARGET, "--strikes", "0"], "one to three"),
        (["plan", whole, *TARGET, "-o", "/"], "no folder"),
        (["execute", str(tmp_path / "none"), "-o", "outcome.txt"], "must end in"),
        (["plan", whole, *TARGET, "--limits.jerk", "-1"], "jerk"),
        (["plan", whole, *TARGET, "--workspace", "1", "0", "0", "1"], "workspace"),
        (["plan", whole, *TARGET, "--seed", "-1"], "seed"),
        (["execute", str(tmp_path / "none")], "no plan"),
        (["execute", str(runs / "whole" / "scene.xml")], "no plan"),
    ):
        assert cli.main(arguments) == 2, arguments
        assert expected in error_message(capsys), arguments


def test_many_targets_of_a_file_are_planned(runs, tmp_path, capsys):
    targets = tmp_path / "targets.csv"
    targets.write_text("x, y, yaw\n-0.05,-0.06,-20\n-0.03,-0.05,-10\n0.9,0.9,0\n")
    command = ["plan", str(runs / "whole"), "--targets", str(targets), "--strikes", "1"]
    for name in ("plans.csv", "again.csv", "plans.json"):
        assert cli.main([*command, "-o", str(tmp_path / name)]) == 0
    assert "2 of 3 targets are reached: 2 with 1 strike" in capsys.readouterr().out
    assert (tmp_path / "plans.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    assert len(json.loads((tmp_path / "plans.json").read_text())) == 3
    lines = (tmp_path / "plans.csv").read_text().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("start_x,start_y,start_yaw,x,y,yaw,status")
    assert "out of reach" in lines[3]
    first = next(csv.DictReader(lines))
    assert 0.3 < float(first["probability"]) < 1
    expected = np.array([float(first[f"expected_{name}"]) for name in ("x", "y", "yaw")])
    assert (np.abs(expected - [-0.05, -0.06, -20]) < [0.01, 0.01, 12]).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x,y\n1,2\n", "lacks the column yaw"),
        ("x,y,yaw\n", "1 to"),
        ("x,y,yaw\n1,b,0\n", "line 2"),
        ("x,y,yaw\nnan,0,0\n", "finite"),
        ("x,y,yaw,start_x\n0,0,0,0\n", "start_x alone"),
        ("x,y,yaw\n0,0\n", "line 2"),
        ("\x00", "targets"),
    ],
)
def test_bad_files_of_targets_are_one_sentence(runs, tmp_path, capsys, text, expected):
    targets = tmp_path / "targets.csv"
    targets.write_text(text)
    assert cli.main(["plan", str(runs / "whole"), "--targets", str(targets)]) == 2
    assert expected in error_message(capsys)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "--targets"),
        (["--target", "0", "0", "0", "--targets", "targets.csv"], "either --target"),
        (["--target", "0", "0", "0", "--executor", "ray"], "many targets"),
        (["--targets", "none.csv"], "cannot be read"),
        (["--target", "0", "0", "0", "--device", "tpu"], "no device"),
        (["--target", "0", "0", "0", "--device", "meta"], "no device"),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(runs, capsys, options, expected):
    assert cli.main(["plan", str(runs / "whole"), *options]) == 2
    assert expected in error_message(capsys)


def test_a_target_out_of_reach_is_no_mistake(runs, capsys):
    far_away = ["--target", "0.5", "0.5", "0"]
    assert cli.main(["plan", str(runs / "whole"), *far_away, "--strikes", "1"]) == 0
    assert "out of reach" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_plan(runs, tmp_path):
    for name in ("one", "two"):
        command = ["plan", str(runs / "whole"), *TARGET, "--method", "cem"]
        assert cli.main([*command, "-o", str(tmp_path / name)]) == 0
    first = (tmp_path / "one" / "plan.json").read_bytes()
    assert first == (tmp_path / "two" / "plan.json").read_bytes()
