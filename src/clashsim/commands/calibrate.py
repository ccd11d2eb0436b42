"""`clashsim calibrate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.export import left_sentence
from clashsim.commands.recorded import (
    Recorded,
    ground,
    holds_trials,
    impacts_of,
    read_recorded,
    segmented,
    sentences,
)
from clashsim.commands.results import Clock, finish, report
from clashsim.commands.shared import cache, enough_samples, load_scene, not_negative
from clashsim.core.errors import ParamError, SceneError
from clashsim.core.progress import Progress, bar
from clashsim.fit.settings import outside_strike_ranges
from clashsim.fit.slides_from_trials import fit_slides_of_impacts

if TYPE_CHECKING:
    from clashsim.cli import Calibrate
    from clashsim.core.impacts import Impacts
    from clashsim.core.scene import Scene
    from clashsim.core.trials import Trials
    from clashsim.data.segmentation.result import MeasuredImpact
    from clashsim.fit.calibrated_run import CalibratedRun


def run(verb: Calibrate) -> None:
    """`clashsim calibrate`."""
    from clashsim.fit.run_folder import read_notes

    made = make(verb, progress=bar, say=print)
    if verb.write_mjcf is not None:
        _write_mjcf(verb, made)
    report(made, read_notes(verb.out))
    print(f"run written to {verb.out}; open {verb.out / 'report.html'} in a browser")


def make(
    verb: Calibrate, *, progress: Progress, say: Callable[[str], object], threads: int = 0
) -> CalibratedRun:
    """Calibrate and write the run; `say` is told at once what a user should know before minutes are
    spent.
    """
    from clashsim.core.contact_frame import contact_frame
    from clashsim.data.folders import check_output_folder
    from clashsim.fit.base import base_model

    not_negative(seed=verb.seed)
    enough_samples(verb.samples)
    if not 0 <= verb.hold_out < 1:
        raise ParamError(f"--hold-out must be at least 0 and below 1, got {verb.hold_out}")
    scene = load_scene(verb.scene, **asdict(verb.pair))
    impacts, told, found, trials = _impacts(verb, scene, say)
    check_output_folder(verb.out, overwrite=verb.overwrite)
    order = np.random.default_rng(verb.seed).permutation(len(impacts))
    kept = len(impacts) - round(verb.hold_out * len(impacts))
    if kept < 1:
        raise ParamError(
            f"--hold-out {verb.hold_out} leaves none of the {len(impacts)} impacts to fit"
        )
    rows = np.sort(order[:kept]), np.sort(order[kept:])
    fitted, held_out = (impacts[part] for part in rows)
    contact_frame(
        scene, impacts
    )  # refuses bodies that never meet, before minutes are spent on sampling
    if said := outside_strike_ranges(scene, impacts):
        say(said)
    clock = Clock()
    with clock("base model"):
        base = base_model(
            scene,
            n=verb.samples,
            seed=verb.seed,
            cache=verb.base or cache(),
            threads=threads,
            progress=progress,
        )
    options = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(verb).items()}
    recorded = (
        Recorded(trials, *([found[i] for i in part] for part in rows))
        if trials is not None
        else None
    )
    with clock("slide model"):
        slide, figures = (
            fit_slides_of_impacts(scene, recorded.fitted, recorded.held_out)
            if recorded is not None
            else (None, {})
        )
    return finish(
        base,
        fitted,
        held_out,
        verb.out,
        options=options,
        name=verb.impacts.name,
        overwrite=verb.overwrite,
        found=told | ({"slide": figures} if figures else {}),
        slide=slide,
        source=impacts.source,
        recorded=recorded,
        seconds=clock.seconds,
    )


def _impacts(
    verb: Calibrate, scene: Scene, say: Callable[[str], object]
) -> tuple[Impacts, dict[str, Any], tuple[MeasuredImpact, ...], Trials | None]:
    """Impacts of the file; or those found in its trials, what else the trials told, what was found
    row by row, and the trials.
    """
    from clashsim.data.impact_files import read_impacts

    if not holds_trials(verb.impacts):
        return (
            read_impacts(
                verb.impacts, known=[*(p.name for p in scene.params), *verb.known]
            ).checked(),
            {},
            (),
            None,
        )
    trials = read_recorded(verb.impacts)
    found = segmented(trials, scene)
    impacts = impacts_of(found, scene, verb.known, trials).checked()
    friction, said = ground(found, scene), sentences(found, trials)
    say("\n".join(said))
    return (
        impacts,
        {"segmented": said}
        | ({"ground": friction} if friction else {})
        | ({"import": list(trials.notes)} if trials.notes else {}),
        found.found,
        trials,
    )


def _write_mjcf(verb: Calibrate, made: CalibratedRun) -> None:
    from clashsim.core.files import write_atomic

    assert verb.write_mjcf is not None
    if verb.write_mjcf.exists() and not verb.overwrite:
        raise SceneError(
            f"the output {str(verb.write_mjcf)!r} already exists; choose another, or replace it with --overwrite (the run is in {str(verb.out)!r})"
        )
    edited = made.mjcf()
    write_atomic(verb.write_mjcf, edited.xml.encode())
    print(f"scene with identified values written to {verb.write_mjcf}{left_sentence(made, edited)}")
