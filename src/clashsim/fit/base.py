"""Base models: sampled and distilled once for a scene, kept in a cache, loaded after that."""

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
from clashsim.core.scene import Scene
from clashsim.fit.distil import DistillationConfig, DistilledModel, distil
from clashsim.fit.sample import fingerprint, sample
from clashsim.nets.impact import ImpactNet

# Of how samples and networks are made: a cache made before a change of either must not serve after
# it
_VERSION = 1


def base_model(
    scene: Scene,
    *,
    config: DistillationConfig | None = None,
    n: int = 100_000,
    seed: int = 0,
    cache: Path | None = None,
    threads: int = 0,
    progress: Progress = quiet,
) -> DistilledModel:
    """The distilled model of a scene: shipped with clashsim, else from `cache` if it was made
    before with the same arguments, else made now.

    `threads` are those of sampling, 0 for all cores. A `config` of one's own is always distilled;
    the default is `DistillationConfig()` where no model of this very scene is shipped.
    """
    if config is None:
        shipped = shipped_base(scene)
        if shipped is not None:
            return shipped
        config = DistillationConfig()
    key = hashlib.sha256(
        json.dumps(
            [_VERSION, mujoco.__version__, fingerprint(scene), asdict(config), n, seed]
        ).encode()
    ).hexdigest()[:16]
    path = None if cache is None else cache / f"{scene.name}-{key}.safetensors"

    def made(checkpoint_dir: Path | None) -> DistilledModel:
        sampled = sample(
            scene, n, seed, checkpoint_dir=checkpoint_dir, threads=threads, progress=progress
        )
        return distil(scene, sampled, config=config, seed=seed, progress=progress)

    if path is None:
        return made(None)
    kept = _kept(scene, path)
    if kept is not None:
        return kept
    # One process makes a model and the others wait for it: they would clear each other's samples.
    lock = path.with_name(f".{path.name}.lock")
    with locked(lock, title="waiting for another process that makes this model", progress=progress):
        kept = _kept(scene, path)
        if kept is not None:
            return kept
        checkpoint_dir = path.with_suffix(".parts")
        base = made(checkpoint_dir)
        write_atomic(path, base_bytes(base))
        shutil.rmtree(checkpoint_dir, ignore_errors=True)
    return base


def _kept(scene: Scene, path: Path) -> DistilledModel | None:
    """The model of a cache, None where there is none; a damaged one costs time, not correctness."""
    try:
        return load_base(scene, path) if path.is_file() else None
    except (
        SafetensorError,
        KeyError,
        ValueError,
        TypeError,
        RuntimeError,
        RecursionError,
        OSError,
    ):
        return None


def shipped_base(scene: Scene) -> DistilledModel | None:
    """The model that comes with clashsim for a shipped scene whose file, settings and ranges are
    unchanged, or None.

    Nominal values may differ: they are what is expected of theta, not what the model was trained
    on.
    """
    path = Path(str(resources.files("clashsim") / "scenes" / f"{scene.name}.safetensors"))
    if not path.is_file():
        return None
    own = {p.name: p.nominal for p in Scene.load(scene.name).params}
    if [p.name for p in scene.params] != list(own) or any(
        not p.low <= own[p.name] <= p.high for p in scene.params
    ):
        return None
    with safe_open(path, "np") as file:
        if file.metadata().get("scene") != fingerprint(scene.with_nominal(own)):
            return None
    return load_base(scene, path)


def base_bytes(base: DistilledModel) -> bytes:
    """A distilled model as safetensors: weights, scaling, domain, and the net's shape as metadata."""
    tensors = {k: v.contiguous() for k, v in base.net.state_dict().items()}
    tensors |= {
        "low": torch.as_tensor(base.low),
        "high": torch.as_tensor(base.high),
        "extent": torch.as_tensor(base.extent),
    }
    return save(tensors, {"shape": json.dumps(base.net.shape), "scene": fingerprint(base.scene)})


def load_base(scene: Scene, path: Path) -> DistilledModel:
    """Inverse of `base_bytes`, from a file."""
    with safe_open(path, "pt") as file:
        net = ImpactNet(**json.loads(file.metadata()["shape"]))
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    low, high, extent = (np.asarray(tensors.pop(k)) for k in ("low", "high", "extent"))
    net.load_state_dict(tensors)
    net.requires_grad_(False)
    return DistilledModel(scene, net, low, high, extent)
