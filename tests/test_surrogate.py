"""The surrogate of a run as ONNX, and gains and ranges as events of training frameworks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clashsim import cli, load
from clashsim.nets.strike_table import StrikeTable
from tiny_run import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("surrogate") / "run")


def _onnx() -> None:
    reason = "the surrogate is written with onnx and run with onnxruntime, the extra onnx"
    pytest.importorskip("onnx", reason=reason)
    pytest.importorskip("onnxruntime", reason=reason)


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    _onnx()
    out = run.parent / "out"
    assert cli.main(["export", str(run), "-o", str(out), "--surrogate"]) == 0
    return out


def compared(table: StrikeTable, model: Path | bytes, inputs: dict[str, np.ndarray]) -> float:
    """Largest difference of poses at rest and twists, by onnxruntime and by torch."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(model)
    rest, twist = session.run(["rest", "twist"], inputs)
    expected = table.rest(inputs["pose"], inputs["strike"], inputs["noise"])
    with torch.no_grad():
        expected_twist = table.twist(torch.as_tensor(inputs["strike"])).numpy()
    return max(np.abs(rest - expected).max(), np.abs(twist - expected_twist).max())


@pytest.mark.parametrize("n", [1, 1000])
def test_it_agrees_with_the_run(run, exported, n):
    table = load(run).strike_table()
    rng = np.random.default_rng(n)
    margin = 0.2 * (table.high - table.low)  # outside the ranges as well
    inputs = {
        "pose": rng.normal(size=(n, 3)),
        "strike": rng.uniform(table.low - margin, table.high + margin, (n, len(table.names))),
        "noise": rng.normal(size=(n, 3)),
    }
    path = str(exported / "surrogate.onnx")
    assert compared(table, path, inputs) < 1e-9  # 1e-5 is asked for
    ends = inputs | {"strike": np.array([table.low, table.high]).repeat(n, 0)[:n]}
    assert compared(table, path, ends) < 1e-9


def test_the_example_needs_numpy_and_onnxruntime_only(exported):
    hide = (
        "import sys, runpy\n"
        "for name in ('clashsim', 'torch', 'mujoco', 'scipy'): sys.modules[name] = None\n"
        "runpy.run_path('run_surrogate.py')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide], cwd=exported, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "pose at rest" in done.stdout
    assert len((exported / "run_surrogate.py").read_text().splitlines()) < 20


def test_the_contract_names_every_input_with_unit_and_range(run, exported):
    contract = json.loads((exported / "surrogate.json").read_text())
    table = load(run).strike_table()
    columns = contract["inputs"]["strike"]["columns"]
    assert [column["name"] for column in columns] == list(table.names)
    assert [column["low"] for column in columns] == pytest.approx(table.low.tolist())
    assert all(column["unit"] and column["meaning"] for column in columns)
    assert contract["error_against_the_run"]["position_median_m"] >= 0


def test_tables_of_other_numbers_of_axes():
    _onnx()
    from clashsim.nets.strike_table_onnx import strike_table_onnx

    rng = np.random.default_rng(0)
    for names in (("speed",), ("point", "speed"), ("speed", "offset", "yaw", "deflection", "turn")):
        grids = [np.linspace(0.1, 1.0, 5 + k) for k in range(len(names))]
        count = int(np.prod([len(grid) for grid in grids]))
        table = StrikeTable.from_rest_poses(names, grids, rng.normal(size=(count, 3)))
        inputs = {
            "pose": rng.normal(size=(7, 3)),
            "strike": rng.uniform(0, 1.1, (7, len(names))),
            "noise": np.zeros((7, 3)),
        }
        assert compared(table, strike_table_onnx(table, {}), inputs) < 1e-9


def test_runs_without_a_surrogate_say_why(run, tmp_path, capsys):
    _onnx()
    from clashsim.fit.run_folder import save_run

    save_run(tmp_path / "plain", load(run).calibration)
    assert (
        cli.main(["export", str(tmp_path / "plain"), "-o", str(tmp_path / "o"), "--surrogate"]) == 2
    )
    assert "no slide model" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_without_onnx_nothing_is_written(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert cli.main(["export", str(run), "-o", str(tmp_path / "o"), "--surrogate"]) == 2
    assert "pip install 'clashsim[onnx]'" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_ranges_as_events_of_training_frameworks(run, tmp_path):
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the events, as users do")
    out = tmp_path / "out"
    assert cli.main(["export", str(run), "-o", str(out), "--events"]) == 0
    ranges = {entry["name"]: entry for entry in json.loads((out / "ranges.json").read_text())}
    for name in ("mjlab", "isaaclab"):
        content = yaml.safe_load((out / f"{name}_events.yaml").read_text())
        assert set(content["events"]) | set(content["without_an_event"]) == set(ranges)
        assert content["status"] == {key: entry["status"] for key, entry in ranges.items()}
        for event in content["events"].values():
            assert set(event) == {"mode", "func", "params"}
    mjlab = yaml.safe_load((out / "mjlab_events.yaml").read_text())["events"]
    friction = mjlab["friction"]
    assert friction["func"] == "mjlab.envs.mdp.dr:pair_friction"
    assert friction["params"]["asset_cfg"]["pair_names"] == ["strike"]
    expected = [ranges["friction"]["low"], ranges["friction"]["high"]]
    assert friction["params"]["ranges"] == pytest.approx(expected)
    assert mjlab["arm_mass"]["params"]["distribution"] == "log_uniform"
    isaac = yaml.safe_load((out / "isaaclab_events.yaml").read_text())["events"]
    low, high = isaac["friction"]["params"]["restitution_range"]
    assert 0 <= low < high <= 1
    assert isaac["friction"]["params"]["asset_cfg"]["body_names"] == ["block"]


def test_mjlab_takes_its_events(run, tmp_path):
    """Its functions accept the arguments, and its dataclasses the rest."""
    reason = "mjlab is installed where its events are tested"
    manager = pytest.importorskip("mjlab.managers.event_manager", reason=reason)
    import importlib
    import inspect

    import yaml

    entities = importlib.import_module("mjlab.managers.scene_entity_config")
    assert cli.main(["export", str(run), "-o", str(tmp_path / "out"), "--events"]) == 0
    events = yaml.safe_load((tmp_path / "out/mjlab_events.yaml").read_text())["events"]
    for event in events.values():
        module, _, name = event["func"].partition(":")
        function = getattr(importlib.import_module(module), name)
        entity = entities.SceneEntityCfg(**event["params"]["asset_cfg"])
        limits = tuple(event["params"]["ranges"])
        params = event["params"] | {"asset_cfg": entity, "ranges": limits}
        inspect.signature(function).bind(None, None, **params)
        manager.EventTermCfg(func=function, mode=event["mode"], params=params)
