"""A scene that was fitted to whole trajectories, and its run folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import numpy as tensor_file

from clashsim.core.augmentation_spec import NeuralScalar
from clashsim.core.errors import RunError
from clashsim.core.estimates import Estimate
from clashsim.core.mjcf_assets import check_scene
from clashsim.core.motion_scene import MotionScene
from clashsim.core.protocols import Simulator
from clashsim.core.trials import Trials
from clashsim.data import trial_files
from clashsim.data.folders import dumps, loads, read_folder, write_folder
from clashsim.data.mjcf import EditedMjcf
from clashsim.data.mjcf_scene import write_scene
from clashsim.fit.calibration_file import Tensors, pack, unpack
from clashsim.fit.interval_samples import estimate_ranges, sample_estimates
from clashsim.fit.run_folder import (
    MOTION_FILE,
    asset_path,
    refuse_misfits,
    scene_content,
    versions,
)
from clashsim.sim.mujoco.simulator import MujocoSim

MotionMethod = Literal["mujoco", "mjx", "neural", "graph"]
METHODS: tuple[MotionMethod, ...] = ("mujoco", "mjx", "neural", "graph")


@dataclass(frozen=True, eq=False)
class MotionModel:
    """What was fitted.

    Attributes:
        scene: The scene with its parameters.
        estimates: Estimate of each parameter.
        method: How it was fitted, and with what it is simulated.
        bodies: Names of the recorded bodies that were used.
        augmentation: Neural scalars of the method neural.
        weights: Weights (w,) of their networks.
    """

    scene: MotionScene
    estimates: tuple[Estimate, ...]
    method: MotionMethod = "mujoco"
    bodies: tuple[str, ...] = ()
    augmentation: tuple[NeuralScalar, ...] = ()
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class MotionRun:
    """A run folder of `clashsim fit`; `clashsim.load` reads one.

    Attributes:
        model: What was fitted.
        metrics: How well it predicts, the content of metrics.json.
        notes: Sentences on the data and the fit.
    """

    model: MotionModel
    metrics: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def scene(self) -> MotionScene:
        """The scene that was fitted."""
        return self.model.scene

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Estimate of each parameter."""
        return self.model.estimates

    @property
    def theta(self) -> np.ndarray:
        """Identified parameters (p,) in natural units, within their ranges."""
        params = self.scene.params
        values = [estimate.value for estimate in self.estimates]
        return np.clip(values, [p.low for p in params], [p.high for p in params])

    @property
    def written_params(self) -> tuple[int, ...]:
        """Indices of the parameters that `mjcf` writes: all, since they were fitted jointly."""
        return tuple(range(len(self.scene.params)))

    def simulator(self) -> Simulator:
        """The fitted simulator; loaded again, it gives the same bits.

        Returns:
            MuJoCo with the identified parameters for the method mujoco, else `MjxSim`,
            `AugmentedSim` or `GraphSim`.
        """
        model = self.model
        if model.method == "mjx":
            from clashsim.sim.mjx.simulator import MjxSim

            return MjxSim(self.scene, self.theta)
        if model.method == "neural":
            from clashsim.sim.augmented.simulator import AugmentedSim

            return AugmentedSim(
                self.scene, model.augmentation, theta=self.theta, weights=model.weights
            )
        if model.method == "graph":
            from clashsim.sim.graph.scene_bodies import scene_simulator

            return scene_simulator(self.scene.model(self.theta))
        return MujocoSim(self.scene, self.theta)

    def mjcf(self) -> EditedMjcf:
        """The scene with all identified values, otherwise as its author wrote it if possible."""
        return write_scene(self.scene, self.theta)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Low and high of each parameter by name for domain randomisation: 90 % intervals."""
        return estimate_ranges(self.scene.params, self.estimates)

    def posterior_samples(self, n: int, seed: int) -> np.ndarray:
        """Sample thetas for domain randomisation, each parameter independently.

        Args:
            n: Number of samples.
            seed: Seed of the random numbers.

        Returns:
            Thetas (n, p), natural units.
        """
        return sample_estimates(self.scene.params, self.estimates, self.theta, n=n, seed=seed)


@dataclass(frozen=True, eq=False)
class MotionRecord:
    """The content of a run folder beside the model.

    Attributes:
        config: Options that the run was made with.
        trials: The trials; only their names and hashes are written.
        held_out: Names of the trials that were not fitted.
        pages: Further files for the reader, such as reports, by name.
    """

    config: Mapping[str, Any]
    trials: Trials
    held_out: tuple[str, ...] = ()
    pages: Mapping[str, bytes] = field(default_factory=dict)


def save_motion_run(
    path: Path | str, run: MotionRun, record: MotionRecord, *, overwrite: bool = False
) -> None:
    """Write a run as one folder, completely or not at all.

    Args:
        path: The folder.
        run: The run.
        record: Options, data and pages.
        overwrite: Whether an existing run is replaced.
    """
    tensors: Tensors = {}
    model = pack(run.model, "model", tensors)
    scene = model.pop("scene")
    theta = model.pop("estimates")
    assets = run.scene.assets
    trials = []
    for trial in record.trials:
        digest = hashlib.sha256(trial_files.to_bytes(Trials((trial,)))).hexdigest()
        entry = {"name": trial.name, "frames": len(trial.t), "sha256": digest}
        trials.append(entry | {"held_out": trial.name in record.held_out})
    files = {
        MOTION_FILE: dumps({"notes": list(run.notes)}),
        "config.json": dumps({"options": dict(record.config), "model": model}),
        "theta.json": dumps(theta),
        "scene.json": dumps(scene | {"assets": sorted(assets)}),
        "scene.xml": run.scene.xml.encode(),
        "weights.safetensors": tensor_file.save(tensors),
        "trials.json": dumps(trials),
        "versions.json": dumps(versions()),
        "metrics.json": dumps(dict(run.metrics)),
    }
    for name, content in assets.items():
        files[asset_path(name)] = content
    write_folder(Path(path), {**files, **record.pages}, overwrite=overwrite)


def is_motion_run(path: Path | str) -> bool:
    """Whether a run folder is one of `clashsim fit`.

    Args:
        path: The folder.
    """
    return MOTION_FILE in read_folder(Path(path))


def load_motion_run(path: Path | str) -> MotionRun:
    """Read a run folder of `clashsim fit`.

    Args:
        path: The folder.
    """
    return motion_run_of_files(read_folder(Path(path)), path)


def motion_run_of_files(files: Mapping[str, bytes], path: Path | str) -> MotionRun:
    """The run that `save_motion_run` made files of.

    Args:
        files: The files by name.
        path: Their folder, for messages.
    """
    with refuse_misfits(path, remedy="fit again"):
        tensors = tensor_file.load(files["weights.safetensors"])
        config: Any = loads(files, "config.json")
        parts = {"scene": scene_content(files), "estimates": loads(files, "theta.json")}
        model = unpack(MotionModel, config["model"] | parts, tensors, "model")
        check_scene(model.scene.xml, model.scene.assets, model.scene.name)
        metrics: Any = loads(files, "metrics.json")
        notes: Any = loads(files, MOTION_FILE)
        run = MotionRun(model, metrics, tuple(map(str, notes["notes"])))
        _check(run)
        return run


def _check(run: MotionRun) -> None:
    """Raise a RunError if the parts of a run do not match each other."""
    names = [param.name for param in run.scene.params]
    if [estimate.name for estimate in run.estimates] != names:
        raise RunError("the run is damaged: theta.json does not have the parameters of scene.json")
    if not isinstance(run.metrics, dict) or not isinstance(run.metrics.get("models"), dict):
        raise RunError("the run is damaged: metrics.json does not have the entry models")
