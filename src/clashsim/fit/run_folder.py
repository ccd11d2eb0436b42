"""Calibrations in run folders: everything needed to predict bit for bit again, as JSON and
safetensors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import itertools
import math
import platform
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import numpy as tensor_file

import clashsim
from clashsim.core.errors import ClashError, RunError
from clashsim.core.impacts import Impacts
from clashsim.core.mjcf_assets import check_scene
from clashsim.core.scene import Scene
from clashsim.data.folders import dumps, loads, read_folder, write_folder
from clashsim.data.impact_files import to_bytes
from clashsim.fit.calibrate import Calibration
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.notes import Slide, check_notes, conform
from clashsim.nets.impact import ImpactNet
from clashsim.slides.identify import SlideFit
from clashsim.slides.law import SlideModel

Tensors = dict[str, np.ndarray]
_WIDTHS = "model.scale.widths."
_OUTSIDE = "outside"
# What reading a file raises that is not what was written.
_PLAIN_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_MISFITS = (SafetensorError, *_PLAIN_ERRORS)


def save_run(
    path: Path | str,
    calibration: Calibration,
    *,
    slide: SlideFit | SlideModel | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    trials: Mapping[str, Impacts] | None = None,
    pages: Mapping[str, bytes] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a calibration, a slide model, the options they were made with, metrics, the hashes of
    the data and pages to look at as one folder.
    """
    tensors: Tensors = {}
    model = _pack(calibration, "model", tensors)
    theta, scene = model.pop("theta"), model["base"].pop("scene")
    assets = calibration.base.scene.assets
    files = {
        "config.json": dumps({"options": dict(config or {}), "model": model}),
        "theta.json": dumps(theta),
        "scene.json": dumps(scene | {"assets": sorted(assets)}),
        "scene.xml": calibration.base.scene.xml.encode(),
        "weights.safetensors": tensor_file.save(tensors),
        "trials.json": dumps(
            [
                {"name": n, "impacts": len(i), "sha256": hashlib.sha256(to_bytes(i)).hexdigest()}
                for n, i in (trials or {}).items()
            ]
        ),
        "versions.json": dumps(versions()),
        "metrics.json": dumps(dict(metrics or {})),
        **({} if slide is None else {"slide.json": dumps(slide.content())}),
        **{_asset_place(name): content for name, content in assets.items()},
        **(pages or {}),
    }
    write_folder(Path(path), files, overwrite=overwrite)


def load(path: Path | str) -> CalibratedRun:
    """What a run folder holds; it predicts the same bits as what was saved. Runs without slides
    have no slide model.
    """
    files = read_folder(Path(path))
    try:
        tensors = tensor_file.load(files["weights.safetensors"])
        scene: Any = loads(files, "scene.json")
        assets = {name: files[_asset_place(name)] for name in scene["assets"]}
        scene |= {"xml": files["scene.xml"].decode(), "assets": assets}
        model: Any = loads(files, "config.json")
        model = model["model"] | {"theta": loads(files, "theta.json")}
        model["base"] |= {"scene": scene}
        calibration = _unpack(Calibration, model, tensors, "model")
        _check_calibration(calibration)
        own = calibration.base.scene
        check_scene(own.xml, own.assets, own.name)
        return CalibratedRun(calibration, _slide(files))
    except ClashError:
        raise
    except _MISFITS as error:
        reason = " ".join(str(error).split())[:120]
        raise RunError(
            f"the run {str(path)!r} does not fit this version of clashsim "
            f"({type(error).__name__}: {reason}): calibrate again"
        ) from None


def read_notes(path: Path | str) -> dict[str, Any]:
    """What a run says about itself: options, metrics, trials and versions, and its slide model as
    JSON has it, None where there is none.
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
    packages = ("numpy", "scipy", "torch", "mujoco", "safetensors")
    return {"clashsim": clashsim.__version__, "python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in packages
    }


def _pack(value: Any, key: str, tensors: Tensors) -> Any:
    """A tree of frozen dataclasses as JSON, with its arrays put into `tensors` under their path."""
    if isinstance(value, Scene):
        return {
            f.name: _pack(getattr(value, f.name), f"{key}.{f.name}", tensors)
            for f in dataclasses.fields(value)
            if f.name not in ("xml", "assets")
        }
    if isinstance(value, ImpactNet):
        for name, tensor in value.state_dict().items():
            tensors[f"{key}.{name}"] = tensor.contiguous().numpy().copy()
        return value.shape
    if isinstance(value, torch.Tensor | np.ndarray):
        tensors[key] = np.array(
            value.detach().numpy() if isinstance(value, torch.Tensor) else value, order="C"
        )
        return key
    if dataclasses.is_dataclass(value):
        return {
            f.name: _pack(getattr(value, f.name), f"{key}.{f.name}", tensors)
            for f in dataclasses.fields(value)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): _pack(v, f"{key}.{k}", tensors) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_pack(v, f"{key}.{i}", tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{key} is a {type(value).__name__}, which a run folder cannot hold")


def _unpack(kind: Any, value: Any, tensors: Tensors, key: str) -> Any:
    """Inverse of `_pack`; what is built is decided by types of dataclasses, never by the file."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _unpack(next(a for a in args if a is not type(None)), value, tensors, key)
    if origin is tuple:
        kinds = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else args
        pairs = zip(kinds, value, strict=True)
        return tuple(_unpack(k, v, tensors, f"{key}.{i}") for i, (k, v) in enumerate(pairs))
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{key} is {value!r}, not one of {', '.join(map(str, args))}")
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if args[1] is bytes:  # assets, which are files of their own
            return dict(value)
        return {k: _unpack(args[1], v, tensors, f"{key}.{k}") for k, v in value.items()}
    if kind is torch.Tensor:
        return torch.from_numpy(_array(value, tensors, "float64"))
    if kind is np.ndarray:
        return _array(value, tensors, "float64", "float32")
    if kind is ImpactNet:
        return _net(value, tensors)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        parts = {k: _unpack(hints[k], v, tensors, f"{key}.{k}") for k, v in value.items()}
        return kind(**parts)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise RunError(f"the run is damaged: {key} is {value}, which is not a finite number")
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise TypeError(f"{key} must be {getattr(kind, '__name__', kind)}, got {type(value).__name__}")


def _array(key: str, tensors: Tensors, *kinds: str) -> np.ndarray:
    """An array of the run, of one of the kinds of numbers that clashsim writes."""
    array = tensors[key]
    if array.dtype.name not in kinds:
        wanted = " or ".join(kinds)
        raise RunError(f"the run is damaged: {key} holds {array.dtype.name}, not {wanted} numbers")
    # A circumstance that did not change has an infinite width: it does not count.
    good = array > 0 if key.startswith(_WIDTHS) else np.isfinite(array)
    if not good.all():
        raise RunError(f"the run is damaged: {key} holds numbers that are not finite")
    return array.copy()


def _net(shape: dict[str, Any], tensors: Tensors) -> ImpactNet:
    """The network, from weights of its shape: nothing is built that is larger than the file."""
    prefix = "model.base.net."
    keys = [key for key in tensors if key.startswith(prefix)]
    own = {key.removeprefix(prefix): _array(key, tensors, "float32") for key in keys}
    layers = sum(name.startswith("weights.") for name in own)
    weights = [own[f"weights.{i}"].shape for i in range(layers)]
    sizes = [shape["inputs"], *[shape["width"]] * (layers - 1), shape["outputs"]]
    expected = [(shape["members"], a, b) for a, b in itertools.pairwise(sizes)]
    if shape["layers"] != layers or weights != expected:
        raise ValueError(f"the network is said to be {shape}, which its weights are not")
    net = ImpactNet(**shape)
    net.load_state_dict({name: torch.from_numpy(array) for name, array in own.items()})
    return net.requires_grad_(False)


def _slide(files: Mapping[str, bytes]) -> SlideModel | None:
    """The slide model, if the run has one."""
    if "slide.json" not in files:
        return None
    content: Any = loads(files, "slide.json")
    conform(content, Slide, "slide")
    return SlideModel.of(content)


def _check_calibration(calibration: Calibration) -> None:
    """Raise unless the parts of a calibration belong together."""
    params = [p.name for p in calibration.base.scene.params]
    if [e.name for e in calibration.theta] != params:
        raise RunError("the run is damaged: theta.json does not have the parameters of scene.json")
    if not calibration.posteriors or len(calibration.weights) != len(calibration.posteriors):
        raise RunError("the run is damaged: config.json does not have a weight for each posterior")


def _asset_place(name: str) -> str:
    """Where a run keeps a file that its scene names; one from elsewhere gets a place inside."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and path.parts[:1] != (_OUTSIDE,)
    if inside:
        return f"assets/{name}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"assets/{_OUTSIDE}/{digest}/{path.name}"
