"""`loop_run`: the real-sim-real loop in a folder, until more strikes no longer lower the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clashsim import lab
from clashsim.core.errors import DataError, SceneError
from clashsim.core.extras import require
from clashsim.core.files import complete_files
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.loop.lab_rig import LabRig
from clashsim.loop.rounds import AGENT_FILE, LOOP_FILE, RUN_FOLDER, RealSimRealLoop, Round
from clashsim.loop.steps import LoopConfig
from clashsim.pipeline.arguments import (
    check_at_least,
    check_not_negative,
    load_scene,
    model_cache,
    require_drake,
)
from clashsim.pipeline.durations import say_nothing

_FEWEST_STRIKES = 5


@dataclass(frozen=True)
class LoopRunConfig:
    """How long a loop runs, and where strikes are made.

    Attributes:
        env: "lab" makes strikes in the virtual laboratory; "folder" stops at a file of strikes to
            make on a rig of your own, and continues when their recordings are beside it.
        rounds: Maximum number of rounds.
        all_rounds: Whether to run all rounds, even when the error on fresh strikes has stopped
            falling.
        material: Material of the laboratory's block.
        surface: Sand of the laboratory's table, "high" or "low" friction.
        change: How the laboratory's block differs from the scene: "none", "heavier" or "ballast".
        loop: What the loop does in each round.
    """

    env: Literal["lab", "folder"] = "lab"
    rounds: int = 4
    all_rounds: bool = False
    material: str = "resin"
    surface: str = "high"
    change: str = "none"
    loop: LoopConfig = LoopConfig()

    def __post_init__(self) -> None:
        check_not_negative(seed=self.loop.seed)
        check_at_least(1, rounds=self.rounds)
        check_at_least(_FEWEST_STRIKES, strikes=self.loop.strikes)


@dataclass(frozen=True, eq=False)
class LoopResult:
    """State of a loop after `loop_run`.

    Attributes:
        rounds: Finished rounds.
        requested_strikes: File of strikes to make on a rig before the loop continues; None where it
            is finished.
        another_pays: Whether another round is expected to lower the error on fresh strikes.
        run: Run folder of the last round.
        agent: Policy file of the last round; None where strikes are random.
    """

    rounds: tuple[Round, ...]
    requested_strikes: Path | None
    another_pays: bool
    run: Path
    agent: Path | None


def loop_run(
    scene: str,
    out: Path | str,
    *,
    config: LoopRunConfig = LoopRunConfig(),
    notify: Callable[[str], object] = say_nothing,
    progress: Progress = quiet,
) -> LoopResult:
    """Repeat: strike with the current policy, calibrate the simulator, train the policy further.

    Args:
        scene: Name of a built-in scene, or path of an MJCF file.
        out: Folder of the loop; one that was interrupted continues.
        config: How long the loop runs, and where strikes are made.
        notify: Called with a sentence before each round.
        progress: Shows how many rounds are done.

    Returns:
        The finished rounds, and what the loop waits for.
    """
    require("stable_baselines3", "Stable-Baselines3", "rl")
    out = Path(out)
    _check_folder(out)
    compiled = load_scene(scene)
    rig = _lab_rig(compiled, config) if config.env == "lab" else None
    loop = RealSimRealLoop(
        compiled, config.loop, out, cache=model_cache(), progress=progress, notify=notify
    )
    requested_strikes = None
    with progress("rounds", config.rounds) as advance:
        loop.begin()
        while loop.rounds[-1].number < config.rounds:
            if rig is None and not loop.next_is_recorded:
                requested_strikes = loop.requested_strikes()
                break
            loop.advance(rig)
            advance(1)
            if not loop.another_pays and not config.all_rounds:
                break
    folder = loop.round_folder(loop.rounds[-1].number)
    has_agent = config.loop.collect != "random"
    return LoopResult(
        rounds=tuple(loop.rounds),
        requested_strikes=requested_strikes,
        another_pays=loop.another_pays,
        run=folder / RUN_FOLDER,
        agent=folder / AGENT_FILE if has_agent else None,
    )


def _check_folder(out: Path) -> None:
    """Refuse a folder that has files but no loop."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{str(out)!r} already exists and is not a folder")
    is_loop = (out / LOOP_FILE).is_file()
    if out.is_dir() and not is_loop and complete_files(out):
        raise DataError(f"{str(out)!r} holds other files; choose another folder")


def _lab_rig(scene: Scene, config: LoopRunConfig) -> LabRig:
    """A rig in the virtual laboratory with the block of a scene."""
    require_drake()
    if scene.name not in lab.SHAPES:
        raise SceneError(
            f"the laboratory has no block of scene {scene.name!r}: "
            f"it has {', '.join(lab.SHAPES)}; for a rig of your own: --env folder"
        )
    return LabRig(lab.Setting(scene.name, config.material, config.surface, config.change))
