"""Planning: planted optima, targets out of reach, limits, gradients, and many targets at once."""

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
from clashsim.fit.base import base_model
from clashsim.nets.strike_table import StrikeTable
from clashsim.optim.search import Cem, CmaEs, minimise, scatter
from clashsim.plan.planner import (
    _Problem,
    plan,
    plan_batch,
    plan_fewest_strikes,
    plan_fewest_strikes_batch,
)
from clashsim.plan.tasks import PlanningTask, PlanStatus, Reach, breach, loss, pose_error
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.slides.law import SlideModel


@pytest.fixture(scope="module")
def square() -> StrikeTable:
    scene = Scene.load("square")
    return strike_table(
        HybridSim(
            scene,
            base_model(scene),
            scene.nominal,
            slide_model=SlideModel({"friction": 0.3}, gyration=0.0289, delay=0.01),
        )
    )


def planted(model: StrikeTable, n: int, seed: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """Strikes and where they lead; by another seed than the searches have, or the first points that
    they scatter would be these.
    """
    strike = np.random.default_rng(seed).uniform(model.low, model.high, (n, 3))
    return strike, model.rest(np.zeros((n, 3)), strike)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("method", ["cmaes", "cem", "gradient"])
def test_planted_targets_are_found(square, method, device):
    _, targets = planted(square, 40)
    options = (
        {"method": method}
        if device is None
        else {"method": method, "device": device, "population": 96, "rounds": 48}
    )
    plans = plan_batch(square, [PlanningTask(tuple(t)) for t in targets], **options)
    far, turn = pose_error(np.array([p.predicted[-1] for p in plans]), targets)
    assert (
        np.mean([p.status is PlanStatus.FOUND for p in plans]) >= 0.9
    )  # one in twenty lies in a narrow valley
    assert np.median(far) < 2e-3 and np.median(np.abs(turn)) < 0.01
    again = plan_batch(square, [PlanningTask(tuple(t)) for t in targets], **options)
    assert all(np.array_equal(a.strikes, b.strikes) for a, b in zip(plans, again, strict=True))
    alone = plan(square, PlanningTask(tuple(targets[3])), **options)
    np.testing.assert_allclose(
        alone.strikes, plans[3].strikes, atol=1e-6 if device is None else 1e-3
    )  # what is planned beside it does not matter


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(0, 10_000))
def test_searchers_find_planted_minima(d, seed):
    middle = np.random.default_rng(seed).uniform(0.1, 0.9, (2, d))

    def cost(x: np.ndarray) -> np.ndarray:
        return ((x - middle[:, None]) ** 2).sum(-1)

    for kind in (CmaEs, Cem):
        x, y = scatter(cost, 2, d, points=40, seed=seed)
        best, value = minimise(cost, kind(x[:, 0], 24, seed), (x[:, 0], y[:, 0]), rounds=40)
        assert (value <= y[:, 0]).all() and np.abs(best - middle).max() < 0.02


@pytest.mark.parametrize("device", [None, "cpu"])
def test_hardly_any_target_that_can_be_reached_is_given_up(square, device):
    _, targets = planted(square, 100, seed=3)
    assert (
        np.mean(
            [
                p.status is PlanStatus.FOUND
                for p in plan_batch(
                    square, [PlanningTask(tuple(t)) for t in targets], device=device
                )
            ]
        )
        >= 0.93
    )  # one in twenty lies in a narrow valley


def test_fewer_strikes_that_leave_the_reach_are_not_preferred(square):
    reach = Reach(workspace=(-0.05, 0.05, -0.05, 0.05))
    for target in ((0.0, 0.2, 0.0), (0.15, 0.0, 1.0)):
        told = plan_fewest_strikes(square, PlanningTask(target, reach=reach), method="cem")
        assert told.status is PlanStatus.OUT_OF_REACH and not told.breached


def test_many_tasks_take_as_few_strikes_each_as_one_alone_does(square):
    tasks = [PlanningTask((*t[:2], float(t[2]))) for t in planted(square, 3)[1]] + [
        PlanningTask((0.0, 0.25, 0.3)),
        PlanningTask((0.9, 0.9, 0.0)),
    ]
    together, alone = (
        plan_fewest_strikes_batch(square, tasks, method="cem"),
        [plan_fewest_strikes(square, t, method="cem") for t in tasks],
    )
    assert [len(p.strikes) for p in together] == [len(p.strikes) for p in alone] and [
        p.status for p in together
    ] == [p.status for p in alone]
    assert {len(p.strikes) for p in together if p.status is PlanStatus.FOUND} >= {
        1,
        2,
    } and together[-1].status is PlanStatus.OUT_OF_REACH


def test_a_target_out_of_reach_says_so(square):
    told = plan(square, PlanningTask((0.9, 0.0, 0.0)))
    assert (
        told.status is PlanStatus.OUT_OF_REACH
        and "one strike" in told.reason
        and "mm" in told.reason
    )


def test_two_strikes_go_where_one_cannot(square):
    task = PlanningTask((0.0, 0.25, 0.0))
    assert plan(square, task).status is PlanStatus.OUT_OF_REACH
    few = plan_fewest_strikes(square, task, method="cem")
    assert few.status is PlanStatus.FOUND and len(few.strikes) == 2
    pose = np.zeros((1, 3))
    for strike, expected in zip(few.strikes, few.predicted, strict=True):
        pose = square.rest(pose, strike[None])
        np.testing.assert_allclose(pose[0], expected)


def test_the_arms_reach_is_kept(square):
    strike, targets = planted(square, 400, seed=1)
    fair = (
        (strike[:, 0] > 0.3) & (strike[:, 0] < 0.5) & (np.abs(strike[:, 1]) < 1.3)
    )  # struck from the right, at speeds the arm has
    targets = targets[fair][:12]
    reach = Reach(
        speed=(0.3, 0.5), bearing=(-np.pi / 2, np.pi / 2), workspace=(-0.2, 0.001, -0.06, 0.06)
    )
    plans = plan_batch(square, [PlanningTask(tuple(t), reach=reach) for t in targets])
    found = [p for p in plans if p.status is PlanStatus.FOUND]
    assert len(found) >= 8
    for p in found:
        speed, point, _ = p.strikes[0]
        assert 0.3 <= speed <= 0.5 and abs(point) <= np.pi / 2 + 1e-3
        assert -0.2 - 1e-3 <= p.predicted[-1, 0] <= 0.002 and abs(p.predicted[-1, 1]) <= 0.061
    walled = PlanningTask(tuple(targets[0]), reach=Reach(workspace=(0.5, 0.6, 0.5, 0.6)))
    assert "reach" in plan(square, walled).reason
    with pytest.raises(ClashError, match="model knows"):
        plan(square, PlanningTask(tuple(targets[0]), reach=Reach(speed=(2.0, 3.0))))


@settings(max_examples=50, deadline=None)
@given(st.floats(-10, 10), st.floats(-10, 10))
def test_angles_are_wrapped(a, b):
    _, turn = pose_error(np.array([0.0, 0, a]), np.array([0.0, 0, b]))
    assert abs(turn) <= np.pi + 1e-9 and np.isclose(np.cos(turn), np.cos(a - b))
    assert loss(np.array([0.3, 0.4, a]), np.array([0.0, 0, a + 2 * np.pi]), 0.01) == pytest.approx(
        0.25
    )


def test_costs_of_arrays_and_tensors_agree_and_differentiate(square):
    tasks = [
        PlanningTask(
            (0.05, 0.02, 0.3),
            strikes=2,
            reach=Reach(bearing=(0.0, 2.0), workspace=(-0.01, 0.02, -0.01, 0.02)),
        )
    ]
    problem = _Problem(square, tasks, draws=4, seed=0)
    x = np.random.default_rng(0).uniform(0.05, 0.95, (1, 5, 6))
    np.testing.assert_allclose(problem.torch_cost(torch.as_tensor(x)).numpy(), problem.cost(x))
    assert torch.autograd.gradcheck(
        problem.torch_cost, torch.as_tensor(x).requires_grad_(True), eps=1e-6, atol=1e-4
    )


def test_leaving_the_reach_costs_and_staying_does_not():
    reach, names = (
        Reach(bearing=(3.0, -3.0), workspace=(0.0, 1.0, 0.0, 1.0)),
        ("speed", "point", "deflection"),
    )
    start, strike = np.zeros((3, 3)), np.array([[0.5, np.pi, 0], [0.5, 0.0, 0], [0.5, -3.1, 0]])
    end = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [1.5, 0.5, 0]])
    inside, wrong_side, outside = breach(reach, names, start, strike, end)
    assert inside == 0 and wrong_side > 0 and outside > 0


def test_doubt_makes_plans_careful(square):
    tasks = [PlanningTask(tuple(t)) for t in planted(square, 6, seed=2)[1]]
    doubtful = _Problem(square, tasks, draws=16, seed=0)
    costs = []
    for draws in (0, 16):
        plans = plan_batch(square, tasks, draws=draws, rounds=60)
        assert all(p.std.min() > 0 for p in plans)
        points = (np.array([p.strikes[0] for p in plans]) - square.low) / (square.high - square.low)
        costs.append(doubtful.cost(points[:, None])[:, 0])
    assert costs[1].mean() <= costs[0].mean() * (
        1 + 1e-3
    )  # what is minimised with draws is the mean over them


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
        names, low, high, takes_noise = (
            tuple(strike_ranges(Scene.load("square"))),
            square.low,
            square.high,
            False,
        )

        def rest(self, pose, strike, noise=None):
            return pose

    with pytest.raises(ClashError, match="no gradient"):
        plan(Still(), one, method="gradient")
    assert plan(Still(), one).status is PlanStatus.OUT_OF_REACH


def test_a_plan_travels_as_json_and_as_paths(square, tmp_path):
    from clashsim.plan.execution import plan_from_json, plan_to_dict, tip_paths, touches
    from clashsim.plan.path import Limits, write_path

    scene = Scene.load("square")
    made = plan_fewest_strikes(
        square,
        PlanningTask((0.0, 0.25, 0.3), start=(0.1, 0.05, 0.2), reach=Reach(speed=(0.2, 0.7))),
        method="cem",
    )
    text = json.dumps(plan_to_dict(made, scene))
    again = plan_from_json(text)
    assert again.task == made.task and again.names == made.names and again.status is made.status
    for name in ("strikes", "predicted", "spread"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    limits = Limits(speed=0.8)
    for path, touch in zip(tip_paths(scene, made, limits), touches(scene, made), strict=True):
        i = int(np.argmin(np.abs(path.t - path.touch_time)))
        np.testing.assert_allclose(path.position[i, :2], touch[:2], atol=1e-9)
        np.testing.assert_allclose(path.velocity[i, :2], touch[3:5], atol=1e-9)
        assert path.position[i, 2] == pytest.approx(scene.striker_body.position[2])
        along = (path.position[:, :2] - touch[:2]) @ touch[3:5] / np.linalg.norm(touch[3:5])
        assert (
            along.max() < 0.002 + np.linalg.norm(touch[3:5]) ** 2 / 10 + 0.01
        )  # no farther after the touch than it takes to brake
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
    assert (
        edges[:, 0] * np.roll(edges, -1, 0)[:, 1] - edges[:, 1] * np.roll(edges, -1, 0)[:, 0]
        > -1e-12
    ).all()  # convex, counter-clockwise
    if not scene.striker_body.fixed:
        ranges = strike_ranges(scene)
        low, high = np.array(list(ranges.values())).T
        strike = np.random.default_rng(0).uniform(low, high, (32, len(ranges)))
        before, contact = before_from_strikes(scene, dict(zip(ranges, strike.T, strict=True)))
        c, s = np.cos(before[:, 2]), np.sin(before[:, 2])
        arm = contact.point - before[:, :2]
        own = np.stack([c * arm[:, 0] + s * arm[:, 1], c * arm[:, 1] - s * arm[:, 0]], 1)
        sides = (
            edges[None, :, 0] * (own[:, None, 1] - corners[None, :, 1])
            - edges[None, :, 1] * (own[:, None, 0] - corners[None, :, 0])
        ) / np.linalg.norm(edges, axis=1)
        assert np.abs(sides.min(1)).max() < 2e-3  # the touch lies on the outline


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
    num_paths = (tmp_path / "plan.svg").read_text().count("<path")
    assert num_paths > 12  # outlines, arrows, ellipse and axes
