"""Parameters of MuJoCo identified on whole recorded tosses by CMA-ES (few-shot paper, Eq. 1).

A population of all restarts is one batch.
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

# Weight of the squared distance from nominal, in standard deviations of each parameter, in a mean
# loss near 0.5.
PRIOR = 0.002
_CONVERGED = 2e-3  # width of a population on the unit scale


@dataclass(frozen=True, eq=False)
class TossFit:
    """What was identified.

    Attributes:
        theta: Parameters (p,) in `scene.params` order.
        loss: Mean loss without the prior.
        evaluations: Rollouts that it took.
        held_out: Mean loss of tosses held out, if any were.
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
    """Minimise the mean loss by CMA-ES, with a weak pull to each parameter's nominal value.

    Args:
        rollouts: The tosses and their scene.
        seed: Seed of the search.
        restarts: Searches that run side by side in one batch.
        generations: At most so many generations.
        population: Points of a generation.
        hold_out: The last so many tosses are not fitted. Among the restarts' ends the one that
            predicts them best is kept, and how well is reported.
        progress: Shows how far it is.

    Returns:
        What was identified.
    """
    params = rollouts.scene.params
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
        k = int(search.lowest.argmin())
        return TossFit(ends[k], float(search.loss[k]), search.evaluations)
    held_out = rollouts.subset(slice(num_flights - hold_out, None)).losses(ends)
    k = int(held_out.argmin())
    return TossFit(ends[k], float(search.loss[k]), search.evaluations, float(held_out[k]))


class _Search:
    """Several searches by CMA-ES whose populations are one batch.

    Attributes:
        runs: The searches that are not done, by number.
        best: Best points of each search (restarts, q) on the unit scale.
        lowest: Their costs, prior included (restarts,).
        loss: Their losses without the prior (restarts,).
        evaluations: Rollouts so far.
    """

    def __init__(
        self, rollouts: TossRollouts, *, seed: int, restarts: int, population: int | None
    ) -> None:
        self._rollouts = rollouts
        self._params = rollouts.scene.params
        self._nominal = to_unit(self._params, rollouts.scene.nominal)
        self._std = np.array([unit_std(param) for param in self._params])
        q = len(self._params)
        self._population = population or 6 + q
        rng = np.random.default_rng(seed)
        means = [self._nominal]
        for _ in range(restarts - 1):
            means.append(np.clip(self._nominal + 0.5 * self._std * rng.normal(size=q), -0.9, 0.9))
        self.runs = {}
        for i, mean in enumerate(means):
            self.runs[i] = CMA(
                mean=np.clip(mean, -0.95, 0.95),
                sigma=0.25,
                bounds=np.tile([-1.0, 1.0], (q, 1)),
                seed=seed * 97 + i,
                population_size=self._population,
            )
        self.best = np.tile(self._nominal, (restarts, 1))
        self.lowest = np.full(restarts, np.inf)
        self.loss = np.full(restarts, np.inf)
        self.evaluations = 0

    def step(self) -> None:
        """One generation of all searches; those that have converged leave."""
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
