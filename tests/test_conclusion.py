"""What a calibration concludes from impacts that were not fitted."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from clashsim.evaluate.conclusion import caution, conclusion, is_reliable
from clashsim.plan.tasks import Plan, PlanningTask, PlanStatus


def metrics(own: float, identified: float, nominal: float = 0.0) -> dict:
    accuracies = {"clashsim": own, "MuJoCo, identified": identified, "MuJoCo, nominal": nominal}
    models = {name: {"accuracy_0.1": value} for name, value in accuracies.items()}
    return {"impacts": 20, "held_out": 0, "models": models}


@pytest.mark.parametrize(
    ("own", "identified", "nominal", "words", "reliable"),
    [
        (0.9, 0.6, 0.1, "Good: 18 of 20 .* more than by MuJoCo with identified values", True),
        (0.9, 0.9, 0.1, "Good: 18 of 20 .* about as many", True),
        (0.4, 0.3, 0.1, "Not reliable: only 8 of 20", False),
        (0.8, 0.9, 0.1, "Worse than MuJoCo with identified values", False),
        (0.8, 0.5, 0.95, "Worse than MuJoCo with nominal values", False),
    ],
)
def test_the_conclusion_can_be_acted_on(own, identified, nominal, words, reliable):
    found = metrics(own, identified, nominal)
    sentence = conclusion(found)
    assert sentence is not None
    assert re.match(words, sentence)
    assert is_reliable(found) == reliable


def test_a_bad_conclusion_on_trials_names_the_fit_of_whole_trajectories():
    found = {**metrics(0.4, 0.3), "segmented": ["20 impacts in 20 trials"]}
    assert "clashsim fit takes whole trajectories" in conclusion(found)
    assert "clashsim fit" not in conclusion(metrics(0.4, 0.3))
    assert "clashsim fit" not in conclusion({**found, **metrics(0.9, 0.6)})


def test_a_bad_conclusion_repeats_what_was_warned_about():
    found = {**metrics(0.1, 0.1), "warned": ["quaternion_order: check order"]}
    found["time_step"] = {"cause": "the step"}
    sentence = conclusion(found)
    assert "cause is what was warned about: quaternion_order: check order" in sentence
    assert "the step" not in sentence
    assert "warned" not in conclusion({**found, **metrics(0.9, 0.6)})


def test_without_judged_impacts_there_is_none():
    assert conclusion({"impacts": 3, "held_out": 0}) is None
    assert is_reliable({"impacts": 3, "held_out": 0})


@pytest.mark.parametrize(
    ("own", "identified", "words"),
    [
        (0.032, 0.064, r"\(18\), but the median error is smaller: 3\.2 % beside 6\.4 %\.$"),
        (0.064, 0.032, r"\(18\), whose median error is smaller: 6\.4 % beside 3\.2 %\.$"),
        (0.032, 0.034, r"\(18\), which serve as well\.$"),
    ],
)
def test_the_median_error_separates_models_of_equal_accuracy(own, identified, words):
    found = metrics(0.9, 0.9)
    found["models"]["clashsim"]["median"] = own
    found["models"]["MuJoCo, identified"]["median"] = identified
    sentence = conclusion(found)
    assert sentence is not None
    assert re.search(words, sentence)


def test_a_plan_by_an_unreliable_model_is_not_found():
    task = PlanningTask((0.0, 0.1, 0.0))
    plan = Plan(
        task,
        ("speed",),
        np.array([[0.4]]),
        np.array([[0.0, 0.1, 0.0]]),
        np.zeros(3),
        cost=0.0,
        status=PlanStatus.FOUND,
        reason="expected 0.0 mm from the target",
        evaluations=1,
    )
    assert plan.by_unreliable_model(caution(metrics(0.9, 0.6))).status is PlanStatus.FOUND
    unreliable = plan.by_unreliable_model(caution(metrics(0.4, 0.3)))
    assert unreliable.status is PlanStatus.UNRELIABLE
    assert "cannot be relied on: Not reliable: only 8 of 20" in unreliable.reason
    missed = replace(plan, status=PlanStatus.OUT_OF_REACH)
    assert missed.by_unreliable_model("no") is missed
