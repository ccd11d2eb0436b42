"""`clashsim plan`: strikes that bring the struck body to a target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import OmitArgPrefixes, arg

from clashsim.commands.option_types import (
    ExecutionOptions,
    OptionalInt,
    OptionalOutputPath,
    OptionalPath,
    RunArgument,
)
from clashsim.commands.run_tables import warn_if_unreliable
from clashsim.commands.shared import STRIKE_TABLE, announce, console, open_executor
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.pipeline.planning import PlanConfig, PlanResult
    from clashsim.plan.tasks import Plan

# A warning is printed if the model is unsure of more than this share of the candidate strikes.
_UNTRUSTED = 0.05
PoseInDegrees = tuple[float, float, float]


@dataclass(frozen=True)
class ArmLimits:
    """Largest speed, acceleration and jerk of the arm's tip."""

    speed: float = 0.8
    """Largest speed, m/s."""
    acceleration: float = 10.0
    """Largest acceleration, m/s^2."""
    jerk: float = 500.0
    """Largest jerk, m/s^3."""


@dataclass(frozen=True)
class PlanOptions:
    """Plan the strikes that bring the struck body to a target, and the robot's path for each.

    Example: clashsim plan runs/demo --target -0.05 -0.02 -20 -o plan

    The folder -o gets plan.json, a picture, and for each strike the path of the tip at 1 kHz as
    path-1.csv and path-1.json.
    Many targets at once: clashsim plan runs/demo --targets targets.csv -o plans.csv
    """

    run: RunArgument
    """Run folder of clashsim calibrate or demo, with a slide model."""
    target: Annotated[PoseInDegrees | None, arg(metavar="X Y YAW")] = None
    """Pose at which the body should come to rest, world frame: m, m, degrees."""
    targets: OptionalPath = None
    """Many targets instead of --target: a .csv file with the columns x, y (m), yaw (degrees), and
    start_x, start_y, start_yaw if the starts differ.
    """
    start: Annotated[PoseInDegrees, arg(metavar="X Y YAW")] = (0.0, 0.0, 0.0)
    """Pose of the body before the first strike, world frame: m, m, degrees."""
    out: OptionalOutputPath = None
    """Folder to write to; with --targets a file, .csv or .json."""
    strikes: OptionalInt = None
    """Number of strikes, 1 to 3; by default as few as reach the target."""
    method: Literal["cmaes", "cem", "gradient"] = "cmaes"
    """Search method: CMA-ES, cross-entropy method, or gradient descent from many starts."""
    side: Annotated[tuple[float, float] | None, arg(metavar="FROM TO")] = None
    """Side from which the arm can strike: bearings of the tip seen from the body, in degrees, from
    the first counter-clockwise to the second.
    """
    workspace: Annotated[tuple[float, float, float, float] | None, arg(metavar="X0 X1 Y0 Y1")] = (
        None
    )
    """Rectangle that the body may not leave, m."""
    noise_samples: int = 0
    """Number of outcomes sampled from the model's predicted noise; the plan minimises the mean cost
    over them. 0 minimises the cost of the expected outcome.
    """
    seed: int = 0
    """Seed of the search."""
    overwrite: bool = False
    """Replace the folder or file if it exists."""
    device: Annotated[str | None, arg(metavar="DEVICE")] = None
    """Torch device of the search, cpu or cuda; all targets are then searched in one batch."""
    execution: OmitArgPrefixes[ExecutionOptions] = ExecutionOptions()
    limits: ArmLimits = ArmLimits()


def run(options: PlanOptions) -> None:
    """Run `clashsim plan`."""
    from clashsim.pipeline.planning import plan_run, write_plan
    from clashsim.plan.tasks import PlanStatus

    execution = options.execution
    if (options.target is None) == (options.targets is None):
        raise ParamError(
            "say where the body should come to rest: either --target X Y YAW or --targets FILE.csv"
        )
    if options.target is None:
        _plan_targets(options)
        return
    if execution.executor is not None or execution.workers:
        raise ParamError("--executor and --workers are for many targets: give --targets as well")
    announce(STRIKE_TABLE)
    result = plan_run(options.run, _pose_in_radians(options.target), config=_config(options))
    console().print(_table(result.plan, result.scene), markup=False)
    _print_warnings(result)
    if result.plan.status is not PlanStatus.UNRELIABLE:  # whose reason says it
        warn_if_unreliable(options.run)
    if options.out is not None:
        files = write_plan(result, options.out, overwrite=options.overwrite)
        print(f"{', '.join(files)} written to {options.out}")


def _plan_targets(options: PlanOptions) -> None:
    """Plan for all targets of a file."""
    from clashsim.commands import target_files
    from clashsim.commands.shared import check_output_file
    from clashsim.fit.run_folder import load
    from clashsim.pipeline.planning import plan_targets, planning_task

    config = _config(options)
    scene = load(options.run).scene
    any_target = (0.0, 0.0, 0.0)  # each row of the file replaces it
    task = planning_task(scene, any_target, config)
    if options.out is not None:
        check_output_file(options.out, (".csv", ".json"), overwrite=options.overwrite)
    tasks = target_files.read_targets(Path(str(options.targets)), task)
    warn_if_unreliable(options.run)
    announce(STRIKE_TABLE)
    with open_executor(options.execution) as executor:
        plans = plan_targets(options.run, tasks, config=config, executor=executor, progress=bar)
    for sentence in target_files.summary(plans):
        print(sentence)
    if options.out is not None:
        target_files.write_plans(options.out, plans, scene)
        print(f"written to {options.out}")


def _config(options: PlanOptions) -> PlanConfig:
    """Convert options of the command line to the configuration of `plan_run`."""
    from clashsim.pipeline.planning import PlanConfig
    from clashsim.plan.motion_limits import Limits

    side = None
    if options.side is not None:
        first, second = np.radians(options.side).tolist()
        side = (first, second)
    limits = options.limits
    return PlanConfig(
        start=_pose_in_radians(options.start),
        strikes=options.strikes,
        method=options.method,
        side=side,
        workspace=options.workspace,
        noise_samples=options.noise_samples,
        seed=options.seed,
        device=options.device,
        limits=Limits(limits.speed, limits.acceleration, limits.jerk),
    )


def _pose_in_radians(pose: PoseInDegrees) -> tuple[float, float, float]:
    """A pose x, y (m), yaw (degrees) with its yaw in rad."""
    x, y, yaw = pose
    return x, y, float(np.radians(yaw))


def _print_warnings(result: PlanResult) -> None:
    """Print how planning ended, and what to know before executing the plan."""
    print(f"{result.plan.status}: {result.plan.reason}")
    if result.corner_strikes:
        numbers = " and ".join(map(str, result.corner_strikes))
        print(
            f"strike {numbers} touches a corner, where bodies end further off than the stated "
            "standard deviation: try --strikes, --side or another target"
        )
    if result.untrusted_share > _UNTRUSTED:
        print(
            f"the model is unsure of {100 * result.untrusted_share:.0f} % of the candidate "
            "strikes: record more like them"
        )


def _table(plan: Plan, scene: Scene) -> Any:
    """The strikes of a plan as a table for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    from clashsim.plan.execution import UNITS, touches

    num_strikes = len(plan.strikes)
    count = "Strike" if num_strikes == 1 else f"{num_strikes} strikes"
    table = Table(title=escape(f"{count} of {scene.name}"), title_justify="left")
    columns = [
        "",
        *(f"{name}, {UNITS[name]}" for name in plan.names),
        "touch x, y, mm",
        "velocity, m/s",
        "then at x, y, mm",
        "yaw, deg",
    ]
    for column in columns:
        table.add_column(column, justify="right")
    strikes = zip(plan.strikes, touches(scene, plan), plan.predicted, strict=True)
    for number, (strike, touch, rest) in enumerate(strikes, start=1):
        touch_x, touch_y, _, velocity_x, velocity_y = touch[:5]  # of the tip; the third is its yaw
        position = f"{1e3 * rest[0]:.1f}, {1e3 * rest[1]:.1f}"
        yaw = f"{np.degrees(rest[2]):.1f}"
        # The standard deviation is that of the pose after the last strike.
        if number == num_strikes and plan.std.any():
            position += f" ± {1e3 * float(np.linalg.norm(plan.std[:2])):.1f}"
            yaw += f" ± {np.degrees(plan.std[2]):.1f}"
        table.add_row(
            str(number),
            *(f"{value:.3f}" for value in strike),
            f"{1e3 * touch_x:.1f}, {1e3 * touch_y:.1f}",
            f"{velocity_x:.3f}, {velocity_y:.3f}",
            position,
            yaw,
        )
    return table
