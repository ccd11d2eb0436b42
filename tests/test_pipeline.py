"""The functions behind the commands: they do what the commands do, without printing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clashsim
from clashsim import cli
from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import DataError, ParamError
from clashsim.core.scene import Scene
from clashsim.data.impact_files import write_impacts
from clashsim.data.trial_files import read_trials
from clashsim.fit.distil import DistillationConfig, distil
from clashsim.fit.sample import sample
from clashsim.pipeline.log_import import RefusedLogsError
from clashsim.pipeline.recorded_impacts import RecordedImpacts, split_impacts

pytestmark = pytest.mark.usefixtures("quick_report")

EXAMPLES = Path(__file__).parents[1] / "examples"
TINY = DistillationConfig(width=16, layers=3, members=2, steps=40, batch=64)


@pytest.fixture(scope="module")
def puck():
    """A small distilled model of the puck, and impacts that count as recorded."""
    scene = Scene.load("puck")
    model = distil(scene, sample(scene, 300, 0), config=TINY)
    impacts = replace(sample(scene, 12, 1), theta=None, end_counts={}, source="real")
    return model, impacts


@pytest.fixture
def recording(tmp_path, monkeypatch, puck) -> Path:
    """A file with impacts of the puck."""
    monkeypatch.chdir(tmp_path)
    write_impacts(tmp_path / "impacts.csv", puck[1])
    return tmp_path / "impacts.csv"


@pytest.mark.slow
def test_calibrate_run_writes_what_the_command_writes(recording, capsys):
    config = clashsim.CalibrationConfig(hold_out=0.5, overwrite=True)
    result = clashsim.calibrate_run("puck", "impacts.csv", "run", config=config)
    assert capsys.readouterr().out == ""
    names = ("theta.json", "weights.safetensors", "config.json", "metrics.json", "trials.json")
    by_function = {name: (result.folder / name).read_bytes() for name in names}
    command = ["calibrate", "puck", "impacts.csv", "-o", "run", "--hold-out", "0.5"]
    assert cli.main([*command, "--overwrite"]) == 0
    for name in names:
        assert (result.folder / name).read_bytes() == by_function[name], name


def test_the_result_of_calibrate_run_is_what_its_folder_holds(recording):
    result = clashsim.calibrate_run("puck", recording, "run")
    loaded = clashsim.load("run")
    np.testing.assert_array_equal(result.run.theta, loaded.theta)
    assert result.metrics["impacts"] == 12 and result.slide is None and result.mjcf is None


def test_mistakes_are_raised(recording):
    for config in (
        clashsim.CalibrationConfig(hold_out=1.0),
        clashsim.CalibrationConfig(samples=10),
        clashsim.CalibrationConfig(seed=-1),
    ):
        with pytest.raises(ParamError):
            clashsim.calibrate_run("puck", recording, "run", config=config)
    with pytest.raises(ParamError, match="at least 1000"):
        clashsim.TrainingConfig(steps=10)
    with pytest.raises(ParamError, match="at most 10000"):
        clashsim.PlanConfig(noise_samples=20_000)
    with pytest.raises(DataError, match="cannot go with"):
        clashsim.ImportConfig(mapping=Path("lab.toml"), guess=True)
    assert not Path("run").exists()


def test_contact_frames_follow_the_rows_of_their_impacts(puck):
    model, impacts = puck
    data = split_impacts(
        RecordedImpacts(impacts),
        model.scene,
        hold_out=0.25,
        seed=3,
        name="impacts.csv",
        notify=print,
    )
    assert len(data.fitted) == 9 and len(data.held_out) == 3
    for part, frame in ((data.fitted, data.fitted_frame), (data.held_out, data.held_out_frame)):
        expected = contact_frame(model.scene, part)
        np.testing.assert_allclose(frame.features, expected.features, atol=1e-12)


def test_import_logs_writes_trials_and_returns_findings(tmp_path):
    logs = [EXAMPLES / "strikes"]
    out = tmp_path / "trials.safetensors"
    config = clashsim.ImportConfig(mapping=EXAMPLES / "strikes.toml")
    imported = clashsim.import_logs(logs, out, config=config)
    assert len(read_trials(out)) == len(imported.trials) == 8
    assert {finding.name for finding in imported.findings} >= {"no_orientation", "dropout"}


def test_refused_logs_come_with_all_findings(tmp_path):
    mapping = tmp_path / "lab.toml"
    in_millimetres = (EXAMPLES / "strikes.toml").read_text()
    mapping.write_text(in_millimetres.replace('length = "mm"', 'length = "m"'))
    out = tmp_path / "trials.safetensors"
    with pytest.raises(RefusedLogsError) as refused:
        clashsim.import_logs(
            [EXAMPLES / "strikes"], out, config=clashsim.ImportConfig(mapping=mapping)
        )
    assert "length_unit" in {finding.name for finding in refused.value.findings}
    assert not out.exists()
