"""Every command in short form.

Every mistake is one sentence and exit code 2; a killed sampling resumes to the same bytes.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import types
import zlib
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

import killed
from clashsim import cli
from clashsim.bench import catalogue
from clashsim.core.scene import Scene
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.fit import base as base_module
from clashsim.fit.calibrate import calibrate
from clashsim.fit.distil import DistillationConfig, distil
from clashsim.fit.run_folder import load, save_run
from clashsim.fit.sample import sample

pytestmark = pytest.mark.usefixtures("quick_report")

TINY = DistillationConfig(width=16, layers=3, members=2, steps=40, batch=64)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CLASHSIM_DATA", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def puck():
    """A small distilled model of the puck, and impacts that count as recorded."""
    scene = Scene.load("puck")
    model = distil(scene, sample(scene, 300, 0), config=TINY)
    impacts = replace(sample(scene, 15, 1), theta=None, end_counts={}, source="real")
    return model, impacts


@pytest.fixture
def calibrated(here, puck):
    """A folder with impacts of the puck."""
    write_impacts(here / "impacts.csv", puck[1])
    return here


def error_message(capsys) -> str:
    """What a failed command printed: one sentence on standard error."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert len(err.strip().splitlines()) == 1, err
    return err


def file_contents(folder: str) -> dict[Path, bytes]:
    """All files of a folder and its folders."""
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_sample(here, capsys):
    assert cli.main(["sample", "puck", "-n", "50", "-o", "s.safetensors"]) == 0
    impacts = read_impacts("s.safetensors")
    assert impacts.theta is not None
    assert sum(impacts.end_counts.values()) == 50
    assert "50 strikes" in capsys.readouterr().out
    assert os.listdir(here) == ["s.safetensors"]
    first = Path("s.safetensors").read_bytes()
    command = ["sample", "puck", "-n", "50", "-o", "s.safetensors"]
    assert cli.main([*command, "--seed", "1"]) == 2
    assert "already exists" in error_message(capsys)
    assert Path("s.safetensors").read_bytes() == first
    assert cli.main([*command, "--overwrite", "--threads", "1"]) == 0
    assert Path("s.safetensors").read_bytes() == first


def test_calibrate_show_and_write_back(calibrated, capsys):
    command = ["calibrate", "puck", "impacts.csv", "-o", "run"]
    assert cli.main([*command, "--hold-out", "0.4", "--write-mjcf", "puck.xml"]) == 0
    out = capsys.readouterr().out
    for text in (
        "friction",
        "damping",
        "90 % interval",
        "restitution",
        "MuJoCo, nominal",
        "MuJoCo, identified",
        "clashsim",
        "6 impacts held out",
    ):
        assert text in out
    assert cli.main(["show", "run"]) == 0
    assert "impacts.csv (9 impacts)" in capsys.readouterr().out
    Scene.load("puck.xml", struck="puck", striker="wall").model()
    before = file_contents("run")
    assert cli.main(command) == 2
    assert "already exists" in error_message(capsys)
    assert file_contents("run") == before


def test_export(calibrated, capsys):
    assert cli.main(["calibrate", "puck", "impacts.csv", "-o", "run", "--hold-out", "0.4"]) == 0
    capsys.readouterr()
    assert cli.main(["export", "run", "-o", "out", "--posterior-samples", "7", "--seed", "3"]) == 0
    assert "scene.xml, ranges.json, draws.csv written to out" in capsys.readouterr().out
    assert sorted(os.listdir("out")) == ["draws.csv", "manifest.json", "ranges.json", "scene.xml"]
    run = load("run")
    names = [param.name for param in run.scene.params]
    ranges = json.loads(Path("out/ranges.json").read_text())
    assert [entry["name"] for entry in ranges] == names
    assert list(ranges[0]) == [
        "name",
        "target",
        "unit",
        "scale",
        "sign",
        "value",
        "low",
        "high",
        "status",
    ]
    exported = mujoco.MjModel.from_xml_path("out/scene.xml")
    identified = run.scene.model(run.theta)
    assert np.allclose(exported.pair_friction, identified.pair_friction, rtol=1e-8)
    assert np.allclose(exported.pair_solref, identified.pair_solref, rtol=1e-8)
    for param, entry in zip(run.scene.params, ranges, strict=True):
        assert param.low <= entry["low"] <= entry["value"] <= entry["high"] <= param.high
    table = np.genfromtxt("out/draws.csv", delimiter=",", names=True)
    assert list(table.dtype.names) == names
    assert np.array_equal(np.array(table.tolist()), run.posterior_samples(7, 3))
    before = file_contents("out")
    assert cli.main(["export", "run", "-o", "out"]) == 2
    assert "already exists" in error_message(capsys)
    assert file_contents("out") == before
    assert cli.main(["export", "run", "-o", "out", "--overwrite"]) == 0
    assert sorted(os.listdir("out")) == ["manifest.json", "ranges.json", "scene.xml"]
    assert sorted(os.listdir()) == ["impacts.csv", "out", "run"]


def test_an_export_never_replaces_a_run_nor_a_run_an_export(calibrated, capsys):
    assert cli.main(["calibrate", "puck", "impacts.csv", "-o", "run", "--hold-out", "0.4"]) == 0
    assert cli.main(["export", "run", "-o", "out"]) == 0
    capsys.readouterr()
    for args, sentence in (
        (["export", "run", "-o", "run", "--overwrite"], "not an export"),
        (["calibrate", "puck", "impacts.csv", "-o", "out", "--overwrite"], "not a run folder"),
        (["export", "out", "-o", "more"], "not a run folder"),
        (["show", "out"], "not a run folder"),
    ):
        assert cli.main(args) == 2
        assert sentence in error_message(capsys)
    assert cli.main(["show", "run"]) == 0


def test_assets_are_exported_beside_the_scene(here, puck):
    scene = puck[0].scene
    xml = scene.xml.replace(
        "<worldbody>",
        '<asset><texture name="t" type="2d" file="pictures/t.png"/></asset><worldbody>',
    )
    texture = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(b"\0\1\2\3"))
        + _chunk(b"IEND", b"")
    )
    assets = {"pictures/t.png": texture, "scene.xml": b"<mujoco/>"}
    model = replace(puck[0], scene=replace(scene, xml=xml, assets=assets))
    save_run("run", calibrate(model, puck[1][:6]))
    assert cli.main(["export", "run", "-o", "out"]) == 0
    assert Path("out/scene.xml").read_bytes() == b"<mujoco/>"
    assert Path("out/pictures/t.png").read_bytes() == texture
    assert mujoco.MjModel.from_xml_path("out/puck.xml").ntex == 1


def _chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file: length, kind, content and checksum."""
    length = struct.pack(">I", len(content))
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return length + kind + content + checksum


def test_python_m_clashsim(here):
    for args, code in ((["--help"], 0), (["show", "none"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "clashsim", *args], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code and "clashsim" in done.stdout + done.stderr


def test_fewer_impacts_than_parameters(calibrated, capsys, puck):
    write_impacts("one.csv", puck[1][:1])
    assert cli.main(["calibrate", "puck", "one.csv", "-o", "run"]) == 0
    assert "priors decide" in " ".join(capsys.readouterr().out.split())


def test_leave_out_accuracy(calibrated, capsys, puck):
    write_impacts("few.safetensors", puck[1][:6])
    assert cli.main(["calibrate", "puck", "few.safetensors", "-o", "run"]) == 0
    assert "by 5-fold cross-validation" in capsys.readouterr().out


def test_distilled_models_are_kept(here, monkeypatch, puck, capsys):
    distilled = []

    def distil_tiny(scene, impacts, **options):
        distilled.append(scene.name)
        return distil(scene, impacts, **(options | {"config": TINY}))

    monkeypatch.setattr(base_module, "distil", distil_tiny)
    # No model is shipped, as for a scene of the user.
    monkeypatch.setattr(base_module, "shipped_base", lambda scene: None)
    write_impacts("impacts.csv", puck[1])
    options = ["--refine", "--samples", "200", "--base", "models", "--hold-out", "0.5"]
    for run in ("a", "b"):
        assert cli.main(["calibrate", "puck", "impacts.csv", "-o", run, *options]) == 0
    assert distilled == ["puck"]
    assert len(list(Path("models").glob("*.safetensors"))) == 1
    assert not list(Path("models").glob("*.parts"))


def test_demo(here, capsys):
    assert cli.main(["demo", "-o", "run", "--impacts", "6"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "stand-in for reality" in out and "clashsim" in out
    assert "</html>" in Path("run/report.html").read_text()
    assert "Slide model, from 5 slides" in out and "slides held out end" in out
    assert load("run").slide is not None
    assert cli.main(["demo", "-o", "run"]) == 2
    assert "already exists" in error_message(capsys)


def test_bench(here, capsys, monkeypatch):
    rows = [
        {
            "set": "a",
            "method": "m",
            "n": 10,
            "accuracy_0.1": np.float64(0.5),
            "median": float("nan"),
        },
        {"set": "a", "method": "k", "why": "no"},
    ]
    received = {}

    def run(options):
        received.update(root=options.recordings(), seeds=options.seeds, quick=options.quick)
        return rows

    module = types.SimpleNamespace(run=run, OPTIONS={"root", "seeds"})
    monkeypatch.setattr(catalogue, "import_module", lambda name: module)
    assert cli.main(["bench", "real-impacts"]) == 2
    assert "--data" in error_message(capsys)
    assert cli.main(["bench", "real-impacts", "--data", "none"]) == 2
    assert "no folder" in error_message(capsys)
    assert cli.main(["bench", "real-impacts", "--data", ".", "--quick", "--json", "out.json"]) == 0
    content = json.loads(Path("out.json").read_text())
    assert list(content) == ["bench", "versions", "machine", "seconds", "rows"]
    assert content["rows"][0]["accuracy_0.1"] == 0.5
    assert content["rows"][0]["median"] is None
    assert received == {"root": Path("."), "seeds": None, "quick": True}
    for option in (["--sets", "a"], ["--plot", "a.png"]):
        assert cli.main(["bench", "real-impacts", "--data", ".", *option]) == 2
        assert f"no option {option[0]}" in error_message(capsys)


PLAIN = (
    '<mujoco><worldbody><geom name="floor" type="plane" size="1 1 .1"/>'
    '<body><freejoint/><geom name="ball" size=".1"/></body></worldbody></mujoco>'
)
OTHER = '<body name="other"><freejoint/><geom size=".1"/></body></worldbody>'
PAIR = 'struck = "ball"\nstriker = "floor"'
PARAM = f'{PAIR}\n[[param]]\nname="f"\nnominal=1\nlow=0\nhigh=2\n'


@pytest.mark.parametrize(
    ("xml", "settings", "sentence"),
    [
        (PLAIN.replace("</worldbody>", OTHER), "", "which geom is struck is not clear"),
        (PLAIN, 'struck = "bal"\nstriker = "floor"', "did you mean ball"),
        (PLAIN, 'struck = "ball"\nstriker = "ball"', "two different geoms"),
        (
            PLAIN.replace('name="ball"', 'name="ball" contype="0" conaffinity="0"'),
            PAIR,
            "excludes contact",
        ),
        (
            PLAIN,
            PARAM + 'target="geom/ball/fricton[0]"',
            "did you mean friction",
        ),
        (
            PLAIN,
            PARAM + 'target="geom/bal/friction[0]"',
            "did you mean ball",
        ),
        (PLAIN, "struck =", "not valid TOML"),
        ("<mujoco><worldbody>", PAIR, "not a valid MJCF"),
        (b"\xff\xfe\x00", PAIR, "not text"),
    ],
)
def test_bad_scenes(here, capsys, xml, settings, sentence):
    Path("mine.xml").write_bytes(xml.encode() if isinstance(xml, str) else xml)
    Path("mine.toml").write_text(settings)
    assert cli.main(["sample", "mine.xml", "-n", "10", "-o", "s.safetensors"]) == 2
    assert sentence in error_message(capsys)
    assert sorted(os.listdir(here)) == ["mine.toml", "mine.xml"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["sample", "puk", "-o", "s.safetensors"], "did you mean puck"),
        (["sample", "none.xml", "-o", "s.safetensors"], "no scene file"),
        (["sample", "puck", "-o", "s.csv"], "must end in .safetensors"),
        (["sample", "puck", "-n", "0", "-o", "s.safetensors"], "at least 1"),
        (["sample", "puck", "-o", "s.safetensors", "--seed", "-1"], "must not be negative"),
        (["sample", "puck", "-n", "10", "-o", "file/s.safetensors"], "file"),
        (["calibrate", "puck", "none.csv", "-o", "run"], "no file"),
        (["calibrate", "puck", "file", "-o", "run"], "ending in"),
        (["calibrate", "puck", "still.csv", "-o", "run"], "nothing moves"),
        (["calibrate", "puck", "same.csv", "-o", "run"], "identical"),
        (["calibrate", "puck", "away.csv", "-o", "run"], "do the bodies approach"),
        (["calibrate", "puck", "impacts.csv", "-o", "file"], "not a folder"),
        (["calibrate", "puck", "impacts.csv", "-o", "run", "--hold-out", "1.5"], "below 1"),
        (["calibrate", "puck", "impacts.csv", "-o", "run", "--samples", "0"], "at least 100"),
        (["show", "none"], "no run folder"),
        (["show", "."], "not a run folder"),
        (["export", "none", "-o", "out"], "no run folder"),
        (["export", ".", "-o", "out"], "not a run folder"),
        (["export", "file", "-o", "out"], "no run folder"),
        (["export", "none", "-o", "out", "--posterior-samples", "-1"], "must not be negative"),
        (["export", "none", "-o", "out", "--seed", "-1"], "must not be negative"),
    ],
)
def test_bad_input(calibrated, capsys, puck, args, sentence):
    impacts = puck[1]
    Path("file").write_text("x")
    zero = impacts.before.copy()
    zero[:, 3:6] = 0
    write_impacts("still.csv", replace(impacts, before=zero))
    write_impacts("same.csv", impacts[np.zeros(5, int)])
    away = impacts.before.copy()
    away[:, 3:5] *= -1
    write_impacts("away.csv", replace(impacts, before=away))
    there = sorted(os.listdir())
    assert cli.main(args) == 2
    assert sentence in error_message(capsys)
    assert [p for p in sorted(os.listdir()) if not p.endswith(".parts")] == there


def test_wrong_arguments_exit_2(here, capsys):
    for args in (
        [],
        ["sampel"],
        ["sample", "puck"],
        ["bench", "nothing"],
        ["sample", "puck", "-o", "a.safetensors", "-n", "many"],
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(args)
        assert stop.value.code == 2
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["sample", "calibrate", "sweep", "show", "export", "bench", "demo"]
)
def test_help_teaches_by_example(capsys, command):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Example: clashsim {command}" in text


def test_the_overview_has_whole_sentences():
    for name, command in cli.COMMANDS.items():
        assert command.options.__doc__.split("\n")[0].endswith("."), name


def test_interrupt_is_130(here, capsys, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    command = cli.COMMANDS["show"]._replace(run=interrupted)
    monkeypatch.setitem(cli.COMMANDS, "show", command)
    assert cli.main(["show", "x"]) == 130


@pytest.mark.slow
def test_killed_sampling_resumes_to_the_same_bytes(here):
    def sampled(out: str, **stop) -> int:
        command = ["-m", "clashsim.cli", "sample", "ellipse", "-n", "9000", "--threads", "1", "-o"]
        return killed.run([*command, out], killed.environment(here / "stop", **stop)).returncode

    assert sampled("whole.safetensors") == 0
    parts = Path("killed.safetensors.parts")
    for kept, action in ((1, "kill after"), (1, "kill before")):
        assert sampled("killed.safetensors", pattern="shard-*", action=action) == -signal.SIGKILL
        assert len(list(parts.glob("shard-*"))) == kept
        assert not Path("killed.safetensors").exists()
    assert sampled("killed.safetensors") == 0 and not parts.exists()
    assert Path("killed.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()
