"""What a calibration concludes from impacts that were not fitted."""

from __future__ import annotations

import re

import pytest

from clashsim.evaluate.conclusion import conclusion, is_reliable


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


def test_without_judged_impacts_there_is_none():
    assert conclusion({"impacts": 3, "held_out": 0}) is None
    assert is_reliable({"impacts": 3, "held_out": 0})
