"""`train_run`: a policy that pushes a run's body along a corridor by repeated strikes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from clashsim.core.errors import DataError, ParamError
from clashsim.core.executor import Executor, local, map_items
from clashsim.core.extras import require
from clashsim.core.files import complete_files
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.evaluate.device import device_available
from clashsim.fit import run_folder
from clashsim.fit.threads import one_thread
from clashsim.nets.strike_table import StrikeTable
from clashsim.pipeline.arguments import check_at_least, check_not_negative
from clashsim.rl import device_training
from clashsim.rl.device_ppo import PpoConfig
from clashsim.rl.policy import Policy

POLICY_FILE = "policy.safetensors"
CHECKPOINT_FILE = "checkpoint.safetensors"
LOG_FOLDER = "log"
_FEWEST_STEPS = 1000  # strikes


@dataclass(frozen=True)
class TrainingConfig:
    """How a policy is trained.

    Attributes:
        config: "default" trains with SAC in 64 environments at once; "paper" uses the default
            hyperparameters of Stable-Baselines3 and one environment, as the CLASH paper does.
        steps: Total number of strikes; None is 200,000, or 2,000,000 with `device`.
        device: Torch device on which environments and training (PPO) run, as in "cuda"; None trains
            with SAC of Stable-Baselines3.
        num_envs: Number of parallel environments with `device`; None is 4096.
        seed: Seed of all random numbers.
        overwrite: Whether an existing policy is replaced.
    """

    config: Literal["default", "paper"] = "default"
    steps: int | None = None
    device: str | None = None
    num_envs: int | None = None
    seed: int = 0
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_not_negative(seed=self.seed)
        if self.steps is not None:
            check_at_least(_FEWEST_STEPS, steps=self.steps)
        if self.num_envs is not None:
            if self.device is None:
                raise ParamError(
                    "--num-envs is for training on a device: name one with --device, "
                    "as in --device cuda"
                )
            check_at_least(1, num_envs=self.num_envs)
        if self.device is not None and self.config != "default":
            raise ParamError(
                f"--config {self.config} is for Stable-Baselines3, which trains without --device"
            )

    def ppo(self) -> PpoConfig:
        """Configuration of PPO on the device.

        Raises:
            ParamError: The device does not exist, or there are too few steps for one round.
        """
        if self.device is None or not device_available(self.device):
            raise ParamError(
                f"this torch has no device {self.device!r} (torch {torch.__version__})"
            )
        default = PpoConfig()
        ppo = replace(
            default,
            num_envs=self.num_envs or default.num_envs,
            steps=self.steps or default.steps,
        )
        steps_per_round = ppo.num_envs * ppo.horizon
        if ppo.steps < steps_per_round:
            raise ParamError(
                f"{ppo.num_envs} environments are struck {ppo.horizon} times per round: "
                f"--steps must be at least {steps_per_round}, got {ppo.steps}"
            )
        return ppo


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained policy.

    Attributes:
        policy: The policy; its notes say how it was trained.
        path: File that it was written to.
        seconds: How long training took.
    """

    policy: Policy
    path: Path
    seconds: float


@dataclass(frozen=True)
class SeedsResult:
    """Policies of several seeds.

    Attributes:
        trained: Files of the policies that were trained.
        kept: Files of the policies that existed before.
        seconds: How long training took.
    """

    trained: tuple[Path, ...]
    kept: tuple[Path, ...]
    seconds: float


def train_run(
    run: Path | str,
    out: Path | str,
    *,
    config: TrainingConfig = TrainingConfig(),
    progress: Progress = quiet,
) -> TrainingResult:
    """Train a policy in the simulator of a run, or continue from its last checkpoint.

    Args:
        run: Run folder with a slide model.
        out: Folder to write policy, checkpoints and a log for TensorBoard to.
        config: How to train.
        progress: Shows how many strikes were made.

    Returns:
        The policy.
    """
    start = time.perf_counter()
    trainer = _Trainer(Path(run), config)
    policy = trainer.train(Path(out), config.seed, progress)
    return TrainingResult(policy, Path(out) / POLICY_FILE, time.perf_counter() - start)


def train_seeds(
    run: Path | str,
    out: Path | str,
    seeds: Sequence[int],
    *,
    config: TrainingConfig = TrainingConfig(),
    executor: Executor = local,
    progress: Progress = quiet,
) -> SeedsResult:
    """Train a policy for each of several seeds; existing policies are kept.

    Args:
        run: Run folder with a slide model; all workers of the executor must see it.
        out: Folder that gets a folder seed-0, seed-1, ... for each policy; all workers must see it.
        seeds: Seeds to train with.
        config: How to train; its own seed is not used.
        executor: Runs the trainings, one per seed.
        progress: Shows how many policies are trained.

    Returns:
        The files of the policies.
    """
    start = time.perf_counter()
    out = Path(out).absolute()  # workers have other working folders
    paths = {seed: out / f"seed-{seed}" / POLICY_FILE for seed in seeds}
    to_train = [seed for seed in seeds if config.overwrite or not paths[seed].exists()]
    work = _SeedTrainer(_Trainer(Path(run).absolute(), config), out)
    with progress("training", len(to_train)) as advance:
        for i, _ in map_items(executor, work, to_train):
            if not paths[to_train[i]].is_file():
                raise DataError(
                    f"the policy of seed {to_train[i]} was written on another machine: "
                    "name an output that all machines see"
                )
            advance(1)
    trained = tuple(paths[seed] for seed in to_train)
    kept = tuple(path for path in paths.values() if path not in trained)
    return SeedsResult(trained, kept, time.perf_counter() - start)


@dataclass(frozen=True)
class _Trainer:
    """Trains policies in the simulator of a run; its strike table is built once per process."""

    run: Path
    config: TrainingConfig

    @cached_property
    def simulator(self) -> tuple[Scene, StrikeTable]:
        """Scene and strike table of the run."""
        calibrated = run_folder.load(self.run)
        return calibrated.scene, calibrated.strike_table()

    def train(self, out: Path, seed: int, progress: Progress) -> Policy:
        """Train one policy, or continue from its checkpoint, and write it."""
        if self.config.device is None:
            require("stable_baselines3", "Stable-Baselines3", "rl")
        _check_output(out, overwrite=self.config.overwrite)
        scene, table = self.simulator
        if self.config.overwrite:
            for name in (POLICY_FILE, CHECKPOINT_FILE):
                (out / name).unlink(missing_ok=True)
        if self.config.device is None:
            policy = self._train_sac(out, seed, progress)
        else:
            policy = device_training.train(
                scene,
                table,
                config=self.config.ppo(),
                seed=seed,
                device=self.config.device,
                folder=out,
                progress=progress,
            )
        policy.save(out / POLICY_FILE)
        return policy

    def _train_sac(self, out: Path, seed: int, progress: Progress) -> Policy:
        """Train with SAC of Stable-Baselines3, which is imported only here."""
        from clashsim.rl import sac_training

        scene, table = self.simulator
        config = sac_training.PAPER if self.config.config == "paper" else sac_training.SacConfig()
        if self.config.steps is not None:
            config = replace(config, steps=self.config.steps)
        return sac_training.train(
            scene, table, config=config, seed=seed, folder=out, progress=progress
        )


@dataclass(frozen=True)
class _SeedTrainer:
    """Trains the policy of a seed in its own folder, on one thread."""

    trainer: _Trainer
    out: Path

    def __call__(self, seed: int) -> None:
        with one_thread():
            self.trainer.train(self.out / f"seed-{seed}", seed, quiet)


def _check_output(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds other files, or a policy that may not be replaced."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{str(out)!r} already exists and is not a folder")
    # A training killed before its first checkpoint leaves the log folder, which does not count.
    files = [name for name in complete_files(out) if name != LOG_FOLDER] if out.is_dir() else []
    is_training = POLICY_FILE in files or CHECKPOINT_FILE in files
    if files and not is_training:
        raise DataError(f"{str(out)!r} holds other files; choose another folder")
    policy = out / POLICY_FILE
    if policy.exists() and not overwrite:
        raise DataError(
            f"{str(policy)!r} already exists; choose another output, or replace it with --overwrite"
        )
