"""`clashsim demo`."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from clashsim.commands.recorded import Recorded
from clashsim.commands.results import Clock, finish, report
from clashsim.commands.shared import cache, console, enough_samples, not_negative
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar
from clashsim.fit.slides_from_trials import fit_slides_of_impacts

if TYPE_CHECKING:
    from clashsim.cli import Demo
    from clashsim.data.segmentation.result import Segmentation

_RIVALS = {"MuJoCo, grid search": "mujoco-grid", "network without pre-training": "scratch"}


def run(verb: Demo) -> None:
    """`clashsim demo`."""
    from clashsim import lab
    from clashsim.core.contact_frame import inertia
    from clashsim.core.scene import Scene
    from clashsim.data.folders import check_output_folder
    from clashsim.data.segmentation.segment import segment
    from clashsim.evaluate.few_shot_problem import FewShotProblem
    from clashsim.evaluate.methods import METHODS
    from clashsim.fit.base import base_model
    from clashsim.fit.distil import DistillationConfig
    from clashsim.fit.run_folder import read_notes

    not_negative(seed=verb.seed)
    enough_samples(verb.samples)
    if not 1 <= verb.impacts <= 100 or verb.steps < 1:
        raise ParamError(
            f"--impacts must be 1 to 100 and --steps at least 1, got {verb.impacts} and {verb.steps}"
        )
    check_output_folder(verb.out, overwrite=verb.overwrite)
    started = time.perf_counter()
    console().print(
        "[bold]A stand-in for reality:[/bold] 110 strikes on a semi-cylinder, recorded in clashsim's virtual laboratory (another engine, another contact\n"
        f"model, motion capture with noise and drop-outs). {verb.impacts} are used to calibrate, the others to judge. On real recordings: clashsim bench real-impacts."
    )
    setting = ("semi_cylinder", "resin", "high")
    trials, scene, clock = lab.recorded(*setting), Scene.load("semi_cylinder"), Clock()
    # Trials to fit are segmented apart from those to judge by, so that nothing of the latter is in
    # what is fitted.
    with clock("finding impacts"):
        parts = [
            segment(part, scene=scene) for part in (trials[: verb.impacts], trials[verb.impacts :])
        ]
        found = [[part.found[i] for i in _first(part)] for part in parts]
        fitted, held_out = (replace(part.impacts[_first(part)], source="lab") for part in parts)
    whole = replace(
        fitted,
        before=np.concatenate([fitted.before, held_out.before]),
        after=np.concatenate([fitted.after, held_out.after]),
    )
    with clock("base model"):
        base = base_model(
            scene,
            config=DistillationConfig(width=128, layers=4, members=2, steps=verb.steps),
            n=verb.samples,
            seed=verb.seed,
            cache=cache(),
            progress=bar,
        )
    gyration = inertia(scene, scene.struck_body).gyration
    problem = FewShotProblem(scene, whole, gyration, tabulate_grid=False)
    rivals = {}
    with bar("rivals", len(_RIVALS)) as advance:
        for name, method in _RIVALS.items():
            predicted = METHODS[method](problem, np.arange(len(fitted)), verb.seed)
            rivals[name] = predicted[len(fitted) :]
            advance(1)
    options = asdict(verb) | {
        "out": str(verb.out),
        "recorded": list(setting),
    }  # what a viewer replays
    with clock("slide model"):
        slide, figures = fit_slides_of_impacts(scene, *found)
    made = finish(
        base,
        fitted,
        held_out,
        verb.out,
        options=options,
        name="semi-cylinder, resin on high-friction sand",
        overwrite=verb.overwrite,
        found={"slide": figures},
        slide=slide,
        source="lab",
        rivals=rivals,
        recorded=Recorded(trials, *found),
        seconds=clock.seconds,
    )
    report(made, read_notes(verb.out))
    print(
        f"run written to {verb.out} in {time.perf_counter() - started:.0f} s; open {verb.out / 'report.html'} in a browser"
    )


def _first(found: Segmentation) -> np.ndarray:
    """Rows of the first impact of each trial."""
    return np.sort(np.unique(found.trial, return_index=True)[1])
