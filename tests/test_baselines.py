"""The baselines fit worlds of their own kind, and metrics are right on numbers made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clashsim.bench import baselines, few_shot, real_impacts
from clashsim.bench.baselines import Problem, point_contact
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.metrics import accuracy, coverage, relative_error, summary
from clashsim.fit.regression import approach
from clashsim.fit.sample import sample_strikes


@pytest.fixture(scope="module")
def blank() -> Problem:
    """Strikes of the ellipse whose outcomes are yet to be made up."""
    scene = Scene.load("ellipse")
    before = sample_strikes(scene, 150, np.random.default_rng(1)).before
    return Problem(scene, Impacts(True, before, before[:, 3:6] * -0.5), 0.0192)


def made_up(blank: Problem, change: np.ndarray) -> Problem:
    return Problem(
        blank.scene, replace(blank.impacts, after=blank.frame.decode(change)), blank.gyration
    )


def errors(problem: Problem, method: str, n: int) -> np.ndarray:
    predicted = getattr(baselines, method)(problem, np.arange(n), 0)
    return relative_error(predicted, problem.impacts.after, problem.gyration)[n:]


@pytest.mark.parametrize(("method", "worst"), [("ridge", 1e-3), ("gp", 0.05)])
def test_regressions_fit_a_linear_world(blank: Problem, method: str, worst: float) -> None:
    x = np.column_stack([blank.frame.arm, approach(blank.frame, blank.impacts)])
    change = x @ np.random.default_rng(0).normal(0, 0.3, (4, 3)) + [1.5, 0.2, -0.1]
    assert np.median(errors(made_up(blank, change), method, 60)) < worst


def test_newton_coulomb_recovers_its_own_truth(blank: Problem) -> None:
    (b, a), (vn, vt) = blank.frame.arm.T, approach(blank.frame, blank.impacts).T
    law = np.array([0.62, 0.21, 0.4])
    problem = made_up(blank, point_contact(law[None], np.stack([vn, vt, a, b, 0 * a], 1)))
    assert np.quantile(errors(problem, "newton_coulomb", 12), 0.9) < 0.02


def test_point_contact_by_hand() -> None:
    straight = np.array(
        [[-1.0, 0.0, 0.0, -1.3, 0.0], [-1.0, 0.5, 0.0, -1.0, 0.0], [-1.0, 0.5, 0.0, -1.0, 0.0]]
    )
    bounce, stick, slide = (
        point_contact(np.array(law)[None], straight[i : i + 1])[0]
        for i, law in enumerate([(0.5, 0.3, 0.0), (0.5, 9.0, 0.0), (0.5, 0.1, 0.0)])
    )
    assert np.allclose(bounce, [1.5, 0, 0])
    assert np.allclose(stick, [1.5, -0.25, 0.25])  # half of the slip is stopped by turning
    assert np.allclose(slide, [1.5, -0.15, 0.15])
    heavy = point_contact(np.array([[0.5, 0.3, 0.0]]), np.array([[-1.0, 0.0, 0.0, -1.3, 1.0]]))[0]
    assert np.allclose(heavy, [0.75, 0, 0])  # a striker of equal mass recoils


def test_the_network_without_pretraining_is_the_seeds_and_learns(blank: Problem) -> None:
    change = np.column_stack(
        [
            1.5 + 0 * blank.frame.speed,
            -0.4 * approach(blank.frame, blank.impacts)[:, 1],
            0.3 * blank.frame.arm[:, 1],
        ]
    )
    problem = made_up(blank, change)
    first, again = (baselines.scratch(problem, np.arange(60), 2, steps=200) for _ in range(2))
    assert np.array_equal(first, again)
    assert np.median(relative_error(first, problem.impacts.after, problem.gyration)[60:]) < 0.1


def test_methods_see_nothing_of_the_held_out_outcomes(blank: Problem) -> None:
    rng = np.random.default_rng(3)
    change = rng.normal(0, 0.3, (150, 3)) + np.array([1.5, 0, 0])
    other = change.copy()
    other[20:] = rng.normal(0, 1, (130, 3))
    for method in ("newton_coulomb", "ridge", "gp", "scratch"):
        one, two = (
            getattr(baselines, method)(made_up(blank, c), np.arange(20), 0) for c in (change, other)
        )
        assert np.allclose(one, two), method


def test_metrics_by_hand() -> None:
    after = np.array([[3.0, 0, 40], [0, 1, 0], [1, 0, 0]])
    predicted = np.array([[3.0, 0, 50], [0, 1.15, 0], [np.nan, 0, 0]])
    error = relative_error(predicted, after, 0.1)
    assert np.allclose(error, [0.2, 0.15, np.inf])
    assert accuracy(error, 0.2 + 1e-9) == pytest.approx(2 / 3) and accuracy(error, 0.1) == 0
    row = summary([np.array([0.05, 0.15, 0.5, 0.09]), np.array([0.05, 0.05, 0.05, 0.3])])
    assert row == pytest.approx(
        {
            "accuracy_0.1": 0.625,
            "accuracy_0.2": 0.75,
            "median": 0.085,
            "sd_0.1": 0.125,
            "worst_0.1": 0.5,
            "seeds": 2,
            "accuracy_0.05": 0.0,
        }
    )
    z = np.random.default_rng(0).normal(size=(4000, 3))
    assert all(
        abs(share - found) < 0.02 for share, found in coverage(2 * z, np.full_like(z, 2.0)).items()
    )
    assert coverage(2 * z, np.ones_like(z))[0.9] < 0.65


def test_draws_keep_to_the_protocol(blank: Problem) -> None:
    session = np.repeat(["a", "b"], [100, 50])
    real = RealDataset("made up", "ellipse", blank.impacts, 0.0192, session)
    (rows, test), *more = few_shot.splits(real, 10, "random", seeds=5)
    assert (
        len(more) == 4
        and len(rows) == 10
        and len(np.union1d(rows, test)) == 150
        and not np.intersect1d(rows, test).size
    )
    blocks = few_shot.splits(real, 60, "block", seeds=5)
    assert [list(r[:2]) for r, _ in blocks] == [[0, 1]]  # the second session is too short
    assert [r[0] for r, _ in few_shot.splits(real, 20, "block", seeds=5)] == [0, 100]
    assert few_shot.splits(real, 76, "random", seeds=5) == []


def test_the_bench_gives_rows_and_goes_on_after_a_kill(
    blank: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = made_up(
        blank,
        np.column_stack(
            [
                1.5 + 0 * blank.frame.speed,
                -0.3 * approach(blank.frame, blank.impacts)[:, 1],
                0 * blank.frame.speed,
            ]
        ),
    )
    real = RealDataset(
        "made up",
        "ellipse",
        problem.impacts,
        0.0192,
        np.full(150, "a"),
        {"published-one": problem.impacts.after},
    )
    monkeypatch.setattr(real_impacts.datasets, "names", lambda root: ["made up"])
    monkeypatch.setattr(real_impacts.datasets, "load", lambda name, root: real)
    kept = tmp_path / "rows.jsonl"
    ask: dict[str, Any] = {"sets": ["made up"], "ns": [10], "resume": kept, "workers": 1}
    rows = real_impacts.run(tmp_path, 3, methods=["ridge", "newton-coulomb", "published"], **ask)
    assert {(r["method"], r["n"], r["draw"]) for r in rows} >= {
        ("ridge", 10, "random"),
        ("ridge", 10, "block"),
        ("published-one", 0, "random"),
    }
    assert next(r for r in rows if r["method"] == "published-one")["accuracy_0.1"] == 1
    assert all(
        {"accuracy_0.1", "accuracy_0.2", "median", "sd_0.1", "worst_0.1", "seeds"} <= set(r)
        for r in rows
    )
    lines = kept.read_text().splitlines()
    kept.write_text(
        "\n".join([json.dumps(json.loads(lines[0]) | {"median": 7.0}), lines[1][:20]]) + "\n"
    )
    again = real_impacts.run(tmp_path, 3, methods=["ridge", "newton-coulomb", "published"], **ask)
    assert len(again) == len(rows) and sum(r["median"] == 7.0 for r in again) == 1
    real_impacts.plot(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
    with pytest.raises(Exception, match="did you mean ridge"):
        real_impacts.run(tmp_path, 3, methods=["rigde"], **ask)
