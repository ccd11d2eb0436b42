"""`clashsim import`: convert a laboratory's logs to trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from clashsim.commands.option_types import Names, OptionalOutputPath, OptionalPath
from clashsim.commands.shared import check_output_file, console
from clashsim.core.errors import DataError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.data.checks.findings import Finding


@dataclass(frozen=True)
class ImportOptions:
    """Convert logs to trials (SI units, one clock, named bodies), and print the problems found.

    Example: clashsim import logs/ --mapping lab.toml -o trials.safetensors

    Logs are CSV, Parquet, HDF5, NPZ, MAT, Motive, Vicon, Qualisys (6D TSV), C3D, ROS bags, MCAP or
    LeRobot datasets: files, folders or archives (.zip, .gz). A mapping file says which column means
    what (docs/logs.md); --guess proposes one: clashsim import logs/ --guess -o lab.toml

    Videos and folders of frames with AprilTags need a camera file (docs/video.md):
    clashsim import video/ --camera camera.yaml -o trials.safetensors
    """

    logs: Positional[Annotated[tuple[Path, ...], arg(metavar="LOG...")]]
    """Files, folders and archives with logs."""
    out: OptionalOutputPath = None
    """File to write: trials (.safetensors), or with --guess a proposed mapping (.toml)."""
    mapping: OptionalPath = None
    """Mapping file (.toml): which column means what. Formats that name their bodies need none."""
    guess: bool = False
    """Guess the mapping from column names and values; without -o it is printed."""
    rate: float = 0.0
    """Frame rate in Hz, for --guess with logs that count frames and have no times."""
    order: Annotated[str, arg(metavar="ORDER")] = ""
    """Order of quaternions, wxyz or xyzw, for --guess with columns such as q1 to q4."""
    camera: OptionalPath = None
    """Camera file (.yaml, .json or .toml) of videos and folders of frames: the calibration, and
    which AprilTag is on which body."""
    accept: Names = ()
    """Names of findings that would stop the import but are accepted: --accept up_axis swapped"""
    overwrite: bool = False
    """Replace the file if it exists."""


def run(options: ImportOptions) -> None:
    """Run `clashsim import`."""
    from clashsim.data.readers import mapping
    from clashsim.pipeline.log_import import ImportConfig, RefusedLogsError, import_logs

    config = ImportConfig(
        options.mapping,
        options.guess,
        options.rate,
        options.order,
        options.accept,
        options.camera,
    )
    if options.out is None or options.out.suffix == ".toml":
        _propose_mapping(options)
        return
    check_output_file(options.out, (".safetensors",), overwrite=options.overwrite)
    try:
        imported = import_logs(options.logs, options.out, config=config, progress=bar)
    except RefusedLogsError as error:
        _print_findings(error.findings)
        raise
    _print_findings(imported.findings)
    if options.guess:
        print(
            "the mapping was guessed; if it is wrong, write it to a file with "
            "--guess -o mapping.toml, correct it, and give it as --mapping\n\n"
            f"{mapping.dump(imported.mapping)}"
        )
    trials = imported.trials
    joints = [name for log in imported.mapping.logs for name in (*log.joints, *log.slides)]
    recorded = ", ".join(dict.fromkeys([*trials.bodies, *joints]))
    print(f"{len(trials)} trials of {recorded} written to {options.out}")


def _print_findings(findings: Sequence[Finding]) -> None:
    """Print a table of the findings (problems of the logs), if there are any."""
    from clashsim.report.findings import findings_table

    if findings:
        console().print(findings_table(findings), markup=False)


def _propose_mapping(options: ImportOptions) -> None:
    """Print a guessed mapping, or write it to a file."""
    from clashsim.pipeline.log_import import propose_mapping

    if not options.guess:
        raise DataError(
            "say where to write the trials, as in -o trials.safetensors, "
            "or ask for a proposed mapping with --guess"
        )
    if options.out is not None:
        check_output_file(options.out, (".toml",), overwrite=options.overwrite)
    proposed = propose_mapping(options.logs, options.out, rate=options.rate, order=options.order)
    if options.out is None:
        print(proposed.text, end="")
        return
    print(
        f"proposed mapping written to {options.out}; look at it, correct it, "
        "and give it as --mapping"
    )
    if proposed.without_orientation:
        bodies = ", ".join(proposed.without_orientation)
        print(
            f"no columns were found for the orientation of {bodies}, which is taken as constant; "
            "if the logs have such columns, add them to the mapping as quaternion, "
            "matrix, euler or yaw"
        )
