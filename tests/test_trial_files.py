"""Trials survive their file bit by bit, the same trials give the same bytes, and a bad file is
refused with one sentence.
"""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from clashsim.core.errors import DataError
from clashsim.core.trials import SOURCES, Trial, Trials
from clashsim.data import trial_files
from clashsim.data.trial_files import read_trials, write_trials

EACH = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NAME = st.text(min_size=1, max_size=6)


@st.composite
def some_trials(draw):
    trials = []
    for name in draw(
        st.lists(
            st.text(st.characters(codec="utf-8"), max_size=6), min_size=0, max_size=3, unique=True
        )
    ):
        n = draw(st.integers(2, 5))
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        poses = {
            body: rng.normal(size=(n, 7))
            for body in draw(
                st.lists(
                    st.text(st.characters(codec="utf-8"), max_size=4),
                    min_size=1,
                    max_size=2,
                    unique=True,
                )
            )
        }
        next(iter(poses.values()))[0] = np.nan
        signals = (
            {"a": rng.normal(size=n), "b": rng.normal(size=(n, 3))} if draw(st.booleans()) else {}
        )
        trials.append(
            Trial(
                name,
                np.cumsum(rng.random(n) + 0.1),
                poses,
                draw(st.sampled_from(SOURCES)),
                signals,
                {"mass": draw(st.floats(allow_nan=False))},
            )
        )
    return Trials(tuple(trials))


@EACH
@given(some_trials())
def test_round_trip_and_same_bytes(tmp_path, trials):
    path = tmp_path / "a.safetensors"
    write_trials(path, trials)
    first, again = path.read_bytes(), read_trials(path)
    assert trial_files.to_bytes(again) == first == trial_files.to_bytes(trials)
    for one, two in zip(trials, again, strict=True):
        assert (one.name, one.source, one.known, list(one.poses), list(one.signals)) == (
            two.name,
            two.source,
            two.known,
            list(two.poses),
            list(two.signals),
        )
        assert one.t.tobytes() == two.t.tobytes() and all(
            one.poses[b].tobytes() == two.poses[b].tobytes() for b in one.poses
        )
        assert all(np.array_equal(one.signals[s], two.signals[s]) for s in one.signals)
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def a_trial() -> Trials:
    return Trials((Trial("one", np.arange(3.0), {"box": np.ones((3, 7))}),))


@EACH
@given(st.data())
def test_damaged_files(tmp_path, data):
    content = bytearray(trial_files.to_bytes(a_trial()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "a.safetensors").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        read_trials(tmp_path / "a.safetensors")
    except DataError as error:
        assert str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"format": 1, "kind": "impacts"}, "does not hold"),
        ({"format": 9, "kind": "trials"}, "format 9"),
        ({"format": 1, "kind": "trials"}, "lacks parts"),
        ({"format": 1, "kind": "trials", "trials": [3]}, "lacks parts"),
        (
            {"format": 1, "kind": "trials", "trials": [{"name": 3, "source": "real"}]},
            "name or source",
        ),
        (None, "does not hold"),
        ([[]], "does not hold"),
        (
            {
                "format": 1,
                "kind": "trials",
                "trials": [
                    {
                        "name": "a",
                        "source": "real",
                        "t": "x",
                        "poses": [["b", "x"]],
                        "signals": [],
                        "known": [],
                    }
                ],
            },
            "no rows|one row|shape",
        ),
    ],
)
def test_files_that_hold_something_else(tmp_path, about, words):
    (tmp_path / "a.safetensors").write_bytes(
        save({"x": np.array(1.0)}, {"clashsim": json.dumps(about)})
    )
    with pytest.raises(DataError, match=words) as error:
        read_trials(tmp_path / "a.safetensors")
    assert "\n" not in str(error.value)


def test_places(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no file"):
        read_trials(tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="folder"):
        read_trials(tmp_path)
    with pytest.raises(DataError, match=r"ending in \.safetensors"):
        write_trials(tmp_path / "a.csv", a_trial())
    (tmp_path / "b.safetensors").mkdir()
    with pytest.raises(DataError, match="folder"):
        write_trials(tmp_path / "b.safetensors", a_trial())
    (tmp_path / "c.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(DataError, match="damaged"):
        read_trials(tmp_path / "c.safetensors")
    write_trials(tmp_path / "d.safetensors", a_trial())
    monkeypatch.setattr(trial_files, "LIMIT", 10)
    with pytest.raises(DataError, match="GB"):
        read_trials(tmp_path / "d.safetensors")
