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
from clashsim.commands.shared import open_executor
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.pipeline.training import TrainingConfig


@dataclass(frozen=True)
class TrainOptions:
    """Train a policy that pushes the body along a corridor by repeated strikes, with SAC.

    Example: clashsim train runs/demo -o runs/push

    Interrupted, the same command continues from the last checkpoint. Needs clashsim[rl].
    Several at once: clashsim train runs/demo -o runs/push --seeds 8 --executor ray
    On a GPU: clashsim train runs/demo -o runs/push --device cuda, with PPO, which needs no
    clashsim[rl].
    """

    run: RunArgument
    """Run folder of clashsim calibrate or demo, with a slide model."""
    out: OutputPath
    """Folder to write policy, checkpoints and a log for TensorBoard to."""
    config: Literal["default", "paper"] = "default"
    """default: many environments at once; paper: the library's own hyper-parameters, one
    environment.
    """
    steps: OptionalInt = None
    """Strikes to train with: 200,000, and with --device ten times that."""
    device: Annotated[str | None, arg(metavar="DEVICE")] = None
    """Device of torch on which thousands of environments run and the policy is trained, as in:
    --device cuda.
    """
    num_envs: OptionalInt = None
    """Environments that run at once with --device: 4096."""
    seed: int = 0
    """Seed of everything random."""
    seeds: int = 1
    """Policies to train, of as many seeds from --seed on, in folders seed-0, seed-1, ...; those
    that exist are kept.
    """
    overwrite: bool = False
    """Train again although there is a policy."""
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
    # Workers on other machines may have a device that this one lacks.
    if options.device is not None and not uses_executor:
        config.ppo()
    check_at_least(1, seeds=options.seeds)
    if options.seeds > 1:
        _train_seeds(options, config)
        return
    if uses_executor:
        raise ParamError("--executor trains several policies at once: say how many with --seeds")
    result = train_run(options.run, options.out, config=config, progress=bar)
    notes = result.policy.notes
    if options.device is None:
        strikes = notes["recipe"]["steps"]
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
    print(f"next: clashsim evaluate {result.path} --route 1")


def _train_seeds(options: TrainOptions, config: TrainingConfig) -> None:
    """Train the policies of several seeds."""
    from clashsim.pipeline.training import POLICY_FILE, train_seeds

    seeds = range(options.seed, options.seed + options.seeds)
    with open_executor(options.execution) as executor:
        result = train_seeds(
            options.run, options.out, seeds, config=config, executor=executor, progress=bar
        )
    strikes = "" if options.steps is None else f" of {options.steps} strikes"
    print(
        f"{len(result.trained)} policies{strikes} trained in {result.seconds:.0f} s, "
        f"{len(result.kept)} existed already; they are in {options.out}/seed-*/{POLICY_FILE}"
    )
