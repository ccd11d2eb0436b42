"""Search for the strikes of many targets on a torch device: populations and targets are one batch
from the first draw to the last.

As `clashsim.optim.search`, which keeps a library's CMA-ES for each problem: for a thousand targets
that is a thousand small updates in Python a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Cost = Callable[[Tensor], Tensor]  # points (T, P, d) of T problems -> costs (T, P)
_REDRAWN = 3  # times that a point outside of the box is drawn again before it is put on its faces


@torch.no_grad()
def search_on_device(
    cost: Cost,
    problems: int,
    dim: int,
    *,
    method: str,
    each: int,
    starts: int,
    scattered: int,
    rounds: int,
    seed: int,
    device: str,
) -> np.ndarray:
    """The best points (T, d) in unit boxes of cmaes or cem, after points scattered over them; all
    problems draw the same numbers, so that none depends on the others.
    """
    draws = drawing(seed)
    point, value = _apart(
        *scatter(cost, problems, dim, points=scattered, draws=draws, device=device), starts
    )
    centre, least = point.reshape(problems * starts, dim), value.reshape(problems * starts)
    searcher = (_CmaEs if method == "cmaes" else _Cem)(centre, each, draws)
    best = centre
    for _ in range(rounds):
        x = searcher.ask()
        y = cost(x.reshape(problems, starts * each, dim)).reshape(problems * starts, each)
        searcher.tell(x, y)
        found, i = y.min(1)
        best = torch.where(
            (found < least)[:, None], x[torch.arange(len(x), device=x.device), i], best
        )
        least = torch.minimum(found, least)
    i = least.reshape(problems, starts).argmin(1)
    return (
        best.reshape(problems, starts, dim)[torch.arange(problems, device=i.device), i]
        .double()
        .cpu()
        .numpy()
    )


def drawing(seed: int) -> torch.Generator:
    """A generator of the CPU, so that all devices draw the same."""
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def scatter(
    cost: Cost, problems: int, dim: int, *, points: int, draws: torch.Generator, device: str
) -> tuple[Tensor, Tensor]:
    """Points (T, P, d) spread over the unit boxes, alike for all problems, and their costs (T, P),
    best first.
    """
    x = torch.rand(points, dim, generator=draws).to(device).expand(problems, -1, -1)
    y = cost(x)
    order = y.argsort(1)
    return x.gather(1, order[..., None].expand_as(x)), y.gather(1, order)


def _apart(x: Tensor, y: Tensor, n: int, *, gap: float = 0.15) -> tuple[Tensor, Tensor]:
    """The best n points (T, n, d) of each problem that lie `gap` or more apart, and their costs (T,
    n), from points that are best first; where there are fewer, the best again.
    """
    rows, chosen = (
        torch.arange(len(x), device=x.device),
        [torch.zeros(len(x), dtype=torch.long, device=x.device)],
    )
    free = torch.ones_like(y, dtype=torch.bool)
    for _ in range(n - 1):
        free &= (x - x[rows, chosen[-1]][:, None]).abs().amax(-1) >= gap
        chosen.append(free.float().argmax(1))  # the first that is free, or the best where none is
    which = torch.stack(chosen, 1)
    return x[rows[:, None], which], y[rows[:, None], which]


class _CmaEs:
    """CMA-ES (Hansen 2016, with active weights) for B problems at once, from centres (B, d)."""

    def __init__(
        self, centre: Tensor, population: int, draws: torch.Generator, *, sigma: float = 0.15
    ) -> None:
        count, d = centre.shape
        raw = (
            math.log((population + 1) / 2)
            - torch.arange(1, population + 1, dtype=torch.float64).log()
        )
        good, bad = raw.clamp_min(0), raw.clamp_max(0)
        self.effective = e = float(good.sum() ** 2 / (good**2).sum())
        self.path_rate, self.sigma_rate = (4 + e / d) / (d + 4 + 2 * e / d), (e + 2) / (d + e + 5)
        self.damping = 1 + 2 * max(0.0, math.sqrt((e - 1) / (d + 1)) - 1) + self.sigma_rate
        self.one = 2 / ((d + 1.3) ** 2 + e)
        self.many = min(1 - self.one, 2 * (e - 2 + 1 / e) / ((d + 2) ** 2 + e))
        against = float(bad.sum() ** 2 / (bad**2).sum())
        most = min(
            1 + self.one / self.many,
            1 + 2 * against / (e + 2),
            (1 - self.one - self.many) / (d * self.many),
        )
        self.weights, self.active = (
            w.to(centre) for w in (good / good.sum(), good / good.sum() - most * bad / bad.sum())
        )
        self.length = math.sqrt(d) * (
            1 - 1 / (4 * d) + 1 / (21 * d * d)
        )  # of a normal vector, expected
        self.mean, self.sigma = (
            centre.clamp(0.02, 0.98),
            torch.full((count, 1), sigma, dtype=centre.dtype, device=centre.device),
        )
        self.shape = torch.eye(d, dtype=centre.dtype, device=centre.device).repeat(count, 1, 1)
        self.path, self.sigma_path = torch.zeros_like(centre), torch.zeros_like(centre)
        self.population, self.draws, self.round = population, draws, 0
        self.roots, self.axes = torch.ones_like(centre), self.shape

    def ask(self) -> Tensor:
        """Populations (B, P, d)."""
        values, self.axes = torch.linalg.eigh(self.shape)
        self.roots = values.clamp_min(1e-12).sqrt()
        z = torch.randn(1 + _REDRAWN, self.population, self.mean.shape[1], generator=self.draws).to(
            self.mean
        )
        tried = self.mean[:, None] + self.sigma[:, None] * (
            (z[:, None] * self.roots[:, None]) @ self.axes.transpose(1, 2)
        )
        x = tried[0]
        for again in tried[1:]:
            x = torch.where(((x < 0) | (x > 1)).any(-1, keepdim=True), again, x)
        return x.clamp(0, 1)

    def tell(self, points: Tensor, costs: Tensor) -> None:
        """Take the costs of the populations last asked for."""
        order = costs.argsort(1)
        steps = (
            points.gather(1, order[..., None].expand(-1, -1, points.shape[2])) - self.mean[:, None]
        ) / self.sigma[:, None]
        step = (self.weights[:, None] * steps).sum(1)
        self.mean, self.round = self.mean + self.sigma * step, self.round + 1
        turned = self.axes.transpose(1, 2)
        even = (self.axes @ ((turned @ step[..., None])[..., 0] / self.roots)[..., None])[..., 0]
        far = ((steps @ self.axes / self.roots[:, None]) ** 2).sum(-1)
        active = torch.where(
            self.active < 0, self.active * step.shape[1] / (far + 1e-8), self.active
        )  # however far bad points lie, the shape stays positive
        a, b, c = self.sigma_rate, self.path_rate, self.one
        self.sigma_path = (1 - a) * self.sigma_path + math.sqrt(a * (2 - a) * self.effective) * even
        length = self.sigma_path.norm(dim=1, keepdim=True)
        short = (
            length / math.sqrt(1 - (1 - a) ** (2 * self.round))
            < (1.4 + 2 / (step.shape[1] + 1)) * self.length
        ).to(step)
        self.path = (1 - b) * self.path + short * math.sqrt(b * (2 - b) * self.effective) * step
        outer = (
            self.path[:, :, None] * self.path[:, None]
            + ((1 - short) * b * (2 - b))[..., None] * self.shape
        )
        spread = torch.einsum("bp,bpi,bpj->bij", active, steps, steps)
        self.shape = (
            (1 - c - self.many * float(self.active.sum())) * self.shape
            + c * outer
            + self.many * spread
        )
        self.sigma = (self.sigma * torch.exp(a / self.damping * (length / self.length - 1))).clamp(
            1e-7, 1.0
        )


class _Cem:
    """The cross-entropy method as in `clashsim.optim.search`."""

    def __init__(
        self, centre: Tensor, population: int, draws: torch.Generator, *, sigma: float = 0.25
    ) -> None:
        self.mean, self.sd, self.population, self.draws = (
            centre,
            torch.full_like(centre, sigma),
            population,
            draws,
        )

    def ask(self) -> Tensor:
        """Populations (B, P, d)."""
        z = torch.randn(self.population, self.mean.shape[1], generator=self.draws).to(self.mean)
        return (self.mean[:, None] + self.sd[:, None] * z).clamp(0, 1)

    def tell(self, points: Tensor, costs: Tensor) -> None:
        """Move to the best quarter."""
        elites = costs.argsort(1)[:, : max(4, self.population // 4)]
        best = points.gather(1, elites[..., None].expand(-1, -1, points.shape[2]))
        self.mean, self.sd = best.mean(1), 0.4 * self.sd + 0.6 * best.std(1, correction=0)
