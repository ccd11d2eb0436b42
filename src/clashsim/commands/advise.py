"""`clashsim advise`: which strikes to record next."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import arg

from clashsim.commands.option_types import OptionalOutputPath, RunArgument
from clashsim.commands.run_tables import warn_if_unreliable
from clashsim.commands.shared import announce, check_output_file, console
from clashsim.core.errors import ParamError, RunError

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.fit.advise import Advice
    from clashsim.fit.base import BaseModel
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.candidates import Candidates

_MAX_STRIKES = 100
_AXES = ("x", "y", "z")  # of the point that is touched; without z in a plane
AdvisedStrike = dict[str, float]


@dataclass(frozen=True)
class AdviseOptions:
    """Propose the next strikes to record, with the error expected after each.

    Also says whether ten more strikes would help.

    Example: clashsim advise runs/demo -k 5 -o next.csv
    """

    run: RunArgument
    """Run folder of clashsim calibrate or demo; or a scene, if no strike was recorded yet."""
    strikes: Annotated[int, arg(aliases=["-k"])] = 5
    """Number of strikes to propose, 1 to 100."""
    side: Annotated[tuple[float, float] | None, arg(metavar="FROM TO")] = None
    """Side from which strikes are made: bearings of the tip seen from the body, in degrees, from
    the first counter-clockwise to the second.
    """
    speed: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None
    """Range of speeds that your task uses, m/s; by default that of the scene's [strikes]."""
    seed: int = 0
    """Seed of the candidate strikes that are chosen from."""
    out: OptionalOutputPath = None
    """File to write the strikes to, .csv or .json."""
    overwrite: bool = False
    """Replace the file if it exists."""


def run(options: AdviseOptions) -> None:
    """Run `clashsim advise`."""
    from clashsim.fit.advise import advise
    from clashsim.pipeline.advice import advice_sentence
    from clashsim.pipeline.arguments import check_not_negative

    check_not_negative(seed=options.seed)
    if not 1 <= options.strikes <= _MAX_STRIKES:
        raise ParamError(f"--strikes must be 1 to {_MAX_STRIKES}, got {options.strikes}")
    if options.out is not None:
        check_output_file(options.out, (".csv", ".json"), overwrite=options.overwrite)
    model, scene = _model(options.run)
    announce("comparing candidate strikes, which takes 5 to 30 s")
    choice = _candidates(options, model, scene)
    if options.strikes > len(choice.strikes):
        raise ParamError(f"{options.strikes} strikes cannot be chosen from {len(choice.strikes)}")
    advice = advise(model, choice.impacts, options.strikes)
    strikes = _advised_strikes(choice, advice)
    motions = _motions(choice, advice, scene)
    console().print(_table(strikes, scene, choice.names), markup=False)
    now = 100 * advice.error[0]
    afterwards = 100 * advice.error[-1]
    print(
        f"expected error of predictions now: {now:.1f} % of the twist after impact; "
        f"after these {options.strikes}: {afterwards:.1f} %"
    )
    print(advice_sentence(advice))
    if options.run.is_dir():
        warn_if_unreliable(options.run)
    if options.out is not None:
        written = [strike | motion for strike, motion in zip(strikes, motions, strict=True)]
        _write(options.out, written, advice, scene, choice.names)
        print(f"written to {options.out}")


def _model(path: Path) -> tuple[Calibration | BaseModel, Scene]:
    """A calibration and its scene from a run folder, or the base model of a scene."""
    from clashsim.core.scene import shipped_scenes
    from clashsim.fit.run_folder import load
    from clashsim.fit.solved_model import SolvedModel
    from clashsim.pipeline.arguments import load_scene

    is_shipped_scene = str(path) in shipped_scenes() and not path.exists()
    if path.suffix == ".xml" or is_shipped_scene:
        scene = load_scene(str(path))
        return SolvedModel(scene), scene
    if not path.is_dir():
        raise RunError(
            f"there is no run folder {str(path)!r}, nor a scene of that name: give the folder of "
            f"clashsim calibrate, or one of {', '.join(shipped_scenes())}"
        )
    calibrated = load(path)
    return calibrated.calibration, calibrated.scene


def _candidates(options: AdviseOptions, model: Calibration | BaseModel, scene: Scene) -> Candidates:
    """Candidate strikes within the side and speeds of the options."""
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.candidates import candidates

    # Measured covariates of a future strike are not known: their medians are assumed.
    known: dict[str, float] = {}
    recorded = None
    if isinstance(model, Calibration):
        known = model.scaling.median_extras()
        recorded = model.recorded
        if recorded is None and scene.plane is None:
            raise RunError(
                f"the run {str(options.run)!r} is of an earlier version of clashsim, which did not "
                "keep what strikes were recorded: calibrate again"
            )
    side = None
    if options.side is not None:
        first, second = np.radians(options.side)
        side = (float(first), float(second))
    return candidates(
        scene, options.seed, speed=options.speed, side=side, known=known, recorded=recorded
    )


def _advised_strikes(choice: Candidates, advice: Advice) -> list[AdvisedStrike]:
    """The advised strikes, best first.

    Returns:
        Per strike: its numbers by name, the contact point in the struck body's frame (touch_x,
        touch_y and in space touch_z, m), and the relative error expected once it is recorded too.
    """
    strikes = []
    errors_after = advice.error[1:]  # error[0] is the error before any of them
    for row, error in zip(advice.rows, errors_after, strict=True):
        strike = dict(zip(choice.names, map(float, choice.strikes[row]), strict=True))
        for axis, coordinate in zip(_AXES, choice.touch[row], strict=False):
            strike[f"touch_{axis}"] = float(coordinate)
        strike["expected_error"] = float(error)
        strikes.append(strike)
    return strikes


def _motions(choice: Candidates, advice: Advice, scene: Scene) -> list[AdvisedStrike]:
    """The motion before each advised strike, by the names of an impacts file.

    With the coordinates of joints that carry a body. Nothing for a strike in a plane, of which its
    numbers say all.
    """
    from clashsim.core.impacts import before_columns
    from clashsim.core.recorded_joints import joint_motion

    if "point" in choice.names or "offset" in choice.names:
        return [{} for _ in advice.rows]
    before = choice.impacts.before[advice.rows]
    columns = dict(zip(before_columns(choice.impacts.planar), before.T, strict=True))
    columns |= joint_motion(scene, before)
    motions = []
    for row in range(len(before)):
        motions.append({name: float(values[row]) for name, values in columns.items()})
    return motions


def _table(strikes: list[AdvisedStrike], scene: Scene, names: tuple[str, ...]) -> Any:
    """The strikes as a table for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    from clashsim.plan.execution import UNITS

    title = escape(f"Strikes of {scene.name} to make next, best first")
    table = Table(title=title, title_justify="left")
    table.add_column("", justify="right")
    for name in names:
        table.add_column(f"{name}, {UNITS[name]}", justify="right")
    axes = [axis for axis in _AXES if f"touch_{axis}" in strikes[0]]
    table.add_column(f"touch {', '.join(axes)} on the body, mm", justify="right")
    table.add_column("expected error after it, %", justify="right")
    for number, strike in enumerate(strikes, start=1):
        table.add_row(
            str(number),
            *(f"{strike[name]:.3f}" for name in names),
            ", ".join(f"{1e3 * strike[f'touch_{axis}']:.1f}" for axis in axes),
            f"{100 * strike['expected_error']:.2f}",
        )
    return table


def _write(
    path: Path,
    strikes: list[AdvisedStrike],
    advice: Advice,
    scene: Scene,
    names: tuple[str, ...],
) -> None:
    """Write strikes as CSV or JSON, by the ending of the file."""
    from clashsim.core.files import write_atomic

    if path.suffix == ".csv":
        write_atomic(path, _csv(strikes))
    else:
        write_atomic(path, _json(strikes, advice, scene, names))


def _csv(strikes: list[AdvisedStrike]) -> bytes:
    """One line per strike below a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(strikes[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(strikes)
    return text.getvalue().encode()


def _json(
    strikes: list[AdvisedStrike], advice: Advice, scene: Scene, names: tuple[str, ...]
) -> bytes:
    """JSON of the strikes with units, and of the errors expected now and after ten strikes."""
    from clashsim.data.folders import dumps
    from clashsim.plan.execution import UNITS

    units = {name: UNITS[name] for name in names}
    units |= {name: "m" for name in strikes[0] if name.startswith("touch_")}
    units["expected_error"] = "relative to the twist after impact"
    return dumps(
        {
            "scene": scene.name,
            "units": units,
            "error_now": float(advice.error[0]),
            "error_after_ten": advice.after_ten,
            "floor": advice.floor,
            "worthwhile": advice.worthwhile,
            "strikes": strikes,
        }
    )
