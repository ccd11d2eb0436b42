"""Strike tables: their splines, the model they stand for, and their gradients."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clashsim.bench import device_impacts
from clashsim.core.errors import ClashError, DataError, SceneError
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.evaluate.device import device_available
from clashsim.fit.base import distilled_model
from clashsim.nets.spline_table import SplineTable
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid import strike_table as strike_table_module
from clashsim.sim.hybrid.simulator import HybridSim, ImpactPrediction
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.sim.stepped_strikes import SteppedStrikes
from clashsim.slides.law import SlideModel

Tabulated = tuple[HybridSim, StrikeTable]


@pytest.fixture(scope="module")
def tabulated() -> Tabulated:
    """A simulator and its strike table."""
    scene = Scene.load("square")
    hybrid = HybridSim(
        scene,
        distilled_model(scene),
        scene.nominal,
        slide_model=SlideModel({"friction": 0.3}, gyration=0.0289),
    )
    return hybrid, strike_table(hybrid)


def wrap(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def before_of(hybrid: HybridSim, table: StrikeTable, strike: np.ndarray) -> np.ndarray:
    """`before` (N, 12) of strikes (N, d)."""
    by_name = dict(zip(table.names, strike.T, strict=True))
    return before_from_strikes(hybrid.scene, by_name)[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2**31))
def test_tables_meet_cubics_exactly(d, seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 0, d)
    high = rng.uniform(0.5, 2, d)
    powers = rng.integers(0, 4, (3, d))
    sizes = rng.integers(5, 8, d)

    def cubic(x: np.ndarray) -> np.ndarray:
        return np.stack([np.prod(x**power, axis=-1) for power in powers], -1)

    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, sizes, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    table = SplineTable(low.tolist(), high.tolist(), cubic(grid))

    def read(x: np.ndarray) -> np.ndarray:
        return table(torch.as_tensor(x)).numpy()

    x = rng.uniform(low, high, (50, d))
    np.testing.assert_allclose(read(x), cubic(x), atol=1e-9)
    ends = np.vstack([low, high])
    np.testing.assert_allclose(read(ends), cubic(ends), atol=1e-9)
    row_sum = sum(
        weight[:, None] * table.rows[row] for row, weight in table.weighted_rows(torch.as_tensor(x))
    )
    np.testing.assert_allclose(row_sum.numpy(), cubic(x), atol=1e-9)
    # Beyond the box the value is that at its edge.
    np.testing.assert_allclose(read(high[None] + 1), cubic(high[None]), atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_moving_a_pair_moves_it_as_a_whole(seed):
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(4, 12))
    pose = rng.normal(size=(4, 3))
    moved = move_pair_to(before, pose)
    np.testing.assert_allclose(moved[:, :3], pose)
    np.testing.assert_allclose(
        np.linalg.norm(moved[:, 6:8] - moved[:, :2], axis=1),
        np.linalg.norm(before[:, 6:8] - before[:, :2], axis=1),
    )
    np.testing.assert_allclose(moved[:, 8] - moved[:, 2], before[:, 8] - before[:, 2])
    np.testing.assert_allclose(move_pair_to(moved, before[:, :3]), before, atol=1e-12)


@pytest.mark.parametrize("name", ["semi_cylinder", "square", "triangle", "plate"])
def test_strikes_are_placed_as_asked(name):
    scene = Scene.load(name)
    ranges = strike_ranges(scene)
    low, high = np.array(list(ranges.values())).T
    strike = np.random.default_rng(0).uniform(low, high, (64, len(ranges)))
    asked = dict(zip(ranges, strike.T, strict=True))
    before, contact = before_from_strikes(scene, asked)
    assert contact.touching.all()
    velocity = before[:, 9:11]
    np.testing.assert_allclose(np.linalg.norm(velocity, axis=1), asked["speed"])
    if "deflection" in asked and name != "plate":
        direction = np.arctan2(velocity[:, 1], velocity[:, 0])
        normal_direction = np.arctan2(contact.normal[:, 1], contact.normal[:, 0])
        deflection = wrap(direction - normal_direction)
        np.testing.assert_allclose(deflection, asked["deflection"], atol=1e-9)
    if "point" in asked:
        at_origin = move_pair_to(before, np.zeros(3))
        bearing = np.arctan2(at_origin[:, 7], at_origin[:, 6])
        assert np.abs(wrap(bearing - asked["point"])).max() < 0.01


def test_a_table_agrees_with_its_model(tabulated):
    hybrid, table = tabulated
    model: StrikeModel = table
    assert model.names == ("speed", "point", "deflection")
    assert table.fidelity.position_median < 2e-4
    assert table.fidelity.yaw_median < 0.01
    assert table.fidelity.untrusted_share < 0.05
    rng = np.random.default_rng(3)
    strike = rng.uniform(table.low, table.high, (200, 3))
    pose = rng.normal(size=(200, 3))
    expected = hybrid.rest(move_pair_to(before_of(hybrid, table, strike), pose))
    error = table.rest(pose, strike) - expected
    assert np.percentile(np.linalg.norm(error[:, :2], axis=1), 90) < 1e-3
    assert np.percentile(np.abs(wrap(error[:, 2])), 90) < 0.03


def test_rotating_the_body_rotates_the_answer(tabulated):
    _, table = tabulated
    rng = np.random.default_rng(4)
    strike = rng.uniform(table.low, table.high, (50, 3))
    at_origin = table.rest(np.zeros((50, 3)), strike)
    elsewhere = table.rest(np.tile([0.3, -0.2, 1.1], (50, 1)), strike)
    cos, sin = np.cos(1.1), np.sin(1.1)
    rotation = np.array([[cos, sin], [-sin, cos]])
    expected = at_origin[:, :2] @ rotation + [0.3, -0.2]
    np.testing.assert_allclose(elsewhere[:, :2], expected, atol=1e-9)
    np.testing.assert_allclose(elsewhere[:, 2], at_origin[:, 2] + 1.1, atol=1e-9)


def test_gradients_from_strike_to_rest_agree_with_finite_differences(tabulated):
    _, table = tabulated
    rng = np.random.default_rng(5)
    inner = rng.uniform(table.low + 0.02, table.high - 0.02, (6, 3))
    strike = torch.as_tensor(inner).requires_grad_(True)
    pose = torch.as_tensor(rng.normal(size=(6, 3))).requires_grad_(True)
    noise = torch.as_tensor(rng.normal(size=(6, 3)))
    assert torch.autograd.gradcheck(
        lambda p, x: table(p, x, noise), (pose, strike), eps=1e-6, atol=1e-5
    )


def test_noise_moves_bodies_as_it_moves_their_twist(tabulated):
    hybrid, table = tabulated
    rng = np.random.default_rng(6)
    strike = rng.uniform(table.low, table.high, (100, 3))
    noise = rng.normal(size=(100, 3))
    pose = rng.normal(size=(100, 3))
    origin = np.zeros((100, 3))
    before = move_pair_to(before_of(hybrid, table, strike), np.zeros(3))
    after, std, _ = hybrid.predict_with_std(before)
    change = table.rest(origin, strike, noise) - table.rest(origin, strike)
    noisy_rest = hybrid.slide_to_rest(origin, after + std * noise)
    expected_change = noisy_rest - hybrid.slide_to_rest(origin, after)
    error = np.linalg.norm(change - expected_change, axis=1)
    size = np.linalg.norm(expected_change, axis=1)
    assert np.median(error) < 0.1 * np.median(size)

    samples = table.rest(
        np.repeat(pose[:4], 4000, 0), np.repeat(strike[:4], 4000, 0), rng.normal(size=(16000, 3))
    ).reshape(4, 4000, 3)
    expected = table.rest_covariance(torch.as_tensor(pose[:4]), torch.as_tensor(strike[:4]))
    for rows, covariance in zip(samples, expected.numpy(), strict=True):
        np.testing.assert_allclose(
            np.cov(rows.T), covariance, rtol=0.12, atol=0.05 * np.abs(covariance).max()
        )


def test_single_precision_serves(tabulated):
    _, table = tabulated
    rng = np.random.default_rng(7)
    strike = rng.uniform(table.low, table.high, (100, 3))
    pose = rng.normal(size=(100, 3))
    in_double = table.rest(pose, strike)
    try:
        assert np.abs(table.float().rest(pose, strike) - in_double).max() < 1e-3
    finally:
        table.double()


def test_stepping_comes_to_rest_where_the_table_does(tabulated):
    hybrid, table = tabulated
    scene = hybrid.scene
    model = hybrid.pairs[0].pair.model
    coarse = HybridSim(scene, model, hybrid.theta, timestep=0.005)
    stepped = SteppedStrikes(coarse, scene, hybrid.theta)
    strike = np.random.default_rng(8).uniform(stepped.low, stepped.high, (8, 3))
    origin = np.zeros((8, 3))
    states = stepped.path(origin, strike)
    velocity = states[:, -1, scene.base.nq + scene.struck_body.qvel]
    assert np.linalg.norm(velocity, axis=1).max() < 0.02
    error = stepped.rest(origin, strike) - table.rest(origin, strike)
    # MuJoCo's slide, and a friction of 0.3 that was not fitted to it.
    assert np.median(np.linalg.norm(error[:, :2], axis=1)) < 0.02


def test_scenes_without_a_table_are_refused():
    scene = Scene.load("square")
    with pytest.raises(ClashError, match="slide model"):
        strike_table(HybridSim(scene, distilled_model(scene), scene.nominal))
    with pytest.raises(ClashError, match="striker"):
        strike_ranges(Scene.load("ellipse"))


def test_rates_on_a_device_have_their_limits(tabulated):
    hybrid, table = tabulated
    net = distilled_model(hybrid.scene).net
    try:
        rows = device_impacts.measure_rates(net, table, "cpu", n=256)
    finally:
        table.double()
    assert [r["what"] for r in rows] == ["impacts", "impacts", "strikes to rest", "strikes to rest"]
    assert all(r["per_second"] > 0 and r["limit"] > 0 for r in rows)
    assert device_available("cpu")
    assert not device_available("no_such_device")


def test_strikes_that_miss_leave_the_body_where_it_is(monkeypatch):
    scene = Scene.load("semi_cylinder")
    ranges = strike_ranges(scene)
    names = list(ranges)
    strikes = np.column_stack([np.linspace(*limits, 20) for limits in ranges.values()])
    meets = np.arange(20) >= 2

    class HybridThatMisses:
        def __init__(self):
            self.scene = scene

        def predict_with_std(self, before, theta, *, most_probable):
            n = len(before)
            if n == 20:
                raise DataError("in impact 0 the bodies do not meet along their approach")
            return ImpactPrediction(np.ones((n, 3)), np.ones((n, 3)), np.zeros(n, bool))

    monkeypatch.setattr(
        strike_table_module,
        "advance_to_contact",
        lambda scene, before: (SimpleNamespace(touching=meets), before),
    )
    predict = strike_table_module._predict_at_origin
    prediction = predict(HybridThatMisses(), names, strikes, theta=None)
    assert (prediction.twist_after[2:] == 1).all()
    assert (np.abs(prediction.twist_after[:2]) < 1e-5).all()
    assert prediction.untrusted.tolist() == (~meets).tolist()
    meets[:10] = False
    with pytest.raises(SceneError, match="narrow its ranges"):
        predict(HybridThatMisses(), names, strikes, theta=None)
