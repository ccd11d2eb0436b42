"""The baselines recover truths of their own kind, and metrics are right on numbers made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from clashsim.bench import real_impacts
from clashsim.bench.few_shot_task import split_rows
from clashsim.bench.options import BenchOptions
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.intervals import INTERVAL_SHARES
from clashsim.core.scene import Scene
from clashsim.data.datasets import RealDataset
from clashsim.evaluate import baselines
from clashsim.evaluate.few_shot_problem import FewShotProblem
from clashsim.evaluate.metrics import accuracy, accuracy_summary, coverage, relative_error
from clashsim.fit.point_contact import PointContactInputs, point_contact, point_contact_inputs
from clashsim.fit.regression import approach
from clashsim.fit.sample import sample_strikes

NUM_IMPACTS = 150
GYRATION = 0.0192  # m


@pytest.fixture(scope="module")
def blank() -> FewShotProblem:
    """Strikes of the ellipse whose outcomes are still to be made up."""
    scene = Scene.load("ellipse")
    before = sample_strikes(scene, NUM_IMPACTS, np.random.default_rng(1)).before
    impacts = Impacts(True, before, np.zeros((NUM_IMPACTS, 3)))
    return FewShotProblem(scene, replace(impacts, after=-0.5 * impacts.twist), GYRATION)


def with_outcomes(blank: FewShotProblem, twist_change: np.ndarray) -> FewShotProblem:
    """The same strikes with outcomes from dimensionless changes of twist (N, 3)."""
    impacts = replace(blank.impacts, after=blank.frames.decode(twist_change))
    return FewShotProblem(blank.scene, impacts, blank.gyration)


def held_out_errors(problem: FewShotProblem, method: str, n: int) -> np.ndarray:
    """Relative errors of a baseline that uses the first n impacts, on the others."""
    predicted = getattr(baselines, method)(problem, np.arange(n), 0)
    return relative_error(predicted, problem.impacts.after, problem.gyration)[n:]


def sliding_world(blank: FewShotProblem, friction: float, spin: float) -> np.ndarray:
    """Changes of twist that are linear in the tangential approach and in one lever arm."""
    tangential = approach(blank.frames, blank.impacts)[:, 1]
    normal_change = np.full(NUM_IMPACTS, 1.5)
    return np.column_stack([normal_change, -friction * tangential, spin * blank.frames.arm[:, 1]])


@pytest.mark.parametrize(("method", "worst"), [("ridge", 1e-3), ("gp", 0.05)])
def test_regressions_fit_a_linear_world(blank: FewShotProblem, method: str, worst: float) -> None:
    inputs = np.column_stack([blank.frames.arm, approach(blank.frames, blank.impacts)])
    coefficients = np.random.default_rng(0).normal(0, 0.3, (4, 3))
    change = inputs @ coefficients + [1.5, 0.2, -0.1]
    assert np.median(held_out_errors(with_outcomes(blank, change), method, 60)) < worst


def test_newton_coulomb_recovers_its_own_truth(blank: FewShotProblem) -> None:
    inputs = point_contact_inputs(blank.scene, blank.frames, blank.impacts)
    law = np.array([0.62, 0.21, 0.4])
    problem = with_outcomes(blank, point_contact(law[None], inputs))
    assert np.quantile(held_out_errors(problem, "newton_coulomb", 12), 0.9) < 0.02


def planar_contact(
    normal: float, tangential: float, normal_arm: float, recoil: float
) -> PointContactInputs:
    """A body of unit mass and gyration that is struck below its centre, at `normal_arm`."""
    mobility = np.diag([1 + recoil, 1 + recoil + normal_arm**2])
    turning = np.array([[0.0, normal_arm]])
    return PointContactInputs(np.array([[normal, tangential]]), mobility[None], turning[None])


def test_point_contact_by_hand() -> None:
    head_on = planar_contact(-1.0, 0.0, -1.3, 0.0)
    oblique = planar_contact(-1.0, 0.5, -1.0, 0.0)
    bounce = point_contact(np.array([[0.5, 0.3, 0.0]]), head_on)[0]
    stick = point_contact(np.array([[0.5, 9.0, 0.0]]), oblique)[0]
    slide = point_contact(np.array([[0.5, 0.1, 0.0]]), oblique)[0]
    assert np.allclose(bounce, [1.5, 0, 0])
    assert np.allclose(stick, [1.5, -0.25, 0.25])  # half of the slip is stopped by rotation
    assert np.allclose(slide, [1.5, -0.15, 0.15])
    equal_masses = planar_contact(-1.0, 0.0, -1.3, 1.0)
    recoil = point_contact(np.array([[0.5, 0.3, 0.0]]), equal_masses)[0]
    assert np.allclose(recoil, [0.75, 0, 0])  # a striker of equal mass recoils


def test_a_point_contact_in_space_has_its_restitution_and_obeys_friction() -> None:
    scene = Scene.load("cube")
    # Another inertia about each axis, so that its orientation counts.
    scene = replace(scene, xml=scene.xml.replace("8.1e-4 8.1e-4 8.1e-4", "4e-4 8e-4 1e-3"))
    before = sample_strikes(scene, 60, np.random.default_rng(2)).before
    impacts = Impacts(False, before, np.zeros((60, 6)))
    problem = FewShotProblem(scene, impacts, 0.044)
    frames = problem.frames
    inputs = point_contact_inputs(scene, frames, impacts)
    change = point_contact(np.array([[0.6, 0.2, 0.0]]), inputs)
    after = frames.decode(change)

    moved = before.copy()
    body = MotionBefore.of(moved).struck
    point = frames.contact.point
    closing = body.velocity_at(point)[:, 2].copy()
    body.twist[:] = after
    assert np.allclose(body.velocity_at(point)[:, 2], -0.6 * closing)
    impulse = 0.37 * (after - impacts.twist)[:, :3]
    friction = np.linalg.norm(impulse[:, :2], axis=1) / impulse[:, 2]
    assert friction.max() < 0.2 + 1e-9 and np.isclose(friction, 0.2).sum() > 20
    # The change of angular momentum is that of the impulse at the contact, in world axes.
    rotation = Rotation.from_quat(impacts.pose[:, 3:], scalar_first=True)
    turned = rotation.inv().apply((after - impacts.twist)[:, 3:])
    angular_momentum = rotation.apply(turned * [4e-4, 8e-4, 1e-3])
    moment = np.cross(point - impacts.pose[:, :3], impulse)
    assert np.allclose(angular_momentum, moment, atol=1e-9)
    recovered = held_out_errors(with_outcomes(problem, change), "newton_coulomb", 12)
    assert np.quantile(recovered, 0.9) < 0.02


def test_the_network_without_pretraining_is_reproducible_and_learns(blank: FewShotProblem) -> None:
    problem = with_outcomes(blank, sliding_world(blank, friction=0.4, spin=0.3))
    first = baselines.scratch(problem, np.arange(60), 2, steps=200)
    again = baselines.scratch(problem, np.arange(60), 2, steps=200)
    assert np.array_equal(first, again)
    error = relative_error(first, problem.impacts.after, problem.gyration)
    assert np.median(error[60:]) < 0.1


def test_methods_see_nothing_of_the_held_out_outcomes(blank: FewShotProblem) -> None:
    rng = np.random.default_rng(3)
    change = rng.normal(0, 0.3, (NUM_IMPACTS, 3)) + np.array([1.5, 0, 0])
    other_test = change.copy()
    other_test[20:] = rng.normal(0, 1, (NUM_IMPACTS - 20, 3))
    rows = np.arange(20)
    for method in ("newton_coulomb", "ridge", "gp", "scratch"):
        predict = getattr(baselines, method)
        first = predict(with_outcomes(blank, change), rows, 0)
        second = predict(with_outcomes(blank, other_test), rows, 0)
        assert np.allclose(first, second), method


def test_metrics_by_hand() -> None:
    after = np.array([[3.0, 0, 40], [0, 1, 0], [1, 0, 0]])
    predicted = np.array([[3.0, 0, 50], [0, 1.15, 0], [np.nan, 0, 0]])
    error = relative_error(predicted, after, 0.1)
    assert np.allclose(error, [0.2, 0.15, np.inf])
    assert accuracy(error, 0.2 + 1e-9) == pytest.approx(2 / 3)
    assert accuracy(error, 0.1) == 0
    row = accuracy_summary([np.array([0.05, 0.15, 0.5, 0.09]), np.array([0.05, 0.05, 0.05, 0.3])])
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


def test_an_honest_standard_deviation_covers_each_share() -> None:
    error = 2 * np.random.default_rng(0).normal(size=(4000, 3))
    widths = np.stack([np.full_like(error, 2.0), np.full_like(error, 2 * 1.645)])
    np.testing.assert_allclose(coverage(error, widths), INTERVAL_SHARES, atol=0.02)
    assert coverage(error, widths / 2)[1] < 0.65  # overconfident


def test_splits_keep_to_the_protocol(blank: FewShotProblem) -> None:
    session = np.repeat(["a", "b"], [100, 50])
    real = RealDataset("made up", "ellipse", blank.impacts, GYRATION, session)
    (rows, test), *more = split_rows(real, 10, "random", seeds=5)
    assert len(more) == 4 and len(rows) == 10
    assert len(np.union1d(rows, test)) == NUM_IMPACTS and not np.intersect1d(rows, test).size
    blocks = split_rows(real, 60, "block", seeds=5)
    assert [list(used[:2]) for used, _ in blocks] == [[0, 1]]  # the second session is too short
    shorter_blocks = split_rows(real, 20, "block", seeds=5)
    assert [used[0] for used, _ in shorter_blocks] == [0, 100]
    assert split_rows(real, 76, "random", seeds=5) == []


def test_the_bench_gives_rows_and_continues_after_a_kill(
    blank: FewShotProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = with_outcomes(blank, sliding_world(blank, friction=0.3, spin=0.0))
    real = RealDataset(
        "made up",
        "ellipse",
        problem.impacts,
        GYRATION,
        np.full(NUM_IMPACTS, "a"),
        {"published-one": problem.impacts.after},
    )
    monkeypatch.setattr(real_impacts.datasets, "names", lambda root: ["made up"])
    monkeypatch.setattr(real_impacts.datasets, "load", lambda name, root: real)
    resume = tmp_path / "rows.jsonl"
    options = BenchOptions(
        root=tmp_path,
        seeds=3,
        sets=["made up"],
        methods=["ridge", "newton-coulomb", "published"],
        resume=resume,
        workers=1,
    )
    rows = real_impacts.run(options, ns=[10])
    assert {(r["method"], r["n"], r["draw"]) for r in rows} >= {
        ("ridge", 10, "random"),
        ("ridge", 10, "block"),
        ("published-one", 0, "random"),
    }
    (published,) = [r for r in rows if r["method"] == "published-one"]
    assert published["accuracy_0.1"] == 1
    figures = {"accuracy_0.1", "accuracy_0.2", "median", "sd_0.1", "worst_0.1", "seeds"}
    assert all(figures <= set(r) for r in rows)

    # As a kill leaves the file: one whole row, which is recognised by its median, and a part.
    lines = resume.read_text().splitlines()
    marked = json.dumps(json.loads(lines[0]) | {"median": 7.0})
    resume.write_text(f"{marked}\n{lines[1][:20]}\n")
    again = real_impacts.run(options, ns=[10])
    assert len(again) == len(rows) and sum(r["median"] == 7.0 for r in again) == 1

    real_impacts.plot(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
    with pytest.raises(Exception, match="did you mean ridge"):
        real_impacts.run(replace(options, methods=["rigde"]), ns=[10])
