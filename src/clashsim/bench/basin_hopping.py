"""Share of seeds that find the true parameters from a poor first guess, for four searches.

All searches have the same budget of simulator steps. A step with the Jacobian in q parameters is
counted as 1 + q steps, which is what finite differences would take. The seed draws the first guess:

    descent        one Levenberg-Marquardt descent from the first guess until it stops
    multi-start    descents from the first guess and from points over the whole range
    cma-es         CMA-ES with the first guess as mean and a quarter of the range as standard
                   deviation
    basin-hopping  parallel chains from the first guess and from others that are as poor
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from cmaes import CMA
from scipy.stats import qmc

from clashsim.bench.hard_starts import PROBLEMS, HardStart
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, find_row, optional
from clashsim.optim.basin_hopping import BasinHoppingConfig, hop_basins
from clashsim.optim.levenberg_marquardt import levenberg_marquardt

OPTIONS = frozenset({"seeds", "sets", "methods", "resume"})
NUM_CHAINS = 8
HOPS = BasinHoppingConfig(steps_per_round=5, polish_steps=20)
CLOSE = 0.05  # unit scale: the truth is found if every parameter is this close to it
_CMA_STD = 0.5  # first standard deviation of CMA-ES, unit scale: the range is from -1 to 1
_DESCENT_TOLERANCE = 1e-6  # relative fall of the cost over some steps, below which `descent` stops
_SOLVED = 1e-10  # squared relative error at which CMA-ES stops
_FAILED = 1e30  # loss of a simulation that did not stay finite


class SearchResult(NamedTuple):
    """Where a search ended.

    Attributes:
        point: Best point found, (q,), unit scale.
        spent: Simulator steps, in numbers of evaluations with a Jacobian.
    """

    point: np.ndarray
    spent: int


# (problem, seed, budget in evaluations with a Jacobian) -> where the search ended
Search = Callable[[HardStart, int, int], SearchResult]


def _budget(problem: HardStart) -> int:
    """Evaluations with a Jacobian that basin hopping spends, and so the budget of every search."""
    per_round = NUM_CHAINS * (HOPS.steps_per_round + 1)
    return per_round * problem.rounds + HOPS.polish_steps + 1


def _descent(problem: HardStart, seed: int, budget: int) -> SearchResult:
    """One descent; it may stop before its budget is spent."""
    guess = _first_guesses(problem, seed, 1)
    end = levenberg_marquardt(
        problem.evaluate, guess, steps=budget - 1, tolerance=_DESCENT_TOLERANCE
    )
    evaluations = len(end.trace)
    return SearchResult(end.points[0], evaluations)


def _multi_start(problem: HardStart, seed: int, budget: int) -> SearchResult:
    """As many descents as the budget allows, then a further descent from the best end.

    Each descent has as many steps as a chain of basin hopping in two rounds.
    """
    length = 2 * HOPS.steps_per_round
    polish = min(HOPS.polish_steps, budget // 4)
    count = max(1, (budget - polish - 1) // (length + 1))
    sampler = qmc.LatinHypercube(len(problem.truth), rng=np.random.default_rng([seed, 1]))
    over_range = 2 * sampler.random(max(count - 1, 1)) - 1
    starts = np.vstack([_first_guesses(problem, seed, 1), over_range])[:count]
    ends = []
    for i in range(0, count, NUM_CHAINS):
        ends.append(levenberg_marquardt(problem.evaluate, starts[i : i + NUM_CHAINS], steps=length))
    points = np.concatenate([end.points for end in ends])
    losses = np.concatenate([end.loss for end in ends])
    best = points[losses.argmin()]
    polished = levenberg_marquardt(problem.evaluate, best[None], steps=polish)
    return SearchResult(polished.points[0], count * (length + 1) + polish + 1)


def _cma_es(problem: HardStart, seed: int, budget: int) -> SearchResult:
    """CMA-ES, which needs no Jacobian and so evaluates 1 + q times as many points."""
    q = len(problem.truth)
    search = CMA(
        mean=_first_guesses(problem, seed, 1)[0],
        sigma=_CMA_STD,
        bounds=np.tile([-1.0, 1.0], (q, 1)),
        seed=seed,
        population_size=NUM_CHAINS,
    )
    best = search.mean
    least = np.inf
    evaluated = 0
    for _ in range(budget * (1 + q) // NUM_CHAINS):
        evaluated += NUM_CHAINS
        points = np.stack([search.ask() for _ in range(NUM_CHAINS)])
        with np.errstate(over="ignore"):
            squared = (problem.residuals(points) ** 2).sum(1)
        loss = np.nan_to_num(squared, nan=_FAILED, posinf=_FAILED)
        search.tell(list(zip(points, loss, strict=True)))
        if loss.min() < least:
            best = points[loss.argmin()]
            least = loss.min()
        if least < _SOLVED or search.should_stop():
            break
    evaluations_with_jacobian = -(-evaluated // (1 + q))  # rounded up
    return SearchResult(best, evaluations_with_jacobian)


def _basin_hopping(problem: HardStart, seed: int, budget: int) -> SearchResult:
    """Basin hopping with as many rounds as the budget allows."""
    per_round = NUM_CHAINS * (HOPS.steps_per_round + 1)
    rounds = max(1, (budget - HOPS.polish_steps - 1) // per_round)
    found = hop_basins(
        problem.evaluate,
        _first_guesses(problem, seed, NUM_CHAINS),
        seed=seed,
        hops=BasinHoppingConfig(rounds, HOPS.steps_per_round, polish_steps=HOPS.polish_steps),
    )
    return SearchResult(found.best, found.evaluations)


def _first_guesses(problem: HardStart, seed: int, n: int) -> np.ndarray:
    return problem.first_guesses(n, np.random.default_rng([seed, 0]))


METHODS: dict[str, Search] = {
    "descent": _descent,
    "multi-start": _multi_start,
    "cma-es": _cma_es,
    "basin-hopping": _basin_hopping,
}


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure every search on every problem.

    Args:
        options: What to measure; its sets are keys of `PROBLEMS`.

    Returns:
        One row per problem (`set`) and search (`method`): the share of seeds that found the truth,
        and the medians of the relative error and of the distance from the truth.
    """
    default = ["pendulum"] if options.quick else list(PROBLEMS)
    names = choose(options.sets or default, list(PROBLEMS))
    methods = choose(options.methods, list(METHODS), what="method")
    seeds = options.repetitions(10, quick=2)
    done = read_rows(options.resume)
    rows: list[Row] = []
    with options.progress("searching", len(names) * len(methods) * seeds) as advance:
        for name in names:
            problem = PROBLEMS[name]()
            budget = _budget(problem)
            if options.quick:
                budget = 2 * NUM_CHAINS * (HOPS.steps_per_round + 1)
            for method in methods:
                with optional(rows, set=name, method=method):
                    found = []
                    for seed in range(seeds):
                        head = {"set": name, "method": method, "seed": seed, "points": budget}
                        row = find_row(done, head)
                        if row is None:
                            row = head | _measure(problem, METHODS[method](problem, seed, budget))
                            append_rows(options.resume, [row])
                        found.append(row)
                        advance(1)
                    rows.append(_mean_row(problem, found))
                options.save(rows)
    return rows


def _measure(problem: HardStart, found: SearchResult) -> Row:
    """Figures of one seed."""
    distance = float(np.abs(found.point - problem.truth).max())
    return {
        "reached": distance < CLOSE,
        "distance": distance,
        "error": float(np.sqrt((problem.residuals(found.point[None]) ** 2).sum())),
        "spent": found.spent,
    }


def _mean_row(problem: HardStart, found: list[Row]) -> Row:
    """Figures over all seeds of one search."""
    budget = found[0]["points"]
    return {
        "set": found[0]["set"],
        "method": found[0]["method"],
        "reached": sum(r["reached"] for r in found) / len(found),
        "seeds": len(found),
        "error": float(np.median([r["error"] for r in found])),
        "distance": float(np.median([r["distance"] for r in found])),
        "steps": problem.steps * budget * (1 + len(problem.truth)),
        "spent": float(np.mean([r["spent"] for r in found])) / budget,
    }
