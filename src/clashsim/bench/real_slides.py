"""Where a struck object stops (BENCHMARKS.md, real-slides).

The data sets are slides of struck boxes that others recorded, and slides of the virtual
laboratory's shapes. A method may use n slides (and the strikes before them); it is tested on the
others.

    input `twist`    the pose at rest is predicted from the pose and twist measured after the strike
    input `strike`   the pose at rest is predicted from the motion before the strike; clashsim's
                     calibrated collision model gives the twist after it, for all methods
    draw `random`    a method uses n of all slides
    draw `session`   a method uses n slides of one session and is tested on the others of that
                     session: one table on one day, which is what a laboratory calibrates

Errors are means over slides and repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from clashsim.bench import slide_sets
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.recorded_slides import SlideSet
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, measured, optional
from clashsim.bench.slide_problem import RestPoseProblem
from clashsim.core.angles import wrap_angle
from clashsim.fit.calibrate import calibrate
from clashsim.slides.identify import SlideFit, fit_slides

OPTIONS = frozenset({"root", "seeds", "sets", "methods", "resume"})
NS = (10, 50)  # numbers of slides that a method may use
_QUICK_NS = (10,)
_MAX_SLIDES = 400  # of a data set; no more, because MuJoCo simulates each at fifteen frictions
_QUICK_SLIDES = 40
# Input `strike` is measured less often: the starts of its slides differ in each repetition, so that
# MuJoCo has to simulate them, whereas it takes those of input `twist` from a table.
_STRIKE_REPETITIONS = 5
_STRIKE_TESTED = 100  # slides in each repetition
Splits = list[tuple[np.ndarray, np.ndarray]]  # rows to use, rows to test on
# Poses and twists (N, 3) -> poses at rest (N, 3)
RestModel = Callable[[np.ndarray, np.ndarray], np.ndarray]
# (problem, rows to use) -> what predicts poses at rest
Method = Callable[[RestPoseProblem, np.ndarray], RestModel]


class SlideErrors(NamedTuple):
    """Distances (N,), m, and angles (N,), rad, between predicted and measured poses at rest."""

    distance: np.ndarray
    angle: np.ndarray


def _mujoco_sliding(problem: RestPoseProblem, rows: np.ndarray) -> RestModel:
    """MuJoCo with identified sliding friction and its default torsional friction."""
    return problem.mujoco_rest_model(problem.identify_sliding(rows))


def _mujoco_torsional(problem: RestPoseProblem, rows: np.ndarray) -> RestModel:
    """MuJoCo with identified sliding and torsional friction."""
    return problem.mujoco_rest_model(problem.identify_torsional(rows))


def fit_slide_model(problem: RestPoseProblem, rows: np.ndarray) -> SlideFit:
    """Fit clashsim's slide model to the slides in `rows`."""
    data = problem.data
    slides = [data.slides[i] for i in rows]
    return fit_slides(slides, data.support_patch, twists=data.twist[rows])


def _clashsim(problem: RestPoseProblem, rows: np.ndarray) -> RestModel:
    model = fit_slide_model(problem, rows).model

    def rest(pose: np.ndarray, twist: np.ndarray) -> np.ndarray:
        return model.rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()

    return rest


METHODS: dict[str, Method] = {
    "mujoco-friction": _mujoco_sliding,
    "mujoco-torsional": _mujoco_torsional,
    "clashsim": _clashsim,
}


def split_slides(data: SlideSet, n: int, draw: str, *, seeds: int) -> Splits:
    """Split slides into those to use and those to test on, once per repetition.

    Args:
        data: The slides.
        n: Number of slides to use.
        draw: `random` or `session`.
        seeds: Number of repetitions.

    Returns:
        (rows to use, rows to test on) of each repetition; none where there are fewer than 2 n
        slides to choose from.
    """
    if draw == "random":
        groups = [np.arange(len(data))]
    else:
        session_names = list(dict.fromkeys(data.session))
        if len(session_names) == 1:
            return []
        groups = [np.flatnonzero(data.session == name) for name in session_names]
    large_groups = [rows for rows in groups if len(rows) >= 2 * n]
    if not large_groups:
        return []
    splits = []
    for seed in range(seeds):
        group = large_groups[seed % len(large_groups)]
        order = np.random.default_rng(seed).permutation(group)
        splits.append((order[:n], order[n:]))
    return splits


def run(options: BenchOptions = BenchOptions(), *, ns: Sequence[int] | None = None) -> list[Row]:
    """Measure all methods on all data sets.

    Args:
        options: What to measure; without a data root, the laboratory's sets alone.
        ns: Numbers of slides that a method may use.

    Returns:
        One row per data set, method, input, number of slides and draw.
    """
    present = slide_sets.names(options.root)
    default = [present[0], "lab/square"] if options.quick else present
    chosen = choose(options.sets or default, present)
    methods = choose(options.methods, list(METHODS), what="method")
    seeds = options.repetitions(20, quick=3)
    most = _QUICK_SLIDES if options.quick else _MAX_SLIDES
    rows: list[Row] = []
    with options.progress("measuring", len(chosen)) as advance:
        for name in chosen:
            with optional(rows, set=name):
                problem = RestPoseProblem(slide_sets.load(name, options.root).thinned(most))
                for draw in ("random", "session"):
                    for n in ns or (_QUICK_NS if options.quick else NS):
                        splits = split_slides(problem.data, n, draw, seeds=seeds)
                        head = {"set": name, "draw": draw, "n": n, "of": len(splits)}
                        done = [row for row in read_rows(options.resume) if row | head == row]
                        finished = {row["method"] for row in done}
                        left = [method for method in methods if method not in finished]
                        new = _measure(problem, head, left, splits)
                        append_rows(options.resume, measured(new))
                        rows += sorted(done + new, key=_order)
                        options.save(rows)
            advance(1)
    return rows


def _order(row: Row) -> tuple[bool, int]:
    """Sorting key: input `twist` before input `strike`, then by method."""
    return row.get("input") != "twist", list(METHODS).index(row["method"])


def _measure(
    problem: RestPoseProblem, head: Row, methods: Sequence[str], splits: Splits
) -> list[Row]:
    """Rows of some methods over all splits; none without methods or splits."""
    if not methods or not splits:
        return []
    after_strike = []
    for rows, _ in splits[:_STRIKE_REPETITIONS]:
        after_strike.append(_predict_after_strike(problem, rows))
    out: list[Row] = []
    for method in methods:
        names = {"set": head["set"], "method": method, "n": head["n"], "draw": head["draw"]}
        with optional(out, **names):
            from_twist: list[SlideErrors] = []
            from_strike: list[SlideErrors] = []
            for seed, (rows, test) in enumerate(splits):
                predict = METHODS[method](problem, rows)
                data = problem.data
                distance, angle = problem.errors(predict(data.pose, data.twist))
                from_twist.append(SlideErrors(distance[test], angle[test]))
                if seed < len(after_strike):
                    tested = test[:_STRIKE_TESTED]
                    pose, twist = after_strike[seed]
                    rest = predict(pose[tested], twist[tested])
                    from_strike.append(SlideErrors(*problem.errors(rest, tested)))
            for kind, errors in (("twist", from_twist), ("strike", from_strike)):
                out.append(_row(names, kind, errors) | {"of": len(splits)})
    return out


def _predict_after_strike(
    problem: RestPoseProblem, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Poses and twists (N, 3) after all strikes, by a collision model that is calibrated on `rows`.

    A recorded slide begins some time after the strike. So the pose is the one before the strike,
    moved by the predicted twist for the time that fits the slides of `rows` best.
    """
    data = problem.data
    twist = calibrate(problem.base, data.impacts[rows]).predict(data.impacts)
    before = data.impacts.pose
    moved = data.pose - before
    moved[:, 2] = wrap_angle(moved[:, 2])
    seconds = []
    for columns in (slice(0, 2), slice(2, 3)):  # position and yaw
        moved_of_rows = moved[rows, columns]
        twist_of_rows = data.twist[rows, columns]
        # Least squares of moved = seconds * twist.
        seconds.append(float((moved_of_rows * twist_of_rows).sum() / (twist_of_rows**2).sum()))
    position_seconds, yaw_seconds = seconds
    pose = before + twist * np.array([position_seconds, position_seconds, yaw_seconds])
    whole_turns = np.round((data.pose[:, 2] - pose[:, 2]) / (2 * np.pi))
    pose[:, 2] += 2 * np.pi * whole_turns
    return pose, twist


def _row(names: Row, kind: str, errors: Sequence[SlideErrors]) -> Row:
    """Errors over slides and repetitions."""
    distance = np.concatenate([error.distance for error in errors])
    angle = np.concatenate([error.angle for error in errors])
    worst_angle = max(float(error.angle.mean()) for error in errors)
    return {
        "set": names["set"],
        "method": names["method"],
        "input": kind,
        "n": names["n"],
        "draw": names["draw"],
        "position_m": round(float(distance.mean()), 5),
        "yaw_rad": round(float(angle.mean()), 5),
        "position_median_m": round(float(np.median(distance)), 5),
        "yaw_median_rad": round(float(np.median(angle)), 5),
        "yaw_worst_seed_rad": round(worst_angle, 5),
        "seeds": len(errors),
    }
