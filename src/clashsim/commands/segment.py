"""`clashsim segment`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clashsim.commands.recorded import impacts_of, read_recorded, scene_of, segmented, sentences
from clashsim.commands.shared import refuse_file
from clashsim.core.errors import DataError

if TYPE_CHECKING:
    from clashsim.cli import Segment


def run(verb: Segment) -> None:
    """`clashsim segment`."""
    from clashsim.data.impact_files import write_impacts

    refuse_file(verb.out, (".csv", ".safetensors"), overwrite=verb.overwrite)
    if verb.out.exists() and verb.trials.exists() and verb.out.samefile(verb.trials):
        raise DataError(
            f"{str(verb.out)!r} are the recording itself; choose another output for its impacts"
        )
    trials = read_recorded(verb.trials)
    scene, struck, striker = scene_of(verb.scene, verb.bodies, trials)
    found = segmented(trials, scene, struck, striker)
    impacts = impacts_of(found, scene, verb.known, trials)
    if verb.sure:
        impacts = impacts[np.flatnonzero(found.clean)]
        if not len(impacts):
            raise DataError(
                f"all {len(found.found)} impacts are in doubt; without --sure they are written"
            )
    for sentence in sentences(found, trials):
        print(sentence)
    write_impacts(verb.out, impacts)
    print(
        f"{len(impacts)} impacts written to {verb.out}; next: clashsim calibrate {verb.scene} {verb.out} -o RUN"
    )
