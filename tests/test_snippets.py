"""Every command and snippet of the README and the docs runs, in short form.

A command that no test runs fails here, unless it is listed with a reason.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from clashsim import cli
from clashsim.bench.scenes import in_one_recording, recorded_impacts
from clashsim.bench.user_scenes import hidden_model, scene_of_three_pairs
from clashsim.core.scene import Scene
from clashsim.data.impact_files import write_impacts
from clashsim.data.readers.camera_file import load_camera
from clashsim.fit import calibrated_run as run_module
from clashsim.fit.distil import DistillationConfig
from clashsim.fit.sample import sample
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from snippets import PAGES, ROOT, Block, blocks, inline

pytestmark = pytest.mark.usefixtures("quick_report")

ALL = [block for path in PAGES for block in blocks(path)]
TINY = DistillationConfig(width=16, layers=3, members=2, steps=40, batch=64)

STRIKE_TABLES: dict[str, StrikeTable] = {}  # by name of scene

# Commands that are not run here, and why.
NOT_RUN = {
    r"make .*": "runs this very suite, or what it runs; the test below checks that targets exist",
    r"pip .*": "changes the environment",
    r"clashsim demo -o runs/demo": "test_cli.py runs it; runs/demo is a smaller calibration here",
    r"clashsim (train|evaluate) .*": "trains for minutes; test_push.py and a slow test run them",
    r"clashsim loop .*": "trains policies, round after round; test_loop.py runs it",
    r"clashsim (view|doctor).*": "serves a page or inspects the machine; has tests of its own",
    r"clashsim .*--executor .*": "starts a cluster; test_scale.py runs them on two workers",
    r"clashsim .*--device cuda.*": "needs a GPU; tests run the same with --device cpu",
    r"clashsim sample .*--engine auto": "a million strikes; test_mjx_striker.py samples a few",
    r"clashsim export .*--surrogate": "needs the extra onnx; test_surrogate.py runs it",
    r"clashsim import .*--camera .*": "needs the extra video; test_video.py runs it",
    r"ray start .*": "starts a cluster on the reader's machines",
    r"clashsim bench .*": "takes minutes to hours; other tests run benchmarks with --quick",
    r"python -m clashsim\.fit\.train_graph .*": "takes minutes on a GPU; test_graph_meshes.py",
}
# Sketches that need the reader's own recordings: their imports are run here, and the calls by the
# tests named.
SKETCHES = {
    "docs/mjx.md": "test_mjx_sim.py",
    "docs/augmented.md": "test_augmented.py",
    "docs/trajectories.md": "test_motion_fit.py",
}
# Blocks that are formulas and not code.
PROSE = {("docs/slides.md", "s^2 = u.A u")}
# Options that make a command fast without changing what it does.
SHORT = {
    "execute": ["--repeats", "1"],
    "advise": ["-k", "1"],
    "calibrate": ["--hold-out", "0.25"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that commands run in: the shipped examples, and a user's scene and impacts."""
    out = tmp_path_factory.mktemp("snippets")
    shutil.copytree(ROOT / "examples", out / "examples")
    scene = Scene.load("square")
    xml = (
        scene.xml.replace('geom name="striker"', 'geom name="tool"')
        .replace('geom1="striker"', 'geom1="tool"')
        .replace('geom2="striker"', 'geom2="tool"')
    )
    (out / "scene.xml").write_text(xml)
    (out / "targets.csv").write_text("x,y,yaw\n-0.05,-0.02,-20\n-0.03,-0.05,10\n")
    write_impacts(out / "impacts.csv", replace(sample(scene, 12, 1), theta=None))
    write_impacts(out / "second.csv", replace(sample(scene, 6, 2), theta=None))
    write_several_pairs(out)
    return out


def write_several_pairs(out: Path) -> None:
    """A user's scene with several pairs, and a recording that names their bodies."""
    pairs = list(scene_of_three_pairs('<geom type="sphere" size=".045" mass=".2"/>'))[:2]
    rng = np.random.default_rng(0)
    model = hidden_model(pairs[0], rng)
    recorded = [recorded_impacts(pair, model, 4, rng) for pair in pairs]
    (out / "table.xml").write_text(pairs[0].xml)
    write_impacts(out / "session.csv", in_one_recording(pairs, recorded))


@pytest.fixture
def quick(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Making a strike table takes seconds, and several commands need that of the same run.
    monkeypatch.setattr(run_module, "strike_table", cached_strike_table)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder


def cached_strike_table(hybrid: HybridSim) -> StrikeTable:
    """The strike table of a scene, made once."""
    name = hybrid.scene.name
    if name not in STRIKE_TABLES:
        STRIKE_TABLES[name] = strike_table(hybrid)
    return STRIKE_TABLES[name]


def run(line: str) -> None:
    """One command as a shell would run it, in short form."""
    program, *args = shlex.split(line)
    if program == "cd":
        os.chdir(args[0])
    elif program == "python":
        import runpy

        arguments_before = sys.argv
        sys.argv = args
        try:
            runpy.run_path(args[0], run_name="__main__")
        finally:
            sys.argv = arguments_before
    else:
        assert program == "clashsim", line
        short = SHORT.get(args[0], [])
        if short and short[0] in args:
            flag = args.index(short[0])
            del args[flag : flag + 2]
        assert cli.main([*args, *short]) == 0, line


def not_run(line: str) -> bool:
    """Whether a command is listed as not run here."""
    return any(re.fullmatch(pattern, line) for pattern in NOT_RUN)


def follow(pages: list[str], start: Path, monkeypatch: pytest.MonkeyPatch, ran: set[str]) -> None:
    """Run commands and Python of pages in order.

    Each command runs once, because a second one would be refused: its output exists.
    """
    monkeypatch.chdir(start)
    for block in ALL:
        if block.page not in pages or block.page in SKETCHES:
            continue
        if block.kind == "sh":
            for line in block.lines:
                if not not_run(line) and line not in ran:
                    ran.add(line)
                    run(line)
        elif block.kind == "python":
            exec(compile(block.text, block.page, "exec"), {})


def test_the_readme_and_the_guides(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = list(dict.fromkeys(block.page for block in ALL))
    assert "docs/tutorial.md" in pages and "README.md" in pages
    (quick / "runs").mkdir(exist_ok=True)
    monkeypatch.chdir(quick)
    ran: set[str] = set()
    for line in (
        "clashsim import examples/strikes --mapping examples/strikes.toml -o trials.safetensors",
        "clashsim calibrate semi_cylinder trials.safetensors -o runs/strikes",
    ):
        ran.add(line)
        run(line)
    shutil.copytree("runs/strikes", "runs/demo")
    follow([page for page in pages if page != "docs/tutorial.md"], quick, monkeypatch, ran)


@pytest.mark.slow
def test_the_tutorial(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(["docs/tutorial.md"], quick, monkeypatch, set())
    assert (
        Path("plan/path-1.csv").is_file()
        and Path("runs/book/report.html").is_file()
        and Path("book/scene.xml").is_file()
    )
    shown = [
        tomllib.loads(block.text)
        for block in ALL
        if block.page == "docs/tutorial.md" and block.kind == "toml"
    ]
    made = [tomllib.loads(Path(name).read_text()) for name in ("mocap.toml", "book.toml")]
    assert made[0] == shown[0]
    assert shown[1] == {
        **made[1],
        "strikes": {k: pytest.approx(v) for k, v in made[1]["strikes"].items()},
        "param": made[1]["param"][:1],
    }


@pytest.mark.slow
def test_training(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(quick)
    if not Path("runs/demo").is_dir():
        run("clashsim import examples/strikes --mapping examples/strikes.toml -o t.safetensors")
        run("clashsim calibrate semi_cylinder t.safetensors -o runs/demo")
    assert cli.main(["train", "runs/demo", "-o", "runs/push", "--steps", "2000"]) == 0
    assert (
        cli.main(
            [
                "evaluate",
                "runs/push/policy.safetensors",
                "--route",
                "3",
                "--repeats",
                "1",
                "-o",
                "route.gif",
            ]
        )
        == 0
    )


@pytest.mark.parametrize("block", ALL, ids=lambda b: f"{b.page}:{b.kind}")
def test_every_block_is_of_a_kind_that_is_tested(block: Block, tmp_path: Path) -> None:
    if block.kind == "sh":
        for line in block.lines:
            assert not_run(line) or line.split()[0] in ("clashsim", "python", "cd"), line
    elif block.kind == "text":
        assert block.page == "docs/architecture.md"  # drawings of packages and data flow
    elif block.kind == "toml":
        tomllib.loads(block.text)
    elif block.kind == "yaml":  # camera files
        pytest.importorskip("yaml", reason="PyYAML is not installed")
        (tmp_path / "camera.yaml").write_text(block.text)
        load_camera(tmp_path / "camera.yaml")
    elif block.kind == "py":  # needs packages that clashsim does not
        ast.parse(block.text)
    elif block.kind == "xml":
        ElementTree.fromstring(f"<mujoco>{block.text}</mujoco>")
    elif block.kind == "python":
        tree = ast.parse(block.text)
        if block.page in SKETCHES:
            imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module(imports, []), block.page, "exec"), {})
            assert (ROOT / "tests" / SKETCHES[block.page]).is_file()
    else:
        assert any(block.page == page and block.text.startswith(first) for page, first in PROSE), (
            f"a block of no known kind: give it a language, as in ```python\n{block.text}"
        )


def test_the_exceptions_are_needed() -> None:
    lines = [line for block in ALL if block.kind == "sh" for line in block.lines] + [
        line for path in PAGES for line in inline(path)
    ]
    for pattern in NOT_RUN:
        assert "pip" in pattern or any(re.fullmatch(pattern, line) for line in lines), pattern
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for line in lines:
        assert not line.startswith("make ") or line.split()[1] in targets


@pytest.fixture(scope="module")
def flags() -> set[str]:
    """All options that the help texts of the commands name."""
    out = io.StringIO()
    for command in cli.COMMANDS:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            cli.main([command, "--help"])
    return set(re.findall(r"--[a-z][a-z.-]*", out.getvalue()))


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_in_the_text_exist_with_their_options(path: Path, flags: set[str]) -> None:
    for line in inline(path):
        words = line.split()
        assert words[1] in cli.COMMANDS or words[1] == "COMMAND", line
        for flag in re.findall(r"--[a-z][a-z.-]*", line):
            assert flag in flags, line
