"""Probabilities of plans: known distributions, doubtful models, and the choice of strikes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm, t

from clashsim.bench.reliability import plot, quarters, summary
from clashsim.core.errors import ClashError
from clashsim.core.rest_uncertainty import RestUncertainty
from clashsim.core.scene import Scene
from clashsim.plan.batch_cost import BatchCost, NoiseSamples
from clashsim.plan.execution import plan_from_json, plan_to_dict
from clashsim.plan.outcomes import EXACT, OutcomeSampler, Repeatability, probabilities
from clashsim.plan.planner import PlannerConfig, plan, plan_batch, plan_fewest_strikes
from clashsim.plan.tasks import PlanningTask, PlanStatus
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.slides.identify import rest_std
from clashsim.slides.law import SlideModel

_STD = 0.01  # m, of x and y of the model below


class Known:
    """A model with known outcomes: the body moves by the strike, with noise of a known size.

    The strike (speed, point, deflection) moves the body by 0.1 (speed, point) and rotates it by
    the deflection.
    """

    names = ("speed", "point", "deflection")
    low = np.full(3, -1.0)
    high = np.ones(3)
    takes_noise = True

    def __init__(self, std: float = _STD, uncertainty: RestUncertainty = RestUncertainty()):
        self.std = np.array([std, std, 0.0])
        self.uncertainty = uncertainty

    def rest(self, pose, strike, noise=None):
        end = pose + strike * [0.1, 0.1, 1.0]
        return end if noise is None else end + self.std * noise


def probability(model, tolerance=(0.01, 0.2), repeatability=EXACT) -> float:
    """Probability of a plan that is expected to end exactly at its target."""
    sampler = OutcomeSampler(model, 1, repeatability=repeatability, seed=0)
    target = np.array([0.05, 0.0, 0.0])
    strikes = (target / [0.1, 0.1, 1.0])[None, None]
    poses = sampler.rest_poses(np.zeros((1, 3)), strikes)
    return float(probabilities(poses, [PlanningTask(tuple(target), tolerance=tolerance)])[0])


@pytest.mark.parametrize("radius", [0.005, 0.01, 0.02])
def test_a_known_normal_outcome_has_the_analytic_probability(radius):
    # The squared distance over the variance is chi-squared with two degrees of freedom.
    expected = chi2.cdf((radius / _STD) ** 2, 2)
    assert probability(Known(), (radius, 0.2)) == pytest.approx(expected, abs=0.02)


def test_errors_add_up():
    # Slides err by 0.2 of a motion of 0.05 m, placement by 0.01 m: as much as the noise each.
    known = Known(uncertainty=RestUncertainty(slide_std=0.2, gyration=1e3))
    placed = Repeatability(position=0.01)
    for repeatability, variances in ((EXACT, 2), (placed, 3)):
        expected = chi2.cdf(1 / variances, 2)
        assert probability(known, repeatability=repeatability) == pytest.approx(expected, abs=0.02)
    # A speed that is repeated to 20 % moves the body by 20 % more or less.
    exact = Known(std=0.0)
    by_speed = probability(exact, repeatability=Repeatability(speed=0.2))
    assert by_speed == pytest.approx(norm.cdf(1) - norm.cdf(-1), abs=0.02)
    by_deflection = probability(exact, repeatability=Repeatability(deflection=0.2))
    assert by_deflection == pytest.approx(norm.cdf(1) - norm.cdf(-1), abs=0.02)
    assert probability(exact) == 1.0


def test_heavy_tails_keep_the_share_within_one_standard_deviation():
    class OneAxis(Known):
        def __init__(self, df):
            super().__init__(uncertainty=RestUncertainty(degrees_of_freedom=df))
            self.std = np.array([_STD, 0.0, 0.0])

    for df in (1.5, 3.0, np.inf):
        assert probability(OneAxis(df)) == pytest.approx(0.683, abs=0.01)
    # Three standard deviations hold fewer.
    student = t(3.0)
    far = 2 * student.cdf(3 * student.ppf(norm.cdf(1))) - 1
    assert probability(OneAxis(3.0), (0.03, 0.2)) == pytest.approx(far, abs=0.01)
    wide = plan(OneAxis(1.5), PlanningTask((0.05, 0.0, 0.0)))
    assert wide.std[0] == pytest.approx(_STD, rel=0.1)


def test_a_doubtful_model_gives_a_lower_probability():
    tasks = [PlanningTask((0.05, 0.02, 0.1)), PlanningTask((0.05, 0.02, 0.1), strikes=1)]
    stated = []
    for std in (0.001, 0.01, 0.03):
        first, second = plan_batch(Known(std), tasks)
        assert first.status is PlanStatus.FOUND
        assert first.probability == second.probability
        stated.append(first.probability)
    assert stated[0] > 0.99 and stated[0] > stated[1] > stated[2]
    again = plan(Known(0.03), tasks[0])
    assert again.probability == stated[2]
    # Two strikes add up their errors.
    twice = plan(Known(0.01), replace(tasks[0], strikes=2))
    assert twice.probability < stated[1]


def test_a_model_without_standard_deviations_states_nothing():
    model = Known()
    model.takes_noise = False
    found = plan_fewest_strikes(model, PlanningTask((0.05, 0.02, 0.1)))
    assert found.probability is None and found.probability_sentence == ""


def test_of_equally_good_strikes_the_surer_one_is_planned():
    class TwoSides(Known):
        """Strikes of either sign move the body alike; those below zero are less certain."""

        def rest(self, pose, strike, noise=None):
            end = pose + np.abs(strike) * [0.1, 0.1, 1.0]
            if noise is None:
                return end
            unsure = np.where(strike[:, :1] < 0, 10.0, 1.0)
            return end + self.std * unsure * noise

    tasks = [PlanningTask((0.05 + 0.002 * i, 0.05, 0.5)) for i in range(12)]
    config = PlannerConfig(population=96, rounds=40)
    surest = plan_batch(TwoSides(0.002), tasks, config)
    any_side = plan_batch(TwoSides(0.002), tasks, replace(config, choice_samples=0))
    assert all(p.status is PlanStatus.FOUND for p in [*surest, *any_side])
    assert np.mean([p.probability for p in surest]) > np.mean([p.probability for p in any_side])
    # A surer strike that does not reach the target is not chosen.
    batch = BatchCost(TwoSides(0.002), tasks[:1], samples=NoiseSamples(choice=64), seed=0)
    unsure = np.array([-0.5, 0.5, 0.5])
    sure = np.array([0.5, 0.5, 0.5])
    missing = np.array([0.6, 0.5, 0.5])
    to_unit_box = (np.stack([unsure, sure, missing]) + 1) / 2
    assert np.allclose(batch.choose(to_unit_box[None, :2])[0], to_unit_box[1])
    assert np.allclose(batch.choose(to_unit_box[None, [0, 2]])[0], to_unit_box[0])


def test_the_probability_is_kept_in_the_file():
    scene = Scene.load("square")
    planned = plan(Known(), PlanningTask((0.05, 0.0, 0.0), tolerance=(0.02, 0.1)))
    planned = replace(planned, strikes=np.array([[0.5, 1.5, 0.0]]))  # one that hits the square
    content = plan_to_dict(planned, scene)
    assert plan_from_json(json.dumps(content)).probability == planned.probability
    assert "20 mm and 5.73 degrees" in planned.probability_sentence
    old = {key: value for key, value in content.items() if key != "probability"}
    assert plan_from_json(json.dumps(old)).probability is None
    for bad in (2.0, "high", [1]):
        with pytest.raises(ClashError, match="no plan"):
            plan_from_json(json.dumps(content | {"probability": bad}))


def test_a_repeatability_is_zero_or_above():
    for bad in (-0.1, np.nan, np.inf):
        with pytest.raises(ClashError, match="repeatability of the speed"):
            Repeatability(speed=bad)


def test_reliability_in_quarters(tmp_path):
    predicted, observed = quarters([0.9, 0.1, 0.5, 0.7], [1.0, 0.0, 0.5, 1.0])
    assert predicted == [0.1, 0.5, 0.7, 0.9] and observed == [0.0, 0.5, 1.0, 1.0]
    rng = np.random.default_rng(0)
    probability = rng.uniform(size=400)
    reached = rng.uniform(size=400) < probability
    predicted, observed = quarters(probability, reached)
    assert np.abs(np.subtract(predicted, observed)).max() < 0.1
    rows = [
        {
            "method": "clashsim",
            "probabilities": probability.tolist(),
            "reached": reached.astype(float).tolist(),
        },
        {"method": "mujoco-grid"},
        {"method": "clashsim", "why": "not measured"},
    ]
    sentences = summary(rows)
    assert len(sentences) == 1 and "400 plans" in sentences[0]
    plot(rows, tmp_path / "reliability.png")
    assert (tmp_path / "reliability.png").stat().st_size > 5000


def test_what_slides_leave_open_is_measured():
    model = SlideModel({"friction": 0.3}, gyration=0.03, delay=0.01)
    rng = np.random.default_rng(0)
    pose = rng.normal(size=(200, 3))
    twist = rng.normal(size=(200, 3)) * [0.5, 0.5, 5.0]
    rest = model.rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()
    to_metres = np.array([1.0, 1.0, model.gyration])
    length = np.linalg.norm((rest - pose) * to_metres, axis=1, keepdims=True)
    rest += 0.05 * length * rng.normal(size=(200, 3)) / to_metres
    found = rest_std(model, pose, twist, rest)
    assert found == pytest.approx(0.05, rel=0.1)
    kept = SlideModel.of(model.with_rest_std(found).content()).delayed(0.02)
    assert kept.rest_std == found and kept.delay == 0.02
    with pytest.raises(ClashError, match="negative"):
        model.with_rest_std(-0.1)


def test_slides_add_what_the_noise_of_twists_does_not_explain():
    class Measured:
        """An impact model with noise of 4 % and heavy tails."""

        noise_variance = 0.04**2

        class interval_widths:  # as calibrations name the attribute
            degrees_of_freedom = 3.0

        def predict_with_std(self, impacts, frame=None):
            return impacts.after, np.ones_like(impacts.after)

    scene = Scene.load("square")
    for stated, added in ((0.1, 0.08), (0.05, 0.0)):
        slide = SlideModel({"friction": 0.3}, gyration=0.03, rest_std=stated)
        uncertainty = HybridSim(scene, Measured(), slide_model=slide).rest_uncertainty()
        assert uncertainty.slide_std == pytest.approx(added, abs=1e-9)
        assert uncertainty.degrees_of_freedom == 3.0 and uncertainty.gyration == 0.03
