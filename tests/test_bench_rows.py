"""Rows of a bench outlive an error, what is missing says why, and tables break no word."""

from __future__ import annotations

import ast
import inspect
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import clashsim
from clashsim import cli
from clashsim.bench import (
    basin_hopping,
    catalogue,
    device_impacts,
    few_shot,
    loop_summary,
    mjx_rate,
    scaling,
    throughput,
)
from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import optional
from clashsim.commands import doctor
from clashsim.commands.self_test import SelfTest
from clashsim.core.errors import DataError, MissingExtraError, ParamError
from clashsim.core.executor import local
from clashsim.core.extras import importable, needs, require
from clashsim.core.scene import Scene
from clashsim.report import tables

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import install  # noqa: E402

CONTRACT = ["bench", "versions", "machine", "seconds", "rows"]
FIGURE = {"what": "impacts", "method": "network", "per_second": 12.5}


@pytest.fixture
def run_bench(tmp_path, monkeypatch):
    """Runs a function as the bench `sampling`; gives the exit code and the rows of its file."""
    file = tmp_path / "out" / "rows.json"

    def run(function):
        module = types.SimpleNamespace(
            run=lambda options: function(save=options.save), OPTIONS=frozenset()
        )
        monkeypatch.setattr(catalogue, "import_module", lambda name: module)
        code = cli.main(["bench", "sampling", "--json", str(file)])
        content = json.loads(file.read_text())
        assert list(content) == CONTRACT
        return code, content["rows"]

    run.file = file
    return run


def test_the_file_has_each_row_as_it_is_made(run_bench):
    seen = []

    def made(*, save):
        rows = []
        for value in (1.0, float("nan")):
            rows.append(FIGURE | {"per_second": np.float64(value)})
            save(rows)
            content = json.loads(run_bench.file.read_text())
            assert list(content) == CONTRACT
            seen.append([row["per_second"] for row in content["rows"]])
        return [*rows, {"what": "sum"}]

    code, rows = run_bench(made)
    assert code == 0 and seen == [[1.0], [1.0, None]] and rows[-1] == {"what": "sum"}


@pytest.mark.parametrize(
    ("error", "code"), [(DataError("the disk is gone"), 2), (KeyboardInterrupt(), 130)]
)
def test_what_ends_a_bench_leaves_its_rows(run_bench, capsys, error, code):
    def ended(*, save):
        save([FIGURE])
        raise error

    assert run_bench(ended) == (code, [FIGURE])
    out = capsys.readouterr().out
    assert "network" in out and "12.5" in out


def test_an_error_that_is_not_ours_leaves_its_rows_too(run_bench, capsys):
    def ended(*, save):
        save([FIGURE])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_bench(ended)
    assert (
        json.loads(run_bench.file.read_text())["rows"] == [FIGURE]
        and "12.5" in capsys.readouterr().out
    )


def test_a_missing_row_is_no_failure_unless_all_are_missing(run_bench, capsys):
    lacks = MissingExtraError("mujoco-mjx", "mjx")

    def some(*, save):
        rows = []
        for method, error in (("a", lacks), ("b", None), ("c", RuntimeError("out of\nmemory"))):
            with optional(rows, what="impacts", method=method):
                if error is not None:
                    raise error
                rows.append(FIGURE)
        return rows

    code, rows = run_bench(some)
    out, err = capsys.readouterr()
    assert code == 0 and [row.get("why") for row in rows] == [
        str(lacks),
        None,
        "RuntimeError: out of memory",
    ]
    assert (
        "pip install 'clashsim[mjx]'" in out and "Traceback" in err
    )  # what is not ours is for its maker to find
    code, rows = run_bench(lambda *, save: [{"what": "impacts", "why": "there is no device"}])
    assert code == 2 and rows[0]["why"] == "there is no device"
    assert (
        "no row of the benchmark sampling could be measured: there is no device"
        in capsys.readouterr().err
    )


def test_an_output_that_is_a_folder_is_refused_before_any_work(tmp_path, capsys, monkeypatch):
    module = types.SimpleNamespace(run=lambda options: pytest.fail("it began"), OPTIONS=frozenset())
    monkeypatch.setattr(catalogue, "import_module", lambda name: module)
    assert cli.main(["bench", "sampling", "--json", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def _run_function(module):
    """Syntax tree of the function `run` of a benchmark module."""
    folder = Path(clashsim.__file__).parent / "bench"
    tree = ast.parse((folder / f"{module}.py").read_text())
    (run,) = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"
    ]
    return run


@pytest.mark.parametrize("module", catalogue.MODULES.values())
def test_every_bench_saves_its_rows(module):
    run = _run_function(module)
    assert run.args.args[0].arg == "options" and len(run.args.args) == 1
    code = ast.unparse(run)
    # The few-shot benches leave it to `few_shot.measure`, which gets the options.
    assert "options.save(" in code or "return measure(" in code, (
        f"{module}.run does not save its rows as they are made"
    )


def test_the_few_shot_protocol_saves_its_rows():
    assert "options.save(rows)" in inspect.getsource(few_shot.measure)


@pytest.mark.parametrize("name", catalogue.MODULES)
def test_options_that_a_bench_does_not_have_are_refused(name):
    known = catalogue.load_benchmark(name).OPTIONS
    assert known <= {"root", "seeds", "sets", "methods", "resume", "device", "executor"}
    for option in ("seeds", "sets", "methods", "resume", "device", "executor"):
        if option in known:
            catalogue.check_options(name, [option])
        else:
            with pytest.raises(ParamError, match=f"{name} has no option --{option}"):
                catalogue.check_options(name, [option])


def test_rows_with_why_are_measured_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    append_rows(file, [FIGURE, {"what": "impacts", "why": "jax is not installed"}])
    assert read_rows(file) == [FIGURE]


def test_a_method_that_fails_is_one_row(monkeypatch):
    """On a bench that goes through methods one after the other."""
    problem = types.SimpleNamespace(
        truth=np.zeros(1), steps=1, rounds=1, residuals=lambda points: np.zeros((1, 1))
    )

    def broken(problem, seed, budget):
        raise DataError("no way down")

    def good(problem, seed, budget):
        return basin_hopping.SearchResult(np.zeros(1), budget)

    methods = {"bad": broken, "good": good}
    monkeypatch.setattr(basin_hopping, "METHODS", methods)
    monkeypatch.setattr(basin_hopping, "PROBLEMS", {"flat": lambda: problem})
    saved = []
    options = BenchOptions(seeds=1, save=lambda rows: saved.append(len(rows)))
    rows = basin_hopping.run(options)
    assert rows[0] == {"set": "flat", "method": "bad", "why": "no way down"}
    assert rows[1]["method"] == "good" and rows[1]["reached"] == 1 and saved == [1, 2]


def test_a_set_that_fails_is_one_row(monkeypatch):
    """On a bench whose tasks go to an executor."""

    def measured(task, done, resume):
        if task.name == "lost":
            raise DataError("the file is cut off")
        rows = []
        for n in task.ns:
            head = few_shot._row_head(task.name, task.method, n, "random")
            rows.append(head | {"median": 0.1})
        return rows

    monkeypatch.setattr(few_shot, "_measure", measured)
    sets = {"lost": lambda: None, "there": lambda: None}
    saved = []
    options = BenchOptions(executor=local, save=lambda rows: saved.append(len(rows)))
    rows = few_shot.measure(sets, options, methods=["gp"], ns=(5, 10), seeds=1)
    assert rows[0] == {
        "set": "lost",
        "method": "gp",
        "n": 5,
        "draw": "random",
        "why": "the file is cut off",
    }
    assert [row["set"] for row in rows[1:]] == ["there"] * 2 and saved == [1, 3]


def test_sums_over_rows_leave_out_what_is_missing():
    head = {"change": "heavier", "algorithm": "ppo", "seed": 0}
    found = head | {"method": "random", "round": 1, "strikes": 5, "error_mm": 2.0, "error_rad": 0.1}
    lost = head | {"method": "informative", "why": "it fell over"}
    rows = loop_summary.with_summary([found, lost])
    assert rows[:2] == [lost, found] and [row["seed"] for row in rows[2:]] == ["mean", "needed"]
    rate = {"what": "sampling", "workers": 1, "killed": False, "per_second": 10.0}
    rows = scaling._with_efficiency(
        [
            {"what": "all", "workers": 2, "killed": False, "why": "no cluster"},
            rate,
            rate | {"workers": 2, "per_second": 15.0},
        ]
    )
    assert [row.get("efficiency") for row in rows] == [1.0, 0.75, None]


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
        "MuJoCo, 32 environments",
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


def _row(labels, floats="", integers=""):
    """A row with its longest labels, and numbers as wide as they come under all other keys."""
    numbers = dict.fromkeys(floats.split(), 0.00123) | dict.fromkeys(integers.split(), 12345)
    return labels | numbers | {key: 300 for key in ("n", "seeds", "of") if key in numbers}


_SHARES = "accuracy_0.1 accuracy_0.2 accuracy_0.05 median sd_0.1 worst_0.1"
_SET = {"set": "lasa/D1-Inertia_reduced", "method": "newton-coulomb", "draw": "random"}
_FEW_SHOT = [
    _row(_SET, f"{_SHARES} seconds", "n seeds"),
    _row(_SET | {"why": "no finite loss"}, "", "n"),
]
_STRIKES = {"what": "strikes of semi_cylinder", "method": "strike table, slide model"}
_TARGETS = {"what": "1000 targets in one call", "method": "CMA-ES on cuda"}
_TRAINING = {"what": "training", "method": "PPO, 16384 environments on cuda"}
_KERNEL = {"what": "impacts", "method": "network of 3, one kernel in half precision"}
_MJX = {"what": "strikes in MJX of square", "method": "8192 at once on cuda:0, float32"}
_SLIDE = {
    "set": "lasa/D1-Inertia_reduced",
    "method": "mujoco-torsional",
    "input": "strike",
    "draw": "session",
}
_PLAN = {"what": "plan of semi-cylinder", "method": "hybrid, MuJoCo's slide, 16 targets at once"}
_ROUTE = {"route": "3", "method": "mujoco-grid", "seed": "all"}
_LOOP = {"change": "heavier", "algorithm": "ppo", "method": "informative"}
_MISSES = "position_m yaw_rad position_median_m yaw_median_rad yaw_worst_seed_rad"
_PLANNED = (
    "position_m position_sd orientation_rad orientation_sd position_median_m orientation_median_rad"
)
_TOSSED = (
    "position_pct rotation_deg position_median rotation_median "
    "position_soon rotation_soon wrong_face"
)
# Rows with the keys of each bench.
ROWS = {
    "real-impacts": _FEW_SHOT,
    "shapes": _FEW_SHOT,
    "materials": _FEW_SHOT,
    "advise": [
        _row({"set": "lasa/D1-Inertia_reduced", "method": "advised-5-5"}, _SHARES, "n seeds")
    ],
    "real-slides": [_row(_SLIDE, _MISSES, "n seeds of")],
    "sampling": [_row(_STRIKES, "per_second ratio peak_mb", "n steps")],
    "base": [
        _row(
            {"set": "semi_cylinder", "method": "clash-paper"},
            "accuracy_0.1 accuracy_0.2 median",
            "n",
        )
    ],
    "throughput": [
        _row({"what": "impacts", "method": "network alone", "ratio": None}, "per_second"),
        _row(_STRIKES, "per_second ratio off_mm off_deg same"),
        _row({"what": "environment steps", "method": "1048576 environments on cuda"}, "per_second"),
        _row(_KERNEL, "per_second limit off"),
        _row(_TARGETS, "per_second seconds reached off", "evaluations"),
        _row(_TRAINING, "per_second seconds reached until", "strikes until_strikes"),
        _row(_MJX, "per_second steps_per_second compile_s"),
    ],
    "planning": [
        _row(
            {"shape": "semi-cylinder", "method": "hybrid-scratch"},
            f"{_PLANNED} expected_m expected_rad",
            "executed",
        )
    ],
    "search-time": [
        _row(_PLAN, "seconds per_second ratio expected_mm setup_s coarse_mm", "evaluations plans")
    ],
    "routes": [
        _row(_ROUTE, "strikes", "success trials subgoals subgoals_of"),
        _row(_ROUTE, "", "success trials subgoals subgoals_of"),
    ],
    "loop": [
        _row(
            _LOOP | {"size": {"rounds": 4}},
            "error_mm error_rad",
            "seed round strikes success trials",
        ),
        _row(_LOOP | {"seed": "mean"}, "error_mm error_rad", "round strikes seeds success trials"),
        _row(_LOOP | {"seed": "needed"}, "random_ended_mm", "random_strikes strikes"),
    ],
    "basin-hopping": [
        _row(
            {"set": "thrown-box", "method": "basin-hopping"},
            "reached error distance spent",
            "seeds steps",
        )
    ],
    "real-pendulum": [
        _row(
            {"method": "neural-without-upper"},
            "error_mm mean_mm low_mm high_mm within_mm until_5mm ratio",
            "frame windows seeds",
        )
    ],
    "real-tosses": [
        _row(
            {"method": "graph-augmented"},
            f"{_TOSSED} position_pct_worst rotation_deg_worst",
            "n seeds tosses",
        )
    ],
    "push-to-stop": [
        _row({}, "velocity distance_mm target_m", "start epoch"),
        _row(
            {"start": "all"},
            "distance_mm mujoco_mm epochs_needed last_distance_mm last_mujoco_mm",
            "epoch converged of last_converged",
        ),
    ],
    "bowling": [
        _row({"what": "error"}, "seconds position_pct rotation_deg", "frame cubes scenes"),
        _row({"what": "cost", "device": "cuda"}, "graph_s mujoco_s ratio", "cubes scenes"),
    ],
    "scaling": [
        _row(
            {"what": "calibration", "killed": True, "same": True},
            "seconds per_second efficiency load",
            "workers retried",
        )
    ],
}


def _words(row):
    """All words that a table of the row has to show whole."""
    for key, value in row.items():
        if isinstance(value, dict):
            continue
        yield from tables._header(key).split()
        if value is not None:
            yield from tables._cell(value).split()


@pytest.mark.parametrize("width", [120, 160])
@pytest.mark.parametrize("name", catalogue.MODULES)
def test_no_word_of_a_bench_is_broken(name, width):
    labels = {key: value for key, value in ROWS[name][0].items() if isinstance(value, str)}
    missing = labels | {"why": str(MissingExtraError("mujoco-mjx", "mjx"))}
    for rows in (ROWS[name], [missing]):  # apart, for they share words
        out = Console(file=io.StringIO(), width=width)
        out.print(tables.tabulate_rows(f"{name}, 12345 s", rows, width=width))
        lines = out.file.getvalue().splitlines()
        shown = {word for line in lines for word in line.split()}
        broken = {word for row in rows for word in _words(row)} - shown
        assert not broken and max(map(len, lines)) <= width


def test_each_kind_of_row_is_a_table():
    rows = [
        {"what": "impacts", "rate": 1.0},
        {"what": "strikes", "rate": 2.0, "off": 0.1},
        {"what": "cost", "cubes": 3},
        {"what": "strikes", "why": "none"},
    ]
    out = Console(file=io.StringIO(), width=100)
    out.print(tables.tabulate_rows("all", rows, width=100))
    headers = [
        line.split() for line in out.file.getvalue().splitlines() if line.split()[:1] == ["what"]
    ]
    assert headers == [["what", "rate", "off"], ["what", "cubes"], ["what", "why"]]


def test_the_doctor_names_each_step_as_it_begins(capsys, monkeypatch):
    began = []

    def step(self):
        began.append(capsys.readouterr().out.splitlines()[-1])
        return True, "fine"

    for name in ("_sample", "_distilled", "_calibrate", "_planned", "_stepped", "_kept"):
        monkeypatch.setattr(SelfTest, name, step)
    monkeypatch.setattr(doctor, "_extra", lambda name, needs: doctor.Extra(name, "", {}, ()))
    assert cli.main(["doctor"]) == 0
    assert (
        began[0] == "  MuJoCo samples strikes ... "
        and began[1] == "  the shipped model predicts them ... "
    )
    last = capsys.readouterr().out
    assert last.startswith("pass: fine (") and last.endswith(" s)\nall is well\n")


def test_the_doctor_times_the_imports_of_each_extra(monkeypatch):
    said = []
    monkeypatch.setattr(
        doctor,
        "_extra",
        lambda name, needs: said.append(f"<{name}>") or doctor.Extra(name, "", {}, ()),
    )
    doctor.extras(lambda text, end=" ": said.append(text))
    at = said.index("<mjx>")
    assert said[at - 1] == " mjx" and float(said[at + 1]) >= 0


def test_no_page_promises_how_long_the_doctor_takes():
    pages = [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *(ROOT / "src/clashsim/commands").glob("*.py"),
        ROOT / "src/clashsim/cli.py",
    ]
    assert not [page.name for page in pages if "ten seconds" in page.read_text()]


def test_setting_up_says_what_pip_does():
    progress = install.Progress()
    said = [
        progress.said(line)
        for line in (
            "Collecting rich>=13.9 (from clashsim==0.1.0)\n",
            "  Downloading rich-14.3.4-py3-none-any.whl (310 kB)\n",
            "  Downloading https://host/files/ray-2.60.0-cp311-cp311-manylinux.whl (79.1 MB)\n",
            "Requirement already satisfied: numpy in ./lib\n",
            "Installing collected packages: a, b, c\n",
            "Successfully installed a-1 b-1 c-1\n",
        )
    ]
    assert said == [None, None, "downloading ray (79 MB)", None, "installing 3 packages", None]
    many = [progress.said(f"Processing /wheels/p{i}.whl\n") for i in range(2 * install.EVERY)]
    assert [line for line in many if line] == [
        f"{install.EVERY} packages found",
        f"{2 * install.EVERY} packages found",
    ]


def test_a_set_up_that_fails_shows_why(tmp_path, capfd):
    log = tmp_path / "install.log"
    code = install.main(log, ["--no-index", "--dry-run", "surely-not-there"])
    assert (
        code == 1
        and "surely-not-there" in capfd.readouterr().err
        and "surely-not-there" in log.read_text()
    )


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
