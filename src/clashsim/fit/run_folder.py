"""Run folders: everything needed to predict bit for bit again, as JSON and safetensors.

How a calibration itself is written is in `clashsim.fit.calibration_file`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError
from safetensors import numpy as tensor_file

import clashsim
from clashsim.core.errors import ClashError, RunError
from clashsim.core.impacts import Impacts
from clashsim.core.mjcf_assets import check_scene
from clashsim.data.folders import dumps, loads, read_folder, write_folder
from clashsim.data.impact_files import to_bytes
from clashsim.fit.calibrate import Calibration
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.calibration_file import Tensors, pack, unpack
from clashsim.fit.notes import SlideNote, check_notes, conform
from clashsim.slides.identify import SlideFit
from clashsim.slides.law import SlideModel

_OUTSIDE = "outside"  # folder of assets that the scene names by paths outside its own folder
# What reading a file raises that is not what was written.
_MISFITS = (
    SafetensorError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class RunRecord:
    """What a run folder holds beside the models.

    Attributes:
        config: Options that the run was made with.
        metrics: What was found and how well it predicts.
        trials: The impacts that were fitted, by name; their hashes are written.
        pages: Further files to look at, by name.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    trials: Mapping[str, Impacts] = field(default_factory=dict)
    pages: Mapping[str, bytes] = field(default_factory=dict)


def save_run(
    path: Path | str,
    calibration: Calibration,
    *,
    slide: SlideFit | SlideModel | None = None,
    record: RunRecord = RunRecord(),
    overwrite: bool = False,
) -> None:
    """Write a calibration, a slide model and the record of a run as one folder.

    Args:
        path: The folder.
        calibration: The calibration.
        slide: The slide model, if there is one.
        record: Options, metrics, data and pages.
        overwrite: Whether a run that is there is replaced.
    """
    tensors: Tensors = {}
    model = pack(calibration, "model", tensors)
    theta = model.pop("theta")
    scene = model["base"].pop("scene")
    assets = calibration.base.scene.assets
    trials = []
    for name, impacts in record.trials.items():
        digest = hashlib.sha256(to_bytes(impacts)).hexdigest()
        trials.append({"name": name, "impacts": len(impacts), "sha256": digest})
    files = {
        "config.json": dumps({"options": dict(record.config), "model": model}),
        "theta.json": dumps(theta),
        "scene.json": dumps(scene | {"assets": sorted(assets)}),
        "scene.xml": calibration.base.scene.xml.encode(),
        "weights.safetensors": tensor_file.save(tensors),
        "trials.json": dumps(trials),
        "versions.json": dumps(versions()),
        "metrics.json": dumps(dict(record.metrics)),
    }
    if slide is not None:
        files["slide.json"] = dumps(slide.content())
    for name, content in assets.items():
        files[_asset_path(name)] = content
    files |= record.pages
    write_folder(Path(path), files, overwrite=overwrite)


def load(path: Path | str) -> CalibratedRun:
    """Read a run folder; it predicts the same bits as what was saved.

    Args:
        path: The folder.

    Returns:
        The run. Runs without slides have no slide model.
    """
    files = read_folder(Path(path))
    try:
        tensors = tensor_file.load(files["weights.safetensors"])
        scene: Any = loads(files, "scene.json")
        assets = {name: files[_asset_path(name)] for name in scene["assets"]}
        scene |= {"xml": files["scene.xml"].decode(), "assets": assets}
        config: Any = loads(files, "config.json")
        model = config["model"] | {"theta": loads(files, "theta.json")}
        model["base"] |= {"scene": scene}
        calibration = unpack(Calibration, model, tensors, "model")
        _check_calibration(calibration)
        own = calibration.base.scene
        check_scene(own.xml, own.assets, own.name)
        return CalibratedRun(calibration, _slide_model(files))
    except ClashError:
        raise
    except _MISFITS as error:
        reason = " ".join(str(error).split())[:120]
        raise RunError(
            f"the run {str(path)!r} does not fit this version of clashsim "
            f"({type(error).__name__}: {reason}): calibrate again"
        ) from None


def read_notes(path: Path | str) -> dict[str, Any]:
    """What a run reports about itself.

    Args:
        path: The folder.

    Returns:
        Options, metrics, trials and versions, and the slide model as JSON has it (None where there
        is none); see `clashsim.fit.notes`.
    """
    files = read_folder(Path(path))
    names = ("metrics", "trials", "versions")
    notes: dict[str, Any] = {name: loads(files, f"{name}.json") for name in names}
    notes["slide"] = loads(files, "slide.json") if "slide.json" in files else None
    config = loads(files, "config.json")
    notes["options"] = config.get("options", {}) if isinstance(config, dict) else None
    check_notes(notes)
    return notes


def versions() -> dict[str, str]:
    """Versions that decide what a run or a benchmark gives."""
    found = {"clashsim": clashsim.__version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "torch", "mujoco", "safetensors"):
        found[name] = importlib.metadata.version(name)
    return found


def _slide_model(files: Mapping[str, bytes]) -> SlideModel | None:
    """The slide model, if the run has one."""
    if "slide.json" not in files:
        return None
    content: Any = loads(files, "slide.json")
    conform(content, SlideNote, "slide")
    return SlideModel.of(content)


def _check_calibration(calibration: Calibration) -> None:
    """Raise unless the parts of a calibration belong together."""
    params = [param.name for param in calibration.base.scene.params]
    if [estimate.name for estimate in calibration.theta] != params:
        raise RunError("the run is damaged: theta.json does not have the parameters of scene.json")
    if not calibration.posteriors or len(calibration.weights) != len(calibration.posteriors):
        raise RunError("the run is damaged: config.json does not have a weight for each posterior")


def _asset_path(name: str) -> str:
    """Where a run keeps a file that its scene names; one from elsewhere gets a path inside."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and path.parts[:1] != (_OUTSIDE,)
    if inside:
        return f"assets/{name}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"assets/{_OUTSIDE}/{digest}/{path.name}"
