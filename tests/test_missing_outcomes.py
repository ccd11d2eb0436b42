"""Outcomes of which only some components were measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import clashsim
from clashsim.bench import scenes
from clashsim.bench.user_scenes import hidden_model, record, user_scenes
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.evaluate.metrics import coverage, relative_error
from clashsim.fit.calibrate import calibrate
from clashsim.fit.gradient import identify_by_gradient
from clashsim.fit.identification_problem import identification_problem
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel


def without(impacts: Impacts, component: int) -> Impacts:
    after = impacts.after.copy()
    after[:, component] = np.nan
    return replace(impacts, after=after)


def hidden_theta(scene: Scene) -> np.ndarray:
    """Parameters within their ranges that are not the nominal ones."""
    low = np.array([param.low for param in scene.params])
    return 0.6 * scene.nominal + 0.4 * low


@pytest.mark.parametrize("component", [0, 2])
def test_parameters_are_recovered_from_the_components_that_were_measured(component: int) -> None:
    scene = Scene.load("puck")
    theta = hidden_theta(scene)
    model = SolvedModel(scene)
    impacts = sample(scene, 60, 3)
    impacts = Impacts(True, impacts.before, model.predict(impacts, theta))
    fitted, test = impacts[:12], impacts[12:]
    calibration = calibrate(model, without(fitted, component))
    estimates = {estimate.name: estimate.value for estimate in calibration.theta}
    names = [param.name for param in scene.params]
    expected = dict(zip(names, theta, strict=True))
    assert estimates["friction"] == pytest.approx(expected["friction"], rel=0.1)
    # Restitution, by which the damping is seen, hardly changes with it.
    assert estimates["damping"] == pytest.approx(expected["damping"], rel=0.35)
    error = relative_error(calibration.predict(test), test.after, 0.02)
    assert np.median(error) < 0.04
    # What was not measured does not make intervals narrow (their smallest factor is 0.02).
    assert calibration.interval_widths.std > 0.05
    assert calibration.interval_widths.usual_variance < 1.0
    # Identification of MuJoCo itself: no misfit where nothing was measured, the others as before.
    rows = np.arange(len(fitted))
    still = np.zeros((1, *fitted.after.shape))
    miss = identification_problem(scene, without(fitted, component)).miss(still, rows)[0]
    others = np.delete(np.arange(3), component)
    assert (miss[:, component] == 0).all() and (np.abs(miss[:, others]).max(1) > 0).all()
    assert np.isfinite(identify_by_gradient(model, without(fitted, component)).theta).all()


def test_values_of_what_was_not_measured_have_no_influence() -> None:
    """Where no component was measured in some impacts but one, a wrong one there must not count."""
    measured = np.array([[1.0, np.nan, 2.0], [0.5, 0.1, np.nan]])
    predicted = np.array([[1.1, 7.0, 2.0], [0.5, 0.2, -9.0]])
    size = np.array([np.hypot(1.0, 0.2), np.hypot(0.5, 0.1)])
    expected = np.array([0.1, 0.1]) / size
    np.testing.assert_allclose(relative_error(predicted, measured, 0.1), expected)
    inside = coverage(predicted - measured, np.ones((2, 2, 3)))
    assert inside.tolist() == [1.0, 1.0]


def test_empty_cells_and_absent_columns_are_not_measured(tmp_path) -> None:
    path = tmp_path / "impacts.csv"
    path.write_text("vx,vy,vx_after,vy_after,w_after\n-1,0,0.5,,\n-1,0.1,0.4,0,2\n")
    impacts = read_impacts(path)
    np.testing.assert_array_equal(impacts.measured, [[True, False, False], [True, True, True]])
    write_impacts(path, impacts)
    np.testing.assert_array_equal(read_impacts(path).after, impacts.after)
    path.write_text("vx,vy,vx_after,vy_after\n-1,0,0.5,0\n")
    np.testing.assert_array_equal(read_impacts(path).measured, [[True, True, False]])
    path.write_text("x,y,z,vz,vx_after,vy_after\n0,0,1,-1,0.1,0\n")
    assert not read_impacts(path).planar


def test_impacts_without_any_outcome_are_refused() -> None:
    scene = Scene.load("puck")
    impacts = sample(scene, 4, 0)
    nothing = Impacts(True, impacts.before, np.full_like(impacts.after, np.nan))
    with pytest.raises(DataError, match="no measured outcome"):
        calibrate(SolvedModel(scene), nothing)


def test_a_tracked_point_is_enough_for_a_run(tmp_path) -> None:
    """A body tossed on a floor whose angular velocity after it was not measured."""
    user_scene = next(scene for scene in user_scenes() if scene.name == "ellipsoid tossed")
    rng = np.random.default_rng(0)
    model = hidden_model(user_scene, rng)
    recorded = scenes._noisy(user_scene, *record(user_scene, model, 42, rng), rng)
    table = tmp_path / "impacts.csv"
    partly = recorded[:12]
    for component in (3, 4, 5):
        partly = without(partly, component)
    write_impacts(table, partly)
    path = tmp_path / "scene.xml"
    path.write_text(user_scene.xml)
    said: list[str] = []
    result = clashsim.calibrate_run(str(path), table, tmp_path / "run", notify=said.append)
    assert any("wx_after, wy_after, wz_after" in sentence for sentence in said)
    assert result.metrics["models"]["clashsim"]["accuracy_0.1"] >= 0.8
    test = recorded[12:]
    error = relative_error(result.run.calibration.predict(test), test.after, 0.03)
    assert (error < 0.1).mean() >= 0.8
