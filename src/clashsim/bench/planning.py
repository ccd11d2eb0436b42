"""Planned strikes executed in the laboratory, a stand-in for reality (CLASH, Table III): how far
bodies come to rest from their targets.

Every method gets the first ten recorded strikes of a shape and the slides after them, and plans by
the same search with the same number of evaluations. Targets are where strikes that no method has
seen came to rest, so that each can be reached. Each plan is executed `repeats` times; all methods
meet the same scatter of arm, table and camera.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clashsim import lab
from clashsim.bench import baselines, real_slides, slide_sets
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.bench.slide_sets import SlideSet
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.impacts import Impacts
from clashsim.core.progress import Progress, quiet
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import GROUND, Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.core.trials import yaw
from clashsim.fit.base import base_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.identify import identify_rows
from clashsim.nets.spline_table import SplineTable
from clashsim.plan.planner import plan_batch
from clashsim.plan.tasks import PlanningTask, pose_error
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_grid, strike_table
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.sim.stepped_strikes import SteppedStrikes
from clashsim.slides.identify import SlideFit, delay, fit_slides

NUM_FITTED = 10
_SECONDS = 0.8  # after which every block lies still in MuJoCo
_LAST = 10  # frames at rest whose median is the pose at rest
Way = Callable[["Problem", int], StrikeModel]


@dataclass(frozen=True, eq=False)
class Problem:
    """The strikes of one shape that methods may use, and what they compute of them once."""

    setting: lab.Setting
    data: SlideSet  # all recorded strikes; methods see `seen`, the first `NUM_FITTED`
    cache: Path | None = None

    @cached_property
    def seen(self) -> SlideSet:
        """What methods may use."""
        return self.data.subset(np.arange(NUM_FITTED))

    @property
    def scene(self) -> Scene:
        """The scene of the shape."""
        return self.data.scene

    @cached_property
    def slide(self) -> SlideFit:
        """clashsim's slide model, with its delay."""
        d = self.seen
        fit = fit_slides(d.slides, d.support_patch, twists=d.twist)
        return replace(
            fit, model=fit.model.delayed(delay(fit.model, d.impacts.pose, d.impacts.after, d.rest))
        )

    @cached_property
    def friction(self) -> tuple[float, float]:
        """Sliding and torsional friction (m) of the ground, identified in MuJoCo on the slides."""
        return real_slides.mujoco_torsional(real_slides.Problem(self.seen), np.arange(NUM_FITTED))

    def targets(self, n: int, seed: int) -> np.ndarray:
        """Poses (n, 3) at which strikes that were not used came to rest, for bodies that began at
        the origin.
        """
        rows = np.random.default_rng(seed).choice(
            np.arange(NUM_FITTED, len(self.data)), n, replace=False
        )
        both = np.zeros((n, 12))
        both[:, :3], both[:, 6:9] = self.data.impacts.pose[rows], self.data.rest[rows]
        return move_pair_to(both, np.zeros(3))[:, 6:9]


class Slid:
    """A `StrikeModel` of collisions kept as a table and slides stepped by MuJoCo, as the paper's
    hybrid simulator has them.
    """

    takes_noise = False

    def __init__(self, problem: Problem, model: Callable[[Impacts], np.ndarray]) -> None:
        """model: twists after (N, 3) of impacts."""
        self.problem = problem
        ranges = strike_ranges(problem.scene)
        self.names = tuple(ranges)
        self.low, self.high = np.array(list(ranges.values())).T
        grids, strikes = strike_grid(self.names, self.low, self.high)
        before = move_pair_to(
            before_from_strikes(problem.scene, dict(zip(self.names, strikes.T, strict=True)))[0],
            np.zeros(3),
        )
        after = (
            model(Impacts(True, before, np.zeros((len(before), 3))))
            / strikes[:, self.names.index("speed"), None]
        )
        self._table = SplineTable(
            self.low.tolist(), self.high.tolist(), after.reshape(*(len(g) for g in grids), 3)
        )

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Pose at rest (N, 3)."""
        own = self._table.read(strike) * strike[:, self.names.index("speed"), None]
        c, s = np.cos(pose[:, 2]), np.sin(pose[:, 2])
        twist = np.stack(
            [c * own[:, 0] - s * own[:, 1], s * own[:, 0] + c * own[:, 1], own[:, 2]], 1
        )
        return self.problem.seen.slider.rest(
            pose + self.problem.slide.model.delay * twist,
            twist,
            np.array(self.problem.friction),
            longest=_SECONDS,
        )


def _mujoco(problem: Problem, seed: int) -> StrikeModel:
    """MuJoCo by grid search on the strikes, with the ground's friction from the slides."""
    scene = problem.scene
    few = baselines.Problem(
        scene, problem.seen.impacts, problem.seen.support_patch.gyration, table=False
    )
    theta = identify_rows(
        few.identification_problem, np.arange(NUM_FITTED), "grid", seed=seed
    ).theta
    sliding, torsional = problem.friction
    theta[[i for i, p in enumerate(scene.params) if p.target == f"pair/{GROUND}/friction[0:2]"]] = (
        sliding
    )
    simulator = MujocoSim(scene, theta)
    simulator.model.pair(GROUND).friction[2] = torsional
    return SteppedStrikes(simulator, scene, theta, seconds=_SECONDS)


def _regressed(way: Callable[[baselines.Problem, np.ndarray, int], np.ndarray]) -> Way:
    def model(problem: Problem, seed: int) -> StrikeModel:
        few = problem.seen.impacts

        def predict(asked: Impacts) -> np.ndarray:
            both = Impacts(
                True, np.vstack([few.before, asked.before]), np.vstack([few.after, asked.after])
            )
            whole = baselines.Problem(
                problem.scene, both, problem.seen.support_patch.gyration, cache=problem.cache
            )
            return way(whole, np.arange(NUM_FITTED), seed)[NUM_FITTED:]

        return Slid(problem, predict)

    return model


def _clashsim(problem: Problem, seed: int) -> StrikeModel:
    scene = problem.scene
    return strike_table(
        HybridSim(
            scene,
            calibrate(base_model(scene, cache=problem.cache), problem.seen.impacts, seed=seed),
            slide_model=problem.slide.model,
        )
    )


WAYS: dict[str, Way] = {
    "mujoco-grid": _mujoco,
    "hybrid-scratch": _regressed(baselines.scratch),
    "hybrid-paper": _regressed(baselines.clash_paper),
    "clashsim": _clashsim,
}


def run(
    seeds: int = 5,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    targets: int = 5,
    resume: Path | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of position (m) and orientation (rad) error, mean and sd over `targets` x `seeds`
    executed strikes; sets are shapes.

    expected_m, expected_rad: how far from the target the plan itself ends in its own simulator.
    """
    shapes = [s.replace("_", "-") for s in lab.SHAPES]
    for name, choices in [
        *((s, shapes) for s in sets or ()),
        *((m, list(WAYS)) for m in methods or ()),
    ]:
        if name not in choices:
            raise DataError(f"the bench has no {name!r}; {did_you_mean(name, choices)}")
    chosen, targets, repeats = (
        list(sets or (shapes[:1] if quick else shapes)),
        2 if quick else targets,
        1 if quick else seeds,
    )
    done = kept(resume)
    rows: list[Row] = []
    with progress("planning", len(chosen) * len(methods or WAYS)) as advance:
        for name in chosen:
            problem = Problem(
                lab.Setting(name.replace("-", "_")), slide_sets.load(f"lab/{name}", None), cache
            )
            for method in methods or WAYS:
                head = {"shape": name, "method": method}
                whole = head | {"executed": targets * repeats}
                with optional(rows, **head):
                    row = next((r for r in done if r | whole == r), None)
                    if row is None:
                        row = head | _measured(problem, WAYS[method], targets, repeats, workers)
                        keep(resume, [row])
                    rows.append(row)
                save(rows)
                advance(1)
    return rows


def _measured(problem: Problem, way: Way, targets: int, repeats: int, workers: int | None) -> Row:
    wanted = problem.targets(targets, seed=0)
    model = way(problem, 0)
    plans = plan_batch(model, [PlanningTask(tuple(t)) for t in wanted])
    strikes = [
        lab.Strike(**dict(zip(p.names, p.strikes[0].tolist(), strict=True)))
        for p in plans
        for _ in range(repeats)
    ]
    ends = np.array(
        [
            _end(trial)
            for trial in lab.execute_independently(
                strikes, problem.setting, seed=1, workers=workers
            )
        ]
    )
    far, turn = pose_error(ends, np.repeat(wanted, repeats, 0))
    planned = pose_error(np.array([p.predicted[-1] for p in plans]), wanted)
    turn = np.abs(turn)
    return {
        "position_m": float(far.mean()),
        "position_sd": float(far.std()),
        "orientation_rad": float(turn.mean()),
        "orientation_sd": float(turn.std()),
        "position_median_m": float(np.median(far)),
        "orientation_median_rad": float(np.median(turn)),
        "expected_m": float(planned[0].mean()),
        "expected_rad": float(np.abs(planned[1]).mean()),
        "executed": len(strikes),
    }


def _end(trial: Any) -> np.ndarray:
    """Measured pose (3,) of the block at the end of a trial."""
    _, seen = trial.seen("block")
    turn = np.unwrap(yaw(seen[-_LAST:, 3:]))
    return np.array([*np.median(seen[-_LAST:, :2], 0), np.median(turn)])
