"""Strikes a second in MJX on jax's device, and how far their impacts are from MuJoCo's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from clashsim.bench.rows import Row, optional
from clashsim.core.scene import Scene
from clashsim.fit.sample import sample_strikes
from clashsim.sim.mjx.impact_simulator import MjxImpactSimulator
from clashsim.sim.mujoco.impacts import ImpactOutcome, ImpactSimulator


def measure_rates(
    scene_name: str,
    sizes: Sequence[int] = (1024, 8192, 65536),
    *,
    single: bool = False,
    batches_per_lane: int = 4,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows of what, method, per_second, steps_per_second and compile_s: impacts in lanes of
    `sizes`, `batches_per_lane` to a lane, whole calls from arrays to arrays.

    steps_per_second counts the steps that impacts took, not those of lanes that wait for the last
    one. The first row is MuJoCo on all cores.
    """
    scene = Scene.load(scene_name)
    strikes = sample_strikes(scene, batches_per_lane * max(sizes), np.random.default_rng(seed))
    few = min(4096, len(strikes.before))
    before, theta = strikes.before[:few], strikes.theta[:few]
    rows: list[Row] = [
        _row("strikes in MuJoCo", "all cores", ImpactSimulator(scene, few), before, theta)
    ]
    number = "float32" if single else "float64"
    for lanes in sizes:
        with optional(rows, what="strikes in MJX", method=f"{lanes} at once, {number}"):
            n = batches_per_lane * lanes
            run = MjxImpactSimulator(scene, n, lanes=lanes, single=single)
            method = f"{lanes} at once on {run.device}, {number}"
            rows.append(_row("strikes in MJX", method, run, strikes.before[:n], strikes.theta[:n]))
    return rows


def compare_with_mujoco(
    scene_name: str, n: int = 4096, *, single: bool = False, seed: int = 0
) -> dict[str, Any]:
    """How far `n` impacts are from MuJoCo's: share with the same end and with as many steps;
    median, 99th percentile and largest of |twist - MuJoCo's| / |MuJoCo's|.
    """
    scene = Scene.load(scene_name)
    strikes = sample_strikes(scene, n, np.random.default_rng(seed))
    theirs, mine = (
        run(strikes.before, strikes.theta)
        for run in (ImpactSimulator(scene, n), MjxImpactSimulator(scene, n, single=single))
    )
    kept = theirs.usable & mine.usable
    off = (
        np.linalg.norm(mine.after - theirs.after, axis=1) / np.linalg.norm(theirs.after, axis=1)
    )[kept]
    middle, high, most = np.percentile(off, [50, 99, 100])
    return {
        "scene": scene_name,
        "n": n,
        "single": single,
        "same_end": float((mine.end == theirs.end).mean()),
        "same_steps": float((mine.steps == theirs.steps).mean()),
        "median": middle,
        "percentile_99": high,
        "largest": most,
    }


def _row(
    what: str,
    method: str,
    run: ImpactSimulator | MjxImpactSimulator,
    before: np.ndarray,
    theta: np.ndarray,
) -> dict[str, Any]:
    begin = time.perf_counter()
    run(before[:1], theta[:1], duration=0.0)  # one step: compiles
    first = time.perf_counter() - begin
    run(before, theta)  # warms up
    best, outcome = np.inf, ImpactOutcome(*[np.zeros(0)] * 3)
    for _ in range(2):
        begin = time.perf_counter()
        outcome = run(before, theta)
        best = min(best, time.perf_counter() - begin)
    return {
        "what": what,
        "method": method,
        "per_second": len(before) / best,
        "steps_per_second": float(outcome.steps.sum()) / best,
        "compile_s": first,
    }
