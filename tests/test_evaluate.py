"""Result types of `evaluate`, on numbers made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clashsim.core.errors import DataError
from clashsim.evaluate.device import device_available
from clashsim.evaluate.metrics import twist_weights
from clashsim.evaluate.rest_poses import RestDisplacements
from clashsim.evaluate.trust_map import TrustMap


def test_a_device_that_torch_has_is_available() -> None:
    assert device_available("cpu")
    assert not device_available("no_such_device")
    assert not device_available("meta")  # it has shapes and no numbers


def test_twist_weights_turn_angular_velocity_into_speed() -> None:
    assert np.array_equal(twist_weights(3, 0.1), [1, 1, 0.1])
    assert np.array_equal(twist_weights(6, 0.1), [1, 1, 1, 0.1, 0.1, 0.1])
    with pytest.raises(DataError, match="3 or 6 entries, got 4"):
        twist_weights(4, 0.1)


def test_errors_at_rest_wrap_angles_and_are_infinite_without_a_prediction() -> None:
    measured = np.array([[0.1, 0.0, 3.0], [0.1, 0.0, 0.0]])
    predicted = np.array([[0.103, 0.004, 3.0 - 2 * np.pi + 0.1], [np.nan, np.nan, np.nan]])
    rests = RestDisplacements(np.arange(2), measured, {"clashsim": predicted})
    distance, angle = rests.errors("clashsim")
    assert distance[0] == pytest.approx(5.0) and angle[0] == pytest.approx(np.degrees(0.1))
    assert np.isinf(distance[1]) and np.isinf(angle[1])


def test_a_trust_map_counts_the_impacts_outside_of_training() -> None:
    axes = {"approach speed, m/s": np.linspace(0.2, 0.8, 100)}
    std = np.where(np.arange(100) < 80, 0.05, 0.3)
    fitted_inside = np.array([True, False, False])
    fitted = {"approach speed, m/s": np.array([0.3, 0.4, 0.5])}
    sentence = TrustMap(axes, std, np.ones(100, bool), fitted, fitted_inside).sentence()
    assert "80 % have a stated standard deviation below 10 %" in sentence
    assert "2 of the 3 impacts fitted lie outside" in sentence
