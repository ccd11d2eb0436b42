"""Planners of pushes and throws, and policies trained through the strike table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="training needs Stable-Baselines3, the extra rl")

from clashsim.bench import policy_gradients, push_to_stop
from clashsim.bench.options import BenchOptions
from clashsim.bench.push_to_stop import CLOSE
from clashsim.bench.velocity_planning import (
    descend_by_differences,
    descend_by_gradient,
    search_by_cmaes,
)
from clashsim.bench.velocity_tasks import (
    TASKS,
    GraphPlanning,
    MujocoPlanning,
    VelocityProblem,
    distances,
    make_problem,
)
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.rl.analytic_policy import AnalyticConfig, AnalyticLearner, soft_outcome
from clashsim.rl.corridor_formulas import StartDistribution
from clashsim.rl.device_env import DevicePush, play_episodes
from clashsim.rl.push import heading_offset_of
from clashsim.rl.routes import GOAL_RADIUS, SEGMENT_LENGTH

SCENE = Scene.load("semi_cylinder")


class Bowl:
    """A simulator whose pose is a known linear function of the velocity."""

    def __init__(self, problem: VelocityProblem) -> None:
        self.problem = problem
        self.matrix = np.array([[0.4, 0.1, 0.0], [0.0, 0.3, 0.2]])

    def residuals(self, velocity):
        return self.problem.residuals(velocity @ self.matrix.T)

    def residuals_with_jacobian(self, velocity):
        jacobian = np.broadcast_to(self.matrix, (len(velocity), 2, 3))
        return self.residuals(velocity), self.problem.residual_jacobian(velocity, jacobian)


def bowl(count: int = 6) -> Bowl:
    task = TASKS["throw"]
    rng = np.random.default_rng(0)
    hidden = task.draw(count, rng)
    first = task.draw(count, rng)
    problem = VelocityProblem(task, np.zeros((count, 13)), np.zeros((count, 2)), first)
    target = hidden @ Bowl(problem).matrix.T
    return Bowl(replace(problem, target=target))


@pytest.mark.parametrize(
    "plan, budget",
    [(descend_by_gradient, 10), (descend_by_differences, 40), (search_by_cmaes, 300)],
)
def test_planners_find_a_known_velocity(plan, budget):
    simulator = bowl()
    iterates = plan(simulator, simulator.problem, budget)
    history = np.array([iterate.distance for iterate in iterates])
    assert (np.diff(history, axis=0) <= 0).all()  # the last iterate is the best
    assert iterates[-1].evaluations <= budget
    assert history[-1].max() < 1e-3
    simulated = distances(simulator.residuals(iterates[-1].velocity))
    np.testing.assert_allclose(simulated, history[-1], atol=1e-12)


def test_targets_can_be_reached_and_no_start_has_solved_them():
    task = replace(TASKS["throw"], frames=16)
    problem = make_problem(task, 12, seed=0)
    for simulator in (MujocoPlanning(problem), GraphPlanning(problem)):
        assert (distances(simulator.residuals(problem.first)) >= CLOSE).all()
    hidden = np.random.default_rng(0)
    task.at_rest(12, hidden)
    velocity = task.draw(12, hidden)
    assert distances(MujocoPlanning(problem).residuals(velocity)).max() < 1e-9
    with pytest.raises(DataError, match="throw has scenes that every first velocity solves"):
        make_problem(replace(task, frames=1), 2, seed=0)


def test_gradients_of_a_throw_agree_with_finite_differences():
    problem = make_problem(replace(TASKS["throw"], frames=20), 3, seed=1)
    simulator = GraphPlanning(problem)
    _, jacobian = simulator.residuals_with_jacobian(problem.first)
    step = 1e-4 * np.eye(3)[0]
    above = simulator.residuals(problem.first + step)
    below = simulator.residuals(problem.first - step)
    difference = (above - below) / 2e-4
    assert np.abs(jacobian[:, :, 0] - difference).max() < 0.02 * np.abs(difference).max()


def test_a_distance_of_a_push_is_that_of_the_upright_edges():
    problem = make_problem(replace(TASKS["push"], frames=12), 2, seed=0)
    error = np.array([[0.01, 0.0, 0.3], [0.0, 0.0, 0.0]])
    half = push_to_stop.CUBE.half[0]
    edges = half * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    rotation = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    moved = edges @ rotation.T + [0.01, 0.0]
    upright = replace(problem, target=np.zeros((2, 3)))
    by_hand = np.sqrt(((moved - edges) ** 2).sum(1).mean())
    np.testing.assert_allclose(distances(upright.residuals(error)), [by_hand, 0.0])


def test_the_bench_has_a_row_per_method_and_task():
    rows = push_to_stop.run(BenchOptions(quick=True, sets=["throw"]))
    assert rows[0]["what"] == "gradient" and rows[0]["of"] == 2
    assert [row["method"] for row in rows[1:]] == list(push_to_stop.PLANNERS)
    assert all(0 <= row["within"] <= 1 and row["of"] == 2 for row in rows[1:])


class Toy(torch.nn.Module):
    """A strike model that is known exactly: the body slides along its heading."""

    names = ("speed", "point", "deflection")
    takes_noise = False
    low = np.array([0.2, 0.26, -0.26])
    high = np.array([0.9, 2.88, 0.26])

    def forward(self, pose, strike, noise=None):
        off_centre = strike[:, 1] - np.pi / 2
        heading = pose[:, 2] + heading_offset_of(SCENE) + 0.5 * off_centre
        way = 0.3 * strike[:, 0] ** 2
        moved = [way * torch.cos(heading), way * torch.sin(heading), 0.4 * off_centre]
        return pose + torch.stack(moved, 1)


def test_a_policy_is_learned_through_the_model():
    config = AnalyticConfig(steps=6000, width=64, noise=0.0)
    task = DevicePush.of(SCENE, Toy(), config.num_envs, starts=config.starts)
    learner = AnalyticLearner(task, config)
    test = DevicePush.of(SCENE, Toy(), 512, starts=StartDistribution(), seed=1)
    before = float(play_episodes(test, learner.act)[0].double().mean())
    for _ in range(config.rounds):
        learner.train_round()
    after = float(play_episodes(test, learner.act)[0].double().mean())
    assert before < 0.5 and after > 0.9


def test_smooth_outcomes_approach_those_of_the_task():
    task = DevicePush.of(SCENE, Toy(), 3)
    offset = task.heading_offset
    task.pose = torch.tensor(
        [[SEGMENT_LENGTH, 0.0, -offset], [0.1, 0.0, -offset], [0.1, 0.2, -offset]]
    )
    task.strikes_made = torch.ones(3)
    exact = task.arrive(task.pose)
    soft = soft_outcome(task, GOAL_RADIUS / 100)
    np.testing.assert_allclose(soft.reward, exact.reward, atol=1e-5)
    np.testing.assert_allclose(soft.going_on, ~exact.ended, atol=1e-5)


def test_strikes_until_success_have_a_row_per_method_and_seed():
    rows = policy_gradients.run(BenchOptions(quick=True, methods=["analytic", "ppo"]))
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("analytic", 0),
        ("ppo", 0),
        ("analytic", "all"),
        ("ppo", "all"),
    ]
    assert all(row["strikes"] is None or row["reached"] >= 0.99 for row in rows)


def test_a_training_without_success_counts_as_the_longest():
    head = {"method": "ppo", "limit": 100, "reached": 1.0, "seconds": 1.0}
    rows = [head | {"strikes": n, "evaluations": n} for n in (10, 30, None)]
    (total,) = policy_gradients._over_seeds(rows)
    assert total["strikes"] == 30 and total["succeeded"] == 2 and total["of"] == 3
    (total,) = policy_gradients._over_seeds([*rows, rows[2], rows[2]])
    assert total["strikes"] is None
