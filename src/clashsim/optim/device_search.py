"""Minimise many costs at once over unit boxes on a torch device, for strikes at many targets.

All searches of all problems are one batch of tensors. The module `clashsim.optim.search` does the
same with one library object per problem, which for a thousand targets takes a thousand small
updates in Python per round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clashsim.optim.search import ELITE_WEIGHT, MIN_DISTANCE, MIN_ELITES

Cost = Callable[[Tensor], Tensor]  # points (T, P, d) of T problems -> costs (T, P)
# How often a point outside of the box is drawn again before it is clipped to the box.
_REDRAWS = 3
_EDGE = 0.02  # least distance of initial means from the faces of the unit box
_WEIGHT_FLOOR = 1e-8  # added to squared lengths that are divided by
_MIN_EIGENVALUE = 1e-12  # of a covariance, against rounding below zero
_SIGMA_RANGE = (1e-7, 1.0)  # of the step size, in the unit box


@dataclass(frozen=True)
class DeviceSearchConfig:
    """How `search_on_device` searches.

    Attributes:
        method: "cmaes" or "cem".
        population: Number of points that a search evaluates in a round.
        starts: Number of searches for each problem, from starts that are apart from each other.
        scattered: Number of random points from which the starts are chosen.
        rounds: Number of rounds.
        seed: Seed of all random numbers.
    """

    method: str
    population: int
    starts: int
    scattered: int
    rounds: int
    seed: int


@torch.no_grad()
def search_on_device(
    cost: Cost, problems: int, dim: int, *, config: DeviceSearchConfig, device: str
) -> np.ndarray:
    """Minimise the costs of many problems over unit boxes.

    All problems use the same random numbers, so that none depends on the others.

    Args:
        cost: Costs (T, P) of points (T, P, d).
        problems: Number T of problems.
        dim: Number d of coordinates.
        config: Method and size of the search.
        device: Name of the torch device, such as "cpu" or "cuda".

    Returns:
        The best point of each start, (T, starts, d).
    """
    generator = cpu_generator(config.seed)
    scattered = evaluate_random_points(
        cost, problems, dim, points=config.scattered, generator=generator, device=device
    )
    start_points, start_costs = _pick_distant(*scattered, config.starts)
    searches = problems * config.starts
    best = start_points.reshape(searches, dim)
    best_cost = start_costs.reshape(searches)
    searcher_kind = _CmaEs if config.method == "cmaes" else _Cem
    searcher = searcher_kind(best, config.population, generator)
    rows = torch.arange(searches, device=best.device)
    for _ in range(config.rounds):
        points = searcher.ask()
        by_problem = points.reshape(problems, config.starts * config.population, dim)
        costs = cost(by_problem).reshape(searches, config.population)
        searcher.tell(points, costs)
        lowest_cost, lowest = costs.min(1)
        is_better = (lowest_cost < best_cost)[:, None]
        best = torch.where(is_better, points[rows, lowest], best)
        best_cost = torch.minimum(lowest_cost, best_cost)
    return best.reshape(problems, config.starts, dim).double().cpu().numpy()


def cpu_generator(seed: int) -> torch.Generator:
    """Make a generator on the CPU, so that the random numbers are the same for all devices."""
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def evaluate_random_points(
    cost: Cost, problems: int, dim: int, *, points: int, generator: torch.Generator, device: str
) -> tuple[Tensor, Tensor]:
    """Evaluate random points of the unit boxes, the same ones for all problems.

    Args:
        cost: Costs (T, P) of points (T, P, d).
        problems: Number T of problems.
        dim: Number d of coordinates.
        points: Number P of points.
        generator: Source of the random numbers.
        device: Name of the torch device, such as "cpu" or "cuda".

    Returns:
        Points (T, P, d) and their costs (T, P), best first.
    """
    drawn = torch.rand(points, dim, generator=generator).to(device)
    scattered = drawn.expand(problems, -1, -1)
    costs = cost(scattered)
    order = costs.argsort(1)
    sorted_points = scattered.gather(1, order[..., None].expand_as(scattered))
    return sorted_points, costs.gather(1, order)


def _pick_distant(
    points: Tensor, costs: Tensor, n: int, *, gap: float = MIN_DISTANCE
) -> tuple[Tensor, Tensor]:
    """The best points (T, n, d) of each problem at least `gap` apart, and their costs (T, n).

    The given points (T, P, d) are sorted, best first. The best is repeated where too few are apart.
    """
    problems = torch.arange(len(points), device=points.device)
    chosen = [torch.zeros(len(points), dtype=torch.long, device=points.device)]
    is_distant = torch.ones_like(costs, dtype=torch.bool)  # from all points chosen so far
    for _ in range(n - 1):
        last = points[problems, chosen[-1]][:, None]
        is_distant &= (points - last).abs().amax(-1) >= gap
        # The first distant point, or the best point (index 0) where none is distant.
        chosen.append(is_distant.float().argmax(1))
    picked = torch.stack(chosen, 1)
    return points[problems[:, None], picked], costs[problems[:, None], picked]


class _CmaEs:
    """CMA-ES with active weights for B searches at once (Hansen 2016, arXiv:1604.00772).

    Names of the constants in the paper: mu_eff is `effective`, c_c `path_rate`, c_sigma
    `sigma_rate`, d_sigma `damping`, c_1 `rank_one_rate`, c_mu `rank_mu_rate`, and E||N(0, I)||
    `expected_length`.
    """

    def __init__(
        self, centre: Tensor, population: int, generator: torch.Generator, *, sigma: float = 0.15
    ) -> None:
        searches, dim = centre.shape
        ranks = torch.arange(1, population + 1, dtype=torch.float64)
        # Weights by rank: positive for the better half of a population, negative for the worse.
        raw = math.log((population + 1) / 2) - ranks.log()
        good = raw.clamp_min(0)
        bad = raw.clamp_max(0)
        effective = float(good.sum() ** 2 / (good**2).sum())
        effective_bad = float(bad.sum() ** 2 / (bad**2).sum())
        self.effective = effective
        self.path_rate = (4 + effective / dim) / (dim + 4 + 2 * effective / dim)
        self.sigma_rate = (effective + 2) / (dim + effective + 5)
        excess = max(0.0, math.sqrt((effective - 1) / (dim + 1)) - 1)
        self.damping = 1 + 2 * excess + self.sigma_rate
        self.rank_one_rate = 2 / ((dim + 1.3) ** 2 + effective)
        self.rank_mu_rate = min(
            1 - self.rank_one_rate,
            2 * (effective - 2 + 1 / effective) / ((dim + 2) ** 2 + effective),
        )
        # The sum of the negative weights is bounded, so that the covariance stays positive.
        negative_sum = min(
            1 + self.rank_one_rate / self.rank_mu_rate,
            1 + 2 * effective_bad / (effective + 2),
            (1 - self.rank_one_rate - self.rank_mu_rate) / (dim * self.rank_mu_rate),
        )
        positive_weights = good / good.sum()
        self.weights = positive_weights.to(centre)
        self.active_weights = (positive_weights - negative_sum * bad / bad.sum()).to(centre)
        self.expected_length = math.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim * dim))
        self.mean = centre.clamp(_EDGE, 1 - _EDGE)
        self.sigma = torch.full((searches, 1), sigma, dtype=centre.dtype, device=centre.device)
        identity = torch.eye(dim, dtype=centre.dtype, device=centre.device)
        self.covariance = identity.repeat(searches, 1, 1)
        self.path = torch.zeros_like(centre)
        self.sigma_path = torch.zeros_like(centre)
        self.population = population
        self.generator = generator
        self.generation = 0
        # Square roots (B, d) of the covariance's eigenvalues, and its eigenvectors (B, d, d).
        self.roots = torch.ones_like(centre)
        self.axes = self.covariance

    def ask(self) -> Tensor:
        """Propose populations (B, P, d)."""
        eigenvalues, self.axes = torch.linalg.eigh(self.covariance)
        self.roots = eigenvalues.clamp_min(_MIN_EIGENVALUE).sqrt()
        dim = self.mean.shape[1]
        normal = torch.randn(1 + _REDRAWS, self.population, dim, generator=self.generator)
        scaled = normal.to(self.mean)[:, None] * self.roots[:, None]
        steps = scaled @ self.axes.transpose(1, 2)
        drawn = self.mean[:, None] + self.sigma[:, None] * steps
        points = drawn[0]
        for redrawn in drawn[1:]:
            is_outside = ((points < 0) | (points > 1)).any(-1, keepdim=True)
            points = torch.where(is_outside, redrawn, points)
        return points.clamp(0, 1)

    def tell(self, points: Tensor, costs: Tensor) -> None:
        """Learn from the costs (B, P) of the populations (B, P, d) that `ask` proposed last."""
        order = costs.argsort(1)[..., None].expand(-1, -1, points.shape[2])
        steps = (points.gather(1, order) - self.mean[:, None]) / self.sigma[:, None]
        mean_step = (self.weights[:, None] * steps).sum(1)
        self.mean = self.mean + self.sigma * mean_step
        self.generation += 1
        path_length = self._update_sigma_path(mean_step)
        self._update_covariance(steps, mean_step, self._is_not_stalled(path_length))
        growth = self.sigma_rate / self.damping * (path_length / self.expected_length - 1)
        self.sigma = (self.sigma * torch.exp(growth)).clamp(*_SIGMA_RANGE)

    def _update_sigma_path(self, mean_step: Tensor) -> Tensor:
        """Add a mean step (B, d) to the path that adapts sigma; return its length (B, 1)."""
        in_axes = (self.axes.transpose(1, 2) @ mean_step[..., None])[..., 0] / self.roots
        whitened = (self.axes @ in_axes[..., None])[..., 0]
        rate = self.sigma_rate
        gain = math.sqrt(rate * (2 - rate) * self.effective)
        self.sigma_path = (1 - rate) * self.sigma_path + gain * whitened
        return self.sigma_path.norm(dim=1, keepdim=True)

    def _is_not_stalled(self, path_length: Tensor) -> Tensor:
        """h_sigma of the paper, (B, 1): 0 while the path that adapts sigma is long, else 1."""
        dim = self.mean.shape[1]
        unbiased = path_length / math.sqrt(1 - (1 - self.sigma_rate) ** (2 * self.generation))
        return (unbiased < (1.4 + 2 / (dim + 1)) * self.expected_length).to(path_length)

    def _update_covariance(self, steps: Tensor, mean_step: Tensor, not_stalled: Tensor) -> None:
        """Adapt the covariance to steps (B, P, d), best first: rank-one and rank-mu update."""
        rate = self.path_rate
        gain = math.sqrt(rate * (2 - rate) * self.effective)
        self.path = (1 - rate) * self.path + not_stalled * gain * mean_step
        lost_variance = ((1 - not_stalled) * rate * (2 - rate))[..., None] * self.covariance
        rank_one = self.path[:, :, None] * self.path[:, None] + lost_variance
        # Negative weights are divided by the squared step, so that the covariance stays positive
        # however far bad points are.
        dim = mean_step.shape[1]
        squared_length = ((steps @ self.axes / self.roots[:, None]) ** 2).sum(-1)
        weights = torch.where(
            self.active_weights < 0,
            self.active_weights * dim / (squared_length + _WEIGHT_FLOOR),
            self.active_weights,
        )
        rank_mu = torch.einsum("bp,bpi,bpj->bij", weights, steps, steps)
        kept = 1 - self.rank_one_rate - self.rank_mu_rate * float(self.active_weights.sum())
        self.covariance = (
            kept * self.covariance + self.rank_one_rate * rank_one + self.rank_mu_rate * rank_mu
        )


class _Cem:
    """The cross-entropy method, as in `clashsim.optim.search`, for B searches at once."""

    def __init__(
        self, centre: Tensor, population: int, generator: torch.Generator, *, sigma: float = 0.25
    ) -> None:
        self.mean = centre
        self.std = torch.full_like(centre, sigma)
        self.population = population
        self.generator = generator

    def ask(self) -> Tensor:
        """Propose populations (B, P, d)."""
        dim = self.mean.shape[1]
        normal = torch.randn(self.population, dim, generator=self.generator).to(self.mean)
        return (self.mean[:, None] + self.std[:, None] * normal).clamp(0, 1)

    def tell(self, points: Tensor, costs: Tensor) -> None:
        """Move to the best quarter of the populations (B, P, d) that `ask` proposed last."""
        elites = costs.argsort(1)[:, : max(MIN_ELITES, self.population // 4)]
        best = points.gather(1, elites[..., None].expand(-1, -1, points.shape[2]))
        self.mean = best.mean(1)
        self.std = (1 - ELITE_WEIGHT) * self.std + ELITE_WEIGHT * best.std(1, correction=0)
