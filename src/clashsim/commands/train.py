"""`clashsim train`: train a policy in the simulator of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitArgPrefixes, arg

from clashsim.commands.option_types import (
    ExecutionOptions,
    OptionalInt,
    OutputPath,
    RunArgument,
)
from clashsim.commands.run_tables import warn_if_unreliable
from clashsim.commands.shared import STRIKE_TABLE, announce, open_executor
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.pipeline.training import TrainingConfig


@dataclass(frozen=True)
class TrainOptions:
    """Train a policy that pushes the body along a corridor by repeated strikes, with SAC.

    Example: clashsim train runs/demo -o runs/push

    After an interruption, the same command continues from the last checkpoint. Needs clashsim[rl].
    Several policies at once: clashsim train runs/demo -o runs/push --seeds 8 --executor ray
    On a GPU (PPO, without clashsim[rl]): clashsim train runs/demo -o runs/push --device cuda
    """

    run: RunArgument
    """Run folder of clashsim calibrate or demo, with a slide model."""
    out: OutputPath
    """Folder to write policy, checkpoints and a log for TensorBoard to."""
    config: Literal["default", "paper"] = "default"
    """default: SAC in 64 environments at once; paper: Stable-Baselines3's default hyperparameters
    and one environment, as in the CLASH paper.
    """
    steps: OptionalInt = None
    """Total number of strikes to train with; by default 200,000, with --device 2,000,000."""
    device: Annotated[str | None, arg(metavar="DEVICE")] = None
    """Torch device, as in --device cuda. Environments and training (PPO) then run on it; without
    this option, SAC trains on the CPU.
    """
    num_envs: OptionalInt = None
    """Number of parallel environments with --device; by default 4096."""
    seed: int = 0
    """Seed of all random numbers."""
    seeds: int = 1
    """Number of policies to train, with seeds --seed, --seed + 1, ... in folders seed-0, seed-1,
    ... Existing policies are kept.
    """
    overwrite: bool = False
    """Train again and replace an existing policy."""
    execution: OmitArgPrefixes[ExecutionOptions] = ExecutionOptions()


def run(options: TrainOptions) -> None:
    """Run `clashsim train`."""
    from clashsim.pipeline.arguments import check_at_least
    from clashsim.pipeline.training import TrainingConfig, train_run

    config = TrainingConfig(
        config=options.config,
        steps=options.steps,
        device=options.device,
        num_envs=options.num_envs,
        seed=options.seed,
        overwrite=options.overwrite,
    )
    uses_executor = options.execution.executor is not None
    # Refuses a missing device before any work; workers on other machines may have it.
    if options.device is not None and not uses_executor:
        config.ppo()
    check_at_least(1, seeds=options.seeds)
    if options.seeds > 1:
        _train_seeds(options, config)
        return
    if uses_executor:
        raise ParamError("--executor trains several policies at once: say how many with --seeds")
    announce(STRIKE_TABLE)
    result = train_run(options.run, options.out, config=config, progress=bar)
    notes = result.policy.notes
    if options.device is None:
        strikes = notes["config"]["steps"]
        print(
            f"policy of {strikes} strikes written to {result.path} "
            f"in {result.seconds:.0f} s; log for TensorBoard in {options.out / 'log'}"
        )
    else:
        print(
            f"policy of {notes['strikes']} strikes written to {result.path} "
            f"in {result.seconds:.0f} s"
        )
        print(
            "in the run's own strike table it reaches the sub-goal in "
            f"{100 * notes['reached']:.1f} % of episodes, with a mean return of "
            f"{notes['return']:.2f}"
        )
    warn_if_unreliable(options.run)
    print(f"next: clashsim evaluate {result.path} --route 1")


def _train_seeds(options: TrainOptions, config: TrainingConfig) -> None:
    """Train the policies of several seeds."""
    from clashsim.pipeline.training import POLICY_FILE, train_seeds

    seeds = range(options.seed, options.seed + options.seeds)
    announce(STRIKE_TABLE)
    with open_executor(options.execution) as executor:
        result = train_seeds(
            options.run, options.out, seeds, config=config, executor=executor, progress=bar
        )
    strikes = "" if options.steps is None else f" of {options.steps} strikes"
    print(
        f"{len(result.trained)} policies{strikes} trained in {result.seconds:.0f} s, "
        f"{len(result.kept)} existed already; they are in {options.out}/seed-*/{POLICY_FILE}"
    )
