"""Strikes per second in MJX on jax's device, and how far their impacts are from MuJoCo's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from clashsim.bench.rows import Row, optional
from clashsim.core.scene import Scene
from clashsim.fit.sample import StrikeBatch, sample_strikes
from clashsim.sim.mjx.impact_simulator import MjxImpactSimulator
from clashsim.sim.mujoco.impacts import ImpactSimulator

_MAX_IN_MUJOCO = 4096  # strikes
_TIMED_CALLS = 2  # of which the faster one counts


def measure_rates(
    scene_name: str,
    sizes: Sequence[int] = (1024, 8192, 65536),
    *,
    single: bool = False,
    batches_per_lane: int = 4,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Measure strikes per second of whole calls, whose inputs and outputs are numpy arrays.

    Args:
        scene_name: Name of a shipped scene.
        sizes: Numbers of lanes to measure; each lane simulates one impact at a time.
        single: Whether MJX computes in single precision.
        batches_per_lane: Impacts that each lane simulates in one call, one after the other.
        seed: Seed of the strikes.

    Returns:
        Rows of what, method, per_second, steps_per_second (only steps that impacts needed, not
        those of lanes that wait for the last one) and compile_s, the seconds of compiling. The
        first row is MuJoCo on all cores.
    """
    scene = Scene.load(scene_name)
    strikes = sample_strikes(scene, batches_per_lane * max(sizes), np.random.default_rng(seed))
    few = min(_MAX_IN_MUJOCO, len(strikes.before))
    mujoco_head = {"what": "strikes in MuJoCo", "method": "all cores"}
    rows: list[Row] = [mujoco_head | _measure(ImpactSimulator(scene, few), strikes, few)]
    precision = "float32" if single else "float64"
    for lanes in sizes:
        with optional(rows, what="strikes in MJX", method=f"{lanes} at once, {precision}"):
            n = batches_per_lane * lanes
            simulator = MjxImpactSimulator(scene, n, lanes=lanes, single=single)
            method = f"{lanes} at once on {simulator.device}, {precision}"
            head = {"what": "strikes in MJX", "method": method}
            rows.append(head | _measure(simulator, strikes, n))
    return rows


def compare_with_mujoco(
    scene_name: str, n: int = 4096, *, single: bool = False, seed: int = 0
) -> dict[str, Any]:
    """Compare impacts in MJX with the same impacts in MuJoCo.

    Args:
        scene_name: Name of a shipped scene.
        n: Number of impacts.
        single: Whether MJX computes in single precision.
        seed: Seed of the impacts.

    Returns:
        Shares of impacts with the same end and with the same number of steps; median, 99th
        percentile and largest relative difference of the twist after impact.
    """
    scene = Scene.load(scene_name)
    strikes = sample_strikes(scene, n, np.random.default_rng(seed))
    in_mujoco = ImpactSimulator(scene, n)(strikes.before, strikes.theta)
    in_mjx = MjxImpactSimulator(scene, n, single=single)(strikes.before, strikes.theta)
    usable = in_mujoco.usable & in_mjx.usable
    gap = np.linalg.norm(in_mjx.after - in_mujoco.after, axis=1)
    relative = (gap / np.linalg.norm(in_mujoco.after, axis=1))[usable]
    median, percentile_99, largest = np.percentile(relative, [50, 99, 100])
    return {
        "scene": scene_name,
        "n": n,
        "single": single,
        "same_end": float((in_mjx.end == in_mujoco.end).mean()),
        "same_steps": float((in_mjx.steps == in_mujoco.steps).mean()),
        "median": median,
        "percentile_99": percentile_99,
        "largest": largest,
    }


def _measure(simulator: ImpactSimulator | MjxImpactSimulator, strikes: StrikeBatch, n: int) -> Row:
    """Rates of the first n strikes."""
    before = strikes.before[:n]
    theta = strikes.theta[:n]
    begin = time.perf_counter()
    simulator(before[:1], theta[:1], duration=0.0)  # a single step, so that compiling is timed
    compile_seconds = time.perf_counter() - begin
    simulator(before, theta)  # warms up
    seconds = np.inf
    steps = 0.0
    for _ in range(_TIMED_CALLS):
        begin = time.perf_counter()
        outcome = simulator(before, theta)
        seconds = min(seconds, time.perf_counter() - begin)
        steps = float(outcome.steps.sum())
    return {
        "per_second": n / seconds,
        "steps_per_second": steps / seconds,
        "compile_s": compile_seconds,
    }
