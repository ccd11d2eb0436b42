"""Sequential pushing (CLASH, Table VI): policies trained in MuJoCo and in the hybrid simulator,
executed in the laboratory, a stand-in for reality.

Both simulators are identified from the same ten recorded strikes and their slides, and both
policies are trained by the same recipe. MuJoCo makes some twenty strikes a second on two cores, so
that 200,000 would take hours: it is asked once at every point of the grid that the map of strikes
uses, and the policy is trained in that table. 60,000 strikes will do: policies arrive in every
episode after 30,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.bench import planning, slide_sets
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, measured, optional
from clashsim.commands.push import in_lab
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.progress import Progress, quiet
from clashsim.core.workers import exit_with_parent
from clashsim.rl.policy import Policy
from clashsim.rl.routes import ROUTES
from clashsim.rl.sac_training import SacConfig, train
from clashsim.sim.hybrid.strike_table import tabulate_strikes

METHODS = ("mujoco-grid", "clashsim")


def run(
    seeds: int = 3,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    trials: int = 10,
    steps: int = 60_000,
    resume: Path | None = None,
    cache: Path | None = None,
    workers: int = 2,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of route, method, seed of training, successes of `trials` and sub-goals reached; sets
    are routes. Policies are kept beside `resume`.
    """
    for name, choices in [
        *((s, list(ROUTES)) for s in sets or ()),
        *((m, METHODS) for m in methods or ()),
    ]:
        if name not in choices:
            raise DataError(f"the bench has no {name!r}; {did_you_mean(name, choices)}")
    if quick:
        seeds, trials, steps, sets, methods = 1, 1, 4_000, ["1"], ["clashsim"]
    done, rows = kept(resume), list[Row]()
    setting = lab.Setting("semi_cylinder")
    problem = planning.Problem(setting, slide_sets.load("lab/semi-cylinder", None), cache)
    with progress("routes", len(methods or METHODS) * seeds * (1 + len(sets or ROUTES))) as advance:
        for method in methods or METHODS:
            model = None
            for seed in range(seeds):
                path = (
                    None
                    if resume is None
                    else resume.with_name(f"{resume.stem}-{method}-{seed}.safetensors")
                )
                config = replace(SacConfig(), steps=steps)
                with optional(rows, method=method, seed=seed):
                    if (
                        path is not None
                        and path.is_file()
                        and Policy.load(path).notes["recipe"] == asdict(config)
                    ):
                        policy = Policy.load(path)
                    else:
                        if model is None:
                            model = planning.WAYS[method](problem, 0)
                            model = model if model.takes_noise else tabulate_strikes(model)
                        policy = train(problem.scene, model, config=config, seed=seed)
                        if path is not None:
                            policy.save(path)
                    advance(1)
                    for name in sets or ROUTES:
                        head = {"route": name, "method": method, "seed": seed}
                        whole = head | {"trials": trials}
                        with optional(rows, **head):
                            row = next((r for r in done if r | whole == r), None)
                            if row is None:
                                row = head | _executed(policy, name, setting, trials, workers)
                                keep(resume, [row])
                            rows.append(row)
                        save(rows + _summed(measured(rows)))
                        advance(1)
    return rows + _summed(measured(rows))


def _executed(policy: Policy, name: str, setting: lab.Setting, trials: int, workers: int) -> Row:
    jobs = [(policy, name, setting, 1000 + i) for i in range(trials)]
    if workers > 1 and trials > 1:
        with ProcessPoolExecutor(
            workers, mp_context=get_context("spawn"), initializer=exit_with_parent
        ) as pool:
            found = list(pool.map(_trial, jobs))
    else:
        found = [_trial(job) for job in jobs]
    return {
        "success": sum(s for s, _, _ in found),
        "trials": trials,
        "subgoals": sum(g for _, g, _ in found),
        "subgoals_of": trials * len(ROUTES[name]),
        "strikes": float(np.mean([k for _, _, k in found])),
    }


def _trial(job: tuple[Policy, str, lab.Setting, int]) -> tuple[bool, int, int]:
    policy, name, setting, seed = job
    done = in_lab(policy, ROUTES[name], setting, seed)
    return done.success, done.reached, len(done.strikes)


def _summed(rows: list[Row]) -> list[Row]:
    """Sums over the seeds of training."""
    out = []
    for route, method in dict.fromkeys((r["route"], r["method"]) for r in rows):
        mine = [r for r in rows if (r["route"], r["method"]) == (route, method)]
        if len(mine) > 1:
            out.append(
                {"route": route, "method": method, "seed": "all"}
                | {
                    k: sum(r[k] for r in mine)
                    for k in ("success", "trials", "subgoals", "subgoals_of")
                }
            )
    return out
