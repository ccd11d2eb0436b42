"""Run folders: everything needed to repeat predictions bit for bit, as JSON and safetensors.

The format of the calibration itself is in `clashsim.fit.calibration_file`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from clashsim.fit.notes import PairsNote, SlideNote, check_notes, conform
from clashsim.slides.identify import SlideFit
from clashsim.slides.law import SlideModel

PAIRS_FILE = "pairs.json"  # in the folder of a run with several pairs; lists them
MOTION_FILE = "trajectories.json"  # in the folder of a run on whole trajectories
_PAIRS_FOLDER = "pairs"
_OUTSIDE = "outside"  # folder for assets whose paths in the scene lead outside its own folder
_MAX_REASON = 120  # characters of an exception's text in a message
# Exceptions that reading a file with unexpected content may raise.
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
    """The content of a run folder other than the models.

    Attributes:
        config: Options that the run was made with.
        metrics: Results of the calibration and of its evaluation; see `clashsim.fit.notes`.
        trials: The impacts that were fitted, by name; only their hashes are written.
        pages: Further files for the reader, such as reports, by name.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    trials: Mapping[str, Impacts] = field(default_factory=dict)
    pages: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ListedPairs:
    """The pairs of a run.

    Attributes:
        folders: Path of the run folder of each pair in that of the run, by the pair's name.
        notes: Sentences on all pairs.
    """

    folders: Mapping[str, str]
    notes: tuple[str, ...]


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
        overwrite: Whether an existing run is replaced.
    """
    files = run_files(calibration, slide=slide, record=record)
    write_folder(Path(path), files, overwrite=overwrite)


def run_files(
    calibration: Calibration,
    *,
    slide: SlideFit | SlideModel | None = None,
    record: RunRecord = RunRecord(),
) -> dict[str, bytes]:
    """The files of a run folder by name, without its manifest; arguments as for `save_run`."""
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
        files[asset_path(name)] = content
    return {**files, **record.pages}


def load(path: Path | str) -> CalibratedRun:
    """Read the run folder of one pair; its predictions are bit-identical to those of the saved run.

    Args:
        path: The folder.

    Returns:
        The run. Runs without slides have no slide model.
    """
    return run_of_files(_read_one_pair(Path(path)), path)


def run_of_files(files: Mapping[str, bytes], path: Path | str) -> CalibratedRun:
    """The run that `run_files` made files of.

    Args:
        files: The files by name.
        path: Their folder, for messages.
    """
    with refuse_misfits(path):
        tensors = tensor_file.load(files["weights.safetensors"])
        scene = scene_content(files)
        config: Any = loads(files, "config.json")
        model = config["model"] | {"theta": loads(files, "theta.json")}
        model["base"] |= {"scene": scene}
        calibration = unpack(Calibration, model, tensors, "model")
        _check_calibration(calibration)
        loaded_scene = calibration.base.scene
        check_scene(loaded_scene.xml, loaded_scene.assets, loaded_scene.name)
        metrics: Any = loads(files, "metrics.json")
        return CalibratedRun(calibration, _slide_model(files), metrics)


def scene_content(files: Mapping[str, bytes]) -> dict[str, Any]:
    """What the files of a run say of its scene, with its XML and its assets."""
    scene: Any = loads(files, "scene.json")
    assets = {name: files[asset_path(name)] for name in scene["assets"]}
    return scene | {"xml": files["scene.xml"].decode(), "assets": assets}


@contextmanager
def refuse_misfits(path: Path | str, *, remedy: str = "calibrate again") -> Iterator[None]:
    """Turn what unexpected content of a run's files raises into one sentence.

    Args:
        path: The run folder.
        remedy: What the user can do.

    Raises:
        RunError: The content is not that of a run of this version.
    """
    try:
        yield
    except ClashError:
        raise
    except _MISFITS as error:
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise RunError(
            f"the run {str(path)!r} does not fit this version of clashsim "
            f"({type(error).__name__}: {reason}): {remedy}"
        ) from None


def pair_folder(name: str) -> str:
    """Path of a pair's run folder in that of a run of several pairs."""
    return f"{_PAIRS_FOLDER}/{name}"


def read_pairs_file(files: Mapping[str, bytes]) -> ListedPairs:
    """Read the list of pairs of a run.

    Args:
        files: The files of the run folder by name.

    Returns:
        The list; an empty one for a run of one pair.

    Raises:
        RunError: The list is damaged.
    """
    if PAIRS_FILE not in files:
        return ListedPairs({}, ())
    content: Any = loads(files, PAIRS_FILE)
    conform(content, PairsNote, "pairs")
    folders = {name: pair_folder(name) for name in content["pairs"]}
    return ListedPairs(folders, tuple(content["notes"]))


def read_notes(path: Path | str) -> dict[str, Any]:
    """Read what a run folder says about the run: options, metrics, trials, versions.

    Args:
        path: The folder.

    Returns:
        The notes of `clashsim.fit.notes.Notes`, and under "slide" the content of slide.json or
        None.
    """
    files = _read_one_pair(Path(path))
    names = ("metrics", "trials", "versions")
    notes: dict[str, Any] = {name: loads(files, f"{name}.json") for name in names}
    notes["slide"] = loads(files, "slide.json") if "slide.json" in files else None
    config = loads(files, "config.json")
    notes["options"] = config.get("options", {}) if isinstance(config, dict) else None
    check_notes(notes)
    return notes


def versions() -> dict[str, str]:
    """Versions of the packages that the results of a run or a benchmark depend on, by name."""
    found = {"clashsim": clashsim.__version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "torch", "mujoco", "safetensors"):
        found[name] = importlib.metadata.version(name)
    return found


def _read_one_pair(path: Path) -> dict[str, bytes]:
    """Read the files of a run with one pair; raises a RunError where it has several."""
    files = read_folder(path)
    if MOTION_FILE in files:
        raise RunError(
            f"the run {str(path)!r} was fitted to whole trajectories, and one of single impacts is "
            "needed: make it with clashsim calibrate"
        )
    folders = [str(path / folder) for folder in read_pairs_file(files).folders.values()]
    if not folders:
        return files
    raise RunError(
        f"the run {str(path)!r} is of {len(folders)} pairs, and one is needed: "
        f"give the folder of one of them, {' or '.join(folders)}"
    )


def _slide_model(files: Mapping[str, bytes]) -> SlideModel | None:
    """The slide model from a run's files; None if the run has none."""
    if "slide.json" not in files:
        return None
    content: Any = loads(files, "slide.json")
    conform(content, SlideNote, "slide")
    return SlideModel.of(content)


def _check_calibration(calibration: Calibration) -> None:
    """Raise `RunError` if the parts of a calibration do not match each other."""
    params = [param.name for param in calibration.base.scene.params]
    if [estimate.name for estimate in calibration.theta] != params:
        raise RunError("the run is damaged: theta.json does not have the parameters of scene.json")
    if not calibration.posteriors or len(calibration.weights) != len(calibration.posteriors):
        raise RunError("the run is damaged: config.json does not have a weight for each posterior")
    for posterior in calibration.posteriors:
        of_params = (posterior.std, posterior.mean, posterior.anchor, posterior.constants_std)
        shapes = {tuple(values.shape) for values in (*of_params, posterior.dual.sum(0))}
        if shapes != {(len(params),)}:
            raise RunError("the run is damaged: a posterior has other parameters than scene.json")


def asset_path(name: str) -> str:
    """Path in the run folder of an asset that the scene names.

    An asset outside the scene's folder is stored under a hash of its name.

    Args:
        name: Path of the asset as the scene names it.
    """
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and path.parts[:1] != (_OUTSIDE,)
    if inside:
        return f"assets/{name}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"assets/{_OUTSIDE}/{digest}/{path.name}"
