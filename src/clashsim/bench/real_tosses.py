"""Tosses of a real cube (BENCHMARKS.md, real-tosses).

A method uses n tosses and predicts the others from their first frame. The position error (% of the
cube's width) and the rotation error (degrees) of a toss are means over time. Rows have their means
over tosses and repetitions, their medians, the errors 10 frames after the first contact (`_soon`),
and the share of tosses that end on a wrong face.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, optional
from clashsim.bench.toss_methods import METHODS, TossProblem, TossResult
from clashsim.core.errors import DataError
from clashsim.data.public_sets import cube_tosses
from clashsim.data.segmentation.free_flight import fit_flight

OPTIONS = frozenset({"root", "seeds", "methods", "resume"})
NS = (4, 16)  # numbers of tosses that a method may use
_QUICK_NS = (4,)
_QUICK_METHODS = 3  # only the first three methods
_QUICK_TESTED = 12  # tosses
_FEWEST_TESTED = 4  # tosses
# Factor on the stated size of the cube where contacts are looked for. Recorded lengths are about
# 2.2 % too short, so that a cube of the stated size would seem to touch the floor too early.
_RECORDED_SIZE = 0.98
_KEYS = (
    "position_pct",
    "rotation_deg",
    "position_median",
    "rotation_median",
    "position_soon",
    "rotation_soon",
    "wrong_face",
)
_KEYS_WITH_WORST = ("position_pct", "rotation_deg")  # rows also have their worst repetition


def run(options: BenchOptions, *, ns: Sequence[int] | None = None) -> list[Row]:
    """Measure all methods.

    Args:
        options: What to measure; the folder of recordings is needed.
        ns: Numbers of tosses that a method may use.

    Returns:
        One row per method and number of tosses.
    """
    default = list(METHODS)[:_QUICK_METHODS] if options.quick else list(METHODS)
    methods = choose(options.methods or default, list(METHODS), what="method")
    counts = list(ns or (_QUICK_NS if options.quick else NS))
    seeds = options.repetitions(3)
    flights = []
    for trial in cube_tosses.load(options.recordings()):
        flights.append(
            fit_flight(trial, cube_tosses.BODY, _RECORDED_SIZE * cube_tosses.CUBE.corners)
        )
    needed = max(counts) + _FEWEST_TESTED
    if len(flights) < needed:
        raise DataError(f"the data root holds {len(flights)} tosses; at least {needed} are needed")
    done = read_rows(options.resume)
    missing: list[Row] = []
    with options.progress("tosses", len(counts) * len(methods) * seeds) as advance:
        for n in counts:
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(len(flights))
                test = order[n:][:_QUICK_TESTED] if options.quick else order[n:]
                finished = {
                    row["method"]: row for row in done if (row["n"], row["seed"]) == (n, seed)
                }
                problem = TossProblem(
                    fit=tuple(flights[i] for i in order[:n]),
                    test=tuple(flights[i] for i in test),
                    seed=seed,
                    quick=options.quick,
                    thetas={method: row["theta"] for method, row in finished.items()},
                )
                for method in methods:
                    if method not in finished:
                        with optional(missing, method=method, n=n, seed=seed):
                            result = METHODS[method](problem)
                            problem.thetas[method] = result.theta
                            head = {"method": method, "n": n, "seed": seed}
                            done.append(head | _figures(result))
                            append_rows(options.resume, done[-1:])
                        options.save(_means(done, counts, methods) + missing)
                    advance(1)
    return _means(done, counts, methods) + missing


def _figures(result: TossResult) -> Row:
    """Figures of one repetition."""
    errors = result.errors
    values = (
        errors.position.mean(),
        errors.rotation.mean(),
        np.median(errors.position),
        np.median(errors.rotation),
        errors.soon_position.mean(),
        errors.soon_rotation.mean(),
        errors.wrong.mean(),
    )
    figures: Row = {}
    for key, value in zip(_KEYS, values, strict=True):
        figures[key] = round(float(value), 4)
    return figures | {"tosses": int(errors.position.size), "theta": result.theta}


def _means(done: list[Row], counts: Sequence[int], methods: Sequence[str]) -> list[Row]:
    """One row per method and number of tosses, from the repetitions that are done."""
    rows = []
    for n in counts:
        for method in methods:
            repetitions = [row for row in done if (row["method"], row["n"]) == (method, n)]
            if repetitions:
                rows.append(_mean(repetitions))
    return rows


def _mean(repetitions: list[Row]) -> Row:
    """Means and worst repetitions of one method and number of tosses."""
    first = repetitions[0]
    row: Row = {"method": first["method"], "n": first["n"]}
    for key in _KEYS:
        row[key] = round(float(np.mean([repetition[key] for repetition in repetitions])), 3)
    for key in _KEYS_WITH_WORST:
        row[f"{key}_worst"] = round(max(repetition[key] for repetition in repetitions), 3)
    return row | {"seeds": len(repetitions), "tosses": first["tosses"]}
