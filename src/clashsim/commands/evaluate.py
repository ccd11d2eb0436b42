"""`clashsim evaluate`: follow a route with a policy in the virtual laboratory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, arg

from clashsim.commands.execute import LAB_STRIKE
from clashsim.commands.option_types import OptionalOutputPath
from clashsim.commands.shared import check_output_file, console
from clashsim.core.errors import DataError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.rl.follow import RouteResult
    from clashsim.rl.policy import Policy
    from clashsim.rl.routes import Route

# Columns of a planar `before` row that are the striker's position and velocity, world frame.
_STRIKER_POSITION = slice(6, 8)
_STRIKER_VELOCITY = slice(9, 11)


@dataclass(frozen=True)
class EvaluateOptions:
    """Follow a route with a policy in the virtual laboratory, a stand-in for reality.

    Example: clashsim evaluate runs/push/policy.safetensors --route 2 --env lab -o route.gif

    Needs clashsim[lab].
    """

    policy: Positional[Annotated[Path, arg(metavar="POLICY")]]
    """File of clashsim train."""
    route: Annotated[str, arg(metavar="ROUTE")] = "1"
    """1, 2 or 3, in rising difficulty, or a .csv file of way points with a header x,y in m."""
    env: Literal["lab"] = "lab"
    """Where strikes are made: the virtual laboratory."""
    repeats: int = 10
    """Number of trials."""
    material: str = "resin"
    """Material of the block: resin, nylon or petg_cf."""
    surface: str = "high"
    """Sand of the table: high or low friction."""
    seed: int = 0
    """Seed of start poses and of actuation, placement and camera noise; trial i adds i."""
    out: OptionalOutputPath = None
    """File to write an animation of the first trial to (.gif)."""
    overwrite: bool = False
    """Replace the file if it exists."""


def run(options: EvaluateOptions) -> None:
    """Run `clashsim evaluate`."""
    from clashsim import lab
    from clashsim.core.scene import Scene
    from clashsim.loop.lab_routes import follow_in_lab
    from clashsim.pipeline.arguments import check_at_least, check_not_negative, require_drake
    from clashsim.rl.policy import Policy
    from clashsim.rl.routes import load_route

    check_not_negative(seed=options.seed)
    check_at_least(1, repeats=options.repeats)
    if options.out is not None:
        check_output_file(options.out, (".gif",), overwrite=options.overwrite)
    policy = Policy.load(options.policy)
    route = load_route(options.route)
    _check_fits_laboratory(policy, route)
    require_drake()
    shape = str(policy.notes.get("scene"))
    setting = lab.Setting(shape, options.material, options.surface)
    results = []
    with bar("striking", options.repeats) as advance:
        for repeat in range(options.repeats):
            results.append(follow_in_lab(policy, route, setting, seed=options.seed + repeat))
            advance(1)
    console().print(_table(results, route))
    successes = sum(result.success for result in results)
    reached = sum(result.reached for result in results)
    num_sub_goals = len(results) * len(route)
    print(f"success {successes}/{len(results)}, sub-goals {reached}/{num_sub_goals}")
    if options.out is not None:
        _draw_route(options.out, results[0], policy, route, Scene.load(shape))
        print(f"the first trial drawn in {options.out}")


def _check_fits_laboratory(policy: Policy, route: Route) -> None:
    """Refuse a policy or a route that the laboratory's arm cannot execute."""
    from clashsim import lab

    if set(policy.names) != LAB_STRIKE:
        raise DataError(
            "the laboratory takes speed, point and deflection of a strike, "
            f"but the policy gives {', '.join(policy.names)}"
        )
    if np.abs(route.points).max() > lab.REACH:
        raise DataError(
            f"route {route.name!r} leaves the arm's reach of {lab.REACH} m around the middle of "
            "the table"
        )


def _table(results: Sequence[RouteResult], route: Route) -> Any:
    """One row per trial, as a table for the terminal."""
    from rich.table import Table

    title = f"Route {route.name} in the virtual laboratory, a stand-in for reality"
    table = Table(title=title, title_justify="left")
    for column in ("trial", "sub-goals", "strikes"):
        table.add_column(column, justify="right")
    table.add_column("ended")
    for number, result in enumerate(results):
        sub_goals = f"{result.reached} of {len(route)}"
        table.add_row(str(number), sub_goals, str(len(result.strikes)), result.reason)
    return table


def _draw_route(
    path: Path, result: RouteResult, policy: Policy, route: Route, scene: Scene
) -> None:
    """Draw a trial on a route as an animated picture.

    Args:
        path: Picture to write (.gif).
        result: The trial.
        policy: The policy that followed the route.
        route: Way points of the corridors.
        scene: Scene of the struck body.
    """
    from clashsim.core.outline import outline
    from clashsim.core.strike_geometry import before_from_strikes, move_pair_to
    from clashsim.rl.corridor_picture import animate, draw_corridor

    body = outline(scene, scene.struck, scene.struck_body)
    strikes = dict(zip(policy.names, result.strikes.T, strict=True))
    before_at_origin, _ = before_from_strikes(scene, strikes)
    before = move_pair_to(before_at_origin, result.poses[:-1])
    frames = []
    for number, (pose, pair) in enumerate(zip(result.poses[:-1], before, strict=True), start=1):
        tip = np.r_[pair[_STRIKER_POSITION], pair[_STRIKER_VELOCITY]]
        title = f"strike {number}"
        frames.append(draw_corridor(body, pose, route.points, tip=tip, title=title))
    last = result.poses[-1]
    frames.append(draw_corridor(body, last, route.points, tip=None, title=result.reason))
    animate(path, frames)
