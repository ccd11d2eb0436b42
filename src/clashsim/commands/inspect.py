"""`clashsim inspect`: tables of trials or impacts, pictures, and settings proposed for a scene."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import OmitArgPrefixes, arg

from clashsim.commands.option_types import (
    BodyOptions,
    OptionalOutputPath,
    OptionalPath,
    TrialsArgument,
)
from clashsim.commands.shared import check_output_file, console
from clashsim.core.errors import DataError, SceneError
from clashsim.core.files import write_atomic

if TYPE_CHECKING:
    from clashsim.core.impacts import Impacts
    from clashsim.core.scene import Scene
    from clashsim.core.trials import Trials
    from clashsim.data.segmentation.result import Segmentation

_TABLES = (".csv", ".json", ".npz")  # files that hold impacts and no trials of clashsim
_PICTURES = (".png", ".svg", ".pdf", ".html")


@dataclass(frozen=True)
class InspectOptions:
    """Tabulate and draw trials: what was recorded, and the impacts found in it.

    Example: clashsim inspect trials.safetensors --scene semi_cylinder -o trials.html

    A table of impacts (.csv and others of clashsim calibrate) is tabulated as well.

    For a scene of your own, --settings scene.toml proposes the file that belongs beside scene.xml.
    """

    trials: TrialsArgument
    """File of clashsim import (.safetensors) or record (.npz), or a table of impacts."""
    out: OptionalOutputPath = None
    """Picture (.png, .svg, .pdf) or page (.html) to write."""
    scene: Annotated[str | None, arg(metavar="SCENE")] = None
    """Scene whose bodies collide; without a scene, name the struck body with --struck."""
    settings: OptionalPath = None
    """File (.toml) to write proposed settings of the scene to: which geoms collide, ranges of
    strikes that cover the impacts found, and parameters.
    """
    overwrite: bool = False
    """Replace the files if they exist."""
    bodies: OmitArgPrefixes[BodyOptions] = BodyOptions()


@dataclass(frozen=True, eq=False)
class _Inspected:
    """Trials and the impacts found in them; no segmentation if the struck body is not known."""

    trials: Trials
    scene: Scene | None
    struck: str | None
    segmentation: Segmentation | None


def run(options: InspectOptions) -> None:
    """Run `clashsim inspect`."""
    from clashsim.pipeline.recordings import holds_trials, segmentation_summary
    from clashsim.report.trial_pictures import draw_trials, trials_table

    if options.out is not None:
        check_output_file(options.out, _PICTURES, overwrite=options.overwrite)
    if options.settings is not None:
        if options.scene is None:
            raise SceneError("--settings proposes settings for a scene: name it with --scene")
        check_output_file(options.settings, (".toml",), overwrite=options.overwrite)
    may_hold_impacts = options.scene is not None or options.trials.suffix in _TABLES
    if options.trials.is_file() and may_hold_impacts and not holds_trials(options.trials):
        _inspect_impacts(options)
        return
    inspected = _inspect(options)
    trials = inspected.trials
    segmentation = inspected.segmentation
    impacts = () if segmentation is None else segmentation.found
    console().print(trials_table(trials, impacts), markup=False)
    if segmentation is None:
        print("name the struck body with --struck, or a scene with --scene, to find impacts")
    else:
        for sentence in segmentation_summary(segmentation, trials):
            print(sentence)
    if options.out is not None:
        notes = () if segmentation is None else segmentation.notes
        draw_trials(options.out, trials, impacts, struck=inspected.struck, notes=notes)
        print(f"pictures written to {options.out}")
    if options.settings is not None:
        _propose_settings(inspected, options.settings, Path(str(options.scene)))


def _inspect_impacts(options: InspectOptions) -> None:
    """Tabulate a file of impacts as the scene sees them, and propose settings from them."""
    from clashsim.core.contact_frame import contact_frame
    from clashsim.core.recorded_joints import with_postures
    from clashsim.core.scene import Scene
    from clashsim.pipeline.recorded_impacts import read_recorded_impacts
    from clashsim.pipeline.scene_of_recording import scene_of_recording
    from clashsim.report.impact_table import impacts_table

    name = options.trials.name
    if options.scene is None:
        raise SceneError(f"{name!r} is a table of impacts: name its scene with --scene")
    if options.out is not None:
        raise DataError(f"pictures are drawn of trials, and {name!r} is a table of impacts")
    bodies = options.bodies
    scene = Scene.load(
        options.scene, struck=bodies.struck, striker=bodies.striker, ground=bodies.ground
    )
    recorded = read_recorded_impacts(options.trials, scene, (), print)
    impacts = recorded.impacts
    named = bodies.ground is not None
    scene = scene_of_recording(scene, options.scene, impacts, ground_is_named=named)
    scene = with_postures(scene, impacts)
    frame = contact_frame(scene, impacts, strict=False)
    table = impacts_table(impacts, frame.before, frame.contact, numbers=recorded.rows)
    console().print(table, markup=False)
    if options.settings is not None:
        usable = impacts[np.flatnonzero(frame.contact.touching)]
        _write_settings(scene, usable, options.settings, Path(options.scene))


def _inspect(options: InspectOptions) -> _Inspected:
    """Read the trials and find their impacts; a single recorded body is taken as the struck one."""
    from clashsim.core.recorded_joints import with_poses_from_joints
    from clashsim.pipeline import recordings

    trials = recordings.read_recording(options.trials)
    names = recordings.BodyNames(
        options.bodies.struck, options.bodies.striker, options.bodies.ground
    )
    if options.scene is not None:
        scene, names = recordings.scene_for_trials(options.scene, names, trials)
        trials = with_poses_from_joints(trials, scene, (names.struck, names.striker))
        segmentation = recordings.find_impacts(trials, scene, names)
        struck = names.struck or scene.struck_body.name
        return _Inspected(trials, scene, struck, segmentation)
    struck_body = names.struck
    if struck_body is None and len(trials.bodies) == 1:
        struck_body = trials.bodies[0]
    if struck_body is None:
        return _Inspected(trials, None, None, None)
    names = recordings.BodyNames(struck_body, names.striker)
    segmentation = recordings.find_impacts(trials, None, names)
    return _Inspected(trials, None, struck_body, segmentation)


def _propose_settings(inspected: _Inspected, settings: Path, scene_file: Path) -> None:
    """Write settings proposed for a scene from the impacts that were found."""
    from clashsim.core.recorded_joints import with_postures
    from clashsim.pipeline.recordings import impacts_with_known

    scene = inspected.scene
    segmentation = inspected.segmentation
    assert scene is not None and segmentation is not None, "--settings comes with --scene"
    impacts = impacts_with_known(segmentation, scene, (), inspected.trials).checked()
    _write_settings(with_postures(scene, impacts), impacts, settings, scene_file)


def _write_settings(scene: Scene, impacts: Impacts, settings: Path, scene_file: Path) -> None:
    """Write settings proposed from impacts to a file, and say where they belong."""
    from clashsim.fit.settings import propose_settings

    write_atomic(settings, propose_settings(scene, impacts).encode())
    beside_scene = scene_file.with_suffix(".toml")
    hint = ""
    if settings.resolve() != beside_scene.resolve():
        hint = f"; clashsim reads them from {beside_scene.name} beside {scene_file.name}"
    print(f"proposed settings written to {settings}: look at them and correct them{hint}")
