"""`clashsim segment`: find the impacts in trials and write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import OmitArgPrefixes, arg

from clashsim.commands.option_types import BodyOptions, Names, OutputPath, TrialsArgument
from clashsim.commands.shared import check_output_file
from clashsim.core.errors import DataError

if TYPE_CHECKING:
    from clashsim.core.scene import Scene


@dataclass(frozen=True)
class SegmentOptions:
    """Find the impacts in trials and measure the motion just before and just after each.

    Example: clashsim segment trials.safetensors --scene semi_cylinder -o impacts.csv

    clashsim calibrate reads the file that this writes. It also takes trials directly.
    """

    trials: TrialsArgument
    """File of clashsim import (.safetensors) or record (.npz)."""
    out: OutputPath
    """File to write, ending in .csv or .safetensors."""
    scene: Annotated[str, arg(metavar="SCENE")]
    """Name of a built-in scene, or path of an MJCF file (.xml)."""
    sure: bool = False
    """Exclude flagged impacts (double hits, long contacts)."""
    known: Names = ()
    """Additional measured covariates to write with each impact: names of numbers in the trials.
    Those that are parameters of the scene are always written.
    """
    overwrite: bool = False
    """Replace the file if it exists."""
    bodies: OmitArgPrefixes[BodyOptions] = BodyOptions()


def run(options: SegmentOptions) -> None:
    """Run `clashsim segment`."""
    from clashsim.data.impact_files import write_impacts
    from clashsim.pipeline import recordings

    out = options.out
    check_output_file(out, (".csv", ".safetensors"), overwrite=options.overwrite)
    if out.exists() and options.trials.exists() and out.samefile(options.trials):
        raise DataError(f"the output {str(out)!r} is the recording itself; choose another file")
    trials = recordings.read_recording(options.trials)
    names = recordings.BodyNames(
        options.bodies.struck, options.bodies.striker, options.bodies.ground
    )
    scene, names = recordings.scene_for_trials(options.scene, names, trials)
    segmentation = recordings.find_impacts(trials, scene, names)
    impacts = recordings.impacts_with_known(segmentation, scene, options.known, trials)
    if options.sure:
        unflagged_rows = np.flatnonzero(segmentation.clean)
        impacts = impacts[unflagged_rows]
        if not len(impacts):
            raise DataError(
                f"all {len(segmentation.found)} impacts are flagged; "
                "without --sure they are written"
            )
    for sentence in recordings.segmentation_summary(segmentation, trials):
        print(sentence)
    write_impacts(out, impacts)
    next_command = f"clashsim calibrate {options.scene} {out}{_pair_options(options, scene)} -o RUN"
    print(f"{len(impacts)} impacts written to {out}; next: {next_command}")


def _pair_options(options: SegmentOptions, scene: Scene) -> str:
    """Options that say which geoms collide, where the next command cannot know them."""
    from clashsim.pipeline.arguments import has_settings

    given = (options.bodies.struck, options.bodies.striker, options.bodies.ground)
    if has_settings(options.scene) or not any(given):
        return ""
    names = {"struck": scene.struck, "striker": scene.striker, "ground": scene.ground}
    return "".join(f" --{role} {name}" for role, name in names.items() if name is not None)
