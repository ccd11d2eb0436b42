"""`clashsim calibrate`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.recorded import ground, holds_trials, impacts_of, read_recorded, segmented, sentences
from clashsim.commands.results import finish, report
from clashsim.commands.shared import cache, enough_samples, load_scene, not_negative
from clashsim.core.errors import ParamError, SceneError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Calibrate
    from clashsim.core.impacts import Impacts
    from clashsim.core.scene import Scene
    from clashsim.fit.calibrate import Calibration


def run(verb: Calibrate) -> None:
    """`clashsim calibrate`."""
    from clashsim.core.frame import frame
    from clashsim.data.store import refuse_taken
    from clashsim.fit.base import base_model

    not_negative(seed=verb.seed)
    enough_samples(verb.samples)
    if not 0 <= verb.hold_out < 1:
        raise ParamError(f"--hold-out must be at least 0 and below 1, got {verb.hold_out}")
    scene = load_scene(verb.scene, **asdict(verb.pair))
    impacts, found = _impacts(verb, scene)
    refuse_taken(verb.out, overwrite=verb.overwrite)
    order = np.random.default_rng(verb.seed).permutation(len(impacts))
    kept = len(impacts) - round(verb.hold_out * len(impacts))
    if kept < 1:
        raise ParamError(f"--hold-out {verb.hold_out} leaves none of the {len(impacts)} impacts to fit")
    fitted, held_out = impacts[np.sort(order[:kept])], impacts[np.sort(order[kept:])]
    frame(scene, impacts)  # refuses bodies that never meet, before minutes are spent on sampling
    base = base_model(scene, n=verb.samples, seed=verb.seed, cache=verb.base or cache(), progress=bar)
    options = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(verb).items()}
    calibration, metrics = finish(base, fitted, held_out, verb.out, options=options, name=verb.impacts.name, overwrite=verb.overwrite, found=found, source=impacts.source)
    if verb.write_mjcf is not None:
        _write_mjcf(verb, calibration)
    report(calibration, metrics)
    print(f"run written to {verb.out}, report in {verb.out / 'report.html'}")


def _impacts(verb: Calibrate, scene: Scene) -> tuple[Impacts, dict[str, Any]]:
    """Impacts of the file, or those found in its trials, and then what else the trials told."""
    from clashsim.data.impact_files import read_impacts

    if not holds_trials(verb.impacts):
        return read_impacts(verb.impacts, known=[*(p.name for p in scene.params), *verb.known]).checked(), {}
    trials = read_recorded(verb.impacts)
    found = segmented(trials, scene)
    impacts = impacts_of(found, scene, verb.known, trials).checked()
    friction, said = ground(found, scene), sentences(found, trials)
    print("\n".join(said))  # now, for what follows may take minutes
    return impacts, {"segmented": said} | ({"ground": friction} if friction else {})


def _write_mjcf(verb: Calibrate, calibration: Calibration) -> None:
    """Write what was identified into the author's MJCF; what the impacts say nothing about stays as the author has it."""
    from clashsim.bench.judge import within
    from clashsim.core.files import write_atomic
    from clashsim.data.mjcf import write_back
    from clashsim.fit.calibrate import Status

    assert verb.write_mjcf is not None
    if verb.write_mjcf.exists() and not verb.overwrite:
        raise SceneError(f"{str(verb.write_mjcf)!r} already exists; choose another file, or replace it with --overwrite (the run is in {str(verb.out)!r})")
    scene, source = calibration.base.scene, Path(verb.scene)
    said = [i for i, e in enumerate(calibration.theta) if e.status in (Status.FITTED, Status.AT_BOUND)]
    text = source.read_bytes().decode() if source.suffix == ".xml" else scene.xml
    edited = write_back(text, scene.with_params([scene.params[i] for i in said]), within(calibration)[said])
    write_atomic(verb.write_mjcf, edited.xml.encode())
    left = [p.name for i, p in enumerate(scene.params) if i not in said]
    print(f"scene with identified values written to {verb.write_mjcf}"
          + (f"; left as they were: {', '.join(left)}" if left else "") + (f"; MJCF has no place for: {', '.join(edited.unwritten)}" if edited.unwritten else ""))
