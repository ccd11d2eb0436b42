"""Minimise many costs at once over unit boxes.

A searcher proposes a population of points for every problem (`ask`) and learns from their costs
(`tell`); the populations of all problems are evaluated as one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from cmaes import CMA

from clashsim.optim.compiled_cmaes import REDRAWS, learn, propose

Cost = Callable[[np.ndarray], np.ndarray]  # points (T, P, d) of T problems -> costs (T, P)
_EDGE = 0.02  # least distance of initial means from the faces of the unit box
MIN_DISTANCE = 0.15  # between starts of different searches, in the coordinate that differs most
# Share of the elites' standard deviation in the next one. Below 1, so that a few elites that happen
# to be close to each other do not end the cross-entropy method's search too early.
ELITE_WEIGHT = 0.6
MIN_ELITES = 4  # best points of a population to which the next one is fitted, at least


class Searcher(Protocol):
    """Proposes points (T, P, d) of unit boxes, and learns from what they cost (T, P)."""

    def ask(self) -> np.ndarray:
        """Propose populations (T, P, d)."""

    def tell(self, points: np.ndarray, costs: np.ndarray) -> None:
        """Learn from the costs (T, P) of the populations (T, P, d) that `ask` proposed last."""


class CmaEs:
    """A CMA-ES for each problem (Hansen 2016).

    Args:
        centre: (T, d), initial mean for each of T problems.
        population: Number P of points in each population.
        seed: Seed of the random numbers, the same for all problems.
        sigma: Initial step size, in the unit box.
    """

    def __init__(
        self, centre: np.ndarray, population: int, seed: int, *, sigma: float = 0.15
    ) -> None:
        bounds = np.tile([0.0, 1.0], (centre.shape[1], 1))
        # The same seed for every problem, so that a result does not depend on the other problems.
        self._optimisers = [
            CMA(mean=mean, sigma=sigma, bounds=bounds, population_size=population, seed=seed)
            for mean in np.clip(centre, _EDGE, 1 - _EDGE)
        ]

    def ask(self) -> np.ndarray:
        """Propose populations (T, P, d)."""
        populations = []
        for optimiser in self._optimisers:
            populations.append([optimiser.ask() for _ in range(optimiser.population_size)])
        return np.array(populations)

    def tell(self, points: np.ndarray, costs: np.ndarray) -> None:
        """Learn from the costs (T, P) of the populations (T, P, d) that `ask` proposed last."""
        for optimiser, population, values in zip(self._optimisers, points, costs, strict=True):
            optimiser.tell(list(zip(population, values, strict=True)))


class BatchedCmaEs:
    """The same as `CmaEs`, all searches in one compiled call: for costs that take microseconds.

    Args:
        centre: (T, d), initial mean for each of T problems.
        population: Number P of points in each population.
        seed: Seed of the random numbers, the same for all problems.
        sigma: Initial step size, in the unit box.
    """

    def __init__(
        self, centre: np.ndarray, population: int, seed: int, *, sigma: float = 0.15
    ) -> None:
        problems, dim = centre.shape
        self._rng = np.random.default_rng(seed)
        self._population = population
        self._generation = 0
        self._weights, self._constants = cmaes_constants(population, dim)
        self._mean = np.clip(centre, _EDGE, 1 - _EDGE)
        self._sigma = np.full(problems, sigma)
        self._covariance = np.tile(np.eye(dim), (problems, 1, 1))
        self._axes = self._covariance.copy()
        self._roots = np.ones((problems, dim))
        self._path = np.zeros((problems, dim))
        self._sigma_path = np.zeros((problems, dim))

    def ask(self) -> np.ndarray:
        """Propose populations (T, P, d).

        All problems get the same random numbers, so that none depends on the others.
        """
        shape = (1 + REDRAWS, self._population, self._mean.shape[1])
        normal = self._rng.normal(size=shape)
        return propose(self._mean, self._sigma, self._axes, self._roots, normal)

    def tell(self, points: np.ndarray, costs: np.ndarray) -> None:
        """Learn from the costs (T, P) of the populations (T, P, d) that `ask` proposed last."""
        self._generation += 1
        state = (
            self._mean,
            self._sigma,
            self._covariance,
            self._axes,
            self._roots,
            self._path,
            self._sigma_path,
        )
        learn(
            state,
            np.ascontiguousarray(points),
            np.ascontiguousarray(costs),
            self._weights,
            self._constants,
            self._generation,
        )


def cmaes_constants(population: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and constants of CMA-ES with active weights, as `learn` takes them.

    Args:
        population: Number P of points in a population.
        dim: Number of coordinates.

    Returns:
        Weights (P,) by rank, and mu_eff, c_c, c_sigma, d_sigma, c_1, c_mu and E||N(0, I)||.
    """
    # Weights by rank: positive for the better half of a population, negative for the worse.
    raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))
    good = np.maximum(raw, 0)
    bad = np.minimum(raw, 0)
    effective = float(good.sum() ** 2 / (good**2).sum())
    effective_bad = float(bad.sum() ** 2 / (bad**2).sum())
    path_rate = (4 + effective / dim) / (dim + 4 + 2 * effective / dim)
    sigma_rate = (effective + 2) / (dim + effective + 5)
    excess = max(0.0, math.sqrt((effective - 1) / (dim + 1)) - 1)
    damping = 1 + 2 * excess + sigma_rate
    rank_one = 2 / ((dim + 1.3) ** 2 + effective)
    rank_mu = min(1 - rank_one, 2 * (effective - 2 + 1 / effective) / ((dim + 2) ** 2 + effective))
    # The sum of the negative weights is bounded, so that the covariance stays positive.
    negative_sum = min(
        1 + rank_one / rank_mu,
        1 + 2 * effective_bad / (effective + 2),
        (1 - rank_one - rank_mu) / (dim * rank_mu),
    )
    expected = math.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim * dim))
    weights = good / good.sum() - negative_sum * bad / bad.sum()
    constants = [effective, path_rate, sigma_rate, damping, rank_one, rank_mu, expected]
    return weights, np.array(constants)


class Cem:
    """The cross-entropy method for all problems at once.

    A normal distribution is fitted to the best quarter of each population.

    Args:
        centre: (T, d), initial mean for each of T problems.
        population: Number P of points in each population.
        seed: Seed of the random numbers, the same for all problems.
        sigma: Initial standard deviation, in the unit box.
    """

    def __init__(
        self, centre: np.ndarray, population: int, seed: int, *, sigma: float = 0.25
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._mean = centre
        self._std = np.full_like(centre, sigma)
        self._population = population

    def ask(self) -> np.ndarray:
        """Propose populations (T, P, d).

        All problems get the same random numbers, so that none depends on the others.
        """
        normal = self._rng.normal(size=(self._population, self._mean.shape[1]))
        return np.clip(self._mean[:, None] + self._std[:, None] * normal, 0, 1)

    def tell(self, points: np.ndarray, costs: np.ndarray) -> None:
        """Move to the best quarter of the populations (T, P, d) that `ask` proposed last."""
        elites = np.argsort(costs, axis=1)[:, : max(MIN_ELITES, self._population // 4)]
        best = np.take_along_axis(points, elites[..., None], 1)
        self._mean = best.mean(1)
        self._std = (1 - ELITE_WEIGHT) * self._std + ELITE_WEIGHT * best.std(1)


def evaluate_random_points(
    cost: Cost, problems: int, dim: int, *, points: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate random points of the unit boxes, the same ones for all problems.

    Args:
        cost: Costs (T, P) of points (T, P, d).
        problems: Number T of problems.
        dim: Number d of coordinates.
        points: Number P of points.
        seed: Seed of the random points.

    Returns:
        Points (T, P, d) and their costs (T, P), best first.
    """
    drawn = np.random.default_rng(seed).uniform(size=(points, dim))
    scattered = np.tile(drawn, (problems, 1, 1))
    costs = cost(scattered)
    order = np.argsort(costs, axis=1)
    return (
        np.take_along_axis(scattered, order[..., None], 1),
        np.take_along_axis(costs, order, 1),
    )


def pick_distant(
    points: np.ndarray, costs: np.ndarray, n: int, *, gap: float = MIN_DISTANCE
) -> tuple[np.ndarray, np.ndarray]:
    """Pick the best points of each problem that are at least `gap` apart from each other.

    Args:
        points: (T, P, d), best first.
        costs: (T, P).
        n: Number of points to pick.
        gap: Least distance, in the coordinate that differs most.

    Returns:
        Points (T, n, d) and their costs (T, n); where too few are apart, the best is repeated.
    """
    rows = []
    for candidates in points:
        chosen = [0]
        for i in range(1, len(candidates)):
            if len(chosen) == n:
                break
            distances = np.abs(candidates[chosen] - candidates[i]).max(1)
            if distances.min() >= gap:
                chosen.append(i)
        repeated = [0] * (n - len(chosen))
        rows.append(chosen + repeated)
    picked = np.array(rows)
    return (
        np.take_along_axis(points, picked[..., None], 1),
        np.take_along_axis(costs, picked, 1),
    )


def minimise(
    cost: Cost, searcher: Searcher, best: tuple[np.ndarray, np.ndarray], *, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the costs by asking a searcher for populations and telling it their costs.

    Args:
        cost: Costs (T, P) of points (T, P, d).
        searcher: Proposes the populations.
        best: Best points (T, d) known so far, and their costs (T,).
        rounds: Number of populations for each problem.

    Returns:
        The best points (T, d), which may be those known before, and their costs (T,).
    """
    best_points, best_costs = best
    for _ in range(rounds):
        points = searcher.ask()
        costs = cost(points)
        searcher.tell(points, costs)
        lowest = costs.argmin(1)
        found_points = np.take_along_axis(points, lowest[:, None, None], 1)[:, 0]
        found_costs = np.take_along_axis(costs, lowest[:, None], 1)[:, 0]
        is_better = found_costs < best_costs
        best_points = np.where(is_better[:, None], found_points, best_points)
        best_costs = np.minimum(best_costs, found_costs)
    return best_points, best_costs
