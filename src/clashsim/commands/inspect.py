"""`clashsim inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clashsim.commands.recorded import impacts_of, read_recorded, scene_of, segmented, sentences
from clashsim.commands.shared import console, refuse_file
from clashsim.core.errors import SceneError
from clashsim.core.files import write_atomic

if TYPE_CHECKING:
    from clashsim.cli import Inspect
    from clashsim.data.segmentation.result import Segmentation


def run(verb: Inspect) -> None:
    """`clashsim inspect`."""
    from clashsim.fit.settings import propose_settings
    from clashsim.report.trial_pictures import draw_trials, trials_table

    if verb.out is not None:
        refuse_file(verb.out, (".png", ".svg", ".pdf", ".html"), overwrite=verb.overwrite)
    if verb.settings is not None:
        if verb.scene is None:
            raise SceneError("--settings proposes settings for a scene: name it with --scene")
        refuse_file(verb.settings, (".toml",), overwrite=verb.overwrite)
    trials = read_recorded(verb.trials)
    found: Segmentation | None
    if verb.scene is not None:
        scene, struck, striker = scene_of(verb.scene, verb.bodies, trials)
        found = segmented(trials, scene, struck, striker)
        struck = struck or scene.struck_body.name
    else:
        struck, striker = verb.bodies.struck, verb.bodies.striker
        if struck is None and len(trials.bodies) == 1:
            struck = trials.bodies[0]
        found = segmented(trials, None, struck, striker) if struck is not None else None
    console().print(trials_table(trials, found.found if found is not None else ()), markup=False)
    for sentence in (
        ["name the struck body with --struck, or a scene with --scene, to have impacts looked for"]
        if found is None
        else sentences(found, trials)
    ):
        print(sentence)
    if verb.out is not None:
        draw_trials(
            verb.out,
            trials,
            found.found if found is not None else (),
            struck=struck,
            notes=found.notes if found is not None else (),
        )
        print(f"pictures written to {verb.out}")
    if verb.settings is not None and found is not None and verb.scene is not None:
        write_atomic(
            verb.settings,
            propose_settings(scene, impacts_of(found, scene, (), trials).checked()).encode(),
        )
        beside = Path(verb.scene).with_suffix(".toml")
        put = (
            ""
            if verb.settings.resolve() == beside.resolve()
            else f"; it counts as {beside.name} beside {Path(verb.scene).name}"
        )
        print(f"proposed settings written to {verb.settings}: look at them and mend them{put}")
