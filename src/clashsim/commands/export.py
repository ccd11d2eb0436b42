"""`clashsim export`: write a run as files for other tools."""

from __future__ import annotations

import csv
import io
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from clashsim.commands.option_types import OutputPath, RunArgument
from clashsim.commands.run_tables import unwritten_params, warn_if_unreliable
from clashsim.commands.shared import say

if TYPE_CHECKING:
    import numpy as np

    from clashsim.fit.calibrated_run import CalibratedRun
    from clashsim.fit.motion_run import MotionRun


@dataclass(frozen=True)
class ExportOptions:
    """Write a run for other tools: scene with identified values, ranges for domain randomisation.

    Example: clashsim export runs/first -o first --posterior-samples 100

    scene.xml is your own file with the identified values in it, beside its meshes (for a URDF, the
    MJCF that MuJoCo makes of it); ranges.json has each parameter's value, 90 % interval and status;
    draws.csv has posterior samples, one set of parameters per row; slide.json exists if the run has
    a slide model. In Python:
    clashsim.load("runs/first").
    """

    run: RunArgument
    """Run folder of clashsim calibrate, fit or demo."""
    out: OutputPath
    """Folder to write to."""
    posterior_samples: int = 0
    """Number of parameter sets to sample for domain randomisation (draws.csv)."""
    seed: int = 0
    """Seed of the samples."""
    events: bool = False
    """Also write the ranges as randomisation events of mjlab (mjlab_events.yaml) and Isaac Lab
    (isaaclab_events.yaml).
    """
    surrogate: bool = False
    """Also write surrogate.onnx, which predicts where strikes leave the body, its input contract
    (surrogate.json) and an example that needs numpy and onnxruntime only. For runs with a slide
    model; needs clashsim[onnx].
    """
    overwrite: bool = False
    """Replace the export if it exists."""


def run(options: ExportOptions) -> None:
    """Run `clashsim export`."""
    from clashsim.data.folders import dumps, write_folder
    from clashsim.fit.motion_run import is_motion_run, load_motion_run
    from clashsim.fit.run_folder import load, read_notes
    from clashsim.pipeline.arguments import check_not_negative

    check_not_negative(posterior_samples=options.posterior_samples, seed=options.seed)
    of_motion = is_motion_run(options.run)
    calibrated: CalibratedRun | MotionRun
    calibrated = load_motion_run(options.run) if of_motion else load(options.run)
    slide = None if of_motion else read_notes(options.run)["slide"]
    scene = calibrated.scene
    edited = calibrated.mjcf()
    assets, folder = _asset_paths(scene.assets)
    scene_path = f"{folder}scene.xml"
    if scene_path in assets:
        # An asset has that name. No asset has the scene's own name: a file is not its own asset.
        scene_path = f"{folder}{scene.name}.xml"
    files = {scene_path: edited.xml.encode(), "ranges.json": dumps(_ranges(calibrated))}
    if options.posterior_samples:
        samples = calibrated.posterior_samples(options.posterior_samples, options.seed)
        files["draws.csv"] = _csv([param.name for param in scene.params], samples)
    if slide is not None:
        files["slide.json"] = dumps(slide)
    if options.events:
        from clashsim.pipeline.training_events import event_files

        files |= event_files(calibrated)
    if options.surrogate:
        files |= _surrogate(calibrated)
    write_folder(options.out, files | assets, overwrite=options.overwrite, kind="export")
    missing = unwritten_params(calibrated, edited)
    print(f"{', '.join(files)} written to {options.out}{missing}")
    if of_motion:
        say(f"About this run: {calibrated.metrics['conclusion']}")
    else:
        warn_if_unreliable(options.run)
    absolute = [name for name in scene.assets if PurePosixPath(name).is_absolute()]
    if absolute:
        print(f"files that the scene names by absolute paths are not in it: {', '.join(absolute)}")


def _surrogate(calibrated: CalibratedRun | MotionRun) -> dict[str, bytes]:
    """Files of the surrogate."""
    from clashsim.commands.shared import STRIKE_TABLE, announce
    from clashsim.core.errors import RunError
    from clashsim.core.extras import require
    from clashsim.fit.calibrated_run import CalibratedRun
    from clashsim.pipeline.surrogate import surrogate_files

    if not isinstance(calibrated, CalibratedRun):
        raise RunError(
            "a run on whole trajectories has no surrogate of strikes: --surrogate is for runs of "
            "clashsim calibrate"
        )
    require("onnx", "onnx", "onnx")
    announce(STRIKE_TABLE)
    return surrogate_files(calibrated)


def _asset_paths(assets: Mapping[str, bytes]) -> tuple[dict[str, bytes], str]:
    """Files of a scene by their paths in an export, and the folder of the scene itself there.

    A scene that names files as ../x is put as many folders deep as it has "..", so that its text
    can stay unchanged. Files with absolute paths are left out.

    Returns:
        Content by path in the export, and the scene's folder there, "" or ending in "/".
    """
    levels_up = [PurePosixPath(name).parts.count("..") for name in assets]
    folder = "scene/" * max(levels_up, default=0)
    paths = {}
    for name, content in assets.items():
        if not PurePosixPath(name).is_absolute():
            paths[posixpath.normpath(folder + name)] = content
    return paths, folder


def _ranges(run: CalibratedRun | MotionRun) -> list[dict[str, Any]]:
    """Entries of ranges.json, one per parameter; the number in the MJCF file is sign * value."""
    ranges = run.ranges()
    entries = []
    for param, estimate, value in zip(run.scene.params, run.estimates, run.theta, strict=True):
        low, high = ranges[param.name]
        entries.append(
            {
                "name": param.name,
                "target": param.target,
                "unit": param.unit,
                "scale": param.scale,
                "sign": param.sign,
                "value": float(value),
                "low": low,
                "high": high,
                "status": estimate.status.value,
            }
        )
    return entries


def _csv(names: list[str], rows: np.ndarray) -> bytes:
    """CSV with a header of p names and rows (n, p), at full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([repr(float(value)) for value in row])
    return text.getvalue().encode()
