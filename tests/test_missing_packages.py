"""What is not installed: benchmarks go on without it, and messages name it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clashsim
from clashsim.bench import device_impacts, mjx_rate, throughput
from clashsim.core.errors import MissingExtraError, ParamError
from clashsim.core.extras import importable, needs, require
from clashsim.core.scene import Scene

ROOT = Path(__file__).parents[1]


def test_mjx_that_is_missing_leaves_mujocos_row(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco.mjx", None)
    mujoco, mjx = mjx_rate.measure_rates("square", (1,), batches_per_lane=4)
    assert mujoco["method"] == "all cores" and mujoco["per_second"] > 0
    assert mjx["what"] == "strikes in MJX" and mjx["why"].startswith(
        "mujoco-mjx is not installed; get it with"
    )


def test_environments_that_are_missing_say_why(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("clashsim.rl.env")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    rows = throughput._environments(Scene.load("puck"), None, None)
    assert [row["method"] for row in rows] == [
        "MuJoCo, steps chosen, 32 environments",
        "strike table, 256 environments",
    ]
    assert all(
        row["why"].startswith("gymnasium is not installed, and Stable-Baselines3 needs it")
        for row in rows
    )


def test_a_kernel_without_its_compiler_says_so(monkeypatch):
    monkeypatch.delitem(sys.modules, "clashsim.nets.fused", raising=False)
    monkeypatch.delattr(clashsim.nets, "fused", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ParamError, match="triton"):
        device_impacts._import_fused()


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Modules that cannot be imported, each for another reason."""
    (tmp_path / "needs_other.py").write_text("import surely_not_there\n")
    (tmp_path / "broken_library.py").write_text(
        "raise ImportError('libgone.so.1: cannot open shared object file')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("module", "package", "words"),
    [
        (
            "needs_other",
            "Needs-Other",
            "surely_not_there is not installed, and Needs-Other needs it",
        ),
        (
            "not_there",
            "Other (not-there)",
            "Other (not-there) is not installed",
        ),
        (
            "broken_library",
            "Broken",
            "Broken cannot be imported (libgone.so.1: cannot open shared object file)",
        ),
    ],
)
def test_the_module_that_is_missing_is_named(packages, module, package, words):
    with pytest.raises(MissingExtraError) as refused:
        require(module, package, "mjx")
    words += "; get it with: pip install 'clashsim[mjx]'"
    assert str(refused.value) == words
    kind, arguments = refused.value.__reduce__()  # as it comes back from a worker
    assert str(kind(*arguments)) == words
    assert not importable(module) and importable("json")


def test_an_error_that_is_no_import_passes():
    with pytest.raises(KeyError), needs("json", "io"):
        raise KeyError


@pytest.mark.slow
def test_throughput_without_a_dependency_of_mjx(tmp_path):
    """trimesh, which MJX imports, is hidden; all rows but that of MJX are printed and written."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'trimesh':\n"
        "            raise ModuleNotFoundError('No module named trimesh', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    command = [
        sys.executable,
        "-c",
        "import sys; from clashsim.cli import main; sys.exit(main())",
        "bench",
        "throughput",
        "--device",
        "cpu",
        "--quick",
    ]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "rows.json")],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    missing = [row for row in rows if "why" in row]
    assert len(rows) == 14 and [row["what"] for row in missing] == ["strikes in MJX of square"]
    assert missing[0]["why"].startswith("trimesh is not installed, and mujoco-mjx needs it")
    for row in rows:
        assert row["method"] in " ".join(done.stdout.split())
