"""Trials: what is refused, how they are split, and rotations about z."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clashsim.core.errors import DataError
from clashsim.core.trials import Trial, Trials, quaternion, yaw


def trial(name="a", **changes):
    pose = np.column_stack([np.zeros((3, 3)), quaternion(np.zeros(3))])
    return Trial(
        **{"name": name, "t": np.array([0.0, 0.1, 0.2]), "poses": {"block": pose}} | changes
    )


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=20))
def test_yaw_of_quaternion(steps):
    angles = np.cumsum(steps)
    found = yaw(quaternion(angles))
    np.testing.assert_allclose(found - found[0], angles - angles[0], atol=1e-9)


def test_seen_leaves_out_rows_without_the_body():
    pose = trial().poses["block"].copy()
    pose[1] = np.nan
    t, seen = trial(poses={"block": pose}).seen("block")
    assert t.tolist() == [0.0, 0.2] and len(seen) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"t": np.array([0.0, 0.2, 0.1])}, "rise"),
        ({"t": np.array([0.0, np.nan, 0.1])}, "finite"),
        ({"t": np.array([0.0])}, "two times"),
        ({"poses": {}, "signals": {}}, "neither a body"),
        ({"poses": {"block": np.zeros((3, 6))}}, "shape"),
        ({"signals": {"force": np.zeros(2)}}, "rows"),
        ({"source": "dream"}, "choices"),
    ],
)
def test_refusals(changes, words):
    with pytest.raises(DataError, match=words):
        trial(**changes)


def test_body_that_is_not_there_names_the_nearest():
    with pytest.raises(DataError, match="block"):
        trial().seen("blok")


def test_trials_are_a_sequence_with_a_split():
    trials = Trials(tuple(trial(f"t{i}") for i in range(5)))
    fit, rest = trials.split(3, fit=2)
    assert (
        len(fit) == 2
        and len(rest) == 3
        and {t.name for t in [*fit, *rest]} == {t.name for t in trials}
    )
    assert [t.name for t in trials.split(3, fit=2)[0]] == [t.name for t in fit]
    assert trials[1:3][0].name == "t1" and trials.bodies == ("block",)
    with pytest.raises(DataError, match="both called"):
        Trials((trial(), trial()))
