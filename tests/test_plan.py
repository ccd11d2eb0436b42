"""Planning: planted optima, targets out of reach, limits, gradients, and batches of targets."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clashsim.core.errors import ClashError
from clashsim.core.outline import outline
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, strike_ranges
from clashsim.fit.base import distilled_model
from clashsim.nets.strike_table import StrikeTable
from clashsim.optim.search import Cem, CmaEs, evaluate_random_points, minimise
from clashsim.plan.batch_cost import BatchCost, NoiseSamples
from clashsim.plan.execution import plan_from_json, plan_to_dict, tip_paths, touches
from clashsim.plan.path import Limits
from clashsim.plan.planner import (
    PlannerConfig,
    plan,
    plan_batch,
    plan_fewest_strikes,
    plan_fewest_strikes_batch,
)
from clashsim.plan.robot_files import write_path
from clashsim.plan.tasks import (
    PlanningTask,
    PlanStatus,
    Reach,
    pose_error,
    pose_loss,
    reach_penalty,
)
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.law import SlideModel

CEM = PlannerConfig(method="cem")


@pytest.fixture(scope="module")
def square() -> StrikeTable:
    scene = Scene.load("square")
    slide_model = SlideModel({"friction": 0.3}, gyration=0.0289, delay=0.01)
    return strike_table(
        HybridSim(scene, distilled_model(scene), scene.nominal, slide_model=slide_model)
    )


def planted(model: StrikeTable, n: int, seed: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """Return strikes (n, 3) and the poses (n, 3) they lead to.

    The seed differs from those of the searches, or the points they scatter first would be these.
    """
    strikes = np.random.default_rng(seed).uniform(model.low, model.high, (n, 3))
    return strikes, model.rest(np.zeros((n, 3)), strikes)


def tasks_for(targets: np.ndarray, **options) -> list[PlanningTask]:
    """Return a task for each target (N, 3)."""
    return [PlanningTask(tuple(target), **options) for target in targets]


def share_found(plans) -> float:
    """Return the share of plans that reach their target."""
    return float(np.mean([p.status is PlanStatus.FOUND for p in plans]))


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("method", ["cmaes", "cem", "gradient"])
def test_planted_targets_are_found(square, method, device):
    _, targets = planted(square, 40)
    config = PlannerConfig(method=method)
    if device is not None:
        config = PlannerConfig(method=method, device=device, population=96, rounds=48)
    plans = plan_batch(square, tasks_for(targets), config)
    distance, angle = pose_error(np.array([p.predicted[-1] for p in plans]), targets)
    assert share_found(plans) >= 0.9  # one in twenty lies in a narrow valley
    assert np.median(distance) < 2e-3 and np.median(np.abs(angle)) < 0.01
    again = plan_batch(square, tasks_for(targets), config)
    assert all(np.array_equal(a.strikes, b.strikes) for a, b in zip(plans, again, strict=True))
    # What else is in the batch does not matter.
    alone = plan(square, PlanningTask(tuple(targets[3])), config)
    tolerance = 1e-6 if device is None else 1e-3
    np.testing.assert_allclose(alone.strikes, plans[3].strikes, atol=tolerance)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(0, 10_000))
def test_searchers_find_planted_minima(d, seed):
    middle = np.random.default_rng(seed).uniform(0.1, 0.9, (2, d))

    def cost(points: np.ndarray) -> np.ndarray:
        return ((points - middle[:, None]) ** 2).sum(-1)

    for kind in (CmaEs, Cem):
        points, costs = evaluate_random_points(cost, 2, d, points=40, seed=seed)
        first = (points[:, 0], costs[:, 0])
        best, value = minimise(cost, kind(points[:, 0], 24, seed), first, rounds=40)
        assert (value <= costs[:, 0]).all() and np.abs(best - middle).max() < 0.02


@pytest.mark.parametrize("device", [None, "cpu"])
def test_hardly_any_target_that_can_be_reached_is_given_up(square, device):
    _, targets = planted(square, 100, seed=3)
    plans = plan_batch(square, tasks_for(targets), PlannerConfig(device=device))
    assert share_found(plans) >= 0.93  # one in twenty lies in a narrow valley


def test_fewer_strikes_that_leave_the_reach_are_not_preferred(square):
    reach = Reach(workspace=(-0.05, 0.05, -0.05, 0.05))
    for target in ((0.0, 0.2, 0.0), (0.15, 0.0, 1.0)):
        found = plan_fewest_strikes(square, PlanningTask(target, reach=reach), CEM)
        assert found.status is PlanStatus.OUT_OF_REACH and not found.leaves_reach


def test_a_batch_takes_as_few_strikes_as_each_task_alone(square):
    tasks = [
        *tasks_for(planted(square, 3)[1]),
        PlanningTask((0.0, 0.25, 0.3)),
        PlanningTask((0.9, 0.9, 0.0)),
    ]
    together = plan_fewest_strikes_batch(square, tasks, CEM)
    alone = [plan_fewest_strikes(square, task, CEM) for task in tasks]
    assert [len(p.strikes) for p in together] == [len(p.strikes) for p in alone]
    assert [p.status for p in together] == [p.status for p in alone]
    counts_found = {len(p.strikes) for p in together if p.status is PlanStatus.FOUND}
    assert counts_found >= {1, 2}
    assert together[-1].status is PlanStatus.OUT_OF_REACH


def test_a_target_out_of_reach_says_so(square):
    found = plan(square, PlanningTask((0.9, 0.0, 0.0)))
    assert found.status is PlanStatus.OUT_OF_REACH
    assert "one strike" in found.reason and "mm" in found.reason


def test_two_strikes_go_where_one_cannot(square):
    task = PlanningTask((0.0, 0.25, 0.0))
    assert plan(square, task).status is PlanStatus.OUT_OF_REACH
    found = plan_fewest_strikes(square, task, CEM)
    assert found.status is PlanStatus.FOUND and len(found.strikes) == 2
    pose = np.zeros((1, 3))
    for strike, expected in zip(found.strikes, found.predicted, strict=True):
        pose = square.rest(pose, strike[None])
        np.testing.assert_allclose(pose[0], expected)


def test_the_arms_reach_is_kept(square):
    strikes, targets = planted(square, 400, seed=1)
    speed, point = strikes[:, 0], strikes[:, 1]
    # Struck from the right, at speeds the arm has.
    is_possible = (speed > 0.3) & (speed < 0.5) & (np.abs(point) < 1.3)
    targets = targets[is_possible][:12]
    reach = Reach(
        speed=(0.3, 0.5), bearing=(-np.pi / 2, np.pi / 2), workspace=(-0.2, 0.001, -0.06, 0.06)
    )
    plans = plan_batch(square, tasks_for(targets, reach=reach))
    found = [p for p in plans if p.status is PlanStatus.FOUND]
    assert len(found) >= 8
    for p in found:
        speed, point, _ = p.strikes[0]
        assert 0.3 <= speed <= 0.5 and abs(point) <= np.pi / 2 + 1e-3
        assert -0.2 - 1e-3 <= p.predicted[-1, 0] <= 0.002 and abs(p.predicted[-1, 1]) <= 0.061
    elsewhere = Reach(workspace=(0.5, 0.6, 0.5, 0.6))
    assert "reach" in plan(square, PlanningTask(tuple(targets[0]), reach=elsewhere)).reason
    with pytest.raises(ClashError, match="model knows"):
        plan(square, PlanningTask(tuple(targets[0]), reach=Reach(speed=(2.0, 3.0))))


@settings(max_examples=50, deadline=None)
@given(st.floats(-10, 10), st.floats(-10, 10))
def test_angles_are_wrapped(a, b):
    _, angle = pose_error(np.array([0.0, 0, a]), np.array([0.0, 0, b]))
    assert abs(angle) <= np.pi + 1e-9 and np.isclose(np.cos(angle), np.cos(a - b))
    a_revolution_on = np.array([0.0, 0, a + 2 * np.pi])
    assert pose_loss(np.array([0.3, 0.4, a]), a_revolution_on, 0.01) == pytest.approx(0.25)


def test_costs_of_arrays_and_tensors_agree_and_differentiate(square):
    reach = Reach(bearing=(0.0, 2.0), workspace=(-0.01, 0.02, -0.01, 0.02))
    tasks = [PlanningTask((0.05, 0.02, 0.3), strikes=2, reach=reach)]
    batch = BatchCost(square, tasks, samples=NoiseSamples(cost=4), seed=0)
    points = np.random.default_rng(0).uniform(0.05, 0.95, (1, 5, 6))
    np.testing.assert_allclose(
        batch.torch_cost(torch.as_tensor(points)).numpy(), batch.cost(points)
    )
    assert torch.autograd.gradcheck(
        batch.torch_cost, torch.as_tensor(points).requires_grad_(True), eps=1e-6, atol=1e-4
    )


def test_leaving_the_reach_costs_and_staying_does_not():
    reach = Reach(bearing=(3.0, -3.0), workspace=(0.0, 1.0, 0.0, 1.0))
    names = ("speed", "point", "deflection")
    start = np.zeros((3, 3))
    strike = np.array([[0.5, np.pi, 0], [0.5, 0.0, 0], [0.5, -3.1, 0]])
    end = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [1.5, 0.5, 0]])
    inside, wrong_side, outside = reach_penalty(reach, names, start=start, strike=strike, end=end)
    assert inside == 0 and wrong_side > 0 and outside > 0


def test_noise_makes_plans_careful(square):
    tasks = tasks_for(planted(square, 6, seed=2)[1])
    noisy = BatchCost(square, tasks, samples=NoiseSamples(cost=16), seed=0)
    costs = []
    for noise_samples in (0, 16):
        plans = plan_batch(square, tasks, PlannerConfig(noise_samples=noise_samples, rounds=60))
        assert all(p.std.min() > 0 for p in plans)
        points = (np.array([p.strikes[0] for p in plans]) - square.low) / (square.high - square.low)
        costs.append(noisy.cost(points[:, None])[:, 0])
    # What is minimised with noise is the mean over its samples.
    assert costs[1].mean() <= costs[0].mean() * (1 + 1e-3)


def test_bad_tasks_are_refused(square):
    for bad in (
        {"target": (1e308, 0.0, 0.0)},
        {"tau": np.inf},
        {"tolerance": (0.1, 0.1, 0.1)},
        {"target": (0.0, np.nan, 0.0)},
        {"target": (0.0, 0.0)},
        {"strikes": 0},
        {"tau": -1.0},
        {"tolerance": (0.0, 1.0)},
    ):
        with pytest.raises(ClashError):
            PlanningTask(**({"target": (0.0, 0.0, 0.0)} | bad))
    for limits in ({"speed": (0.5,)}, {"bearing": (1.0, 1.0)}, {"workspace": (0.0, 1.0)}):
        with pytest.raises(ClashError):
            Reach(**limits)
    with pytest.raises(ClashError, match="low first"):
        Reach(speed=(0.5, 0.2))
    one = PlanningTask((0.1, 0.0, 0.0))
    with pytest.raises(ClashError, match="same number"):
        plan_batch(square, [one, replace(one, strikes=2)])

    class Still:
        """A model in which no strike moves the body."""

        names = tuple(strike_ranges(Scene.load("square")))
        low = square.low
        high = square.high
        takes_noise = False

        def rest(self, pose, strike, noise=None):
            return pose

    with pytest.raises(ClashError, match="no gradient"):
        plan(Still(), one, PlannerConfig(method="gradient"))
    assert plan(Still(), one).status is PlanStatus.OUT_OF_REACH


def test_a_plan_travels_as_json_and_as_paths(square, tmp_path):
    scene = Scene.load("square")
    task = PlanningTask((0.0, 0.25, 0.3), start=(0.1, 0.05, 0.2), reach=Reach(speed=(0.2, 0.7)))
    planned = plan_fewest_strikes(square, task, CEM)
    text = json.dumps(plan_to_dict(planned, scene))
    again = plan_from_json(text)
    assert again.task == planned.task and again.names == planned.names
    assert again.status is planned.status
    for name in ("strikes", "predicted", "std"):
        np.testing.assert_array_equal(getattr(again, name), getattr(planned, name))
    paths = tip_paths(scene, planned, Limits(speed=0.8))
    for path, touch in zip(paths, touches(scene, planned), strict=True):
        position, velocity = touch[:2], touch[3:5]
        row = int(np.argmin(np.abs(path.t - path.touch_time)))
        np.testing.assert_allclose(path.position[row, :2], position, atol=1e-9)
        np.testing.assert_allclose(path.velocity[row, :2], velocity, atol=1e-9)
        assert path.position[row, 2] == pytest.approx(scene.striker_body.position[2])
        speed = np.linalg.norm(velocity)
        along = (path.position[:, :2] - position) @ velocity / speed
        # No farther after the contact than it takes to brake.
        assert along.max() < 0.002 + speed**2 / 10 + 0.01
    write_path(path, tmp_path / "path.csv")
    for bad in (
        "{}",
        "[]",
        "no json",
        "[" * 100_000,
        text.replace('"evaluations": ', '"evaluations": 1e400, "was": '),
        text.replace('"status": "found"', '"status": "perhaps"'),
        text.replace('"to":', '"too":'),
    ):
        with pytest.raises(ClashError, match="no plan"):
            plan_from_json(bad)


@pytest.mark.parametrize(
    "name", ["semi_cylinder", "square", "triangle", "plate", "ellipse", "puck"]
)
def test_outlines_enclose_what_touches(name):
    scene = Scene.load(name)
    corners = outline(scene, scene.struck, scene.struck_body)
    edges = np.roll(corners, -1, 0) - corners
    next_edges = np.roll(edges, -1, 0)
    cross = edges[:, 0] * next_edges[:, 1] - edges[:, 1] * next_edges[:, 0]
    assert (cross > -1e-12).all()  # convex, counter-clockwise
    if not scene.striker_body.fixed:
        ranges = strike_ranges(scene)
        low, high = np.array(list(ranges.values())).T
        strike = np.random.default_rng(0).uniform(low, high, (32, len(ranges)))
        before, contact = before_from_strikes(scene, dict(zip(ranges, strike.T, strict=True)))
        cos, sin = np.cos(before[:, 2]), np.sin(before[:, 2])
        x, y = (contact.point - before[:, :2]).T
        point_in_body_frame = np.stack([cos * x + sin * y, cos * y - sin * x], 1)
        from_corner = point_in_body_frame[:, None] - corners[None]
        distance_to_edge = (
            edges[None, :, 0] * from_corner[..., 1] - edges[None, :, 1] * from_corner[..., 0]
        ) / np.linalg.norm(edges, axis=1)
        assert np.abs(distance_to_edge.min(1)).max() < 2e-3  # the contact lies on the outline


def test_a_picture_of_a_plan_is_drawn(tmp_path):
    from clashsim.report.plan_picture import PlanPicture, draw_plan

    ring = np.stack([np.cos(np.linspace(0, 6, 20)), np.sin(np.linspace(0, 6, 20))], 1)
    picture = PlanPicture(
        body=0.05 * ring,
        tip=0.01 * ring,
        starts=np.zeros((2, 3)),
        touches=np.ones((2, 6)) * 0.05,
        predicted=np.full((2, 3), 0.1),
        target=np.array([0.1, 0.1, 0.0]),
        std=np.array([0.004, 0.002, 0.1]),
        outcomes=np.zeros((3, 3)),
        title="a plan",
    )
    draw_plan(tmp_path / "plan.svg", picture)
    # Outlines, arrows, ellipse and axes.
    assert (tmp_path / "plan.svg").read_text().count("<path") > 12
