"""Impacts that are far from what the others predict are listed, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from clashsim import cli
from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.data.impact_files import write_impacts
from clashsim.evaluate import outliers
from clashsim.evaluate.data_efficiency import measure_data_efficiency
from clashsim.evaluate.metrics import relative_error
from clashsim.evaluate.outliers import Outlier, find_outliers, outlier_notes, outlier_sentence
from clashsim.fit.calibrate import calibrate
from clashsim.fit.run_folder import load
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.report.data_efficiency import FittedErrors, efficiency_sentence

NOISE = 0.02  # of the outcome


def recorded(scene: Scene, n: int, seed: int) -> Impacts:
    """Impacts of parameters that are not the nominal ones, with noise."""
    low = np.array([param.low for param in scene.params])
    impacts = sample(scene, n, seed)
    after = SolvedModel(scene).predict(impacts, 0.6 * scene.nominal + 0.4 * low)
    unit = np.array([1, 1, 1 / inertia(scene, scene.struck_body).gyration])
    size = np.linalg.norm(after / unit, axis=1, keepdims=True)
    noise = NOISE * size * unit * np.random.default_rng(seed).standard_normal(after.shape)
    return Impacts(True, impacts.before, after + noise)


def spoiled(impacts: Impacts) -> Impacts:
    """With a sign reversed in row 3, and a velocity spike in row 8."""
    after = impacts.after.copy()
    after[3] *= -1
    after[8, 0] += np.sign(after[8, 0]) * (0.3 + np.linalg.norm(after[8, :2]))
    return replace(impacts, after=after)


def outliers_of(scene: Scene, impacts: Impacts) -> tuple[Outlier, ...]:
    calibration = calibrate(SolvedModel(scene), impacts)
    return find_outliers(calibration, impacts, contact_frame(scene, impacts))


@pytest.mark.parametrize("name", ["puck", "semi_cylinder"])
def test_spoiled_rows_are_listed_and_nothing_else(name):
    scene = Scene.load(name)
    impacts = recorded(scene, 12, 0)
    found = outliers_of(scene, spoiled(impacts))
    assert [outlier.row for outlier in found] == [3, 8]
    assert found[0].cause == "the sign of vx, vy, w may be wrong"
    assert found[1].cause == "only vx is off, as by a velocity spike"
    assert all(outlier.weight < 0.2 for outlier in found)
    gyration = inertia(scene, scene.struck_body).gyration
    for outlier in found:
        assert relative_error(outlier.predicted, impacts.after[outlier.row], gyration) < 0.2
    sentence = outlier_sentence(12, outlier_notes(found, [f"impact {i}" for i in range(12)]))
    assert sentence.startswith("2 of 12 fitted impacts are outliers")
    assert "impact 3 (" in sentence and "impact 8 (" in sentence


@pytest.mark.parametrize("seed", range(4))
def test_a_clean_recording_has_none(seed):
    scene = Scene.load("puck")
    assert outliers_of(scene, recorded(scene, 12, seed)) == ()


def test_a_body_that_hardly_moved_is_named_as_such():
    scene = Scene.load("puck")
    impacts = recorded(scene, 12, 1)
    after = impacts.after.copy()
    after[5] = MotionBefore.of(impacts.before).struck.twist[5] + 0.003
    (found,) = outliers_of(scene, replace(impacts, after=after))
    assert found.row == 5
    assert found.cause == "the struck body hardly moved: was it hit?"


def test_components_that_were_not_measured_do_not_count():
    scene = Scene.load("puck")
    impacts = recorded(scene, 12, 0)
    spikes = spoiled(impacts).after
    spikes[:, 2] = np.nan
    found = outliers_of(scene, replace(impacts, after=spikes))
    assert [outlier.row for outlier in found] == [3, 8]
    assert found[0].cause == "the sign of vx, vy may be wrong"


def test_a_single_component_shows_no_spike():
    scene = Scene.load("puck")
    impacts = spoiled(recorded(scene, 12, 0))
    after = impacts.after.copy()
    after[:, 1:] = np.nan
    found = outliers_of(scene, replace(impacts, after=after))
    assert found
    assert all("spike" not in (outlier.cause or "") for outlier in found)


def test_a_sensitive_impact_and_the_strikers_outcome_are_no_mistakes(monkeypatch):
    scene = Scene.load("puck")
    impacts = spoiled(recorded(scene, 12, 0))
    calibration = calibrate(SolvedModel(scene), impacts)
    frame = contact_frame(scene, impacts)
    far, usual = np.full(12, 9.0), np.ones(12)
    monkeypatch.setattr(outliers, "_struck_errors", lambda _: (far, 9 * usual))
    found = find_outliers(calibration, impacts, frame)
    assert {outlier.cause for outlier in found} == {outliers._BY_SENSITIVITY}
    with_striker = replace(impacts, striker_after=impacts.after)
    monkeypatch.setattr(outliers, "_struck_errors", lambda _: (0 * far, usual))
    found = find_outliers(calibration, with_striker, frame)
    assert {outlier.cause for outlier in found} == {"the striker's outcome is off"}
    sentence = outlier_sentence(12, outlier_notes(found, [f"impact {i}" for i in range(12)]))
    assert "Check the recording" not in sentence and "may be right" in sentence


def test_what_is_stated_of_the_struck_body_alone():
    scene = Scene.load("puck")
    calibration = calibrate(SolvedModel(scene), spoiled(recorded(scene, 12, 0)))
    deviation, sensitivity = outliers._struck_errors(calibration)
    assert set(np.flatnonzero(deviation > 3.5)) == {3, 8}
    assert np.median(sensitivity) == pytest.approx(1)


def test_outliers_do_not_change_whether_more_impacts_would_help():
    scene = Scene.load("puck")
    clean = recorded(scene, 12, 0)
    none = clean[np.arange(0)]
    figures = {}
    for name, impacts in (("clean", clean), ("spoiled", spoiled(clean))):
        calibration = calibrate(SolvedModel(scene), impacts)
        outliers = find_outliers(calibration, impacts, contact_frame(scene, impacts))
        rows = [outlier.row for outlier in outliers]
        figures[name] = measure_data_efficiency(calibration, impacts, none, outliers=rows, seed=0)
    for efficiency in figures.values():
        assert efficiency is not None
        assert all(np.median(np.concatenate(errors)) < 0.06 for errors in efficiency.errors)
    assert figures["spoiled"].num_left_out == 2
    sentence = efficiency_sentence(figures["spoiled"], FittedErrors(10, np.full(10, 0.02)))
    assert sentence.startswith("From 3 to 10 impacts")
    assert sentence.endswith("to 2.0 %, without the 2 outliers.")


@pytest.mark.usefixtures("quick_report")
def test_calibrate_lists_outliers_in_terminal_metrics_and_report(tmp_path, capsys):
    scene = Scene.load("puck")
    impacts = spoiled(recorded(scene, 13, 0))
    # A row that cannot be used comes before them: names are numbers in the file.
    before = impacts.before.copy()
    before[0] = np.nan
    write_impacts(tmp_path / "impacts.csv", replace(impacts, before=before))
    run = tmp_path / "run"
    assert cli.main(["calibrate", "puck", str(tmp_path / "impacts.csv"), "-o", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "2 of 12 fitted impacts are outliers" in printed
    listed = json.loads((run / "metrics.json").read_text())["outliers"]
    assert [note["impact"] for note in listed] == ["impact 3", "impact 8"]
    page = (run / "report.html").read_text()
    assert "Outliers: 2 of 12 fitted impacts" in page
    assert "impact 3" in page and "velocity spike" in page
    stored = load(run).calibration.posteriors[0].leave_one_out
    assert stored is not None and stored.deviation[2] > 5
