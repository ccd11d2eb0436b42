"""Tosses of a real cube (BENCHMARKS.md, real-tosses).

A method uses n tosses and predicts the others from their first frame. The position error (% of the
cube's width) and the rotation error (degrees) of a toss are means over time. Rows have their means
over tosses and repetitions, their medians, the errors 10 frames after the first contact (`_soon`),
the share of tosses that end on a wrong face, and how deep the simulated cube is in the floor (% of
the width): its mean over time, and the mean over tosses of the deepest frame.

All tosses of a row, fitted or predicted, start in one of two ways. `fitted`: from a fit over the
free flight before the first contact. `row-0`: from pose and velocity in the first row of the
recording, as in published figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, optional
from clashsim.bench.toss_methods import METHODS, TossProblem, TossResult
from clashsim.core.errors import DataError
from clashsim.data.public_sets import cube_tosses
from clashsim.data.segmentation.free_flight import Flight, fit_flight

OPTIONS = frozenset({"root", "seeds", "methods", "resume"})
NS = (4, 16)  # numbers of tosses that a method may use
FITTED = "fitted"
ROW_0 = "row-0"
STARTS = (FITTED, ROW_0)  # of tosses
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
    "penetration_pct",
    "penetration_largest",
)
_KEYS_WITH_WORST = ("position_pct", "rotation_deg")  # rows also have their worst repetition


def run(
    options: BenchOptions, *, ns: Sequence[int] | None = None, starts: Sequence[str] = STARTS
) -> list[Row]:
    """Measure all methods.

    Args:
        options: What to measure; the folder of recordings is needed.
        ns: Numbers of tosses that a method may use.
        starts: How tosses start.

    Returns:
        One row per start, number of tosses and method.
    """
    default = list(METHODS)[:_QUICK_METHODS] if options.quick else list(METHODS)
    methods = choose(options.methods or default, list(METHODS), what="method")
    counts = list(ns or (_QUICK_NS if options.quick else NS))
    seeds = options.repetitions(3)
    flights = _flights(options.recordings(), starts)
    num_tosses = len(flights[starts[0]])
    needed = max(counts) + _FEWEST_TESTED
    if num_tosses < needed:
        raise DataError(f"the data root holds {num_tosses} tosses; at least {needed} are needed")
    done = [{"start": FITTED} | row for row in read_rows(options.resume)]
    missing: list[Row] = []
    repetitions = list(product(starts, counts, range(seeds)))
    with options.progress("tosses", len(repetitions) * len(methods)) as advance:
        for start, n, seed in repetitions:
            repetition: Row = {"start": start, "n": n, "seed": seed}
            finished: dict[str, Row] = {}
            for row in done:
                if row | repetition == row:
                    finished[row["method"]] = row
            order = np.random.default_rng(seed).permutation(num_tosses)
            test = order[n:][:_QUICK_TESTED] if options.quick else order[n:]
            problem = TossProblem(
                fit=tuple(flights[start][i] for i in order[:n]),
                test=tuple(flights[start][i] for i in test),
                seed=seed,
                quick=options.quick,
                thetas={method: row["theta"] for method, row in finished.items()},
            )
            for method in methods:
                if method not in finished:
                    head = {"method": method} | repetition
                    with optional(missing, **head):
                        result = METHODS[method](problem)
                        problem.thetas[method] = result.theta
                        done.append(head | _figures(result))
                        append_rows(options.resume, done[-1:])
                    options.save(_means(done, starts, counts, methods) + missing)
                advance(1)
    return _means(done, starts, counts, methods) + missing


def _flights(root: Path, starts: Sequence[str]) -> dict[str, list[Flight]]:
    """All tosses in the same order, by how they start."""
    corners = _RECORDED_SIZE * cube_tosses.CUBE.corners
    trials = cube_tosses.load(root)
    flights = {FITTED: [fit_flight(trial, cube_tosses.BODY, corners) for trial in trials]}
    if ROW_0 in starts:
        recorded = cube_tosses.recorded_starts(root)
        flights[ROW_0] = [
            replace(flight, recorded_start=recorded[flight.name]) for flight in flights[FITTED]
        ]
    return flights


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
        result.penetration.mean.mean(),
        result.penetration.largest.mean(),
    )
    figures: Row = {}
    for key, value in zip(_KEYS, values, strict=True):
        figures[key] = round(float(value), 4)
    return figures | {"tosses": int(errors.position.size), "theta": result.theta}


def _means(
    done: list[Row], starts: Sequence[str], counts: Sequence[int], methods: Sequence[str]
) -> list[Row]:
    """One row per start, number of tosses and method, from the repetitions that are done."""
    rows = []
    for start, n, method in product(starts, counts, methods):
        head: Row = {"method": method, "n": n, "start": start}
        repetitions = [row for row in done if row | head == row]
        if repetitions:
            rows.append(head | _mean(repetitions))
    return rows


def _mean(repetitions: list[Row]) -> Row:
    """Means and worst repetitions of one method; rows of older versions lack some figures."""
    row: Row = {}
    for key in _KEYS:
        values = [repetition[key] for repetition in repetitions if key in repetition]
        if len(values) == len(repetitions):
            row[key] = round(float(np.mean(values)), 3)
    for key in _KEYS_WITH_WORST:
        row[f"{key}_worst"] = round(max(repetition[key] for repetition in repetitions), 3)
    return row | {"seeds": len(repetitions), "tosses": repetitions[0]["tosses"]}
