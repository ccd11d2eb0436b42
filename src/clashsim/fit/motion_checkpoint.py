"""Where a fit to trajectories was after its last finished stage, so that a killed fit continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from clashsim.core.files import write_atomic

if TYPE_CHECKING:
    from clashsim.core.motion_scene import MotionScene
    from clashsim.core.observed_motion import ObservedMotion


@dataclass(frozen=True, eq=False)
class StagesDone:
    """Finished stages of a fit.

    Attributes:
        unit: The best point (p,) on the unit scale.
        costs: Cost after each finished stage.
        evaluations: Number of simulated segments.
    """

    unit: np.ndarray
    costs: tuple[float, ...]
    evaluations: int


def fit_key(scene: MotionScene, motion: ObservedMotion, settings: object) -> str:
    """A fingerprint of a fit: its scene, parameters, recordings and settings.

    Args:
        scene: The scene with its parameters.
        motion: The recordings.
        settings: The settings, as text.
    """
    digest = hashlib.sha256(scene.xml.encode())
    digest.update(json.dumps([asdict(param) for param in scene.params]).encode())
    for trial in motion.trials:
        for array in (trial.t, trial.poses, trial.joints, trial.control):
            digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr(settings).encode())
    return digest.hexdigest()[:16]


def write_stages(path: Path, done: StagesDone, key: str) -> None:
    """Write finished stages, completely or not at all.

    Args:
        path: The file.
        done: The stages.
        key: Fingerprint of the fit.
    """
    tensors = {
        "unit": np.ascontiguousarray(done.unit),
        "costs": np.array(done.costs, float),
        "evaluations": np.array([done.evaluations], np.int64),
    }
    write_atomic(path, save(tensors, {"key": key}))


def read_stages(path: Path, key: str, shape: Sequence[int]) -> StagesDone | None:
    """Read finished stages; None if there are none, or those of another fit.

    Args:
        path: The file.
        key: Fingerprint of the fit.
        shape: Shape of a point.
    """
    if not path.is_file():
        return None
    try:
        with safe_open(path, "np") as file:
            if (file.metadata() or {}).get("key") != key:
                return None
            unit, costs = file.get_tensor("unit"), file.get_tensor("costs")
            evaluations = int(file.get_tensor("evaluations")[0])
    except SafetensorError:
        return None
    if unit.shape != tuple(shape) or not np.isfinite(unit).all():
        return None
    return StagesDone(unit, tuple(map(float, costs)), evaluations)
