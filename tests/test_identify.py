"""Identification on MuJoCo itself recovers what it was given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mujoco import sysid

from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.params import from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.fit.identification_problem import identification_problem
from clashsim.fit.identify import MJX_DAMPING, MJX_STEPS, grid, identify, identify_rows
from clashsim.fit.sample import sample_strikes
from clashsim.fit.sysid_export import to_sysid
from clashsim.optim.levenberg_marquardt import levenberg_marquardt
from clashsim.sim.mujoco.impacts import simulate_impacts

needs_sysid = pytest.mark.skipif(not hasattr(sysid, "optimize"), reason="needs clashsim[sysid]")
TRUTH = {"friction": 0.17, "damping": 310.0}


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene.load("ellipse")


def world(scene: Scene, truth: dict[str, float], n: int = 16) -> Impacts:
    """Impacts of a scene with known constants, a little before contact as recordings are."""
    strikes = sample_strikes(scene, n, np.random.default_rng(4))
    theta = np.array([truth.get(p.name, p.nominal) for p in scene.params])
    outcome = simulate_impacts(scene, strikes.before, theta)
    assert outcome.usable.all()
    before = strikes.before.copy()
    before[:, :2] -= 0.002 * before[:, 3:5] / np.linalg.norm(before[:, 3:5], axis=1, keepdims=True)
    return Impacts(True, before, outcome.after)


@pytest.fixture(scope="module")
def impacts(scene: Scene) -> Impacts:
    return world(scene, TRUTH)


@pytest.mark.parametrize("method", ["cmaes", "hopping", pytest.param("sysid", marks=needs_sysid)])
def test_known_truth_is_recovered_and_the_seed_decides(
    scene: Scene, impacts: Impacts, method: str
) -> None:
    found = identify(scene, impacts, method=method, seed=3)  # type: ignore[arg-type]
    value = dict(zip([p.name for p in scene.params], found.theta, strict=True))
    assert found.failure is None
    assert found.loss < 1e-3
    assert found.evaluations > 0
    assert all(abs(value[k] / v - 1) < 0.05 for k, v in TRUTH.items())
    # An effect that MuJoCo does not have is not identified here.
    assert np.array_equal(value["yaw_offset"], scene.nominal[-1])
    again = identify(scene, impacts, method=method, seed=3)  # type: ignore[arg-type]
    assert np.array_equal(found.theta, again.theta)
    assert found.loss == again.loss


def test_the_grid_answers_any_subset_and_finds_a_truth_on_it(scene: Scene) -> None:
    params = [p for p in scene.params if p.name in TRUTH]
    on_grid = from_unit(params, np.linspace(-1, 1, 12)[[2, 5]])
    impacts = world(scene, dict(zip(TRUTH, on_grid, strict=True)), 8)
    table = grid(identification_problem(scene, impacts))
    for rows in (np.arange(8), np.array([1, 4, 6])):
        assert np.allclose(table.identified(rows).theta[:2], on_grid, rtol=1e-6)
        assert table.identified(rows).loss < 1e-6
    assert np.allclose(table.after[table.best(np.arange(8))], impacts.after, atol=1e-3)
    alone = identify(scene, impacts, method="grid")
    assert np.allclose(alone.theta[:2], on_grid)


def test_measured_values_are_written_per_impact(scene: Scene, impacts: Impacts) -> None:
    measured = replace(
        impacts,
        known={
            "friction": np.full(len(impacts), TRUTH["friction"]),
            "other": np.zeros(len(impacts)),
        },
    )
    problem = identification_problem(scene, measured)
    assert [p.name for p in problem.params] == ["damping"]
    assert np.all(problem.theta[:, 0] == TRUTH["friction"])
    found = identify_rows(problem, np.arange(12), "cmaes", seed=0)
    assert abs(found.theta[1] / TRUTH["damping"] - 1) < 0.05
    assert np.allclose(problem.predict(found.theta), impacts.after, rtol=0.05, atol=0.3)


def test_one_wild_impact_costs_no_more_than_one(scene: Scene, impacts: Impacts) -> None:
    after = impacts.after.copy()
    after[0] *= -30
    problem = identification_problem(scene, replace(impacts, after=after))
    residual = problem.residual(problem.simulate(np.zeros((2, 2)), np.arange(3)), np.arange(3))
    assert residual.shape == (2, 3, 3)
    assert ((residual**2).sum(-1) < 1).all()
    assert (
        abs(identify_rows(problem, np.arange(12), "cmaes", seed=0).theta[0] / TRUTH["friction"] - 1)
        < 0.1
    )


@needs_sysid
def test_the_export_to_sysid_writes_the_scene(scene: Scene, impacts: Impacts) -> None:
    params, residual = to_sysid(identification_problem(scene, impacts))
    assert params.keys() == ["friction", "damping"]
    params.update_from_vector(to_unit(scene.params[:2], np.array([0.4, 77.0])))
    spec = scene.spec.copy()
    for p in params.values():
        p.apply_modifier(spec)
    model = spec.compile()
    assert np.allclose(model.pair("strike").friction[:2], 0.4)
    assert np.allclose(model.pair("strike").solref, [-1e6, -77.0])
    one = residual(np.zeros(2))[0][0]
    many = residual(np.zeros((2, 5)))[0][0]
    assert one.shape == (48,)
    assert many.shape == (48, 5)
    assert np.allclose(many[:, 4], one)


def test_gradients_descend_to_the_truth_and_a_method_must_exist(
    scene: Scene, impacts: Impacts
) -> None:
    target = np.array([0.3, -0.6])

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = points.T
        residual = np.stack([x - target[0], np.sin(y) - np.sin(target[1])], 1)
        zero = np.zeros_like(x)
        return residual, np.stack(
            [np.stack([zero + 1, zero], 1), np.stack([zero, np.cos(y)], 1)], 1
        )

    starts = np.array([[0.9, 0.9], [-0.9, -0.9]])
    found = levenberg_marquardt(evaluate, starts, steps=MJX_STEPS, damping=MJX_DAMPING)
    assert np.allclose(found.points, target, atol=1e-3)
    assert (found.loss < 1e-6).all()
    with pytest.raises(DataError, match="cmaes"):
        identify(scene, impacts, method="cmeas")  # type: ignore[arg-type]


def test_nothing_to_identify_says_so(scene: Scene, impacts: Impacts) -> None:
    bare = scene.with_params([p for p in scene.params if p.target.startswith("effect/")])
    found = identify(bare, impacts)
    assert found.failure is not None
    assert "no parameter" in found.failure
    assert np.array_equal(found.theta, bare.nominal)
