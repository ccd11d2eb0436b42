"""Summary of the rows of bench `loop`: means over seeds, and strikes needed by each method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clashsim.bench.rows import Row, measured

if TYPE_CHECKING:
    from clashsim.rl.agents import Algorithm

CHANGES = ("heavier", "ballast")
METHODS = ("informative", "plain", "random", "randomised")
ALGORITHMS: tuple[Algorithm, ...] = ("sac", "ppo")
_COLLECTING_METHODS = ("informative", "plain", "random")
_ROUND_KEYS = ("change", "algorithm", "method", "round", "strikes")


def with_summary(rows: list[Row]) -> list[Row]:
    """All rows in order, then their means, then how many strikes each method needed."""
    figures = measured(rows)
    return sorted(rows, key=_order) + _means(figures) + _strikes_needed(figures)


def _order(row: Row) -> tuple[int, int, int, int, int]:
    """Sorting key: change, algorithm, method, seed, round."""
    change = CHANGES.index(row["change"])
    algorithm = ALGORITHMS.index(row["algorithm"])
    return change, algorithm, METHODS.index(row["method"]), row["seed"], row.get("round", 0)


def _means(rows: list[Row]) -> list[Row]:
    """Means over seeds of each round, and sums of successes."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in _ROUND_KEYS), []).append(row)
    means = []
    for values, group in groups.items():
        mean: Row = dict(zip(_ROUND_KEYS, values, strict=True))
        mean["seed"] = "mean"
        mean["seeds"] = len(group)
        for key in ("error_mm", "error_rad"):
            mean[key] = float(np.mean([row[key] for row in group]))
        if "success" in group[0]:
            for key in ("success", "trials"):
                mean[key] = sum(row[key] for row in group)
        means.append(mean)
    return means


def _strikes_needed(rows: list[Row]) -> list[Row]:
    """Number of strikes after which each method was as good as random strikes in the last round.

    Mean position errors over seeds are compared. The number is None for a method that never was as
    good.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for mean in _means(rows):
        if mean["method"] in _COLLECTING_METHODS:
            groups.setdefault((mean["change"], mean["algorithm"]), []).append(mean)
    needed = []
    for (change, algorithm), means in groups.items():
        of_random = [mean for mean in means if mean["method"] == "random"]
        if not of_random:
            continue
        last_random = of_random[-1]
        for method in _COLLECTING_METHODS:
            of_method = [mean for mean in means if mean["method"] == method]
            error_limit = last_random["error_mm"]
            as_good = [mean["strikes"] for mean in of_method if mean["error_mm"] <= error_limit]
            if of_method:
                needed.append(
                    {
                        "change": change,
                        "algorithm": algorithm,
                        "method": method,
                        "seed": "needed",
                        "random_ended_mm": error_limit,
                        "random_strikes": last_random["strikes"],
                        "strikes": min(as_good, default=None),
                    }
                )
    return needed
