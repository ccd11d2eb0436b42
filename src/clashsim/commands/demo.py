"""`clashsim demo`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from clashsim.commands.results import finish, report
from clashsim.commands.shared import cache, console, enough_samples, not_negative
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Demo


def run(verb: Demo) -> None:
    """`clashsim demo`."""
    from clashsim.bench.judge import guesses
    from clashsim.bench.stand_in import stand_in
    from clashsim.core.scene import Scene
    from clashsim.data.store import refuse_taken
    from clashsim.fit.base import base_model
    from clashsim.fit.distil import Recipe
    from clashsim.report.plots import predicted_against_measured

    not_negative(seed=verb.seed)
    enough_samples(verb.samples)
    if verb.impacts < 1 or verb.steps < 1:
        raise ParamError(f"--impacts and --steps must be at least 1, got {verb.impacts} and {verb.steps}")
    refuse_taken(verb.out, overwrite=verb.overwrite)
    scene = Scene.load("semi_cylinder")
    console().print("[bold]A stand-in for reality:[/bold] no recordings are at hand here, so the impacts come from a perturbed MuJoCo: other friction, damping ratio and\n"
                    "ground friction than the scene has, another timestep, impratio and mass (which no parameter can express), and 2 % noise.\n"
                    "On real recordings: clashsim bench real-impacts.")
    impacts = stand_in(scene, verb.impacts + 300, verb.seed)
    fitted, held_out = impacts[: verb.impacts], impacts[verb.impacts :]
    recipe = Recipe(width=128, layers=4, members=2, steps=verb.steps)
    base = base_model(scene, recipe=recipe, n=verb.samples, seed=verb.seed, cache=cache(), progress=bar)
    options = asdict(verb) | {"out": str(verb.out)}
    calibration, metrics = finish(base, fitted, held_out, verb.out, options=options, name="perturbed MuJoCo", overwrite=verb.overwrite)
    report(calibration, metrics)
    picture = verb.out / "predicted.png"
    predicted_against_measured(picture, held_out.after, guesses(calibration, held_out),
                               title=f"{len(held_out)} held-out impacts of a perturbed MuJoCo, {len(fitted)} to calibrate with")
    print(f"run written to {verb.out}, picture in {picture}")
