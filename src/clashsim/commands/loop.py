"""`clashsim loop`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clashsim.commands.shared import cache, console, load_scene, needs_drake, not_negative
from clashsim.core.errors import DataError, ParamError, SceneError
from clashsim.core.extras import require
from clashsim.core.files import complete_files
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Loop
    from clashsim.loop.rounds import RealSimRealLoop


def run(verb: Loop) -> None:
    """`clashsim loop`."""
    require("stable_baselines3", "Stable-Baselines3", "rl")
    from clashsim import lab
    from clashsim.loop.lab_rig import LabRig
    from clashsim.loop.rounds import RealSimRealLoop
    from clashsim.loop.steps import LoopConfig

    not_negative(seed=verb.seed)
    for name, least in (("rounds", 1), ("strikes", 5)):
        if getattr(verb, name) < least:
            raise ParamError(f"--{name} must be at least {least}, got {getattr(verb, name)}")
    if verb.out.exists() and not verb.out.is_dir():
        raise DataError(f"{str(verb.out)!r} already exists and is not a folder")
    begun = (verb.out / "loop.json").is_file()
    if verb.out.is_dir() and not begun and complete_files(verb.out):
        raise DataError(f"{str(verb.out)!r} holds other files; choose another folder")
    scene = load_scene(verb.scene)
    if verb.world == "lab":
        needs_drake()
        if scene.name not in lab.SHAPES:
            raise SceneError(
                f"the laboratory has no block of scene {scene.name!r}: it has {', '.join(lab.SHAPES)}; for a bench of your own: --in folder"
            )
    world = (
        LabRig(lab.Setting(scene.name, verb.material, verb.surface, verb.change))
        if verb.world == "lab"
        else None
    )
    options = LoopConfig(
        task=verb.task,
        algorithm=verb.algorithm,
        collect=verb.collect,
        strikes=verb.strikes,
        seed=verb.seed,
    )
    loop = RealSimRealLoop(scene, options, verb.out, cache=cache(), progress=bar)
    with bar("rounds", verb.rounds) as advance:
        loop.begin()
        while loop.rounds[-1].turn < verb.rounds:
            if world is None and not loop.recorded:
                _ask(loop)
                return
            loop.advance(world)
            advance(1)
            if not loop.another_pays and not verb.all_rounds:
                break
    _tell(loop)
    if not loop.another_pays:
        print(
            "another round is not expected to pay: the error on fresh strikes has stopped falling"
        )
    last = verb.out / f"round-{loop.rounds[-1].turn:02d}"
    print(
        f"last run in {last / 'run'}, last policy in {last / 'agent.safetensors'}"
        if options.collect != "random"
        else f"last run in {last / 'run'}"
    )


def _ask(loop: RealSimRealLoop) -> None:
    """Tell a person at a bench what to do next."""
    path = loop.asked()
    if len(loop.rounds) > 1:
        _tell(loop)
    turn = loop.rounds[-1].turn + 1
    print(
        f"round {turn}: make the strikes of {path}, one after the other, with the body put back before each"
    )
    print(
        f"then import the recordings, one trial for each strike in their order, as {_recordings(path)}, and give the same command again"
    )


def _recordings(path: Path) -> Path:
    return path.with_name("trials.safetensors")


def _tell(loop: RealSimRealLoop) -> None:
    from rich.table import Table

    table = Table(
        title="RealSimRealLoop: how far the simulator of the round before was off on fresh strikes",
        title_justify="left",
    )
    for column in ("round", "strikes so far", "off by, mm", "degrees"):
        table.add_column(column, justify="right")
    for done in loop.rounds:
        if done.miss is not None and done.made is not None:
            table.add_row(
                str(done.turn),
                str(len(done.made.strikes)),
                f"{1e3 * done.miss[0]:.1f}",
                f"{57.29578 * done.miss[1]:.1f}",
            )
    console().print(table)
