"""Sequential pushing (CLASH, Table VI): policies executed in the virtual laboratory.

One policy is trained in MuJoCo, one in the hybrid simulator. Both simulators are identified from
the same ten recorded strikes and their slides, and both policies are trained alike. MuJoCo
simulates some twenty strikes per second on two cores, so that 200,000 strikes would take hours. So
MuJoCo simulates every point of the grid of a strike table once, and the policy is trained in that
table. Training takes 60,000 strikes: policies reach the sub-goal in every episode after 30,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.bench import slide_sets
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.planning_methods import METHODS as PLANNING_METHODS
from clashsim.bench.planning_methods import PlanningProblem
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, find_row, measured, optional
from clashsim.core.protocols import StrikeModel
from clashsim.core.workers import exit_with_parent
from clashsim.loop.lab_routes import follow_in_lab
from clashsim.rl.follow import RouteResult
from clashsim.rl.policy import Policy
from clashsim.rl.routes import ROUTES
from clashsim.rl.sac_training import SacConfig, train
from clashsim.sim.hybrid.strike_table import tabulate_strikes

OPTIONS = frozenset({"seeds", "sets", "methods", "resume"})
METHODS = ("mujoco-grid", "clashsim")
_SHAPE = "semi_cylinder"
_FIRST_LAB_SEED = 1000  # trial i of a policy has this seed plus i
_METHOD_SEED = 0
_DEFAULT_WORKERS = 2  # processes
_QUICK_STEPS = 4_000
_SUMS = ("success", "trials", "subgoals", "subgoals_of")


def run(
    options: BenchOptions = BenchOptions(), *, trials: int = 10, steps: int = 60_000
) -> list[Row]:
    """Train policies and let them follow routes.

    Args:
        options: Its sets are names of routes, its `seeds` is the number of trainings. Policies are
            kept in files beside `options.resume`.
        trials: Number of times that each policy follows a route.
        steps: Number of strikes in a training.

    Returns:
        Rows of route, method, seed, the numbers of successes and of trials, and the numbers of
        sub-goals reached and tried; sums over seeds follow.
    """
    routes = choose(options.sets, list(ROUTES), what="route")
    methods = choose(options.methods, METHODS, what="method")
    seeds = options.repetitions(3)
    workers = options.workers or _DEFAULT_WORKERS
    if options.quick:
        trials = 1
        steps = _QUICK_STEPS
        routes = ["1"]
        methods = ["clashsim"]
    done = read_rows(options.resume)
    rows: list[Row] = []
    setting = lab.Setting(_SHAPE)
    data = slide_sets.load("lab/semi-cylinder", None)
    problem = PlanningProblem(setting, data, options.cache)
    config = replace(SacConfig(), steps=steps)
    with options.progress("routes", len(methods) * seeds * (1 + len(routes))) as advance:
        for method in methods:
            training = _Training(problem, method, config, options.resume)
            for seed in range(seeds):
                with optional(rows, method=method, seed=seed):
                    policy = training.policy(seed)
                    advance(1)
                    for route in routes:
                        head = {"route": route, "method": method, "seed": seed}
                        with optional(rows, **head):
                            row = find_row(done, head | {"trials": trials})
                            if row is None:
                                results = _execute(
                                    policy, route, setting, trials=trials, workers=workers
                                )
                                row = head | _figures(results, route)
                                append_rows(options.resume, [row])
                            rows.append(row)
                        options.save(rows + _sums(measured(rows)))
                        advance(1)
    return rows + _sums(measured(rows))


@dataclass(frozen=True, eq=False)
class _Training:
    """Policies of one method, kept in files beside `resume`."""

    problem: PlanningProblem
    method: str
    config: SacConfig
    resume: Path | None

    @cached_property
    def model(self) -> StrikeModel:
        """The strike table to train in."""
        model = PLANNING_METHODS[self.method](self.problem, _METHOD_SEED)
        # clashsim's model, which takes noise, is a strike table already.
        return model if model.takes_noise else tabulate_strikes(model)

    def policy(self, seed: int) -> Policy:
        """The policy of a seed: from its file if it was trained with the same config, else new."""
        if self.resume is None:
            return self._train(seed)
        path = self.resume.with_name(f"{self.resume.stem}-{self.method}-{seed}.safetensors")
        if path.is_file():
            policy = Policy.load(path)
            if policy.notes["config"] == asdict(self.config):
                return policy
        policy = self._train(seed)
        policy.save(path)
        return policy

    def _train(self, seed: int) -> Policy:
        return train(self.problem.scene, self.model, config=self.config, seed=seed)


def _execute(
    policy: Policy, route: str, setting: lab.Setting, *, trials: int, workers: int
) -> list[RouteResult]:
    """Let a policy follow a route several times."""
    jobs = [(policy, route, setting, _FIRST_LAB_SEED + i) for i in range(trials)]
    if workers == 1 or trials == 1:
        return [_follow(job) for job in jobs]
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=exit_with_parent
    ) as pool:
        return list(pool.map(_follow, jobs))


def _follow(job: tuple[Policy, str, lab.Setting, int]) -> RouteResult:
    policy, route, setting, seed = job
    return follow_in_lab(policy, ROUTES[route], setting, seed=seed)


def _figures(results: Sequence[RouteResult], route: str) -> Row:
    """Figures over all trials of one policy on one route."""
    return {
        "success": sum(result.success for result in results),
        "trials": len(results),
        "subgoals": sum(result.reached for result in results),
        "subgoals_of": len(results) * len(ROUTES[route]),
        "strikes": float(np.mean([len(result.strikes) for result in results])),
    }


def _sums(rows: list[Row]) -> list[Row]:
    """Sums over the seeds of training, where there are several."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["route"], row["method"]), []).append(row)
    sums = []
    for (route, method), group in groups.items():
        if len(group) > 1:
            total: Row = {"route": route, "method": method, "seed": "all"}
            for key in _SUMS:
                total[key] = sum(row[key] for row in group)
            sums.append(total)
    return sums
