"""What was made fast gives the same results: at any number of threads, and as before."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from clashsim.bench.step_choice import (
    HybridSteps,
    ScheduledMujoco,
    StepSchedule,
    fastest_within,
)
from clashsim.bench.strike_models import StrikeModels
from clashsim.core.scene import Scene
from clashsim.fit.base import base_bytes, distilled_model, load_base
from clashsim.fit.compress import CompressionConfig, compress, compression_error
from clashsim.nets.spline_table import SplineTable
from clashsim.optim.search import BatchedCmaEs, CmaEs, minimise
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.coordinates import Coordinates
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.stepped_strikes import SteppedStrikes
from hybrid_strikes import SHAPES, strike_scene

# x, y (m) and yaw (rad) at rest of the first four strikes of seed 3, as version c1c39f9, which went
# through collisions one by one and stepped all bodies to the end, computed them.
STORED = {
    "semi_cylinder": [
        [-0.018078, -0.014141, -0.1786],
        [-0.105897, -0.025855, -0.845598],
        [-0.076668, -0.034089, -0.666543],
        [-0.011084, -0.025237, -0.109525],
    ],
    "square": [
        [0.000144, 0.021909, -0.048739],
        [0.051639, 0.008381, 0.637042],
        [0.006307, 0.04222, -0.502996],
        [-0.01077, 0.00229, -0.154186],
    ],
    "triangle": [
        [-0.000192, 0.023334, -0.057277],
        [0.05586, 0.056977, -0.698133],
        [0.00669, 0.048635, -0.611835],
        [-0.001081, 0.00525, 0.138835],
    ],
}
SAME = 1e-4  # m: as before


def strikes_of(model: SteppedStrikes, n: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    strikes = np.random.default_rng(seed).uniform(model.low, model.high, (n, len(model.names)))
    return np.zeros((n, 3)), strikes


def hybrid_strikes(name: str, *, threads: int = 0) -> SteppedStrikes:
    scene, base, theta = strike_scene(name)
    config = HybridConfig(threads=threads)
    simulator = HybridSim(scene, base, theta, timestep=0.005, config=config)
    return SteppedStrikes(simulator, scene, theta, seconds=0.8)


@pytest.mark.parametrize("name", SHAPES)
def test_poses_at_rest_are_as_before(name):
    model = hybrid_strikes(name)
    pose, strikes = strikes_of(model, 256)
    rest = model.rest(pose[:4], strikes[:4])
    difference = rest - np.array(STORED[name])
    assert np.abs(difference[:, :2]).max() < SAME
    assert np.abs(difference[:, 2]).max() < 1e-3


def test_any_number_of_threads_gives_the_same_bits():
    results = []
    for threads in (1, 2, 5):
        model = hybrid_strikes("semi_cylinder", threads=threads)
        results.append(model.rest(*strikes_of(model, 40)))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_bodies_that_lie_still_need_no_more_steps():
    model = hybrid_strikes("triangle")
    pose, strikes = strikes_of(model, 24)
    stopped = model.rest(pose, strikes)
    steps_to_rest = model.steps
    to_the_end = model.path(pose, strikes)[:, -1]
    assert steps_to_rest < 0.7 * (model.steps - steps_to_rest)
    assert np.abs(stopped[:, :2] - to_the_end[:, :2]).max() < SAME


def test_coordinates_are_those_of_mujoco():
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body>"
        "<body><joint type='slide'/><joint type='hinge'/><geom size='.1'/>"
        "<body><joint type='ball'/><geom size='.1'/></body></body></worldbody></mujoco>"
    )
    rng = np.random.default_rng(0)
    coordinates = Coordinates(model)
    before = np.tile(model.qpos0, (20, 1)) + 0.0
    mujoco_after = before.copy()
    change = rng.normal(size=(20, model.nv))
    for row in mujoco_after:
        mujoco.mj_integratePos(model, row, rng.normal(size=model.nv), 1.0)
    start = mujoco_after.copy()
    for row, velocity in zip(mujoco_after, change, strict=True):
        mujoco.mj_integratePos(model, row, velocity, 0.3)
    np.testing.assert_allclose(coordinates.moved(start, 0.3 * change), mujoco_after, atol=1e-12)
    found = coordinates.velocity(start, mujoco_after, np.full(20, 0.3))
    np.testing.assert_allclose(found, change, atol=1e-9)


@pytest.mark.parametrize("name", SHAPES)
def test_pairs_that_touch_are_never_taken_to_be_apart(name):
    scene, base, theta = strike_scene(name)
    hybrid = HybridSim(scene, base, theta)
    (pair,) = hybrid.pairs
    n = 400
    rng = np.random.default_rng(0)
    qpos = np.tile(hybrid.model.qpos0, (n, 1))
    qpos[:, :2] = rng.uniform(-0.1, 0.1, (n, 2))
    yaw = rng.uniform(-np.pi, np.pi, n)
    qpos[:, 3], qpos[:, 6] = np.cos(yaw / 2), np.sin(yaw / 2)
    qpos[:, 7:9] = np.array([0.2, 0.0]) + rng.uniform(-0.1, 0.1, (n, 2))
    rows = np.arange(n)
    near = pair.may_touch(qpos, rows)
    probe = hybrid.probe(n)
    probe.put(rows, qpos)
    distance, _ = pair.nearest_points(probe, rows)
    assert (distance < 0).sum() > 20 and near[distance < 0].all()
    assert not near.all()


def test_steps_are_chosen_that_agree_with_short_ones():
    models = StrikeModels(Scene.load("triangle"), 1)
    fine = models.mujoco
    candidates = [
        StepSchedule(fine.dt, 0.03, np.inf, fine.dt),
        StepSchedule(fine.dt, 0.008, 2.0, 0.002),
        StepSchedule(0.005, 0.008, np.inf, 0.01),  # too long for the collision
    ]
    chosen = fastest_within(
        candidates, lambda schedule: ScheduledMujoco(fine, schedule), fine, strikes=16
    )
    assert chosen.steps is candidates[1] and chosen.off < 1e-3
    assert chosen.per_strike < 0.2 * fine.seconds / fine.dt
    long_steps = HybridSteps(0.02, 0.002, 0.5)
    hybrid = fastest_within(
        [HybridSteps(0.005, 0.001, 0.1), long_steps],
        models.hybrid_with,
        models.fine_hybrid(),
        strikes=16,
        tolerance=5e-3,
    )
    assert hybrid.steps is long_steps


def test_the_compiled_search_finds_what_the_library_finds():
    def cost(points: np.ndarray) -> np.ndarray:
        x, y = points[..., 0] - 0.3, points[..., 1] - 0.6
        return x**2 + 20 * (y - x**2) ** 2 + 0.5 * (points[..., 2] - 0.8) ** 2

    centre = np.array([[0.5, 0.5, 0.5], [0.9, 0.1, 0.2]])
    unknown = (centre, np.full(2, np.inf))
    found = []
    for kind in (CmaEs, BatchedCmaEs):
        points, costs = minimise(cost, kind(centre, 8, 0), unknown, rounds=60)
        assert costs.max() < 1e-8
        found.append(points)
    assert np.abs(found[0] - found[1]).max() < 1e-3
    alone, _ = minimise(
        cost, BatchedCmaEs(centre[1:], 8, 0), (centre[1:], unknown[1][1:]), rounds=60
    )
    assert np.array_equal(alone[0], found[1][1])


def test_a_table_read_by_compiled_code_is_that_of_torch():
    rng = np.random.default_rng(0)
    table = SplineTable([0.0, -1.0, 2.0], [1.0, 1.0, 3.0], rng.normal(size=(6, 7, 5, 4)))
    x = rng.uniform([-0.2, -1.2, 1.9], [1.2, 1.2, 3.1], (300, 3))
    expected = table(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(table.read(x), expected, atol=1e-12)
    np.testing.assert_allclose(table.read(x, slice(1, 3)), expected[:, 1:3], atol=1e-12)


def test_a_compressed_network_stands_for_its_ensemble(tmp_path):
    model = distilled_model(Scene.load("square"))
    untrained = compress(model, config=CompressionConfig(strikes=2000, steps=1))
    small = compress(model, config=CompressionConfig(strikes=10_000, steps=300))
    error = compression_error(small, model, strikes=2000)
    assert error.median < 0.1 < compression_error(untrained, model, strikes=2000).median
    assert error.float32 < 1e-5
    x = torch.rand(5, model.net.shape["inputs"])
    assert small.net(x).shape == model.net(x).shape
    path = tmp_path / "small.safetensors"
    path.write_bytes(base_bytes(small))
    assert torch.equal(load_base(model.scene, path).net(x), small.net(x))
