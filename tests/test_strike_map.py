"""The map of strikes: its tables, what they stand for, and their gradients."""

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
from clashsim.fit.base import base_model
from clashsim.nets.spline_table import SplineTable
from clashsim.nets.strike_table import StrikeTable
from clashsim.sim.hybrid import strike_table as strike_maps
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.sim.stepped_strikes import SteppedStrikes
from clashsim.slides.law import SlideModel


@pytest.fixture(scope="module")
def made() -> tuple[HybridSim, StrikeTable]:
    scene = Scene.load("square")
    hybrid = HybridSim(
        scene,
        base_model(scene),
        scene.nominal,
        slide_model=SlideModel({"friction": 0.3}, gyration=0.0289),
    )
    return hybrid, strike_table(hybrid)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2**31))
def test_tables_meet_cubics_exactly(d, seed):
    rng = np.random.default_rng(seed)
    low, high = rng.uniform(-2, 0, d), rng.uniform(0.5, 2, d)
    powers = rng.integers(0, 4, (3, d))

    def f(x: np.ndarray) -> np.ndarray:
        return np.stack([np.prod(x**p, axis=-1) for p in powers], -1)

    grids = np.meshgrid(
        *(np.linspace(a, b, n) for a, b, n in zip(low, high, rng.integers(5, 8, d), strict=True)),
        indexing="ij",
    )
    table = SplineTable(low.tolist(), high.tolist(), f(np.stack(grids, -1)))
    x = rng.uniform(low, high, (50, d))
    np.testing.assert_allclose(table(torch.as_tensor(x)).numpy(), f(x), atol=1e-9)
    ends = np.vstack([low, high])
    np.testing.assert_allclose(table(torch.as_tensor(ends)).numpy(), f(ends), atol=1e-9)
    by_taps = sum(w[:, None] * table.rows[i] for i, w in table.taps(torch.as_tensor(x)))
    np.testing.assert_allclose(by_taps.numpy(), f(x), atol=1e-9)
    np.testing.assert_allclose(
        table(torch.as_tensor(high[None] + 1)).numpy(), f(high[None]), atol=1e-9
    )  # held beyond the box


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_moving_a_pair_moves_it_as_a_whole(seed):
    rng = np.random.default_rng(seed)
    before, pose = rng.normal(size=(4, 12)), rng.normal(size=(4, 3))
    there = move_pair_to(before, pose)
    np.testing.assert_allclose(there[:, :3], pose)
    np.testing.assert_allclose(
        np.linalg.norm(there[:, 6:8] - there[:, :2], axis=1),
        np.linalg.norm(before[:, 6:8] - before[:, :2], axis=1),
    )
    np.testing.assert_allclose(there[:, 8] - there[:, 2], before[:, 8] - before[:, 2])
    np.testing.assert_allclose(move_pair_to(there, before[:, :3]), before, atol=1e-12)


@pytest.mark.parametrize("name", ["semi_cylinder", "square", "triangle", "plate"])
def test_strikes_are_placed_as_asked(name):
    scene = Scene.load(name)
    ranges = strike_ranges(scene)
    low, high = np.array(list(ranges.values())).T
    strike = np.random.default_rng(0).uniform(low, high, (64, len(ranges)))
    aims = dict(zip(ranges, strike.T, strict=True))
    before, contact = before_from_strikes(scene, aims)
    assert contact.touching.all()
    np.testing.assert_allclose(np.linalg.norm(before[:, 9:11], axis=1), aims["speed"])
    if "deflection" in aims and name != "plate":
        angle = np.arctan2(before[:, 10], before[:, 9]) - np.arctan2(
            contact.normal[:, 1], contact.normal[:, 0]
        )
        np.testing.assert_allclose(
            (angle + np.pi) % (2 * np.pi) - np.pi, aims["deflection"], atol=1e-9
        )
    if "point" in aims:
        seen = move_pair_to(before, np.zeros(3))
        bearing = np.arctan2(seen[:, 7], seen[:, 6])
        assert np.abs((bearing - aims["point"] + np.pi) % (2 * np.pi) - np.pi).max() < 0.01


def test_a_map_says_what_its_model_says(made):
    hybrid, table = made
    model: StrikeModel = table
    assert (
        model.names == ("speed", "point", "deflection")
        and table.fidelity.position < 2e-4
        and table.fidelity.yaw < 0.01
        and table.fidelity.untrusted_share < 0.05
    )
    rng = np.random.default_rng(3)
    strike, pose = rng.uniform(table.low, table.high, (200, 3)), rng.normal(size=(200, 3))
    before = move_pair_to(
        before_from_strikes(hybrid.scene, dict(zip(table.names, strike.T, strict=True)))[0], pose
    )
    gap = table.rest(pose, strike) - hybrid.rest(before)
    gap[:, 2] = (gap[:, 2] + np.pi) % (2 * np.pi) - np.pi
    assert (
        np.percentile(np.linalg.norm(gap[:, :2], axis=1), 90) < 1e-3
        and np.percentile(np.abs(gap[:, 2]), 90) < 0.03
    )


def test_turning_the_body_turns_the_answer(made):
    _, table = made
    rng = np.random.default_rng(4)
    strike = rng.uniform(table.low, table.high, (50, 3))
    here, there = (
        table.rest(np.zeros((50, 3)), strike),
        table.rest(np.tile([0.3, -0.2, 1.1], (50, 1)), strike),
    )
    c, s = np.cos(1.1), np.sin(1.1)
    np.testing.assert_allclose(
        there[:, :2], here[:, :2] @ np.array([[c, s], [-s, c]]) + [0.3, -0.2], atol=1e-9
    )
    np.testing.assert_allclose(there[:, 2], here[:, 2] + 1.1, atol=1e-9)


def test_gradients_from_strike_to_rest_agree_with_finite_differences(made):
    _, table = made
    rng = np.random.default_rng(5)
    strike = torch.as_tensor(
        rng.uniform(table.low + 0.02, table.high - 0.02, (6, 3))
    ).requires_grad_(True)
    pose, noise = (
        torch.as_tensor(rng.normal(size=(6, 3))).requires_grad_(True),
        torch.as_tensor(rng.normal(size=(6, 3))),
    )
    assert torch.autograd.gradcheck(
        lambda p, x: table(p, x, noise), (pose, strike), eps=1e-6, atol=1e-5
    )


def test_noise_moves_bodies_as_it_moves_their_twist(made):
    hybrid, table = made
    rng = np.random.default_rng(6)
    strike, noise, pose = (
        rng.uniform(table.low, table.high, (100, 3)),
        rng.normal(size=(100, 3)),
        rng.normal(size=(100, 3)),
    )
    before = move_pair_to(
        before_from_strikes(hybrid.scene, dict(zip(table.names, strike.T, strict=True)))[0],
        np.zeros(3),
    )
    after, spread, _ = hybrid.predict_with_std(before)
    moved = table.rest(np.zeros((100, 3)), strike, noise) - table.rest(np.zeros((100, 3)), strike)
    truth = hybrid.slide_to_rest(np.zeros((100, 3)), after + spread * noise) - hybrid.slide_to_rest(
        np.zeros((100, 3)), after
    )
    assert np.median(np.linalg.norm(moved - truth, axis=1)) < 0.1 * np.median(
        np.linalg.norm(truth, axis=1)
    )
    many = table.rest(
        np.repeat(pose[:4], 4000, 0), np.repeat(strike[:4], 4000, 0), rng.normal(size=(16000, 3))
    ).reshape(4, 4000, 3)
    expected = table.std(torch.as_tensor(pose[:4]), torch.as_tensor(strike[:4])).numpy()
    for rows, covariance in zip(many, expected, strict=True):
        np.testing.assert_allclose(
            np.cov(rows.T), covariance, rtol=0.12, atol=0.05 * np.abs(covariance).max()
        )


def test_single_precision_serves(made):
    _, table = made
    rng = np.random.default_rng(7)
    strike, pose = rng.uniform(table.low, table.high, (100, 3)), rng.normal(size=(100, 3))
    exact = table.rest(pose, strike)
    try:
        assert np.abs(table.float().rest(pose, strike) - exact).max() < 1e-3
    finally:
        table.double()


def test_stepping_comes_to_rest_where_the_simulator_says(made):
    hybrid, table = made
    stepped = SteppedStrikes(
        HybridSim(
            hybrid.scene,
            hybrid._learned[hybrid.pairs[0].pair.key].model,
            hybrid.theta,
            timestep=0.005,
        ),
        hybrid.scene,
        hybrid.theta,
    )
    strike = np.random.default_rng(8).uniform(stepped.low, stepped.high, (8, 3))
    states = stepped.path(np.zeros((8, 3)), strike)
    speed = np.linalg.norm(
        states[:, -1, hybrid.scene.base.nq + hybrid.scene.struck_body.qvel], axis=1
    )
    assert speed.max() < 0.02
    gap = stepped.rest(np.zeros((8, 3)), strike) - table.rest(np.zeros((8, 3)), strike)
    assert (
        np.median(np.linalg.norm(gap[:, :2], axis=1)) < 0.02
    )  # MuJoCo's slide and a friction of 0.3 that was not fitted to it


def test_what_cannot_be_mapped_says_so():
    scene = Scene.load("square")
    with pytest.raises(ClashError, match="slide model"):
        strike_table(HybridSim(scene, base_model(scene), scene.nominal))
    with pytest.raises(ClashError, match="striker"):
        strike_ranges(Scene.load("ellipse"))


def test_rates_on_a_device_have_their_limits(made):
    hybrid, table = made
    net = base_model(hybrid.scene).net
    try:
        rows = device_impacts.measure_rates(net, table, "cpu", n=256)
    finally:
        table.double()
    assert [r["what"] for r in rows] == ["impacts", "impacts", "strikes to rest", "strikes to rest"]
    assert all(r["per_second"] > 0 and r["limit"] > 0 for r in rows)
    assert device_available("cpu") and not device_available("no_such_device")


def test_strikes_that_miss_leave_the_body_where_it_is(monkeypatch):
    scene = Scene.load("semi_cylinder")
    ranges = strike_ranges(scene)
    strikes = np.column_stack([np.linspace(*r, 20) for r in ranges.values()])
    meets = np.arange(20) >= 2

    class Hybrid:
        def __init__(self):
            self.scene = scene

        def predict_with_std(self, before, theta):
            if len(before) == 20:
                raise DataError("in impact 0 the bodies do not meet along their approach")
            return np.ones((len(before), 3)), np.ones((len(before), 3)), np.zeros(len(before), bool)

    monkeypatch.setattr(
        strike_maps, "touch", lambda scene, before: (SimpleNamespace(touching=meets), before)
    )
    after, _, doubted = strike_maps._seen_from_body(Hybrid(), list(ranges), strikes, None)
    assert (
        (after[2:] == 1).all()
        and (np.abs(after[:2]) < 1e-5).all()
        and doubted.tolist() == (~meets).tolist()
    )
    meets[:10] = False
    with pytest.raises(SceneError, match="narrow its ranges"):
        strike_maps._seen_from_body(Hybrid(), list(ranges), strikes, None)
