"""`clashsim calibrate`: fit a scene's collision model to recorded impacts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from clashsim.commands.option_types import (
    Names,
    OptionalPath,
    OutputPath,
    PairOptions,
    SceneArgument,
)
from clashsim.commands.run_tables import print_run, unwritten_params
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.pipeline.calibration import CalibrationConfig


@dataclass(frozen=True)
class CalibrateOptions:
    """Fit a scene's collision model to recorded impacts.

    Example: clashsim calibrate semi_cylinder impacts.csv -o runs/first --hold-out 0.3

    The impacts are a .csv, .npz, .json or .safetensors file with columns vx, vy, w, striker_vx,
    ..., vx_after, vy_after, w_after (SI units). Trials of clashsim import or record work as well:
    impacts are found in them, and the ground's friction and a slide model are identified from the
    slides. The first run of a scene samples and distils it, which takes minutes; later runs load
    the distilled model from --base.
    """

    scene: SceneArgument
    """A shipped scene or an MJCF file ending in .xml."""
    impacts: Positional[Annotated[Path, arg(metavar="IMPACTS")]]
    """File with recorded impacts, or with trials."""
    out: OutputPath
    """Folder to write the run to."""
    samples: int = 100_000
    """Simulated strikes to distil from."""
    base: OptionalPath = None
    """Folder where distilled models are kept; by default clashsim's folder in the user's cache."""
    seed: int = 0
    """Seed of sampling, distilling, fitting and holding out."""
    hold_out: float = 0.0
    """Share of the impacts kept back to judge the result; 0 judges by leaving each fifth out in
    turn.
    """
    known: Names = ()
    """Further columns of the file (or numbers of the trials) that were measured with each impact
    and may explain it.
    """
    overwrite: bool = False
    """Replace the run if it exists."""
    write_mjcf: OptionalPath = None
    """File to write the scene to, with the identified values in it and otherwise unchanged."""
    pair: OmitArgPrefixes[PairOptions] = PairOptions()


def config_from(options: CalibrateOptions, *, threads: int = 0) -> CalibrationConfig:
    """The library's configuration for options of the command line.

    Args:
        options: As given on the command line.
        threads: Threads of sampling; 0 is all cores.
    """
    from clashsim.pipeline.calibration import CalibrationConfig

    return CalibrationConfig(
        samples=options.samples,
        base=options.base,
        seed=options.seed,
        hold_out=options.hold_out,
        known=options.known,
        overwrite=options.overwrite,
        write_mjcf=options.write_mjcf,
        struck=options.pair.struck,
        striker=options.pair.striker,
        ground=options.pair.ground,
        threads=threads,
    )


def run(options: CalibrateOptions) -> None:
    """Run `clashsim calibrate`."""
    from clashsim.pipeline.calibration import calibrate_run

    result = calibrate_run(
        options.scene,
        options.impacts,
        options.out,
        config=config_from(options),
        notify=print,
        progress=bar,
    )
    if result.mjcf is not None:
        missing = unwritten_params(result.run, result.mjcf)
        print(f"scene with identified values written to {options.write_mjcf}{missing}")
    print_run(result.run, result.metrics, result.slide)
    print(f"run written to {options.out}; open {options.out / 'report.html'} in a browser")
