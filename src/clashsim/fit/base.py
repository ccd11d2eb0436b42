"""Base models of a scene; distilled ones are made once and then loaded from a cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import mujoco
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from clashsim.core.files import locked, write_atomic
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.fit.distil import DistillationConfig, DistilledModel, distil
from clashsim.fit.sample import fingerprint, sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.strike_engines import StrikeEngine
from clashsim.nets.impact import net_of_shape

# A model of a scene's collisions that is calibrated.
BaseModel = SolvedModel | DistilledModel
# Raised whenever the way samples or networks are made changes, so that older caches are not used.
_VERSION = 1
# Exceptions that reading a damaged file may raise.
_DAMAGED = (
    SafetensorError,
    KeyError,
    ValueError,
    TypeError,
    RuntimeError,
    RecursionError,
    OSError,
)


def distilled_model(
    scene: Scene,
    *,
    config: DistillationConfig | None = None,
    n: int = 100_000,
    seed: int = 0,
    cache: Path | None = None,
    threads: int = 0,
    progress: Progress = quiet,
) -> DistilledModel:
    """Get the distilled model of a scene.

    It is the model shipped with clashsim if there is one, else the one in the cache that was made
    with the same arguments, else a new one.

    Args:
        scene: The scene.
        config: How to distil. If it is given, the shipped model is not used. The default is the
            shipped model, or `DistillationConfig()` for a scene without one.
        n: Number of simulated strikes.
        seed: Seed of strikes and training.
        cache: Folder of the cache, or None for no cache.
        threads: Threads of sampling, 0 for all cores.
        progress: Shows the progress.

    Returns:
        The model.
    """
    if config is None:
        shipped = shipped_base(scene)
        if shipped is not None:
            return shipped
        config = DistillationConfig()

    def make(checkpoint_dir: Path | None) -> DistilledModel:
        sampled = sample(
            scene,
            n,
            seed,
            engine=StrikeEngine(threads=threads),
            checkpoint_dir=checkpoint_dir,
            progress=progress,
        )
        return distil(scene, sampled, config=config, seed=seed, progress=progress)

    if cache is None:
        return make(None)
    path = cache / f"{scene.name}-{_cache_key(scene, config, n, seed)}.safetensors"
    cached = _load_cached(scene, path)
    if cached is not None:
        return cached
    # Only one process makes the model and the others wait for it. Without the lock they would
    # delete each other's checkpoints.
    lock = path.with_name(f".{path.name}.lock")
    with locked(lock, title="waiting for another process that makes this model", progress=progress):
        cached = _load_cached(scene, path)
        if cached is not None:
            return cached
        checkpoint_dir = path.with_suffix(".parts")
        base = make(checkpoint_dir)
        write_atomic(path, base_bytes(base))
        shutil.rmtree(checkpoint_dir, ignore_errors=True)
    return base


def _cache_key(scene: Scene, config: DistillationConfig, n: int, seed: int) -> str:
    """A hash of everything that determines the distilled model."""
    identity = [_VERSION, mujoco.__version__, fingerprint(scene), asdict(config), n, seed]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _load_cached(scene: Scene, path: Path) -> DistilledModel | None:
    """The model in a cache file; None if there is no file or it is damaged and must be remade."""
    if not path.is_file():
        return None
    try:
        return load_base(scene, path)
    except _DAMAGED:
        return None


def scenes_with_network() -> list[str]:
    """List the names of the shipped scenes that have a network of their own strikes."""
    return [name for name in shipped_scenes() if _shipped_path(name).is_file()]


def _shipped_path(name: str) -> Path:
    """The file of the network that comes with a scene."""
    return Path(str(resources.files("clashsim") / "scenes" / f"{name}.safetensors"))


def shipped_base(scene: Scene) -> DistilledModel | None:
    """The model that comes with clashsim for a shipped scene.

    The scene's nominal values may differ from the shipped ones: they are the prior of theta, and
    the model was trained on the whole ranges.

    Returns:
        The model, or None if MJCF, settings or parameter ranges differ from the shipped scene's.
    """
    path = _shipped_path(scene.name)
    if not path.is_file():
        return None
    nominal = {param.name: param.nominal for param in Scene.load(scene.name).params}
    if [param.name for param in scene.params] != list(nominal):
        return None
    if any(not param.low <= nominal[param.name] <= param.high for param in scene.params):
        return None
    with safe_open(path, "np") as file:
        if file.metadata().get("scene") != fingerprint(scene.with_nominal(nominal)):
            return None
    return load_base(scene, path)


def base_bytes(base: DistilledModel) -> bytes:
    """A distilled model as the bytes of a safetensors file.

    The tensors are the network's weights, `low`, `high` and `extent`; the metadata are the
    network's shape and the scene's fingerprint.
    """
    tensors = {name: tensor.contiguous() for name, tensor in base.net.state_dict().items()}
    tensors["low"] = torch.as_tensor(base.low)
    tensors["high"] = torch.as_tensor(base.high)
    tensors["extent"] = torch.as_tensor(base.extent)
    metadata = {"shape": json.dumps(base.net.shape), "scene": fingerprint(base.scene)}
    return save(tensors, metadata)


def load_base(scene: Scene, path: Path) -> DistilledModel:
    """Read a distilled model of `scene` from a file that `base_bytes` made."""
    with safe_open(path, "pt") as file:
        net = net_of_shape(json.loads(file.metadata()["shape"]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    low = np.asarray(tensors.pop("low"))
    high = np.asarray(tensors.pop("high"))
    extent = np.asarray(tensors.pop("extent"))
    net.load_state_dict(tensors)
    net.requires_grad_(False)
    return DistilledModel(scene=scene, net=net, low=low, high=high, extent=extent)
