"""`clashsim loop`: the real-sim-real loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from clashsim.commands.option_types import OutputPath, SceneArgument
from clashsim.commands.shared import announce_compilation, console
from clashsim.core.extras import require
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.loop.rounds import Round
    from clashsim.pipeline.real_sim_real import LoopResult


@dataclass(frozen=True)
class LoopOptions:
    """Alternate strikes of a policy, calibration and further training (real-sim-real loop).

    Each round strikes with the current policy, calibrates the simulator on all strikes so far, and
    trains the policy further in it.

    Example: clashsim loop semi_cylinder --env lab --rounds 4 -o runs/loop

    Each round is a folder with its strikes, recordings, run and policy; after an interruption, the
    same command continues. It ends before --rounds when the error on fresh strikes has stopped
    falling.
    With --env folder it stops at a file of strikes to make on a rig of your own, and continues when
    their recordings are beside it. Needs clashsim[rl], and clashsim[lab] for the laboratory.
    """

    scene: SceneArgument
    """Name of a built-in scene, or path of an MJCF file (.xml). Its nominal parameters are
    those of the first simulator.
    """
    out: OutputPath
    """Folder of the loop."""
    rounds: int = 4
    """Maximum number of rounds."""
    env: Literal["lab", "folder"] = "lab"
    """Where strikes are made: in the virtual laboratory, a stand-in for reality, or on a rig of
    your own.
    """
    task: Literal["push", "pose"] = "push"
    """push: strike the body along a corridor; pose: strike it to a target pose, for bodies that may
    be struck from all sides.
    """
    algorithm: Literal["sac", "ppo"] = "sac"
    """Reinforcement-learning algorithm that trains the policies (Stable-Baselines3)."""
    collect: Literal["informative", "plain", "random"] = "informative"
    """Which strikes are made: informative: of a policy with a reward bonus for informative strikes;
    plain: of a policy without that bonus; random: no policy.
    """
    strikes: int = 6
    """Strikes per round."""
    material: str = "resin"
    """Material of the laboratory's block: resin, nylon or petg_cf."""
    surface: str = "high"
    """Sand of the laboratory's table: high or low friction."""
    change: str = "none"
    """How the laboratory's block differs from the scene: none, heavier (1.6 times the mass, 0.7
    times all frictions) or ballast (a weight fixed off its middle).
    """
    all_rounds: bool = False
    """Run all rounds, even when the error on fresh strikes has stopped falling."""
    seed: int = 0
    """Seed of all random numbers."""


def run(options: LoopOptions) -> None:
    """Run `clashsim loop`."""
    require("stable_baselines3", "Stable-Baselines3", "rl")
    from clashsim.loop.steps import LoopConfig
    from clashsim.pipeline.real_sim_real import LoopRunConfig, loop_run

    config = LoopRunConfig(
        env=options.env,
        rounds=options.rounds,
        all_rounds=options.all_rounds,
        material=options.material,
        surface=options.surface,
        change=options.change,
        loop=LoopConfig(
            task=options.task,
            algorithm=options.algorithm,
            collect=options.collect,
            strikes=options.strikes,
            seed=options.seed,
        ),
    )
    announce_compilation()
    result = loop_run(
        options.scene,
        options.out,
        config=config,
        notify=partial(print, flush=True),
        progress=bar,
    )
    if result.requested_strikes is not None:
        _print_request(result)
        return
    console().print(_table(result.rounds))
    if not result.another_pays:
        print("stopped: another round is not expected to lower the error on fresh strikes")
    policy = "" if result.agent is None else f", last policy in {result.agent}"
    print(f"last run in {result.run}{policy}")


def _print_request(result: LoopResult) -> None:
    """Print what a person at a rig should do next."""
    from clashsim.loop.rounds import TRIALS_FILE

    strikes = result.requested_strikes
    assert strikes is not None
    if len(result.rounds) > 1:
        console().print(_table(result.rounds))
    number = result.rounds[-1].number + 1
    print(
        f"round {number}: make the strikes of {strikes}, one after the other, "
        "with the body put back before each"
    )
    print(
        "then import the recordings, one trial for each strike in their order, as "
        f"{strikes.with_name(TRIALS_FILE)}, and give the same command again"
    )


def _table(rounds: Sequence[Round]) -> Any:
    """One row per round with strikes, as a table for the terminal."""
    from rich.table import Table

    title = "Rounds: error of the previous round's simulator on fresh strikes"
    table = Table(title=title, title_justify="left")
    for column in ("round", "strikes so far", "error, mm", "error, degrees"):
        table.add_column(column, justify="right")
    for done in rounds:
        if done.error is None or done.recorded is None:
            continue
        distance, angle = done.error
        table.add_row(
            str(done.number),
            str(len(done.recorded.strikes)),
            f"{1e3 * distance:.1f}",
            f"{math.degrees(angle):.1f}",
        )
    return table
