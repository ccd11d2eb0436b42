"""How long a plan takes (CLASH, Table IV): the same search with the same evaluations in MuJoCo and
in the hybrid simulator, on the same cores.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import choose
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.bench.throughput import slide_of_mujoco
from clashsim.core.progress import Progress, quiet
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.fit.base import base_model
from clashsim.plan.planner import PlannerConfig, plan_batch
from clashsim.plan.tasks import PlanningTask, pose_error
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_table
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.sim.stepped_strikes import SteppedStrikes

_SECONDS = 0.8  # as in throughput
# S: only collisions need the author's step; what a longer one costs is told in `coarse_mm`
_COARSE = 0.01
_CHECKED = 32  # strikes whose pose at rest is compared between the steps
_AT_ONCE = 16  # targets in one call: small populations leave cores idle that large ones fill


def run(
    seeds: int = 2,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of what, method, seconds a plan, per_second and ratio (to MuJoCo); sets are shapes,
    `seeds` the targets that are planned one by one.

    expected_mm: how far from the target the plans end in their own simulator (mean). setup_s: what
    is paid once, before the first plan.
    coarse_mm: how far bodies come to rest with the hybrid's long step from where they do with
    MuJoCo's own (mean over strikes).
    """
    chosen = [s.replace("-", "_") for s in choose(sets, [s.replace("_", "-") for s in lab.SHAPES])][
        : 1 if quick else None
    ]
    rows: list[Row] = []
    with progress("planning", 5 * len(chosen)) as advance:
        for shape in chosen:
            scene = Scene.load(shape)
            theta = scene.nominal.copy()
            theta[[i for i, p in enumerate(scene.params) if p.target == "effect/drag"]] = (
                0.0  # MuJoCo has none
            )
            base = base_model(scene)
            plain = SteppedStrikes(MujocoSim(scene, theta), scene, theta, seconds=_SECONDS)
            hybrid = SteppedStrikes(
                HybridSim(scene, base, theta, timestep=_COARSE), scene, theta, seconds=_SECONDS
            )
            slide = slide_of_mujoco(hybrid, seed=1)
            begin = time.perf_counter()
            table = strike_table(HybridSim(scene, base, theta, slide_model=slide))
            setup = time.perf_counter() - begin
            n, many = (1, 2) if quick else (seeds, _AT_ONCE)
            strike = np.random.default_rng(0).uniform(
                table.low, table.high, (max(many, 5 * n), len(table.names))
            )
            targets = table.rest(np.zeros((len(strike), 3)), strike)
            some, still = strike[:_CHECKED], np.zeros((min(_CHECKED, len(strike)), 3))
            fine = SteppedStrikes(
                HybridSim(scene, base, theta), scene, theta, seconds=_SECONDS
            ).rest(still, some)
            coarse = float(pose_error(hybrid.rest(still, some), fine)[0].mean())
            first = None
            ways = (
                ("MuJoCo", plain, n, 1, 0.0),
                ("hybrid, MuJoCo's slide", hybrid, n, 1, 0.0),
                (f"hybrid, MuJoCo's slide, {many} targets at once", hybrid, many, many, 0.0),
                ("map of strikes", table, 5 * n, 1, setup),
                (f"map of strikes, {many} targets at once", table, many, many, setup),
            )
            for method, model, count, together, paid in ways:
                head = {"what": f"plan of {shape.replace('_', '-')}", "method": method}
                with optional(rows, **head):
                    seconds, far, evaluations = _timed(
                        model, targets[:count], together, rounds=2 if quick else 24
                    )
                    if model is plain:
                        first = seconds
                    ratio = None if first is None else first / seconds
                    speed = {"seconds": seconds, "per_second": 1 / seconds, "ratio": ratio}
                    plans = {
                        "evaluations": evaluations,
                        "expected_mm": 1e3 * far,
                        "setup_s": paid,
                        "plans": count,
                    }
                    steps = {"coarse_mm": 1e3 * coarse} if model is hybrid else {}
                    rows.append(head | speed | plans | steps)
                save(rows)
                advance(1)
    return rows


def _timed(
    model: StrikeModel, targets: np.ndarray, together: int, rounds: int
) -> tuple[float, float, int]:
    """Seconds a plan, mean distance (m) from the target, and evaluations a plan; `together`:
    targets in one call. Engines are made before the clock runs.
    """
    tasks = [PlanningTask(tuple(t)) for t in targets]
    plan_batch(model, tasks[:together], PlannerConfig(rounds=0))
    begin = time.perf_counter()
    plans = [
        p
        for i in range(0, len(tasks), together)
        for p in plan_batch(model, tasks[i : i + together], PlannerConfig(rounds=rounds))
    ]
    seconds = (time.perf_counter() - begin) / len(targets)
    far, _ = pose_error(np.array([p.predicted[-1] for p in plans]), targets)
    return seconds, float(far.mean()), plans[0].evaluations
