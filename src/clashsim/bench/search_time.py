"""How long a plan takes (CLASH, Table IV): the same search with the same evaluations in MuJoCo and in the hybrid simulator, on the same cores."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import choose
from clashsim.bench.throughput import slide_of_mujoco
from clashsim.core.progress import Progress, quiet
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.fit.base import base_model
from clashsim.plan.planner import plan
from clashsim.plan.tasks import Task, off
from clashsim.sim.hybrid import HybridSim
from clashsim.sim.mujoco_sim import MujocoSim
from clashsim.sim.stepped import Stepped
from clashsim.sim.strike_map import strike_map

_SECONDS, _COARSE = 0.8, 0.005  # as in throughput
_MANY = 5  # plans of the map of strikes for each of the others


def run(seeds: int = 2, quick: bool = False, *, sets: Sequence[str] | None = None, progress: Progress = quiet) -> list[dict]:
    """Rows of what, method, seconds a plan, per_second and ratio (to MuJoCo); sets are shapes, `seeds` the targets.

    expected_mm: how far from the target the plans end in their own simulator (mean). setup_s: what is paid once, before the first plan.
    """
    chosen = [s.replace("-", "_") for s in choose(sets, [s.replace("_", "-") for s in lab.SHAPES])][: 1 if quick else None]
    rows: list[dict] = []
    with progress("planning", 3 * len(chosen)) as advance:
        for shape in chosen:
            scene = Scene.load(shape)
            theta = scene.nominal.copy()
            theta[[i for i, p in enumerate(scene.params) if p.target == "effect/drag"]] = 0.0  # MuJoCo has none
            base = base_model(scene)
            plain = Stepped(MujocoSim(scene, theta), scene, theta, seconds=_SECONDS)
            hybrid = Stepped(HybridSim(scene, base, theta, timestep=_COARSE), scene, theta, seconds=_SECONDS)
            slide = slide_of_mujoco(hybrid, seed=1)
            begin = time.perf_counter()
            table = strike_map(HybridSim(scene, base, theta, slide_model=slide))
            setup = time.perf_counter() - begin
            n = 1 if quick else seeds
            strike = np.random.default_rng(0).uniform(table.low, table.high, (n * _MANY, len(table.names)))
            targets = table.rest(np.zeros((len(strike), 3)), strike)
            first = None
            for method, model, count, paid in (("MuJoCo", plain, n, 0.0), ("hybrid, MuJoCo's slide", hybrid, n, 0.0), ("map of strikes", table, n * _MANY, setup)):
                seconds, far, evaluations = _timed(model, targets[:count], rounds=2 if quick else 24)
                first = first or seconds
                rows.append({"what": f"plan of {shape.replace('_', '-')}", "method": method, "seconds": seconds, "per_second": 1 / seconds, "ratio": first / seconds,
                             "evaluations": evaluations, "expected_mm": 1e3 * far, "setup_s": paid, "plans": count})
                advance(1)
    return rows


def _timed(model: StrikeModel, targets: np.ndarray, rounds: int) -> tuple[float, float, int]:
    """Seconds a plan, mean distance (m) from the target, and evaluations; engines are made before the clock runs."""
    plan(model, Task(tuple(targets[0])), rounds=0)
    begin = time.perf_counter()
    plans = [plan(model, Task(tuple(t)), rounds=rounds) for t in targets]
    seconds = (time.perf_counter() - begin) / len(targets)
    far, _ = off(np.array([p.predicted[-1] for p in plans]), targets)
    return seconds, float(far.mean()), plans[0].evaluations
