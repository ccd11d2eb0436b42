"""The way from a laboratory's logs to a calibrated scene on the command line: every verb, and every
mistake as one sentence and exit code 2.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from clashsim import cli, lab
from clashsim.pipeline.recordings import holds_trials
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.data.readers import mapping
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.fit import base as base_module
from clashsim.fit.distil import DistillationConfig, distil
from clashsim.fit.run_folder import load
from clashsim.fit.sample import sample
from clashsim.slides.law import SlideModel

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
def models():
    """Small distilled models by name of scene, made once: distilling is not what is tested here."""
    made = {}

    def model(scene, **_):
        if scene.name not in made:
            made[scene.name] = distil(scene, sample(scene, 200, 0), config=TINY)
        return replace(made[scene.name], scene=scene)

    return model


@pytest.fixture
def quick(monkeypatch, models):
    monkeypatch.setattr(base_module, "base_model", models)


@pytest.fixture(scope="module")
def strikes(tmp_path_factory) -> Path:
    """Trials of the shipped example logs."""
    path = tmp_path_factory.mktemp("strikes") / "trials.safetensors"
    assert cli.main([*IMPORT, "-o", str(path)]) == 0
    return path


def sentence(capsys) -> str:
    """What a failed command said: one sentence on standard error."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and len(err.strip().splitlines()) == 1, err
    return err


def files(folder: Path | str = ".") -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def test_import(capsys):
    assert cli.main([*IMPORT, "-o", "trials.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "8 trials of block, striker" in out and "no_orientation" in out and "dropout" in out
    trials = read_trials("trials.safetensors")
    assert trials.bodies == ("block", "striker") and np.allclose(
        np.diff(trials[0].t), 0.005, atol=1e-4
    )
    recorded = lab.recorded("semi_cylinder", "nylon", "low")[0]
    assert (
        np.nanmax(np.abs(trials[0].poses["block"][:, :2] - recorded.poses["block"][:, :2])) < 1e-5
    )
    before = files()
    assert cli.main([*IMPORT, "-o", "trials.safetensors"]) == 2
    assert "already exists" in sentence(capsys) and files() == before
    assert cli.main([*IMPORT, "-o", "trials.safetensors", "--overwrite"]) == 0 and files() == before


def test_a_guess_says_which_bodies_have_no_orientation(capsys):
    Path("log.csv").write_text(
        "t,hex x,hex y,hex z,hex k1,hex k2,hex k3,hex k4\n"
        + "".join(f"{i / 100},0.{i:02d},0,0,0,0,0,1\n" for i in range(40))
    )
    assert cli.main(["import", "log.csv", "--guess", "-o", "log.toml"]) == 0
    assert "orientation of hex, which counts as never turned" in capsys.readouterr().out


def test_a_guessed_mapping_is_printed_written_and_used(capsys):
    logs = str(EXAMPLES / "strikes")
    assert cli.main(["import", logs, "--guess"]) == 0
    printed = capsys.readouterr().out
    assert (
        mapping.loads(printed).logs[0].units == {"time": "ms", "length": "mm", "angle": "deg"}
        and not os.listdir()
    )
    assert (
        cli.main(["import", logs, "--guess", "-o", "lab.toml"]) == 0
        and Path("lab.toml").read_text() == printed
    )
    capsys.readouterr()
    assert cli.main(
        ["import", logs, "--guess", "-o", "lab.toml"]
    ) == 2 and "already exists" in sentence(capsys)
    assert cli.main(["import", logs, "--mapping", "lab.toml", "-o", "a.safetensors"]) == 0
    assert cli.main(["import", logs, "--guess", "-o", "b.safetensors"]) == 0
    assert (
        Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()
        and "the mapping was guessed" in capsys.readouterr().out
    )


def test_findings_that_stop_are_shown_and_can_be_accepted(capsys):
    Path("lab.toml").write_text(
        (EXAMPLES / "strikes.toml").read_text().replace('length = "mm"', 'length = "m"')
    )
    args = [
        "import",
        str(EXAMPLES / "strikes"),
        "--mapping",
        "lab.toml",
        "-o",
        "trials.safetensors",
    ]
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert (
        "length_unit" in out
        and "stop" in out
        and len(err.strip().splitlines()) == 1
        and "accept by name" in err
        and os.listdir() == ["lab.toml"]
    )
    assert (
        cli.main([*args, "--accept", "length_unit"]) == 0 and Path("trials.safetensors").is_file()
    )


@pytest.mark.parametrize(
    ("args", "words"),
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
            "are the recording itself",
        ),
        (
            ["segment", "trials.safetensors", "--scene", "bare.xml", "-o", "i.csv"],
            "does not say which geoms",
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
def test_bad_input(capsys, strikes, args, words):
    shutil.copy(strikes, "trials.safetensors")
    trial = read_trials(strikes)[0]
    write_trials(
        "still.safetensors",
        Trials(
            (
                Trial(
                    "still",
                    trial.t,
                    {body: np.tile(pose[0], (len(pose), 1)) for body, pose in trial.poses.items()},
                ),
            )
        ),
    )
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
    assert words in sentence(capsys)
    assert files() == before


def test_inspect(capsys, strikes):
    assert cli.main(["inspect", str(strikes)]) == 0
    assert "8 trials, 0 impacts" in (out := capsys.readouterr().out) and "--struck" in out
    assert cli.main(["inspect", str(strikes), "--scene", "semi_cylinder", "-o", "page.html"]) == 0
    assert (
        "8 impacts in 8 trials" in capsys.readouterr().out
        and Path("page.html").read_text().count("<img") == 8
    )
    assert (
        cli.main(
            ["inspect", str(strikes), "--struck", "block", "--striker", "striker", "-o", "page.png"]
        )
        == 0
    )
    assert (
        "8 trials, 8 impacts" in capsys.readouterr().out
        and Path("page.png").stat().st_size > 10_000
    )


def test_trials_with_names_of_their_own(capsys, strikes):
    trials = read_trials(strikes)[:3]
    write_trials(
        "other.safetensors",
        Trials(
            tuple(
                replace(
                    t,
                    name=f"[/x] {t.name}",
                    poses={"thing": t.poses["block"], "tip": t.poses["striker"]},
                )
                for t in trials
            )
        ),
    )
    for verb in (["inspect"], ["segment", "-o", "impacts.csv"]):
        assert cli.main([*verb, "other.safetensors", "--scene", "semi_cylinder"]) == 2
        assert "no body 'block'" in sentence(capsys)
        assert (
            cli.main(
                [
                    *verb,
                    "other.safetensors",
                    "--scene",
                    "semi_cylinder",
                    "--struck",
                    "thing",
                    "--striker",
                    "tip",
                ]
            )
            == 0
        )
        assert "3 impacts in 3 trials" in capsys.readouterr().out
    assert len(read_impacts("impacts.csv")) == 3


def test_segment_writes_what_calibrate_reads(capsys, strikes, quick):
    for name in ("impacts.csv", "impacts.safetensors"):
        assert cli.main(["segment", str(strikes), "--scene", "semi_cylinder", "-o", name]) == 0
        assert "8 impacts written" in capsys.readouterr().out and not holds_trials(Path(name))
        impacts = read_impacts(name)
        assert len(impacts) == 8 and (impacts.striker_twist[:, 0] > 0.1).all()
    assert cli.main(["calibrate", "semi_cylinder", "impacts.csv", "-o", "run"]) == 0


def test_a_bare_scene_takes_geoms_as_calibrate_does(strikes):
    scene = Scene.load("semi_cylinder")
    Path("mine.xml").write_text(scene.xml)
    args = [
        "segment",
        str(strikes),
        "--scene",
        "mine.xml",
        "--struck",
        scene.struck,
        "--striker",
        scene.striker,
        "--ground",
        str(scene.ground),
        "-o",
        "mine.csv",
    ]
    assert cli.main(args) == 0 and len(read_impacts("mine.csv")) == 8


def test_known_numbers_travel_only_where_they_say_something(strikes):
    trials = read_trials(strikes)[:3]
    write_trials(
        "known.safetensors",
        Trials(
            tuple(
                replace(t, known={"friction": 0.2, "mass": 0.1 + i, "hit_time": 0.1})
                for i, t in enumerate(trials)
            )
        ),
    )
    for more, expected in (([], {"friction"}), (["--known", "mass"], {"friction", "mass"})):
        assert (
            cli.main(
                [
                    "segment",
                    "known.safetensors",
                    "--scene",
                    "semi_cylinder",
                    "-o",
                    "i.safetensors",
                    "--overwrite",
                    *more,
                ]
            )
            == 0
        )
        assert set(read_impacts("i.safetensors").known) == expected


def test_impacts_of_a_stand_in_are_not_called_real(strikes):
    trials = read_trials(strikes)[:3]
    write_trials("lab.safetensors", Trials((*trials[:2], replace(trials[2], source="lab"))))
    for name, source in ((str(strikes), "real"), ("lab.safetensors", "lab")):
        assert (
            cli.main(
                ["segment", name, "--scene", "semi_cylinder", "-o", f"{source}-impacts.safetensors"]
            )
            == 0
        )
        assert read_impacts(f"{source}-impacts.safetensors").source == source


def test_calibrate_takes_trials(capsys, strikes, quick):
    assert holds_trials(strikes)
    assert (
        cli.main(["calibrate", "semi_cylinder", str(strikes), "-o", "run", "--hold-out", "0.25"])
        == 0
    )
    out = capsys.readouterr().out
    assert "8 impacts in 8 trials" in out and "Friction of the ground, from 8 slides" in out
    metrics = json.loads(Path("run/metrics.json").read_text())
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
    assert (
        "no_orientation, striker" in page
        and metrics["import"]
        and "fitted at" in page
        and "held out at" in page
    )
    assert (
        "stand-in" not in page
        and metrics["impacts"] == 6
        and 0.12 < metrics["ground"]["sliding"] < 0.25
    )  # the sand has 0.17
    assert cli.main(["show", "run"]) == 0
    out = capsys.readouterr().out
    assert (
        "8 impacts in 8 trials" in out
        and "Friction of the ground" in out
        and "Slide model, from 6 slides" in out
        and "slides held out end" in out
    )
    assert (
        load("run").slide is not None
        and metrics["slide"]["held_out"] == 2
        and 0.1 < load("run").ranges()["ground_friction"][0] < 0.25
    )
    assert (
        cli.main(["export", "run", "-o", "out"]) == 0
        and load("run").slide.content()
        == SlideModel.of(json.loads(Path("out/slide.json").read_text())).content()
    )


def test_too_few_slides_are_said_and_do_without(capsys, strikes, quick):
    write_trials("few.safetensors", read_trials(strikes)[:3])
    assert cli.main(["calibrate", "semi_cylinder", "few.safetensors", "-o", "run"]) == 0
    assert "no slide model: 3 of 3 slides" in capsys.readouterr().out and load("run").slide is None
    assert cli.main(["show", "run"]) == 0
    assert "no slide model: 3 of 3 slides" in capsys.readouterr().out


def test_record_needs_drake(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydrake", None)
    assert cli.main(["record", "-o", "out"]) == 2
    assert "clashsim[lab]" in sentence(capsys) and not os.listdir()


def test_record(capsys, monkeypatch):
    if find_spec("pydrake") is None:
        pytest.skip("Drake is not installed; get it with: pip install 'clashsim[lab]'")
    monkeypatch.setattr(
        lab.recording, "settings", lambda shape: [lab.Setting("square", "resin", "high")]
    )
    monkeypatch.setattr(lab, "settings", lambda shape: [lab.Setting("square", "resin", "high")])
    assert cli.main(["record", "-o", "out", "--shape", "square", "--strikes", "1"]) == 0
    path = Path("out/square-resin-high.npz")
    assert holds_trials(path) and "1 settings of 1 strikes recorded" in capsys.readouterr().out
    before = path.read_bytes()
    assert cli.main(["record", "-o", "out", "--shape", "square", "--strikes", "1"]) == 0
    assert "are kept" in capsys.readouterr().out and path.read_bytes() == before
    assert cli.main(["inspect", str(path), "--scene", "square"]) == 0
    assert "1 impacts in 1 trials" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["import", "inspect", "segment", "record"])
def test_help_teaches_by_example(capsys, verb):
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, "--help"])
    assert stop.value.code == 0 and f"Example: clashsim {verb}" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.slow
def test_strikes_of_a_real_laboratory(capsys):
    root = os.environ.get("CLASHSIM_DATA")
    if not root or not (Path(root) / "lasa_raw" / "raw_hits.zip").is_file():
        pytest.skip(
            "the raw strikes of epfl-lasa/air_hockey are not at hand; set CLASHSIM_DATA to the folder that holds lasa_raw/raw_hits.zip"
        )
    assert (
        cli.main(
            [
                "import",
                str(Path(root) / "lasa_raw" / "raw_hits.zip"),
                "--mapping",
                str(EXAMPLES / "lasa_raw.toml"),
                "-o",
                "trials.safetensors",
            ]
        )
        == 0
    )
    n = len(read_trials("trials.safetensors"))
    assert cli.main(["segment", "trials.safetensors", "--scene", "plate", "-o", "impacts.csv"]) == 0
    impacts = read_impacts("impacts.csv")
    assert (
        n >= len(impacts) >= 0.9 * n and (impacts.after[:, 1] > 0.3).all()
    )  # the arm strikes along +y
    assert (
        cli.main(["calibrate", "plate", "trials.safetensors", "-o", "run", "--hold-out", "0.5"])
        == 0
    )
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert (
        0.15 < metrics["ground"]["sliding"] < 0.23
        and metrics["models"]["clashsim"]["accuracy_0.2"] > 0.5
    )
