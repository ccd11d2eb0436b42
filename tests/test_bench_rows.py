"""Rows of a benchmark outlive an error, and a row that is missing says why."""

from __future__ import annotations

import ast
import inspect
import json
import types
from pathlib import Path

import numpy as np
import pytest

import clashsim
from clashsim import cli
from clashsim.bench import basin_hopping, catalogue, few_shot, loop_summary, scaling
from clashsim.bench.few_shot_summary import summary
from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import optional
from clashsim.core.errors import DataError, MissingExtraError, ParamError
from clashsim.core.executor import local

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


def test_the_command_offers_every_benchmark(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "--help"])
    usage = capsys.readouterr().out.split("\n\n")[0]
    assert set(catalogue.MODULES) == set(usage[usage.index("{") + 1 : usage.index("}")].split(","))


@pytest.mark.parametrize("name", catalogue.MODULES)
def test_options_that_a_bench_does_not_have_are_refused(name):
    try:
        known = catalogue.load_benchmark(name).OPTIONS
    except MissingExtraError as error:
        pytest.skip(str(error))
    options = ("seeds", "first_seed", "sets", "methods", "plain", "resume", "device", "executor")
    assert known <= {"root", *options}
    for option in options:
        if option in known:
            catalogue.check_options(name, [option])
        else:
            with pytest.raises(
                ParamError, match=f"{name} has no option --{option.replace('_', '-')}"
            ):
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
        for draw, n in task.cells():
            head = few_shot.row_head(task, n, draw)
            rows.append(head | {"median": 0.1})
        return rows

    monkeypatch.setattr(few_shot, "measure_task", measured)
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
    cells = [(row["set"], row["draw"], row["n"]) for row in rows[1:]]
    assert cells == [("there", draw, n) for draw in ("random", "block") for n in (5, 10)]
    assert saved[-1] == len(rows) == 5


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


def test_the_summary_counts_cells_and_names_the_worst() -> None:
    def row(method: str, n: int, accuracy: float, draw: str = "random", **more: float) -> dict:
        head = {"set": "puck", "method": method, "n": n, "draw": draw}
        return head | {"accuracy_0.1": accuracy} | more

    rows = [
        row("mujoco-default", 0, 0.2),
        row("gp", 10, 0.8),
        row("clashsim", 10, 0.9, coverage_68=0.7, coverage_90=0.99),
        row("ridge", 10, 0.505, "block"),
        row("clashsim", 10, 0.5, "block"),
        row("newton-coulomb", 20, 0.7),
        row("clashsim", 20, 0.6),
        row("gp", 20, 0.0) | {"accuracy_0.1": None},
        {"set": "puck", "method": "scratch", "n": 5, "draw": "random", "why": "cannot"},
    ]
    sentences = summary(rows)
    assert sentences[0] == (
        "clashsim is the best method in 1 of 3 cells, within 0.01 of it in 2; "
        "the worst cell is 0.100 below newton-coulomb (puck, random, 20 impacts)."
    )
    assert "hold 70 % in the mean, and between 60 and 76 % in 1 of 1 rows" in sentences[1]
    assert "in 0 of 1 rows" in sentences[2]
    assert summary([]) == []
