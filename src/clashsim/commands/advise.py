"""`clashsim advise`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import cache, console, load_scene, not_negative, refuse_file
from clashsim.core.errors import ParamError, RunError

if TYPE_CHECKING:
    from clashsim.cli import Advise
    from clashsim.core.scene import Scene
    from clashsim.fit.advise import Advice
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.candidates import Candidates
    from clashsim.fit.distil import DistilledModel

_MOST = 100


def run(verb: Advise) -> None:
    """`clashsim advise`."""
    from clashsim.core.files import write_atomic
    from clashsim.fit.advise import advise
    from clashsim.fit.calibrate import Calibration
    from clashsim.fit.candidates import candidates

    not_negative(seed=verb.seed)
    if not 1 <= verb.strikes <= _MOST:
        raise ParamError(f"--strikes must be 1 to {_MOST}, got {verb.strikes}")
    if verb.out is not None:
        refuse_file(verb.out, (".csv", ".json"), overwrite=verb.overwrite)
    side = (
        None
        if verb.side is None
        else (float(np.radians(verb.side[0])), float(np.radians(verb.side[1])))
    )
    model, scene = _model(verb.run)
    known: dict[str, float] = {}
    if isinstance(model, Calibration):  # what was measured with each impact is at its median
        known = model.scaling.median_extras()
    choice = candidates(scene, verb.seed, speed=verb.speed, side=side, known=known)
    if verb.strikes > len(choice.strikes):
        raise ParamError(f"{verb.strikes} strikes cannot be chosen from {len(choice.strikes)}")
    advice = advise(model, choice.impacts, verb.strikes)
    strikes = _strikes(choice, advice)
    console().print(_table(strikes, scene, choice.names), markup=False)
    print(
        f"expected error of predictions now: {100 * advice.error[0]:.1f} % of the twist after impact; after these {verb.strikes}: {100 * advice.error[-1]:.1f} %"
    )
    print(said(advice))
    if verb.out is not None:
        write_atomic(
            verb.out,
            _csv(strikes)
            if verb.out.suffix == ".csv"
            else _json(strikes, advice, scene, choice.names),
        )
        print(f"written to {verb.out}")


def said(advice: Advice) -> str:
    """Whether ten more strikes would help, as a sentence."""
    after, now, floor = (
        f"{100 * v:.1f} %" for v in (advice.after_ten, advice.error[0], advice.floor)
    )
    # What a calibration states is cautious: errors that were measured may well be smaller.
    return f"ten more strikes would {'help' if advice.worthwhile else 'not help'}: by its own cautious account it errs by {now} now, by {after} after ten, by {floor} at best"


def _model(path: Path) -> tuple[Calibration | DistilledModel, Scene]:
    """A calibration and its scene from a run folder, or the base model of a scene."""
    from clashsim.core.progress import bar
    from clashsim.core.scene import shipped_scenes
    from clashsim.fit.base import base_model
    from clashsim.fit.run_folder import load

    if path.suffix == ".xml" or (str(path) in shipped_scenes() and not path.exists()):
        scene = load_scene(str(path))
        return base_model(scene, cache=cache(), progress=bar), scene
    if not path.is_dir():
        raise RunError(
            f"there is no run folder {str(path)!r}, nor a scene of that name: give the folder of clashsim calibrate, or one of {', '.join(shipped_scenes())}"
        )
    made = load(path)
    return made.calibration, made.scene


def _strikes(choice: Candidates, advice: Advice) -> list[dict[str, float]]:
    """Each strike: its numbers by name, the point touched in the body's frame (m), and the error
    expected after it.
    """
    out = []
    for i, error in zip(advice.rows, advice.error[1:], strict=True):
        touch = {"touch_x": float(choice.touch[i, 0]), "touch_y": float(choice.touch[i, 1])}
        out.append(
            dict(zip(choice.names, map(float, choice.strikes[i]), strict=True))
            | touch
            | {"expected_error": float(error)}
        )
    return out


def _table(strikes: list[dict[str, float]], scene: Scene, names: tuple[str, ...]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from clashsim.plan.execution import UNITS

    title = escape(f"Strikes of {scene.name} to make next, best first")
    table = Table(title=title, title_justify="left")
    for name in (
        "",
        *(f"{n}, {UNITS[n]}" for n in names),
        "touch x, y on the body, mm",
        "expected error after it, %",
    ):
        table.add_column(name, justify="right")
    for k, s in enumerate(strikes, 1):
        table.add_row(
            str(k),
            *(f"{s[n]:.3f}" for n in names),
            f"{1e3 * s['touch_x']:.1f}, {1e3 * s['touch_y']:.1f}",
            f"{100 * s['expected_error']:.2f}",
        )
    return table


def _csv(strikes: list[dict[str, float]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(strikes[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(strikes)
    return text.getvalue().encode()


def _json(
    strikes: list[dict[str, float]], advice: Advice, scene: Scene, names: tuple[str, ...]
) -> bytes:
    from clashsim.data.folders import dumps
    from clashsim.plan.execution import UNITS

    units = {n: UNITS[n] for n in names} | {
        "touch_x": "m",
        "touch_y": "m",
        "expected_error": "relative to the twist after impact",
    }
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
