"""Minimise many costs at once over unit boxes by ask and tell, so that the populations of all of
them are one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from cmaes import CMA

Cost = Callable[[np.ndarray], np.ndarray]  # points (T, P, d) of T problems -> costs (T, P)


class Searcher(Protocol):
    """Proposes points (T, P, d) of unit boxes, and learns from what they cost (T, P)."""

    def ask(self) -> np.ndarray: ...

    def tell(self, points: np.ndarray, costs: np.ndarray) -> None: ...


class CmaEs:
    """A CMA-ES for each problem (Hansen 2016), from a given centre (T, d)."""

    def __init__(
        self, centre: np.ndarray, population: int, seed: int, *, sigma: float = 0.15
    ) -> None:
        bounds = np.tile([0.0, 1.0], (centre.shape[1], 1))
        # Problem by problem, so that one plan is the same whether it is made alone or among others.
        self._each = [
            CMA(mean=c, sigma=sigma, bounds=bounds, population_size=population, seed=seed)
            for c in np.clip(centre, 0.02, 0.98)
        ]

    def ask(self) -> np.ndarray:
        """Populations (T, P, d)."""
        return np.stack([[c.ask() for _ in range(c.population_size)] for c in self._each])

    def tell(self, points: np.ndarray, costs: np.ndarray) -> None:
        """Take the costs of the populations last asked for."""
        for c, x, y in zip(self._each, points, costs, strict=True):
            c.tell(list(zip(x, y, strict=True)))


class Cem:
    """The cross-entropy method for all problems at once: a normal distribution is fitted to the
    best quarter of each population.
    """

    def __init__(
        self, centre: np.ndarray, population: int, seed: int, *, sigma: float = 0.25
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._mean, self._sd, self._population = centre, np.full_like(centre, sigma), population

    def ask(self) -> np.ndarray:
        """Populations (T, P, d); the same draws for every problem, so that one plan does not depend
        on others.
        """
        z = self._rng.normal(size=(self._population, self._mean.shape[1]))
        return np.clip(self._mean[:, None] + self._sd[:, None] * z, 0, 1)

    def tell(self, points: np.ndarray, costs: np.ndarray) -> None:
        """Move to the elites, but narrow down more slowly than they do: so few would else agree too
        early.
        """
        elites = np.argsort(costs, axis=1)[:, : max(4, self._population // 4)]
        best = np.take_along_axis(points, elites[..., None], 1)
        self._mean, self._sd = best.mean(1), 0.4 * self._sd + 0.6 * best.std(1)


def scatter(
    cost: Cost, problems: int, dim: int, *, points: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Points (T, P, d) spread over the unit boxes, alike for all problems, and their costs (T, P),
    best first.
    """
    x = np.tile(np.random.default_rng(seed).uniform(size=(points, dim)), (problems, 1, 1))
    y = cost(x)
    order = np.argsort(y, axis=1)
    return np.take_along_axis(x, order[..., None], 1), np.take_along_axis(y, order, 1)


def pick_distant(
    points: np.ndarray, costs: np.ndarray, n: int, *, gap: float = 0.15
) -> tuple[np.ndarray, np.ndarray]:
    """The best n points (T, n, d) of each problem that lie `gap` or more apart, and their costs (T,
    n), from points (T, P, d) that are best first.
    """
    rows = []
    for x in points:
        chosen = [0]
        for i in range(1, len(x)):
            if len(chosen) == n:
                break
            if np.abs(x[chosen] - x[i]).max(1).min() >= gap:
                chosen.append(i)
        rows.append(chosen + [0] * (n - len(chosen)))
    which = np.array(rows)
    return np.take_along_axis(points, which[..., None], 1), np.take_along_axis(costs, which, 1)


def minimise(
    cost: Cost, searcher: Searcher, best: tuple[np.ndarray, np.ndarray], *, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best points (T, d) and their costs (T,) after `rounds` populations, those given included."""
    point, value = best
    for _ in range(rounds):
        x = searcher.ask()
        y = cost(x)
        searcher.tell(x, y)
        i = y.argmin(1)
        at, least = (
            np.take_along_axis(x, i[:, None, None], 1)[:, 0],
            np.take_along_axis(y, i[:, None], 1)[:, 0],
        )
        point, value = np.where((least < value)[:, None], at, point), np.minimum(value, least)
    return point, value
