"""`clashsim plan` for bodies in space: a throw, or a strike by a flying body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.run_tables import warn_if_unreliable
from clashsim.commands.shared import announce, console
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.commands.plan_options import PlanOptions
    from clashsim.pipeline.launch_planning import LaunchLimits, LaunchResult


def run_launch(options: PlanOptions) -> None:
    """Plan for a run of bodies in space, and print and write the plan."""
    from clashsim.pipeline.launch_planning import plan_launch, write_launch
    from clashsim.plan.launch import check_can_be_launched
    from clashsim.plan.rest_planner import RestPlannerConfig
    from clashsim.plan.rest_target import RestTarget
    from clashsim.plan.tasks import PlanStatus

    if options.method == "gradient":
        raise ParamError("throws and strikes in space are searched for with cmaes or cem")
    launch = options.launch
    target = options.target
    if target is None:
        raise ParamError("bodies in space are planned for one target at a time: give --target X Y")
    if len(target) not in (2, 3):
        raise ParamError(f"a target in space is X Y or X Y YAW, got {len(target)} numbers")
    scene = load_scene(options)
    check_can_be_launched(scene)
    distance, degrees = launch.tolerance
    config = RestPlannerConfig(
        method=options.method, launch_std=launch.std, seed=options.seed
    ).with_rollouts(launch.simulations)
    kind = "throws" if scene.striker_body.fixed else "strikes"
    announce(f"simulating about {config.rollouts} {kind}, which takes 1 to 4 minutes")
    result = plan_launch(
        options.run,
        RestTarget(
            (target[0], target[1]),
            yaw=float(np.radians(target[2])) if len(target) == 3 else None,
            up=launch.up,
            tolerance=(distance, float(np.radians(degrees))),
        ),
        limits=_limits(options),
        config=config,
        progress=bar,
    )
    console().print(_table(result), markup=False)
    for sentence in _sentences(result):
        print(sentence)
    if result.plan.status is not PlanStatus.UNRELIABLE:  # whose reason says it
        warn_if_unreliable(options.run)
    if options.out is not None:
        files = write_launch(result, options.out, overwrite=options.overwrite)
        print(f"{', '.join(files)} written to {options.out}")


def load_scene(options: PlanOptions) -> Any:
    """The scene of the run."""
    from clashsim.fit.run_folder import load

    return load(options.run).scene


def _limits(options: PlanOptions) -> LaunchLimits:
    """Where and how bodies can be launched, as the options say."""
    from clashsim.pipeline.launch_planning import LaunchLimits

    launch = options.launch
    ranges = {}
    for name in ("speed", "lift", "offset", "height"):
        limits = getattr(launch, name)
        if limits is not None:
            ranges[name] = limits
    for name in ("direction", "elevation"):
        limits = getattr(launch, name)
        if limits is not None:
            low, high = np.radians(limits).tolist()
            ranges[name] = (low, high)
    if launch.spin is not None:
        if launch.spin < 0:
            raise ParamError(f"--launch.spin may not be negative, got {launch.spin:g}")
        for axis in "xyz":
            ranges[f"spin_{axis}"] = (-launch.spin, launch.spin)
    start = None
    if options.start != (0.0, 0.0, 0.0):
        x, y, yaw = options.start
        start = (x, y, float(np.radians(yaw)))
    return LaunchLimits(launch.release, launch.release_box, start, ranges)


def _table(result: LaunchResult) -> Any:
    """The numbers of a launch as a table for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    from clashsim.plan.rest_planner import units_of

    plan = result.plan
    body = result.scene.struck_body if plan.kind == "throw" else result.scene.striker_body
    title = f"{plan.kind.capitalize()} of {body.name}"
    if plan.kind == "strike":
        title = f"Strike of {result.scene.struck_body.name} by {body.name}"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("unit")
    for name, unit in units_of(plan.numbers).items():
        table.add_row(name, f"{plan.numbers[name]:.3f}", unit)
    release = result.release
    for name, values, unit in (
        ("position", release[:3], "m"),
        ("velocity", release[7:10], "m/s"),
        ("angular velocity", release[10:], "rad/s"),
    ):
        table.add_row(name, ", ".join(f"{value:.3f}" for value in values), unit)
    return table


def _sentences(result: LaunchResult) -> list[str]:
    """How planning ended, and where the body is expected."""
    plan = result.plan
    x, y = 1e3 * plan.position
    std_x, std_y = 1e3 * plan.std
    axis, share = plan.up
    yaw, yaw_std = np.degrees(plan.yaw)
    return [
        f"{plan.status}: {plan.reason}",
        f"expected to come to rest at x, y = {x:.0f} ± {std_x:.0f}, {y:.0f} ± {std_y:.0f} mm, "
        f"with {axis} up in {100 * share:.0f} % of the simulations, then at a yaw of "
        f"{yaw:.0f} ± {yaw_std:.0f} degrees",
    ]
