"""From a laboratory's logs to a calibrated scene on the command line.

Every mistake is one sentence and exit code 2.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from clashsim import cli, lab
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.data.readers import mapping
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.fit.distil import DistillationConfig
from clashsim.fit.run_folder import load
from clashsim.fit.sample import sample
from clashsim.pipeline.recordings import BodyNames, find_impacts, holds_trials
from clashsim.slides.law import SlideModel
from log_writers import T, motion, write_motive

pytestmark = pytest.mark.usefixtures("quick_report")

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
IMPORT = ["import", str(EXAMPLES / "strikes"), "--mapping", str(EXAMPLES / "strikes.toml")]
TINY = DistillationConfig(width=16, layers=3, members=2, steps=40, batch=64)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    return tmp_path


@pytest.fixture(scope="module")
def strikes(tmp_path_factory) -> Path:
    """Trials of the shipped example logs."""
    path = tmp_path_factory.mktemp("strikes") / "trials.safetensors"
    assert cli.main([*IMPORT, "-o", str(path)]) == 0
    return path


def error_message(capsys) -> str:
    """What a failed command printed: one sentence on standard error."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert len(err.strip().splitlines()) == 1, err
    return err


def files(folder: Path | str = ".") -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def test_import(capsys):
    assert cli.main([*IMPORT, "-o", "trials.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "8 trials of block, striker" in out and "no_orientation" in out and "dropout" in out
    trials = read_trials("trials.safetensors")
    assert trials.bodies == ("block", "striker")
    assert np.allclose(np.diff(trials[0].t), 0.005, atol=1e-4)
    recorded = lab.recorded("semi_cylinder", "nylon", "low")[0]
    difference = trials[0].poses["block"][:, :2] - recorded.poses["block"][:, :2]
    assert np.nanmax(np.abs(difference)) < 1e-5
    before = files()
    assert cli.main([*IMPORT, "-o", "trials.safetensors"]) == 2
    assert "already exists" in error_message(capsys)
    assert files() == before
    assert cli.main([*IMPORT, "-o", "trials.safetensors", "--overwrite"]) == 0
    assert files() == before


def test_a_guess_reports_which_bodies_have_no_orientation(capsys):
    header = "t,hex x,hex y,hex z,hex k1,hex k2,hex k3,hex k4\n"
    rows = [f"{i / 100},0.{i:02d},0,0,0,0,0,1\n" for i in range(40)]
    Path("log.csv").write_text(header + "".join(rows))
    assert cli.main(["import", "log.csv", "--guess", "-o", "log.toml"]) == 0
    assert "orientation of hex, which is taken as constant" in capsys.readouterr().out


def test_a_guessed_mapping_is_printed_written_and_used(capsys):
    logs = str(EXAMPLES / "strikes")
    assert cli.main(["import", logs, "--guess"]) == 0
    printed = capsys.readouterr().out
    units = mapping.loads(printed).logs[0].units
    assert units == {"time": "ms", "length": "mm", "angle": "deg"}
    assert not os.listdir()
    assert cli.main(["import", logs, "--guess", "-o", "lab.toml"]) == 0
    assert Path("lab.toml").read_text() == printed
    capsys.readouterr()
    assert cli.main(["import", logs, "--guess", "-o", "lab.toml"]) == 2
    assert "already exists" in error_message(capsys)
    assert cli.main(["import", logs, "--mapping", "lab.toml", "-o", "a.safetensors"]) == 0
    assert cli.main(["import", logs, "--guess", "-o", "b.safetensors"]) == 0
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()
    assert "the mapping was guessed" in capsys.readouterr().out


def test_a_guess_of_files_that_describe_themselves_lists_their_bodies(capsys):
    poses = motion()
    Path("takes").mkdir()
    write_motive(Path("takes/one.csv"), T, poses)
    write_motive(Path("takes/two.csv"), T, {"box": poses["box"]})
    assert cli.main(["import", "takes", "--guess", "-o", "lab.toml"]) == 0
    assert "orientation" not in capsys.readouterr().out
    text = Path("lab.toml").read_text()
    assert 'name = "box"\nsource = "box"' in text
    assert "tool" not in text  # of which the other file knows nothing
    Path("lab.toml").write_text(text.replace('name = "box"', 'name = "brick"'))
    renamed = ["import", "takes", "--mapping", "lab.toml", "-o", "trials.safetensors"]
    assert cli.main(renamed) == 0
    trials = read_trials("trials.safetensors")
    assert trials.bodies == ("brick",)
    with pytest.raises(DataError, match=r'has name = "block" .*--guess -o lab\.toml'):
        find_impacts(trials, Scene.load("semi_cylinder"))
    with pytest.raises(DataError, match=r"no body 'blok' .* did you mean brick\?$"):
        find_impacts(trials, None, BodyNames(struck="blok"))


def test_findings_that_stop_are_shown_and_can_be_accepted(capsys):
    in_millimetres = (EXAMPLES / "strikes.toml").read_text()
    Path("lab.toml").write_text(in_millimetres.replace('length = "mm"', 'length = "m"'))
    logs = ["import", str(EXAMPLES / "strikes"), "--mapping", "lab.toml"]
    args = [*logs, "-o", "trials.safetensors"]
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert "length_unit" in out and "stop" in out
    assert len(err.strip().splitlines()) == 1
    assert "accept by name" in err
    assert os.listdir() == ["lab.toml"]
    assert cli.main([*args, "--accept", "length_unit"]) == 0
    assert Path("trials.safetensors").is_file()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["import", "none.csv", "-o", "t.safetensors"], "no file"),
        (["import", "-o", "t.safetensors"], "no logs"),
        (["import", str(EXAMPLES / "strikes")], "--guess"),
        (["import", str(EXAMPLES / "strikes"), "-o", "t.csv"], "must end in .safetensors"),
        (["import", str(EXAMPLES / "strikes"), "-o", "t.toml"], "--guess"),
        (["import", str(EXAMPLES / "strikes"), "-o", "t.safetensors"], "needs a mapping"),
        (
            ["import", str(EXAMPLES / "strikes"), "-o", "t.safetensors", "--mapping", "none.toml"],
            "no mapping file",
        ),
        (
            ["import", str(EXAMPLES / "strikes"), "-o", "t.safetensors", "--mapping", "bad.toml"],
            "unknown entry",
        ),
        ([*IMPORT, "-o", "t.safetensors", "--guess"], "cannot go with"),
        ([*IMPORT, "-o", "t.safetensors", "--accept", "time_gapp"], "did you mean time_gap"),
        ([*IMPORT, "-o", "file/t.safetensors"], "file"),
        (["inspect", "none.safetensors"], "no file"),
        (["inspect", "file"], "clashsim import"),
        (["inspect", "broken.safetensors"], "damaged"),
        (["inspect", "trials.safetensors", "-o", "p.txt"], "must end in"),
        (
            ["inspect", "trials.safetensors", "-o", "taken.png", "--struck", "block"],
            "already exists",
        ),
        (["inspect", "trials.safetensors", "--struck", "blok"], "did you mean block"),
        (
            ["inspect", "trials.safetensors", "--scene", "semi_cylindr"],
            "did you mean semi_cylinder",
        ),
        (["inspect", "trials.safetensors", "--scene", "plate"], "no body 'box'"),
        (
            ["segment", "trials.safetensors", "--scene", "semi_cylinder", "-o", "i.npz"],
            "must end in",
        ),
        (
            ["segment", "trials.safetensors", "--scene", "semi_cylinder", "-o", "taken.csv"],
            "already exists",
        ),
        (
            [
                "segment",
                "trials.safetensors",
                "--scene",
                "semi_cylinder",
                "-o",
                "trials.safetensors",
                "--overwrite",
            ],
            "is the recording itself",
        ),
        (
            ["segment", "trials.safetensors", "--scene", "bare.xml", "-o", "i.csv"],
            "is not clear",
        ),
        (
            [
                "segment",
                "trials.safetensors",
                "--scene",
                "semi_cylinder",
                "-o",
                "i.csv",
                "--known",
                "mass",
            ],
            "known number 'mass'",
        ),
        (
            ["segment", "still.safetensors", "--scene", "semi_cylinder", "-o", "i.csv"],
            "no impact was found",
        ),
        (
            ["segment", "impacts.safetensors", "--scene", "semi_cylinder", "-o", "i.csv"],
            "does not hold clashsim's trials",
        ),
        (["calibrate", "plate", "trials.safetensors", "-o", "run"], "no body 'box'"),
        (["calibrate", "semi_cylinder", "still.safetensors", "-o", "run"], "no impact was found"),
        (["record", "-o", "out", "--shape", "cube"], "no shape 'cube'"),
        (["record", "-o", "out", "--strikes", "0"], "at least 1"),
        (["record", "-o", "out", "--seed", "-1"], "must not be negative"),
        (["record", "-o", "file"], "not a folder"),
    ],
)
def test_bad_input(capsys, strikes, args, expected):
    shutil.copy(strikes, "trials.safetensors")
    trial = read_trials(strikes)[0]
    at_rest = {body: np.tile(pose[0], (len(pose), 1)) for body, pose in trial.poses.items()}
    write_trials("still.safetensors", Trials((Trial("still", trial.t, at_rest),)))
    write_impacts("impacts.safetensors", sample(Scene.load("puck"), 5, 0))
    Path("broken.safetensors").write_bytes(Path(strikes).read_bytes()[:1000])
    Path("bare.xml").write_text(
        '<mujoco><worldbody><geom name="a" size="1 1 .1" type="plane"/></worldbody></mujoco>'
    )
    Path("bad.toml").write_text("[[logz]]\n")
    for name in ("file", "taken.png", "taken.csv"):
        Path(name).write_text("x")
    before = files()
    assert cli.main(args) == 2
    assert expected in error_message(capsys)
    assert files() == before


def test_inspect(capsys, strikes):
    assert cli.main(["inspect", str(strikes)]) == 0
    out = capsys.readouterr().out
    assert "8 trials, 0 impacts" in out and "--struck" in out
    assert cli.main(["inspect", str(strikes), "--scene", "semi_cylinder", "-o", "page.html"]) == 0
    assert "8 impacts in 8 trials" in capsys.readouterr().out
    assert Path("page.html").read_text().count("<img") == 8
    bodies = ["--struck", "block", "--striker", "striker"]
    assert cli.main(["inspect", str(strikes), *bodies, "-o", "page.png"]) == 0
    assert "8 trials, 8 impacts" in capsys.readouterr().out
    assert Path("page.png").stat().st_size > 10_000


def test_trials_with_names_of_their_own(capsys, strikes):
    renamed = []
    for trial in read_trials(strikes)[:3]:
        poses = {"thing": trial.poses["block"], "tip": trial.poses["striker"]}
        renamed.append(replace(trial, name=f"[/x] {trial.name}", poses=poses))
    write_trials("other.safetensors", Trials(tuple(renamed)))
    for command in (["inspect"], ["segment", "-o", "impacts.csv"]):
        args = [*command, "other.safetensors", "--scene", "semi_cylinder"]
        assert cli.main(args) == 2
        assert "no body 'block'" in error_message(capsys)
        assert cli.main([*args, "--struck", "thing", "--striker", "tip"]) == 0
        assert "3 impacts in 3 trials" in capsys.readouterr().out
    assert len(read_impacts("impacts.csv")) == 3


def test_segment_writes_what_calibrate_reads(capsys, strikes):
    for name in ("impacts.csv", "impacts.safetensors"):
        assert cli.main(["segment", str(strikes), "--scene", "semi_cylinder", "-o", name]) == 0
        assert "8 impacts written" in capsys.readouterr().out
        assert not holds_trials(Path(name))
        impacts = read_impacts(name)
        assert len(impacts) == 8
        assert (impacts.striker_twist[:, 0] > 0.1).all()
    few = read_impacts("impacts.csv")[np.arange(3)]
    write_impacts("few.csv", few)
    assert cli.main(["calibrate", "semi_cylinder", "few.csv", "-o", "run"]) == 0


def test_a_bare_scene_takes_geoms_as_calibrate_does(strikes):
    scene = Scene.load("semi_cylinder")
    Path("mine.xml").write_text(scene.xml)
    geoms = ["--struck", scene.struck, "--striker", scene.striker, "--ground", str(scene.ground)]
    args = ["segment", str(strikes), "--scene", "mine.xml", *geoms, "-o", "mine.csv"]
    assert cli.main(args) == 0
    assert len(read_impacts("mine.csv")) == 8


def test_a_struck_body_alone_says_which_pair_is_meant(capsys, strikes):
    scene = Scene.load("semi_cylinder")
    undriven = re.sub("<actuator>.*?</actuator>", "", scene.xml, flags=re.DOTALL)
    Path("loose.xml").write_text(undriven)
    args = ["segment", str(strikes), "--scene", "loose.xml", "-o", "loose.csv"]
    assert cli.main(args) == 2
    assert "give --struck" in error_message(capsys)
    assert cli.main([*args, "--struck", "block"]) == 0
    out = capsys.readouterr().out
    names = f"--struck {scene.struck} --striker {scene.striker}"
    assert f"next: clashsim calibrate loose.xml loose.csv {names}" in out


def test_only_known_numbers_that_explain_impacts_are_kept(strikes):
    trials = []
    for i, trial in enumerate(read_trials(strikes)[:3]):
        known = {"friction": 0.2, "mass": 0.1 + i, "hit_time": 0.1}
        trials.append(replace(trial, known=known))
    write_trials("known.safetensors", Trials(tuple(trials)))
    command = ["segment", "known.safetensors", "--scene", "semi_cylinder"]
    output = ["-o", "i.safetensors", "--overwrite"]
    for options, expected in (([], {"friction"}), (["--known", "mass"], {"friction", "mass"})):
        assert cli.main([*command, *output, *options]) == 0
        assert set(read_impacts("i.safetensors").known) == expected


def test_impacts_of_a_stand_in_are_not_called_real(strikes):
    trials = read_trials(strikes)[:3]
    write_trials("lab.safetensors", Trials((*trials[:2], replace(trials[2], source="lab"))))
    for name, source in ((str(strikes), "real"), ("lab.safetensors", "lab")):
        out = f"{source}-impacts.safetensors"
        assert cli.main(["segment", name, "--scene", "semi_cylinder", "-o", out]) == 0
        assert read_impacts(out).source == source


def test_calibrate_takes_trials(capsys, strikes):
    assert holds_trials(strikes)
    command = ["calibrate", "semi_cylinder", str(strikes), "-o", "run", "--hold-out", "0.25"]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert "8 impacts in 8 trials" in out
    assert "Friction of the ground, from 8 slides" in out
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["import"]
    assert metrics["impacts"] == 6
    assert 0.12 < metrics["ground"]["sliding"] < 0.25  # the sand has 0.17
    assert metrics["slide"]["held_out"] == 2
    page = Path("run/report.html").read_text()
    for heading in (
        "Accuracy on held-out impacts",
        "Predicted against measured",
        "Where the model is confident",
        "Would more impacts help?",
        "Parameters",
        "Slide model",
        "Data",
        "Timing",
    ):
        assert f"<h2>{heading}" in page
    for text in ("no_orientation, striker", "fitted at", "held out at"):
        assert text in page
    assert "stand-in" not in page
    check_it_is_shown_and_exported(capsys)


def check_it_is_shown_and_exported(capsys):
    """A run of trials has a slide model, which commands show and export."""
    assert cli.main(["show", "run"]) == 0
    out = capsys.readouterr().out
    for text in (
        "8 impacts in 8 trials",
        "Friction of the ground",
        "Slide model, from 6 slides",
        "slides held out end",
    ):
        assert text in out
    run = load("run")
    assert run.slide is not None
    lowest_friction, _ = run.ranges()["ground_friction"]
    assert 0.1 < lowest_friction < 0.25
    assert cli.main(["export", "run", "-o", "out"]) == 0
    exported = SlideModel.of(json.loads(Path("out/slide.json").read_text()))
    assert run.slide.content() == exported.content()


def test_too_few_slides_are_reported_and_the_run_does_without(capsys, strikes):
    write_trials("few.safetensors", read_trials(strikes)[:3])
    assert cli.main(["calibrate", "semi_cylinder", "few.safetensors", "-o", "run"]) == 0
    assert "no slide model: 3 of 3 slides" in capsys.readouterr().out
    assert load("run").slide is None
    assert cli.main(["show", "run"]) == 0
    assert "no slide model: 3 of 3 slides" in capsys.readouterr().out


def test_record_needs_drake(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydrake", None)
    assert cli.main(["record", "-o", "out"]) == 2
    assert "clashsim[lab]" in error_message(capsys)
    assert not os.listdir()


def test_record(capsys, monkeypatch):
    if find_spec("pydrake") is None:
        pytest.skip("Drake is not installed; get it with: pip install 'clashsim[lab]'")
    only_one = [lab.Setting("square", "resin", "high")]
    monkeypatch.setattr(lab.recording, "settings", lambda shape: only_one)
    monkeypatch.setattr(lab, "settings", lambda shape: only_one)
    command = ["record", "-o", "out", "--shape", "square", "--strikes", "1"]
    assert cli.main(command) == 0
    path = Path("out/square-resin-high.npz")
    assert holds_trials(path)
    assert "1 settings of 1 strikes recorded" in capsys.readouterr().out
    before = path.read_bytes()
    assert cli.main(command) == 0
    assert "are kept" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert cli.main(["inspect", str(path), "--scene", "square"]) == 0
    assert "1 impacts in 1 trials" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["import", "inspect", "segment", "record"])
def test_help_teaches_by_example(capsys, command):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Example: clashsim {command}" in text


@pytest.mark.slow
def test_strikes_of_a_real_laboratory(capsys):
    root = os.environ.get("CLASHSIM_DATA")
    if not root or not (Path(root) / "lasa_raw" / "raw_hits.zip").is_file():
        pytest.skip(
            "the raw strikes of epfl-lasa/air_hockey are not at hand; "
            "set CLASHSIM_DATA to the folder that holds lasa_raw/raw_hits.zip"
        )
    logs = str(Path(root) / "lasa_raw" / "raw_hits.zip")
    mapping_file = str(EXAMPLES / "lasa_raw.toml")
    assert cli.main(["import", logs, "--mapping", mapping_file, "-o", "trials.safetensors"]) == 0
    num_trials = len(read_trials("trials.safetensors"))
    assert cli.main(["segment", "trials.safetensors", "--scene", "plate", "-o", "impacts.csv"]) == 0
    impacts = read_impacts("impacts.csv")
    assert num_trials >= len(impacts) >= 0.9 * num_trials
    assert (impacts.after[:, 1] > 0.3).all()  # the arm strikes along +y
    command = ["calibrate", "plate", "trials.safetensors", "-o", "run", "--hold-out", "0.5"]
    assert cli.main(command) == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert 0.15 < metrics["ground"]["sliding"] < 0.23
    assert metrics["models"]["clashsim"]["accuracy_0.2"] > 0.5
