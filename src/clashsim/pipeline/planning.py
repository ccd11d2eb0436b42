"""`plan_run`: strikes that bring the struck body of a run to a target pose.

`plan_targets` does the same for many targets, in batches that an executor runs on its workers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from clashsim.core.errors import ParamError
from clashsim.core.executor import Executor, local, map_items
from clashsim.core.outline import outline
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.data.folders import dumps, write_folder
from clashsim.evaluate.conclusion import caution
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.notes import Metrics, conform
from clashsim.fit.run_folder import load
from clashsim.nets.strike_table import StrikeTable
from clashsim.pipeline.arguments import check_not_negative
from clashsim.plan.execution import plan_to_dict, strikes_at_corners, tip_paths, touches
from clashsim.plan.motion_limits import Limits
from clashsim.plan.outcomes import EXACT, Repeatability
from clashsim.plan.planner import (
    Method,
    PlannerConfig,
    plan,
    plan_batch,
    plan_fewest_strikes,
    plan_fewest_strikes_batch,
)
from clashsim.plan.robot_files import write_path
from clashsim.plan.tasks import TOLERANCE, Plan, PlanningTask, Reach
from clashsim.report.plan_picture import PlanPicture, draw_plan

PLAN_FILE = "plan.json"
PICTURE_FILE = "plan.png"
Pose = tuple[float, float, float]
_MAX_NOISE_SAMPLES = 10_000
_BATCH = 1024  # targets in a batch; fixed, so that plans do not depend on the number of workers
# A wider search than for one target: in a batch it is cheap, and of the targets that can be reached
# it finds 99 in 100 instead of 94.
_BATCH_POPULATION = 96
_BATCH_ROUNDS = 48


@dataclass(frozen=True)
class PlanConfig:
    """How strikes are planned, and what the arm can do.

    Attributes:
        start: Where the body lies: x, y (m), yaw (rad), world frame.
        strikes: Number of strikes, 1 to 3; None takes as few as reach the target.
        method: Search method.
        side: Side from which the arm can strike: bearings (rad) of the tip seen from the body, from
            the first counter-clockwise to the second; None is any.
        workspace: x low, x high, y low, y high (m) that the body may not leave; None has no limits.
        noise_samples: Number of outcomes sampled from the model's predicted noise; the plan
            minimises the mean cost over them. 0 minimises the cost of the expected outcome, and
            of strikes that are almost equally good takes the one of which the model is surest.
        seed: Seed of the search.
        device: Device of torch to search on, as in "cuda"; None searches with numpy.
        limits: Largest speed, acceleration and jerk of the arm's tip.
        tolerance: Distance (m) and angle (rad) within which a target counts as reached.
        repeatability: How exactly strikes are repeated, for the probability of a plan.
    """

    start: Pose = (0.0, 0.0, 0.0)
    strikes: int | None = None
    method: Method = "cmaes"
    side: tuple[float, float] | None = None
    workspace: tuple[float, float, float, float] | None = None
    noise_samples: int = 0
    seed: int = 0
    device: str | None = None
    limits: Limits = Limits(speed=0.8)
    tolerance: tuple[float, float] = TOLERANCE
    repeatability: Repeatability = EXACT

    def __post_init__(self) -> None:
        check_not_negative(seed=self.seed, noise_samples=self.noise_samples)
        if self.noise_samples > _MAX_NOISE_SAMPLES:
            raise ParamError(
                f"noise_samples must be at most {_MAX_NOISE_SAMPLES}, got {self.noise_samples}"
            )

    @property
    def planner(self) -> PlannerConfig:
        """How the planner searches."""
        return PlannerConfig(
            method=self.method,
            noise_samples=self.noise_samples,
            seed=self.seed,
            device=self.device,
            repeatability=self.repeatability,
        )


@dataclass(frozen=True, eq=False)
class PlanResult:
    """A plan, and what to know before executing it.

    Attributes:
        plan: The strikes, and where the body is expected to come to rest.
        scene: Scene of the run.
        limits: Largest speed, acceleration and jerk of the arm's tip.
        corner_strikes: Numbers (from 1) of the strikes that touch a corner of the body, where
            errors are larger than the predicted standard deviation.
        untrusted_share: Share of the candidate strikes of which the model is unsure.
    """

    plan: Plan
    scene: Scene
    limits: Limits
    corner_strikes: tuple[int, ...]
    untrusted_share: float


def plan_run(
    run: Path | str | CalibratedRun, target: Pose, *, config: PlanConfig = PlanConfig()
) -> PlanResult:
    """Plan the strikes that bring the struck body of a run to a target.

    Args:
        run: Run folder, or a loaded run, with a slide model.
        target: Pose to come to rest at: x, y (m), yaw (rad), world frame.
        config: How to plan.

    Returns:
        The plan, and what to know before executing it.
    """
    calibrated = _load(run)
    task = planning_task(calibrated.scene, target, config)
    table = calibrated.strike_table()
    search = plan_fewest_strikes if config.strikes is None else plan
    found = search(table, task, config.planner)
    fidelity = table.fidelity
    return PlanResult(
        plan=found.by_unreliable_model(_caution_of(calibrated)),
        scene=calibrated.scene,
        limits=config.limits,
        corner_strikes=tuple(strikes_at_corners(calibrated.scene, found)),
        untrusted_share=0.0 if fidelity is None else fidelity.untrusted_share,
    )


def plan_targets(
    run: Path,
    tasks: Sequence[PlanningTask],
    *,
    config: PlanConfig = PlanConfig(),
    executor: Executor = local,
    progress: Progress = quiet,
) -> list[Plan]:
    """Plan many tasks of a run.

    Args:
        run: Run folder with a slide model; all workers of the executor must see it.
        tasks: What to plan, as `planning_task` makes them.
        config: How to plan; its start is replaced by that of each task.
        executor: What runs the batches.
        progress: Shows how many tasks are planned.

    Returns:
        One plan per task, in their order.
    """
    planner = replace(
        config.planner,
        population=_BATCH_POPULATION,
        rounds=_BATCH_ROUNDS,
        device=config.device or "cpu",
    )
    work = _BatchPlanner(run, planner, fewest=config.strikes is None)
    batches = [tasks[first : first + _BATCH] for first in range(0, len(tasks), _BATCH)]
    plans_of_batch: list[list[Plan]] = [[] for _ in batches]
    with progress("planning", len(tasks)) as advance:
        for i, plans in map_items(executor, work, batches):
            plans_of_batch[i] = plans
            advance(len(plans))
    against = _caution_of(load(run))
    return [found.by_unreliable_model(against) for plans in plans_of_batch for found in plans]


def planning_task(scene: Scene, target: Pose, config: PlanConfig) -> PlanningTask:
    """The planning task of a target: pose, start, number of strikes, and reach of the arm.

    Args:
        scene: Scene of the run; strikes are planned no slower than the lowest speed of its
            [strikes].
        target: Pose to come to rest at: x, y (m), yaw (rad), world frame.
        config: How to plan.
    """
    slowest = float(scene.strikes.speed[0])
    fastest = config.limits.speed
    if fastest <= slowest:
        raise ParamError(
            f"the arm's speed of {fastest:g} m/s is not above the slowest strike that was "
            f"calibrated, {slowest:g} m/s"
        )
    reach = Reach(speed=(slowest, fastest), bearing=config.side, workspace=config.workspace)
    # Where the number is free, the planner itself tries one strike first, then more.
    strikes = 1 if config.strikes is None else config.strikes
    return PlanningTask(
        target, config.start, strikes=strikes, tolerance=config.tolerance, reach=reach
    )


def write_plan(result: PlanResult, out: Path, *, overwrite: bool = False) -> list[str]:
    """Write a plan, the paths of the arm's tip as CSV and JSON, and a picture, as one folder.

    Args:
        result: What was planned.
        out: Folder to write.
        overwrite: Whether an existing plan is replaced.

    Returns:
        Names of the files in the folder.
    """
    found = result.plan
    files = {PLAN_FILE: dumps(plan_to_dict(found, result.scene))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, path in enumerate(tip_paths(result.scene, found, result.limits), start=1):
            write_path(path, folder / f"path-{number}.csv")
            write_path(path, folder / f"path-{number}.json")
        draw_plan_picture(folder / PICTURE_FILE, found, result.scene)
        for path_written in sorted(folder.iterdir()):
            files[path_written.name] = path_written.read_bytes()
    write_folder(out, files, overwrite=overwrite, kind="plan")
    return list(files)


def draw_plan_picture(
    path: Path, found: Plan, scene: Scene, outcomes: np.ndarray | None = None
) -> None:
    """Draw a plan, and where bodies came to rest if it was executed.

    Args:
        path: Picture to write (.png, .svg, .pdf).
        found: The plan.
        scene: Scene of the plan.
        outcomes: Measured poses (N, 3) at rest: x, y (m), yaw (rad), world frame; None draws none.
    """
    picture = PlanPicture(
        body=outline(scene, scene.struck, scene.struck_body),
        tip=outline(scene, scene.striker, scene.striker_body),
        starts=found.starts,
        touches=touches(scene, found),
        predicted=found.predicted,  # (strikes, 3), at rest after each strike
        target=np.array(found.task.target),
        std=found.std,  # (3,), of the pose after the last strike
        outcomes=outcomes,
        title="\n".join(filter(None, (found.reason, found.probability_sentence))),
    )
    draw_plan(path, picture)


@dataclass(frozen=True)
class _BatchPlanner:
    """Plans one batch of tasks; its strike table is built once per process."""

    run: Path
    planner: PlannerConfig
    fewest: bool

    @cached_property
    def table(self) -> StrikeTable:
        """The strike table of the run."""
        return load(self.run).strike_table()

    def __call__(self, tasks: Sequence[PlanningTask]) -> list[Plan]:
        search = plan_fewest_strikes_batch if self.fewest else plan_batch
        return search(self.table, tasks, self.planner)


def _caution_of(run: CalibratedRun) -> str | None:
    """What was concluded against relying on a run; None where nothing was."""
    if not run.metrics:
        return None
    conform(run.metrics, Metrics, "metrics")
    return caution(run.metrics)


def _load(run: Path | str | CalibratedRun) -> CalibratedRun:
    """A run, loaded if only its folder is given."""
    return run if isinstance(run, CalibratedRun) else load(run)
