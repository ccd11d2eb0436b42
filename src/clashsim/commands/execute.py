"""`clashsim execute`: execute a plan in the virtual laboratory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import Positional, arg

from clashsim.commands.option_types import OptionalOutputPath
from clashsim.commands.shared import check_output_file
from clashsim.core.errors import DataError
from clashsim.core.parsing import JSON_BYTES, parse_json, read_bounded

if TYPE_CHECKING:
    from clashsim.core.trials import Trial
    from clashsim.plan.tasks import Plan

_PICTURES_AND_TRIALS = (".png", ".svg", ".pdf", ".safetensors")
_FRAMES_AT_REST = 10  # frames at the end of a trial whose median is the pose at rest
LAB_STRIKE = {"speed", "point", "deflection"}  # the numbers that the laboratory's arm takes


@dataclass(frozen=True)
class ExecuteOptions:
    """Execute a plan in the virtual laboratory, a stand-in for reality.

    Shows target, expected pose and outcome. Needs clashsim[lab].

    Example: clashsim execute plan --repeats 3 -o outcome.png
    """

    plan: Positional[Annotated[Path, arg(metavar="PLAN")]]
    """Folder of clashsim plan, or its plan.json."""
    material: str = "resin"
    """Material of the block: resin, nylon or petg_cf."""
    surface: str = "high"
    """Sand of the table: high or low friction."""
    repeats: int = 1
    """How often to execute the plan."""
    seed: int = 0
    """Seed of actuation, placement and camera noise; repeat i adds i."""
    out: OptionalOutputPath = None
    """Picture (.png, .svg, .pdf) or trials (.safetensors) to write."""
    overwrite: bool = False
    """Replace the file if it exists."""


def run(options: ExecuteOptions) -> None:
    """Run `clashsim execute`."""
    from clashsim.pipeline.arguments import check_at_least, check_not_negative, require_drake

    check_not_negative(seed=options.seed)
    require_drake()
    check_at_least(1, repeats=options.repeats)
    if options.out is not None:
        check_output_file(options.out, _PICTURES_AND_TRIALS, overwrite=options.overwrite)
    plan, shape = read_plan(options.plan)
    executions = _execute(plan, shape, options)
    outcomes = np.array([_pose_at_rest(trials[-1]) for trials in executions])
    _print_errors(plan, outcomes)
    print(
        "executed in the virtual laboratory, a stand-in for reality: "
        f"{shape}, {options.material} on {options.surface}-friction sand"
    )
    if options.out is not None:
        _write(options.out, plan, shape, executions, outcomes)
        print(f"written to {options.out}")


def read_plan(path: Path) -> tuple[Plan, str]:
    """Read a plan for the laboratory.

    Args:
        path: Folder of `clashsim plan`, or its plan.json.

    Returns:
        The plan, and the shape of the laboratory's block that it is for.
    """
    from clashsim.pipeline.planning import PLAN_FILE
    from clashsim.plan.execution import plan_from_json

    file = path / PLAN_FILE if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"there is no plan at {str(file)!r}: make one with clashsim plan -o FOLDER")
    content = read_bounded(file, f"plan {str(file)!r}", limit=JSON_BYTES)
    text = content.decode(errors="replace")
    plan = plan_from_json(text)
    shape = block_shape(text)
    if set(plan.names) != LAB_STRIKE:
        raise DataError(
            "the laboratory takes speed, point and deflection of a strike, "
            f"but the plan has {', '.join(plan.names)}"
        )
    return plan, shape


def block_shape(text: str) -> str:
    """The shape of the laboratory's block that a plan is for, from the plan's JSON."""
    from clashsim import lab

    name = str(parse_json(text, "the plan").get("scene"))
    if name not in lab.SHAPES:
        raise DataError(
            f"the laboratory has no block of scene {name!r}: it has {', '.join(lab.SHAPES)}"
        )
    return name


def _execute(plan: Plan, shape: str, options: ExecuteOptions) -> list[list[Trial]]:
    """Execute a plan several times; returns one list of recorded strikes per execution."""
    from clashsim import lab

    setting = lab.Setting(shape, options.material, options.surface)
    strikes = []
    for numbers in plan.strikes:
        strikes.append(lab.Strike(**dict(zip(plan.names, numbers.tolist(), strict=True))))
    executions = []
    for repeat in range(options.repeats):
        seed = options.seed + repeat
        executions.append(list(lab.execute(strikes, setting, seed, start=plan.task.start)))
    return executions


def _pose_at_rest(trial: Trial) -> np.ndarray:
    """Pose (3,) of the block at the end of a trial: x, y (m), yaw (rad), world frame."""
    from clashsim.core.trials import yaw

    _, poses = trial.seen("block")
    last = poses[-_FRAMES_AT_REST:]
    x, y = np.median(last[:, :2], axis=0)
    return np.array([x, y, np.median(np.unwrap(yaw(last[:, 3:])))])


def _print_errors(plan: Plan, outcomes: np.ndarray) -> None:
    """Print how far rest poses `outcomes` (N, 3) are from the target and the expected pose."""
    from clashsim.plan.tasks import pose_error

    references = {
        "from the target": np.array(plan.task.target),
        "from what was expected": plan.predicted[-1],  # after the last strike
    }
    repeats_note = f" (mean of {len(outcomes)})" if len(outcomes) > 1 else ""
    for words, pose in references.items():
        distances, angles = pose_error(outcomes, pose)
        print(
            f"came to rest {1e3 * distances.mean():.1f} mm and "
            f"{np.degrees(np.abs(angles)).mean():.1f} degrees {words}{repeats_note}"
        )


def _write(
    path: Path, plan: Plan, shape: str, executions: list[list[Trial]], outcomes: np.ndarray
) -> None:
    """Write the recorded trials, or a picture, by the ending of the file."""
    from clashsim.core.scene import Scene
    from clashsim.core.trials import Trials
    from clashsim.data.trial_files import write_trials
    from clashsim.pipeline.planning import draw_plan_picture

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".safetensors":
        draw_plan_picture(path, plan, Scene.load(shape), outcomes)
        return
    trials = []
    for number, execution in enumerate(executions):
        trials += [replace(trial, name=f"{trial.name}-{number}") for trial in execution]
    write_trials(path, Trials(tuple(trials)))
