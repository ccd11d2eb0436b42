"""The benches on recorded laboratory strikes."""

from __future__ import annotations

import numpy as np
import pytest

from clashsim.bench import materials, shapes
from clashsim.bench.lab_sets import load_lab_set
from clashsim.bench.options import BenchOptions
from clashsim.core.errors import DataError


@pytest.mark.slow
def test_a_set_has_one_impact_per_trial_in_recorded_order():
    real = load_lab_set("triangle", "triangle", "nylon", "low")
    assert 108 <= len(real.impacts) <= 110 and real.scene == "triangle"
    assert np.isfinite(real.impacts.before).all()
    speed_after = np.linalg.norm(real.impacts.after[:, :2], axis=1)
    assert (speed_after > 0.05).all()


@pytest.mark.slow
def test_rows_of_cheap_methods():
    methods = ["newton-coulomb", "ridge"]
    rows = shapes.run(BenchOptions(seeds=2, sets=["semi-cylinder"], methods=methods, workers=1))
    expected = {("semi-cylinder", m, d) for m in methods for d in ("random", "block")}
    assert {(r["set"], r["method"], r["draw"]) for r in rows} == expected
    paper = next(r for r in rows if r["method"] == "newton-coulomb" and r["draw"] == "block")
    assert paper["seeds"] == 1 and paper["accuracy_0.1"] > 0.9


def test_unknown_sets_are_refused():
    with pytest.raises(DataError, match="resin/high"):
        materials.run(BenchOptions(sets=["resin/hihg"]))
