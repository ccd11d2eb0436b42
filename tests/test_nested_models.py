"""Averages of nested models: their shares, their intervals, and what holds far from the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clashsim.core.contact_frame import inertia
from clashsim.core.impacts import Impacts
from clashsim.core.intervals import INTERVAL_SHARES
from clashsim.core.scene import Scene
from clashsim.evaluate.metrics import coverage, relative_error, twist_weights
from clashsim.fit.calibrate import calibrate, calibrate_subsets
from clashsim.fit.calibration import Calibration
from clashsim.fit.interval_widths import IntervalWidths
from clashsim.fit.prediction import Prediction, average
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.stacking import share, typical_error

NOISE = 0.03  # of the outcomes


def test_the_average_keeps_what_models_disagree_on() -> None:
    rng = np.random.default_rng(0)
    a = Prediction(rng.normal(size=(5, 3)), np.full((5, 3), 0.2))
    b = Prediction(rng.normal(size=(5, 3)), np.full((5, 3), 0.4))
    mixed = a.mixed_with(b, 0.25)
    of_both = average([a, b], (0.75, 0.25))
    np.testing.assert_allclose(mixed.mean, of_both.mean)
    np.testing.assert_allclose(mixed.variance, of_both.variance)
    # Against draws from the mixture.
    chosen = rng.random((200_000, 1, 1)) < 0.25
    mean = np.where(chosen, b.mean, a.mean)
    std = np.sqrt(np.where(chosen, b.variance, a.variance))
    drawn = mean + std * rng.normal(size=mean.shape)
    np.testing.assert_allclose(drawn.var(0), mixed.variance, rtol=0.03)


def test_shares_follow_the_errors_and_few_impacts_decide_little() -> None:
    rng = np.random.default_rng(1)
    small, large = 0.02 * rng.normal(size=(40, 3)), 0.1 * rng.normal(size=(40, 3))
    assert share(small, large) > 0.99
    assert share(small[:2], large[:2]) < share(small[:6], large[:6]) < 1
    # Among equals the reference counts more, since one of a few models is better by chance.
    assert 0.1 < share(small, small) < 0.4
    assert share(large, small) < 0.01


def test_impossible_errors_are_shortened_and_stay_as_many_standard_deviations() -> None:
    """A linearised model may be off by 8 times the outcome."""
    error = Prediction(np.array([[0.03, 0.04], [8.0, 0.0]]), np.array([[0.01, 0.02], [16.0, 4.0]]))
    shortened = error.shortened(0.5)
    np.testing.assert_allclose(shortened.mean, [[0.03, 0.04], [0.5, 0.0]])
    before, after = (np.square(part.mean) / part.variance for part in (error, shortened))
    np.testing.assert_allclose(after, before)


def test_an_outlier_hardly_changes_the_typical_error() -> None:
    error = 0.05 * np.random.default_rng(2).normal(size=(30, 3))
    usual = typical_error(error)
    assert usual == pytest.approx(0.05, rel=0.25)
    error[3] = 4.0
    assert typical_error(error) == pytest.approx(usual, rel=0.25)


def test_intervals_become_as_wide_as_errors_left_out() -> None:
    rng = np.random.default_rng(3)
    unit = np.ones((400, 3))
    normal = IntervalWidths.of(Prediction(2 * rng.normal(size=(400, 3)), unit))
    assert normal.std == pytest.approx(2, rel=0.1)
    assert normal.half_width(0.9) == pytest.approx(1.645, rel=0.1)
    heavy = IntervalWidths.of(Prediction(rng.standard_t(2, size=(400, 3)), unit))
    assert heavy.degrees_of_freedom < 5 and heavy.tail > 1.8
    for widths in (normal, heavy):
        assert widths.half_width(0.9) == pytest.approx(widths.tail, rel=0.05)
        assert widths.half_width(0.6827) == pytest.approx(1, rel=1e-6)
    # Few errors say little, and what was not measured says nothing.
    few = IntervalWidths.of(Prediction(2 * rng.normal(size=(2, 3)), unit[:2]))
    assert 1 < few.std < 2
    nothing = IntervalWidths.of(Prediction(np.zeros((10, 3)), unit[:10]))
    assert nothing.std == pytest.approx(1, rel=0.02)


@pytest.fixture(scope="module")
def puck() -> tuple[Calibration, Impacts]:
    """A puck at a wall: fitted to the first ten of 150 impacts; the contact has noise."""
    scene = Scene.load("puck")
    theta = 0.7 * scene.nominal + 0.3 * np.array([param.low for param in scene.params])
    impacts = replace(sample(scene, 150, 3), theta=None, source="real")
    after = SolvedModel(scene).predict(impacts, theta)
    weights = twist_weights(3, inertia(scene, scene.struck_body).gyration)
    size = np.linalg.norm(after * weights, axis=1, keepdims=True)
    noise = NOISE * size * np.random.default_rng(4).normal(size=after.shape) / weights
    impacts = replace(impacts, after=after + noise)
    return calibrate(SolvedModel(scene), impacts[:10]), impacts


def test_intervals_hold_about_what_they_state(puck: tuple[Calibration, Impacts]) -> None:
    calibration, impacts = puck
    subsets = [np.arange(10 * i, 10 * i + 10) for i in range(1, 5)]
    models = [calibration, *calibrate_subsets(calibration, impacts, subsets)]
    test = impacts[50:]
    inside = []
    for model in models:
        mean, half_widths = model.predict_with_intervals(test)
        inside.append(coverage(mean - test.after, half_widths))
    assert (np.abs(np.mean(inside, 0) - INTERVAL_SHARES) < [0.12, 0.08]).all(), inside
    np.testing.assert_allclose(mean, models[-1].predict(test))


def test_what_hardly_varied_is_not_extrapolated(puck: tuple[Calibration, Impacts]) -> None:
    """Fitted to impacts of one direction alone, the model holds for others, less certainly."""
    calibration, impacts = puck
    test = impacts[10:]
    scene = calibration.base.scene
    direction = np.abs(np.arctan2(test.twist[:, 1], test.twist[:, 0]))
    order = np.argsort(np.abs(direction - np.median(direction)))
    alike, far = test[order[:10]], test[order[-60:]]
    narrow = calibrate(SolvedModel(scene), alike)
    gyration = inertia(scene, scene.struck_body).gyration
    error = relative_error(narrow.predict(far), far.after, gyration)
    assert np.median(error) < 3 * NOISE
    weights = twist_weights(3, gyration)

    def relative_std(impacts: Impacts) -> float:
        mean, std = narrow.predict_with_std(impacts)
        sizes = np.linalg.norm(mean * weights, axis=1)
        return float(np.median(np.linalg.norm(std * weights, axis=1) / sizes))

    assert relative_std(far) > relative_std(alike)
