"""Identification of MuJoCo's parameters on whole tosses by CMA-ES (few-shot paper, Eq. 1).

The populations of all restarts are simulated in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cmaes import CMA

from clashsim.core.errors import DataError
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.fit.priors import unit_std
from clashsim.fit.toss_rollouts import TossRollouts

# Weight of the squared distance from the nominal values, in prior standard deviations; a typical
# mean loss is 0.5.
PRIOR = 0.002
_CONVERGED = 2e-3  # width on the unit scale below which a population has converged
_SIGMA = 0.25  # initial step size of CMA-ES on the unit scale
_START_STD = 0.5  # prior standard deviations by which the starts of restarts vary
# Shares of the unit scale to which starts are clipped.
_RESTART_RANGE = 0.9
_START_RANGE = 0.95


@dataclass(frozen=True, eq=False)
class TossFit:
    """The result of an identification on tosses.

    Attributes:
        theta: Parameters (p,), natural units, in `scene.params` order.
        loss: Mean loss of the fitted tosses, without the prior.
        evaluations: Number of simulated rollouts.
        held_out: Mean loss of the held-out tosses, if there were any.
    """

    theta: np.ndarray
    loss: float
    evaluations: int
    held_out: float | None = None


def identify_tosses(
    rollouts: TossRollouts,
    *,
    seed: int,
    restarts: int = 1,
    generations: int = 100,
    population: int | None = None,
    hold_out: int = 0,
    progress: Progress = quiet,
) -> TossFit:
    """Minimise the mean loss by CMA-ES, with a weak prior about the nominal values.

    Args:
        rollouts: The tosses and their scene.
        seed: Seed of the search.
        restarts: Number of searches, which run in parallel in one batch.
        generations: Largest number of generations.
        population: Points per generation of a search; 6 + p by default.
        hold_out: Number of tosses, at the end, that are not fitted. Among the results of the
            restarts the one that predicts these tosses best is returned.
        progress: Shows the progress.

    Returns:
        The identified parameters.
    """
    params = rollouts.params
    num_flights = len(rollouts.tosses.flights)
    if len(params) == 0:
        raise DataError("the scene has no parameters to identify")
    if not 0 <= hold_out < num_flights:
        raise DataError(f"of {num_flights} tosses {hold_out} cannot be held out")
    fitted = rollouts.subset(slice(0, num_flights - hold_out)) if hold_out else rollouts
    search = _Search(fitted, seed=seed, restarts=restarts, population=population)
    with progress("identifying", generations) as advance:
        for _ in range(generations):
            search.step()
            advance(1)
            if not search.runs:
                break
    ends = from_unit(params, search.best)
    if not hold_out:
        k = int(search.lowest.argmin())  # the best restart
        return TossFit(ends[k], float(search.loss[k]), search.evaluations)
    held_out = rollouts.subset(slice(num_flights - hold_out, None)).losses(ends)
    k = int(held_out.argmin())
    return TossFit(ends[k], float(search.loss[k]), search.evaluations, float(held_out[k]))


class _Search:
    """Several searches by CMA-ES whose populations are simulated in one batch.

    Attributes:
        runs: The unfinished searches by number.
        best: Best point of each search (restarts, q) on the unit scale.
        lowest: Cost of each best point, prior included (restarts,).
        loss: Loss of each best point, without the prior (restarts,).
        evaluations: Number of rollouts so far.
    """

    def __init__(
        self, rollouts: TossRollouts, *, seed: int, restarts: int, population: int | None
    ) -> None:
        self._rollouts = rollouts
        self._params = rollouts.params
        self._nominal = to_unit(self._params, np.array([param.nominal for param in self._params]))
        self._std = np.array([unit_std(param) for param in self._params])
        q = len(self._params)
        self._population = population or 6 + q
        rng = np.random.default_rng(seed)
        means = [self._nominal]
        for _ in range(restarts - 1):
            mean = self._nominal + _START_STD * self._std * rng.normal(size=q)
            means.append(np.clip(mean, -_RESTART_RANGE, _RESTART_RANGE))
        self.runs = {}
        for i, mean in enumerate(means):
            self.runs[i] = CMA(
                mean=np.clip(mean, -_START_RANGE, _START_RANGE),
                sigma=_SIGMA,
                bounds=np.tile([-1.0, 1.0], (q, 1)),
                seed=seed * 97 + i,
                population_size=self._population,
            )
        self.best = np.tile(self._nominal, (restarts, 1))
        self.lowest = np.full(restarts, np.inf)
        self.loss = np.full(restarts, np.inf)
        self.evaluations = 0

    def step(self) -> None:
        """Run one generation of all searches, then remove those that have converged."""
        asked = {}
        for i, run in self.runs.items():
            asked[i] = np.array([run.ask() for _ in range(self._population)])
        points = np.concatenate(list(asked.values()))
        losses = self._rollouts.losses(from_unit(self._params, points))
        distance = (((points - self._nominal) / self._std) ** 2).sum(1)
        costs = losses + PRIOR * distance
        self.evaluations += len(points) * len(self._rollouts.tosses.flights)
        own_losses = np.split(losses, len(self.runs))
        own_costs = np.split(costs, len(self.runs))
        for j, (i, run) in enumerate(list(self.runs.items())):
            k = int(own_costs[j].argmin())
            if own_costs[j][k] < self.lowest[i]:
                self.best[i] = asked[i][k]
                self.lowest[i] = own_costs[j][k]
                self.loss[i] = own_losses[j][k]
            run.tell(list(zip(asked[i], own_costs[j], strict=True)))
            if np.ptp(asked[i], axis=0).max() <= _CONVERGED or run.should_stop():
                del self.runs[i]


def by_name(params: Sequence[Param], theta: np.ndarray) -> dict[str, float]:
    """Values of theta (p,) by the names of its parameters."""
    return {param.name: float(value) for param, value in zip(params, theta, strict=True)}
