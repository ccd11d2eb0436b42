"""Calibrations in run folders: everything needed to predict bit for bit again, as JSON and safetensors."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import platform
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import numpy as tensor_file

import clashsim
from clashsim.core.errors import ClashError, RunError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data.impact_files import to_bytes
from clashsim.data.store import dumps, loads, read_folder, write_folder
from clashsim.fit.calibrate import Calibration
from clashsim.fit.run import Run
from clashsim.fit.slide_model import SlideFit
from clashsim.nets.impact import ImpactNet
from clashsim.nets.slide import SlideModel

Tensors = dict[str, np.ndarray]


def save_run(path: Path | str, calibration: Calibration, *, slide: SlideFit | SlideModel | None = None, config: Mapping[str, Any] | None = None,
             metrics: Mapping[str, Any] | None = None, trials: Mapping[str, Impacts] | None = None, pages: Mapping[str, bytes] | None = None,
             overwrite: bool = False) -> None:
    """Write a calibration, a slide model, the options they were made with, metrics, the hashes of the data and pages to look at as one folder."""
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
        "trials.json": dumps([{"name": n, "impacts": len(i), "sha256": hashlib.sha256(to_bytes(i)).hexdigest()} for n, i in (trials or {}).items()]),
        "versions.json": dumps(versions()),
        "metrics.json": dumps(dict(metrics or {})),
        **({} if slide is None else {"slide.json": dumps(slide.content())}),
        **{f"assets/{name}": content for name, content in assets.items()},
        **(pages or {}),
    }
    write_folder(Path(path), files, overwrite=overwrite)


def load(path: Path | str) -> Run:
    """What a run folder holds; it predicts the same bits as what was saved. Runs without slides have no slide model."""
    files = read_folder(Path(path))
    try:
        tensors = tensor_file.load(files["weights.safetensors"])
        scene: Any = loads(files, "scene.json")
        scene |= {"xml": files["scene.xml"].decode(), "assets": {name: files[f"assets/{name}"] for name in scene["assets"]}}
        model: Any = loads(files, "config.json")
        model = model["model"] | {"theta": loads(files, "theta.json")}
        model["base"] |= {"scene": scene}
        slide: Any = loads(files, "slide.json") if "slide.json" in files else None
        return Run(_unpack(Calibration, model, tensors), None if slide is None else SlideModel.of(slide))
    except ClashError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise RunError(f"the run {str(path)!r} does not fit this version of clashsim ({type(error).__name__}: {' '.join(str(error).split())[:120]}): calibrate again") from None


def read_notes(path: Path | str) -> dict[str, Any]:
    """What a run says about itself: options, metrics, trials and versions, and its slide model as JSON has it, None where there is none."""
    files = read_folder(Path(path))
    notes = {name: loads(files, f"{name}.json") for name in ("metrics", "trials", "versions")}
    notes["slide"] = loads(files, "slide.json") if "slide.json" in files else None
    config: Any = loads(files, "config.json")
    return notes | {"options": config.get("options", {})}


def versions() -> dict[str, str]:
    """Versions that decide what a run or a benchmark gives."""
    packages = ("numpy", "scipy", "torch", "mujoco", "safetensors")
    return {"clashsim": clashsim.__version__, "python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}


def _pack(value: Any, key: str, tensors: Tensors) -> Any:
    """A tree of frozen dataclasses as JSON, with its arrays put into `tensors` under their path."""
    if isinstance(value, Scene):
        return {f.name: _pack(getattr(value, f.name), f"{key}.{f.name}", tensors) for f in dataclasses.fields(value) if f.name not in ("xml", "assets")}
    if isinstance(value, ImpactNet):
        for name, tensor in value.state_dict().items():
            tensors[f"{key}.{name}"] = tensor.contiguous().numpy().copy()
        return value.shape
    if isinstance(value, torch.Tensor | np.ndarray):
        tensors[key] = np.array(value.detach().numpy() if isinstance(value, torch.Tensor) else value, order="C")
        return key
    if dataclasses.is_dataclass(value):
        return {f.name: _pack(getattr(value, f.name), f"{key}.{f.name}", tensors) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): _pack(v, f"{key}.{k}", tensors) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_pack(v, f"{key}.{i}", tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{key} is a {type(value).__name__}, which a run folder cannot hold")


def _unpack(kind: Any, value: Any, tensors: Tensors) -> Any:
    """Inverse of `_pack`; what is built is decided by the types of the dataclasses, never by the file."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _unpack(next(a for a in args if a is not type(None)), value, tensors)
    if origin is tuple:
        kinds = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else args
        return tuple(_unpack(k, v, tensors) for k, v in zip(kinds, value, strict=True))
    if origin is Literal:
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {k: v if isinstance(v, bytes) else _unpack(args[1], v, tensors) for k, v in value.items()}
    if kind is torch.Tensor:
        return torch.from_numpy(tensors[value].copy())
    if kind is np.ndarray:
        return tensors[value].copy()
    if kind is ImpactNet:
        return _net(value, tensors)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{name: _unpack(hints[name], v, tensors) for name, v in value.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise TypeError(f"expected {getattr(kind, '__name__', kind)}, got {type(value).__name__}")


def _net(shape: dict[str, Any], tensors: Tensors) -> ImpactNet:
    net = ImpactNet(**shape)
    prefix = "model.base.net."
    net.load_state_dict({k.removeprefix(prefix): torch.from_numpy(v.copy()) for k, v in tensors.items() if k.startswith(prefix)})
    return net.requires_grad_(False)
