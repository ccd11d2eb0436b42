"""A run folder restores a calibration bit for bit, is replaced whole or not at all, and refuses
whatever does not fit.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from clashsim.core.errors import RunError
from clashsim.core.scene import Scene
from clashsim.data.folders import read_folder, write_folder
from clashsim.fit.calibrate import calibrate
from clashsim.fit.distil import DistillationConfig, distil
from clashsim.fit.run_folder import RunRecord, load, read_notes, save_run
from clashsim.fit.sample import sample

TINY = DistillationConfig(width=16, layers=3, members=2, steps=30, batch=64)


@pytest.fixture(scope="module")
def made():
    scene = Scene.load("ellipse")
    base = distil(scene, sample(scene, 200, 0), config=TINY)
    impacts = replace(sample(scene, 24, 1), theta=None, end_counts={})
    return calibrate(base, impacts[:12]), impacts


@pytest.fixture
def run(made, tmp_path):
    save_run(
        tmp_path / "run",
        made[0],
        record=RunRecord({"seed": 3}, {"accuracy_0.1": 0.5}, {"a.csv": made[1]}),
    )
    return tmp_path / "run"


def test_predicts_the_same_bits(made, run):
    calibration, impacts = made
    again = load(run).calibration
    assert all(
        np.array_equal(a, b)
        for a, b in zip(
            again.predict_by_fits(impacts), calibration.predict_by_fits(impacts), strict=True
        )
    )
    assert np.array_equal(again.std(impacts), calibration.std(impacts))
    assert again.theta == calibration.theta
    ours, theirs = calibration.base.scene, again.base.scene
    assert (ours.xml, ours.params, ours.strikes, ours.name, ours.struck) == (
        theirs.xml,
        theirs.params,
        theirs.strikes,
        theirs.name,
        theirs.struck,
    )
    notes = read_notes(run)
    assert (
        notes["options"] == {"seed": 3}
        and notes["metrics"] == {"accuracy_0.1": 0.5}
        and notes["trials"][0]["impacts"] == len(impacts)
    )


def test_saving_twice_gives_the_same_files(made, run, tmp_path):
    save_run(
        tmp_path / "two",
        load(run).calibration,
        record=RunRecord({"seed": 3}, {"accuracy_0.1": 0.5}, {"a.csv": made[1]}),
    )
    assert read_folder(tmp_path / "two") == read_folder(run)


def test_assets_come_back(made, tmp_path):
    scene = replace(made[0].base.scene, assets={"meshes/a.stl": b"\x00\x01"})
    save_run(tmp_path / "run", replace(made[0], base=replace(made[0].base, scene=scene)))
    assert load(tmp_path / "run").scene.assets == {"meshes/a.stl": b"\x00\x01"}


def test_an_existing_run_is_replaced_only_when_asked(made, run):
    before = read_folder(run)
    with pytest.raises(RunError, match="already exists"):
        save_run(run, made[0])
    assert read_folder(run) == before
    save_run(run, made[0], record=RunRecord({"seed": 4}), overwrite=True)
    assert read_notes(run)["options"] == {"seed": 4}
    assert os.listdir(run.parent) == ["run"]


def test_other_folders_are_never_replaced(made, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("home", "file"):
        with pytest.raises(RunError, match="already exists and is not"):
            save_run(tmp_path / name, made[0], overwrite=True)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("moment", range(6))
def test_a_write_that_dies_leaves_the_old_run(made, run, monkeypatch, moment):
    before, count = read_folder(run), iter(range(100))
    real = os.fsync if moment < 4 else os.rename

    def fail(*args):
        if next(count) == moment % 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(os, real.__name__, fail)
    with pytest.raises(KeyboardInterrupt):
        save_run(run, made[0], record=RunRecord({"seed": 5}), overwrite=True)
    monkeypatch.undo()
    assert read_folder(run) == before
    assert os.listdir(run.parent) == ["run"]


def spoil(run, name, change):
    manifest = json.loads((run / "manifest.json").read_text())
    files = {n: (run / n).read_bytes() for n in manifest["files"]}
    for file in (*manifest["files"], "manifest.json"):
        (run / file).unlink()
    files[name] = change(files[name])
    write_folder(run, files)


def test_spoilt_runs_are_refused(run):
    weights = (run / "weights.safetensors").read_bytes()
    (run / "weights.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(RunError, match="changed after it was written"):
        load(run)
    (run / "weights.safetensors").unlink()
    with pytest.raises(RunError, match=r"incomplete: weights.safetensors is missing"):
        load(run)
    (run / "manifest.json").unlink()
    with pytest.raises(RunError, match="half-written"):
        load(run)
    with pytest.raises(RunError, match="there is no run folder"):
        load(run / "none")


def test_runs_of_another_version_are_refused(run):
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(RunError, match="has format 99"):
        load(run)
    (run / "manifest.json").write_text("[]")
    with pytest.raises(RunError, match="not a run folder of clashsim"):
        load(run)
    (run / "manifest.json").write_text(json.dumps(manifest | {"files": {"../../etc/passwd": "0"}}))
    with pytest.raises(RunError, match="must stay inside"):
        load(run)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("config.json", lambda b: b.replace(b'"scales"', b'"scalds"')),
        ("config.json", lambda b: b"[]"),
        ("config.json", lambda b: b.replace(b'"width": 16', b'"width": 17')),
        (
            "theta.json",
            lambda b: (
                b.replace(b'"fitted"', b'"guessed"')
                .replace(b'"unidentifiable"', b'"guessed"')
                .replace(b'"at bound"', b'"guessed"')
            ),
        ),
        ("scene.json", lambda b: b"{}"),
        ("weights.safetensors", lambda b: b[:100]),
    ],
)
def test_rewritten_runs_that_do_not_fit_are_refused(run, name, change):
    spoil(run, name, change)
    with pytest.raises(RunError) as error:
        load(run)
    assert "\n" not in str(error.value)
