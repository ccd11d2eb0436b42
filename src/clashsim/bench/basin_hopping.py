"""Share of seeds that reach the truth from a poor first guess: basin hopping against one descent,
many descents and CMA-ES.

All have the same number of simulator steps. A step with slopes in q parameters counts 1 + q times,
which is what finite differences would take. A seed draws the first guess. `steps_per_round` goes on from it
until it stops, `multi-start` descends from it and from points drawn over the whole range, `cma-es`
begins there with a spread of half the range, `basin-hopping` has it and others as poor for its
chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from cmaes import CMA
from scipy.stats import qmc

from clashsim.bench.hard_starts import PROBLEMS, Problem
from clashsim.bench.lab_sets import choose
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.core.progress import Progress, quiet
from clashsim.optim.basin_hopping import BasinHoppingConfig, hop_basins
from clashsim.optim.levenberg_marquardt import levenberg_marquardt

CHAINS, HOPS = 8, BasinHoppingConfig(steps_per_round=5, polish_steps=20)
NEAR = 0.05  # of the half range: a point this near to the truth in every parameter has reached it
Found = tuple[np.ndarray, int]


def _points(problem: Problem) -> int:
    """That basin hopping evaluates with slopes, and so every method."""
    return CHAINS * problem.rounds * (HOPS.steps_per_round + 1) + HOPS.polish_steps + 1


def _descent(problem: Problem, seed: int, points: int) -> Found:
    """One descent; where it stops before all steps are spent, it is done."""
    end = levenberg_marquardt(
        problem.evaluate, _guesses(problem, seed, 1), steps=points - 1, tolerance=1e-6
    )
    return end.points[0], len(end.trace)


def _multi_start(problem: Problem, seed: int, points: int) -> Found:
    """As many descents as there are steps for, of as many steps as basin hopping spends in two
    rounds, the best of them polished.
    """
    length, polish = 2 * HOPS.steps_per_round, min(HOPS.polish_steps, points // 4)
    count = max(1, (points - polish - 1) // (length + 1))
    spread = (
        qmc.LatinHypercube(len(problem.truth), rng=np.random.default_rng([seed, 1])).random(
            max(count - 1, 1)
        )
        * 2
        - 1
    )
    starts = np.vstack([_guesses(problem, seed, 1), spread])[:count]
    ends = [
        levenberg_marquardt(problem.evaluate, starts[i : i + CHAINS], steps=length)
        for i in range(0, count, CHAINS)
    ]
    best = np.concatenate([e.points for e in ends])[np.concatenate([e.loss for e in ends]).argmin()]
    return levenberg_marquardt(problem.evaluate, best[None], steps=polish).points[0], count * (
        length + 1
    ) + polish + 1


def _cma_es(problem: Problem, seed: int, points: int) -> Found:
    q = len(problem.truth)
    total, bounds = points * (1 + q), np.tile([-1.0, 1.0], (q, 1))
    search = CMA(
        mean=_guesses(problem, seed, 1)[0],
        sigma=0.5,
        bounds=bounds,
        seed=seed,
        population_size=CHAINS,
    )
    best, least, asked_of = search.mean, np.inf, 0
    for _ in range(total // CHAINS):
        asked_of += CHAINS
        asked = np.stack([search.ask() for _ in range(CHAINS)])
        with np.errstate(over="ignore"):
            loss = np.nan_to_num((problem.residuals(asked) ** 2).sum(1), nan=1e30, posinf=1e30)
        search.tell(list(zip(asked, loss, strict=True)))
        if loss.min() < least:
            best, least = asked[loss.argmin()], loss.min()
        if least < 1e-10 or search.should_stop():
            break
    return best, -(-asked_of // (1 + q))


def _hopping(problem: Problem, seed: int, points: int) -> Found:
    rounds = max(1, (points - HOPS.polish_steps - 1) // (CHAINS * (HOPS.steps_per_round + 1)))
    found = hop_basins(
        problem.evaluate,
        _guesses(problem, seed, CHAINS),
        seed=seed,
        hops=BasinHoppingConfig(rounds, HOPS.steps_per_round, polish_steps=HOPS.polish_steps),
    )
    return found.best, found.evaluations


def _guesses(problem: Problem, seed: int, n: int) -> np.ndarray:
    return problem.guesses(n, np.random.default_rng([seed, 0]))


METHODS: dict[str, Callable[[Problem, int, int], Found]] = {
    "descent": _descent,
    "multi-start": _multi_start,
    "cma-es": _cma_es,
    "basin-hopping": _hopping,
}


def run(
    seeds: int = 10,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    resume: Path | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of every problem (`set`) and method: the share that reached the truth, and the median
    relative error and distance from the truth.
    """
    names, ways = (
        choose(sets, ["pendulum"] if quick and not sets else [*PROBLEMS]),
        choose(methods, [*METHODS]),
    )
    seeds = min(seeds, 2) if quick else seeds
    done, rows = kept(resume), list[Row]()
    with progress("searching", len(names) * len(ways) * seeds) as advance:
        for name in names:
            problem = PROBLEMS[name]()
            points = CHAINS * (HOPS.steps_per_round + 1) * 2 if quick else _points(problem)
            for method in ways:
                with optional(rows, set=name, method=method):
                    found = []
                    for seed in range(seeds):
                        head = {"set": name, "method": method, "seed": seed, "points": points}
                        one = next((r for r in done if r | head == r), None)
                        if one is None:
                            one = head | _measure(problem, METHODS[method](problem, seed, points))
                            keep(resume, [one])
                        found.append(one)
                        advance(1)
                    rows.append(_row(problem, name, method, found))
                save(rows)
    return rows


def _measure(problem: Problem, found: Found) -> Row:
    point, spent = found
    off = float(np.abs(point - problem.truth).max())
    return {
        "reached": off < NEAR,
        "distance": off,
        "error": float(np.sqrt((problem.residuals(point[None]) ** 2).sum())),
        "spent": spent,
    }


def _row(problem: Problem, name: str, method: str, found: list[Row]) -> Row:
    steps = problem.steps * found[0]["points"] * (1 + len(problem.truth))
    return {
        "set": name,
        "method": method,
        "reached": sum(r["reached"] for r in found) / len(found),
        "seeds": len(found),
        "error": float(np.median([r["error"] for r in found])),
        "distance": float(np.median([r["distance"] for r in found])),
        "steps": steps,
        "spent": float(np.mean([r["spent"] for r in found])) / found[0]["points"],
    }
