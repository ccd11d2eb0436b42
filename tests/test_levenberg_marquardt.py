"""Levenberg-Marquardt: known optima, robustness to failures, and eliminated blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from clashsim.optim.levenberg_marquardt import (
    BatchDamping,
    BatchModel,
    BatchStopping,
    DescentSchedule,
    descend,
    descend_batch,
    levenberg_marquardt,
)
from clashsim.optim.normal_equations import eliminate_blocks, huber_cost, huber_weights

SCHEDULE = DescentSchedule(absolute_tolerance=1e-14)


def rosenbrock(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residuals and Jacobian of Rosenbrock's function, whose minimum is (1, 1)."""
    x, y = points.T
    residual = np.stack([1 - x, 10 * (y - x**2)], 1)
    jacobian = np.zeros((len(points), 2, 2))
    jacobian[:, 0, 0] = -1
    jacobian[:, 1, 0] = -20 * x
    jacobian[:, 1, 1] = 10
    return residual, jacobian


@pytest.mark.parametrize("scaling", ["diagonal", "identity"])
def test_all_starts_find_the_minimum(scaling) -> None:
    starts = np.array([[-1.2, 1.0], [2.0, -1.0], [0.0, 0.0]])
    damping = BatchDamping(scaling=scaling)
    found = levenberg_marquardt(rosenbrock, starts, low=-3.0, high=3.0, steps=80, damping=damping)
    assert np.allclose(found.points, 1.0, atol=1e-6)
    assert (np.diff(found.trace, axis=0) <= 0).all()
    residual, jacobian = rosenbrock(found.points)
    assert np.allclose(found.residual, residual, rtol=1e-12, atol=1e-12)
    assert np.allclose(found.jacobian, jacobian, rtol=1e-12, atol=1e-12)


def test_bounds_hold_and_a_point_that_is_not_finite_is_never_taken() -> None:
    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual = np.where(points > 0.8, np.nan, points - 2.0)
        return residual, np.ones((len(points), 1, 1))

    found = levenberg_marquardt(evaluate, np.array([[0.0], [0.9]]), steps=40)
    assert 0.7 < found.points[0, 0] <= 0.8
    assert found.points[1, 0] == 0.9 and np.isinf(found.loss[1])  # there is nothing to go by


def test_a_descent_ends_when_it_stalls_or_when_steps_are_short() -> None:
    start = np.array([[-1.2, 1.0]])
    stalled = levenberg_marquardt(rosenbrock, start, low=-3.0, high=3.0, steps=500, tolerance=1e-3)
    assert len(stalled.trace) < 100

    def linearise(points: np.ndarray) -> BatchModel:
        residual, jacobian = rosenbrock(points)
        transposed = jacobian.transpose(0, 2, 1)
        gradient = (transposed @ residual[..., None])[..., 0]
        return BatchModel((residual**2).sum(1), transposed @ jacobian, gradient)

    stopping = BatchStopping(steps=500, smallest_step=1e-3, largest_step=0.1)
    short = descend_batch(linearise, start, stopping=stopping)
    assert np.allclose(short.points, 1.0, atol=1e-2)
    assert len(short.trace) < 100


@dataclass(frozen=True)
class _State:
    point: np.ndarray
    cost: float


@dataclass(frozen=True)
class _Model:
    state: _State

    def trial(self, damping: float) -> _State:
        residual, jacobian = rosenbrock(self.state.point[None])
        hessian = jacobian[0].T @ jacobian[0]
        damped = hessian + damping * np.diag(np.diag(hessian))
        return _at(self.state.point - np.linalg.solve(damped, jacobian[0].T @ residual[0]))


def _at(point: np.ndarray) -> _State:
    residual, _ = rosenbrock(point[None])
    return _State(point, float((residual**2).sum()))


@pytest.mark.parametrize("candidates", [(1.0,), (0.1, 1.0, 10.0)])
def test_one_state_finds_the_minimum_with_several_dampings_per_linearisation(candidates) -> None:
    schedule = DescentSchedule(candidates=candidates, steps=100, absolute_tolerance=1e-14)
    end = descend(_at(np.array([-1.2, 1.0])), _Model, schedule)
    assert np.allclose(end.state.point, 1.0, atol=1e-5)
    assert end.trace[-1] == end.state.cost
    assert (np.diff(end.trace) < 0).all()


def test_a_state_that_no_damping_improves_is_kept() -> None:
    end = descend(_at(np.ones(2)), _Model, SCHEDULE)
    assert np.array_equal(end.state.point, np.ones(2))
    assert end.trace == (0.0,)


def test_eliminated_blocks_solve_the_same_equations() -> None:
    """Three blocks of two parameters each beside two shared ones, against the full system."""
    rng = np.random.default_rng(0)
    blocks, shared, own = 3, 2, 2
    jacobian = rng.normal(size=(blocks, 7, shared + own))
    residual = rng.normal(size=(blocks, 7))
    matrix = jacobian.transpose(0, 2, 1) @ jacobian
    gradient = np.einsum("nri,nr->ni", jacobian, residual)
    reduced = eliminate_blocks(matrix, gradient, matrix[:, shared:, shared:])
    step = -np.linalg.solve(reduced.matrix.sum(0), reduced.gradient.sum(0))
    full = np.zeros((blocks * 7, shared + blocks * own))
    for i in range(blocks):
        rows = slice(7 * i, 7 * (i + 1))
        full[rows, :shared] = jacobian[i, :, :shared]
        full[rows, shared + own * i : shared + own * (i + 1)] = jacobian[i, :, shared:]
    expected = -np.linalg.lstsq(full, residual.ravel(), rcond=None)[0]
    assert np.allclose(step, expected[:shared])
    assert np.allclose(reduced.own_steps(step).ravel(), expected[shared:])


def test_hubers_loss_is_a_square_near_zero_and_linear_far_away() -> None:
    assert huber_cost(np.array([0.5, -1.0]), 2.0) == pytest.approx(1.25)
    assert huber_cost(np.array([10.0]), 2.0) == pytest.approx(2 * 2 * 10 - 4)
    assert np.allclose(huber_weights(np.array([0.0, 1.0, -8.0]), 2.0), [1.0, 1.0, 0.25])
