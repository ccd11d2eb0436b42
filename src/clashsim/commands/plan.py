"""`clashsim plan`: strikes or a throw that bring the struck body to a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.plan_launch import run_launch
from clashsim.commands.plan_options import PlanOptions, PoseInDegrees
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
# Options that only strikes in a plane have.
_IN_A_PLANE = (
    "targets",
    "strikes",
    "side",
    "workspace",
    "noise_samples",
    "tolerance",
    "repeatability",
    "device",
    "execution",
    "limits",
)


def run(options: PlanOptions) -> None:
    """Run `clashsim plan`."""
    from clashsim.pipeline.planning import plan_run, write_plan
    from clashsim.plan.tasks import PlanStatus

    execution = options.execution
    if _moves_in_space(options):
        run_launch(options)
        return
    if (options.target is None) == (options.targets is None):
        raise ParamError(
            "say where the body should come to rest: either --target X Y YAW or --targets FILE.csv"
        )
    if options.target is None:
        _plan_targets(options)
        return
    if len(options.target) != 3:
        raise ParamError(
            f"a target in a plane is X Y YAW (m, m, degrees), got {len(options.target)} numbers"
        )
    if execution.executor is not None or execution.workers:
        raise ParamError("--executor and --workers are for many targets: give --targets as well")
    announce(STRIKE_TABLE)
    x, y, yaw = options.target
    result = plan_run(options.run, _pose_in_radians((x, y, yaw)), config=_config(options))
    console().print(_table(result.plan, result.scene), markup=False)
    _print_warnings(result)
    if result.plan.status is not PlanStatus.UNRELIABLE:  # whose reason says it
        warn_if_unreliable(options.run)
    if options.out is not None:
        files = write_plan(result, options.out, overwrite=options.overwrite)
        print(f"{', '.join(files)} written to {options.out}")


def _moves_in_space(options: PlanOptions) -> bool:
    """Whether the bodies of the run move in space; refuses options that do not fit."""
    from clashsim.fit.run_folder import load

    in_space = load(options.run).scene.plane is None
    foreign = _IN_A_PLANE if in_space else ("launch",)
    for name in foreign:
        if getattr(options, name) != getattr(PlanOptions(options.run), name):
            option = f"--{name}".replace("_", "-")
            if name in ("launch", "limits", "repeatability"):
                option += ".*"
            where = "move in space" if in_space else "slide on a plane"
            raise ParamError(
                f"the option {option} is not for this run, whose bodies {where}; see "
                "clashsim plan --help"
            )
    return in_space


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
    from clashsim.plan.outcomes import Repeatability
    from clashsim.plan.tasks import TOLERANCE

    side = None
    if options.side is not None:
        first, second = np.radians(options.side).tolist()
        side = (first, second)
    limits = options.limits
    repeatability = options.repeatability
    tolerance = TOLERANCE
    if options.tolerance is not None:
        distance, angle = options.tolerance
        tolerance = (distance, float(np.radians(angle)))
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
        tolerance=tolerance,
        repeatability=Repeatability(
            speed=repeatability.speed / 100,
            point=float(np.radians(repeatability.point)),
            deflection=float(np.radians(repeatability.deflection)),
            position=repeatability.position,
            yaw=float(np.radians(repeatability.yaw)),
        ),
    )


def _pose_in_radians(pose: PoseInDegrees) -> tuple[float, float, float]:
    """A pose x, y (m), yaw (degrees) with its yaw in rad."""
    x, y, yaw = pose
    return x, y, float(np.radians(yaw))


def _print_warnings(result: PlanResult) -> None:
    """Print how planning ended, and what to know before executing the plan."""
    print(f"{result.plan.status}: {result.plan.reason}")
    if result.plan.probability_sentence:
        print(result.plan.probability_sentence)
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
