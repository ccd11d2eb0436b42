"""Plan strikes that bring a body to a target, by search or by gradient, for one task or a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.protocols import StrikeModel
from clashsim.optim import device_search
from clashsim.optim.search import (
    BatchedCmaEs,
    Cem,
    evaluate_random_points,
    minimise,
    pick_distant,
)
from clashsim.plan.batch_cost import BatchCost, NoiseSamples
from clashsim.plan.gradient import copy_to_device, minimise_by_gradient
from clashsim.plan.outcomes import EXACT, Repeatability
from clashsim.plan.tasks import MAX_STRIKES, Plan, PlanningTask, PlanStatus

Method = Literal["cmaes", "cem", "gradient"]
_CMAES_STARTS = 3
_SCATTERED_POPULATIONS = 8  # populations scattered over all strikes before the search begins
_MIN_POPULATION = 4
_GRADIENT_STEPS_PER_ROUND = 2  # of half a population: as many evaluations as CMA-ES makes


@dataclass(frozen=True)
class PlannerConfig:
    """How plans are searched for; the same seed gives the same plans.

    Attributes:
        method: CMA-ES, the cross-entropy method, or gradient descent from many starts.
        noise_samples: With 0 the loss at the expected pose is minimised; else its mean over this
            many samples of the model's noise. That gives up accuracy to avoid uncertain strikes,
            too much of it where the stated standard deviation is too large: in the virtual
            laboratory the errors are larger in the mean.
        choice_samples: The search ends at several strikes that may be almost equally good. Of
            these, the one with the lowest mean loss over this many samples of the model's noise is
            planned, so that strikes are avoided of which the model is unsure unless nothing else
            reaches the target. With 0 the best at the expected pose is planned.
        population: Points in each round for each strike of the sequence.
        rounds: Populations evaluated after the scattered ones.
        seed: Seed of the search and of the noise.
        device: Device on which torch searches, for example "cuda": in single precision, all tasks
            and populations in one batch. Needs a strike table. None: numpy on the CPU.
        repeatability: How exactly strikes are repeated, for the probability of a plan.
    """

    method: Method = "cmaes"
    noise_samples: int = 0
    choice_samples: int = 64
    population: int = 24
    rounds: int = 24
    seed: int = 0
    device: str | None = None
    repeatability: Repeatability = EXACT


@dataclass(frozen=True)
class _SearchBudget:
    """How many points a search evaluates for each task."""

    starts: int  # from which the population search begins
    population: int  # points of each start in a round
    descents: int  # starts of the gradient method
    gradient_steps: int
    scattered: int  # points before the search begins
    evaluations: int  # scattered points and those of the search

    @staticmethod
    def of(config: PlannerConfig, strikes: int) -> _SearchBudget:
        """Return the budget for sequences of this many strikes, which it is proportional to."""
        size = config.population * strikes
        starts = _CMAES_STARTS if config.method == "cmaes" else 1
        population = max(_MIN_POPULATION, size // starts)
        descents = max(_MIN_POPULATION, size // _GRADIENT_STEPS_PER_ROUND)
        gradient_steps = _GRADIENT_STEPS_PER_ROUND * config.rounds
        scattered = _SCATTERED_POPULATIONS * size
        if config.method == "gradient":
            searched = descents * gradient_steps
        else:
            searched = starts * population * config.rounds
        return _SearchBudget(
            starts=starts,
            population=population,
            descents=descents,
            gradient_steps=gradient_steps,
            scattered=scattered,
            evaluations=scattered + searched,
        )


def plan(model: StrikeModel, task: PlanningTask, config: PlannerConfig = PlannerConfig()) -> Plan:
    """Plan the strikes of one task, as `plan_batch` does.

    Args:
        model: Predicts where a struck body comes to rest.
        task: Start, target and number of strikes.
        config: How to search.
    """
    return plan_batch(model, [task], config)[0]


def plan_fewest_strikes(
    model: StrikeModel, task: PlanningTask, config: PlannerConfig = PlannerConfig()
) -> Plan:
    """Plan the fewest strikes, at most three, that reach the target, or those that end nearest.

    Args:
        model: Predicts where a struck body comes to rest.
        task: Start and target; its number of strikes is the lowest that is tried.
        config: How to search.
    """
    return plan_fewest_strikes_batch(model, [task], config)[0]


def plan_fewest_strikes_batch(
    model: StrikeModel, tasks: Sequence[PlanningTask], config: PlannerConfig = PlannerConfig()
) -> list[Plan]:
    """Plan the fewest strikes that reach the target, for each task of a batch.

    Tasks whose target is not reached are planned again, all in one batch, with one strike more.

    Args:
        model: Predicts where a struck body comes to rest.
        tasks: Tasks with the same number of strikes, reach and tau.
        config: How to search.
    """
    best: dict[int, Plan] = {}
    open_tasks = list(range(len(tasks)))  # indices of tasks whose target is not reached yet
    fewest = min((task.strikes for task in tasks), default=1)
    for strikes in range(fewest, MAX_STRIKES + 1):
        attempts = [replace(tasks[i], strikes=strikes) for i in open_tasks]
        plans = plan_batch(model, attempts, config)
        for i, candidate in zip(open_tasks, plans, strict=True):
            if i not in best or _is_better(candidate, best[i]):
                best[i] = candidate
        open_tasks = [i for i in open_tasks if best[i].status is not PlanStatus.FOUND]
    return [best[i] for i in range(len(tasks))]


def plan_batch(
    model: StrikeModel, tasks: Sequence[PlanningTask], config: PlannerConfig = PlannerConfig()
) -> list[Plan]:
    """Plan the strikes of a batch of tasks; a plan does not depend on the others of its batch.

    The loss of Eq. 5 is minimised. Points are first scattered over all strikes, then a population
    is evaluated in one batch for all tasks in each round. Gradient descent starts at the best
    scattered points and takes as many evaluations. Of the ends of a search that are almost equally
    good, the one is planned of which the model is surest.

    Args:
        model: Predicts where a struck body comes to rest.
        tasks: Tasks with the same number of strikes, reach and tau.
        config: How to search.

    Returns:
        A plan for each task; its status says whether the target is reached.
    """
    if not tasks:
        return []
    _check_tasks_agree(tasks)
    _check_model(model, config)
    samples = NoiseSamples(cost=config.noise_samples, choice=config.choice_samples)
    batch = BatchCost(model, tasks, samples=samples, seed=config.seed)
    budget = _SearchBudget.of(config, tasks[0].strikes)
    if config.device is not None:
        ends = _search_on_device(batch, config, budget, device=config.device)
    elif config.method == "gradient":
        starts, _ = evaluate_random_points(
            batch.cost, len(tasks), batch.dim, points=budget.scattered, seed=config.seed
        )
        ends = minimise_by_gradient(
            batch.torch_cost, starts[:, : budget.descents], steps=budget.gradient_steps
        )
    else:
        ends = _search_populations(batch, config, budget)
    points = batch.choose(ends)
    return batch.plans_at(points, budget.evaluations, repeatability=config.repeatability)


def _is_better(candidate: Plan, previous: Plan) -> bool:
    """Whether a plan with more strikes is preferred: it reaches the target, or comes nearer."""
    if candidate.status is PlanStatus.FOUND:
        return True
    return (candidate.leaves_reach, candidate.cost) < (previous.leaves_reach, previous.cost)


def _check_tasks_agree(tasks: Sequence[PlanningTask]) -> None:
    first = tasks[0]
    shared = (first.strikes, first.reach, first.tau)
    if any((task.strikes, task.reach, task.tau) != shared for task in tasks):
        raise DataError(
            "tasks that are planned together must have the same number of strikes, reach and tau"
        )


def _check_model(model: StrikeModel, config: PlannerConfig) -> None:
    """Refuse a method or a device that the model cannot be used with."""
    name = type(model).__name__
    if config.method == "gradient" and not callable(model):
        raise DataError(f"a {name} has no gradient: plan with cmaes or cem, or with a strike table")
    if config.device is not None and not callable(model):
        raise DataError(f"a {name} cannot be moved to a device: plan with a strike table")


def _search_on_device(
    batch: BatchCost, config: PlannerConfig, budget: _SearchBudget, *, device: str
) -> np.ndarray:
    """Return the best points (T, S, K d) that S searches for each task find on a device."""
    cost = batch.cost_on_device(copy_to_device(batch.model, device))
    if config.method == "gradient":
        starts, _ = device_search.evaluate_random_points(
            cost,
            len(batch.tasks),
            batch.dim,
            points=budget.scattered,
            generator=device_search.cpu_generator(config.seed),
            device=device,
        )
        return minimise_by_gradient(cost, starts[:, : budget.descents], steps=budget.gradient_steps)
    search_config = device_search.DeviceSearchConfig(
        method=config.method,
        population=budget.population,
        starts=budget.starts,
        scattered=budget.scattered,
        rounds=config.rounds,
        seed=config.seed,
    )
    return device_search.search_on_device(
        cost, len(batch.tasks), batch.dim, config=search_config, device=device
    )


def _search_populations(
    batch: BatchCost, config: PlannerConfig, budget: _SearchBudget
) -> np.ndarray:
    """Return the best points (T, S, K d) that S searches for each task find with numpy."""
    tasks = len(batch.tasks)
    starts = budget.starts
    dim = batch.dim
    scattered, costs = evaluate_random_points(
        batch.cost, tasks, dim, points=budget.scattered, seed=config.seed
    )
    # The population is split among starts that lie apart: strikes on different sides of a body may
    # bring it to the same place, so the cost has several minima.
    centres, centre_costs = pick_distant(scattered, costs, starts)
    centres = centres.reshape(tasks * starts, dim)
    centre_costs = centre_costs.reshape(tasks * starts)
    searcher_type = BatchedCmaEs if config.method == "cmaes" else Cem
    searcher = searcher_type(centres, budget.population, config.seed)

    def cost_of_starts(points: np.ndarray) -> np.ndarray:
        """Costs (T S, P) of the populations of all starts, evaluated as one batch of the tasks."""
        merged = points.reshape(tasks, starts * budget.population, dim)
        return batch.cost(merged).reshape(tasks * starts, budget.population)

    points, _ = minimise(cost_of_starts, searcher, (centres, centre_costs), rounds=config.rounds)
    return points.reshape(tasks, starts, dim)
