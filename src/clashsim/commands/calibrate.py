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
from clashsim.commands.run_tables import print_pairs, print_run, unwritten_params
from clashsim.commands.shared import say
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
    slides. Collisions are solved with MuJoCo's contact equations, for any pair of geoms: nothing is
    trained, and a run takes seconds.

    Impacts of several pairs have two more columns, struck and striker, with the names of the bodies
    (or geoms) of each impact. Each pair is calibrated; the run folder has a folder for each.
    """

    scene: SceneArgument
    """Name of a built-in scene, or path of an MJCF file (.xml)."""
    impacts: Positional[Annotated[Path, arg(metavar="IMPACTS")]]
    """File with recorded impacts, or with trials (whole recordings)."""
    out: OutputPath
    """Folder to write the run to."""
    from_run: Annotated[Path | None, arg(name="from", metavar="RUN")] = None
    """Run folder of another object of the same material: what was identified there is the prior
    here, so that fewer impacts are needed.
    """
    refine: bool = False
    """Simulate strikes of this pair within the scene's [strikes], distil them into a network and
    calibrate that: takes minutes the first time, for planning and training on a GPU.
    """
    samples: int = 100_000
    """With --refine: simulated strikes to distil from."""
    base: OptionalPath = None
    """With --refine: folder where distilled models are kept; by default clashsim's folder in the
    user's cache.
    """
    seed: int = 0
    """Seed of sampling, distillation, fitting and the choice of held-out impacts."""
    hold_out: float = 0.0
    """Share of the impacts kept back to test the result, from 0 to below 1; 0 uses 5-fold
    cross-validation.
    """
    known: Names = ()
    """Additional measured covariates that may explain differences between impacts: names of columns
    of the impacts file, or of numbers in the trials.
    """
    ground_friction: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Coefficient of friction between struck body and ground, to plan with impacts in a table:
    where bodies stop is then computed from it instead of identified from slides.
    """
    accept: Names = ()
    """Findings about a table of impacts that do not stop the calibration, such as angle_unit."""
    overwrite: bool = False
    """Replace the run if it exists."""
    write_mjcf: OptionalPath = None
    """File to write the scene to, with the identified values in it and otherwise unchanged (for a
    URDF, the MJCF that MuJoCo makes of it).
    """
    pairs: Names = ()
    """Several pairs in trials: the bodies or geoms of each, as in block:ball block:wall, the struck
    one first. An impact is of the pair whose bodies touch.
    """
    same_material: bool = False
    """Several pairs: what was identified for the pair with the most impacts is the prior of the
    others, so that they need fewer impacts.
    """
    details: bool = False
    """Several pairs: also print the tables of each pair."""
    pair: OmitArgPrefixes[PairOptions] = PairOptions()


def config_from(options: CalibrateOptions, *, threads: int = 0) -> CalibrationConfig:
    """Convert options of the command line to the configuration of `calibrate_run`.

    Args:
        options: As given on the command line.
        threads: Number of threads for sampling; 0 uses all cores.
    """
    from clashsim.pipeline.calibration import CalibrationConfig

    return CalibrationConfig(
        from_run=options.from_run,
        refine=options.refine,
        samples=options.samples,
        base=options.base,
        seed=options.seed,
        hold_out=options.hold_out,
        known=options.known,
        ground_friction=options.ground_friction,
        accept=options.accept,
        overwrite=options.overwrite,
        write_mjcf=options.write_mjcf,
        struck=options.pair.struck,
        striker=options.pair.striker,
        ground=options.pair.ground,
        pairs=options.pairs,
        same_material=options.same_material,
        threads=threads,
    )


def run(options: CalibrateOptions) -> None:
    """Run `clashsim calibrate`."""
    from clashsim.pipeline.calibration import calibrate_run
    from clashsim.pipeline.pair_recordings import named_pairs

    if len(named_pairs(options.impacts, options.pairs)) > 1:
        _calibrate_pairs(options)
        return
    result = calibrate_run(
        options.scene,
        options.impacts,
        options.out,
        config=config_from(options),
        notify=say,
        progress=bar,
    )
    if result.mjcf is not None:
        missing = unwritten_params(result.run, result.mjcf)
        print(f"scene with identified values written to {options.write_mjcf}{missing}")
    print_run(result.run, result.metrics, result.slide)
    print(f"run written to {options.out}; open {options.out / 'report.html'} in a browser")


def _calibrate_pairs(options: CalibrateOptions) -> None:
    """Calibrate on a recording of several pairs."""
    from clashsim.pipeline.pair_calibration import calibrate_pairs

    result = calibrate_pairs(
        options.scene,
        options.impacts,
        options.out,
        config=config_from(options),
        notify=say,
        progress=bar,
    )
    if options.details:
        for name, of_pair in result.pairs.items():
            print(f"\nPair {name}")
            print_run(of_pair.run, of_pair.metrics, of_pair.slide)
    metrics = {name: of_pair.metrics for name, of_pair in result.pairs.items()}
    print_pairs(metrics, options.out, detailed=options.details)
    print(f"run written to {options.out}; open {options.out / 'report.html'} in a browser")
