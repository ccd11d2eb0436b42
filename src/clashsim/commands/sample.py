"""`clashsim sample`: run random strikes in MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitArgPrefixes, arg

from clashsim.commands.option_types import (
    ExecutionOptions,
    OutputPath,
    PairOptions,
    SceneArgument,
)
from clashsim.commands.shared import check_output_file, open_executor
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.core.scene import Scene


@dataclass(frozen=True)
class SampleOptions:
    """Sample random strikes from a scene's ranges and simulate them in MuJoCo.

    Example: clashsim sample semi_cylinder -n 100000 -o strikes.safetensors

    After an interruption, the same command continues from the finished shards.
    On all cores of a cluster: clashsim sample semi_cylinder -n 10000000 -o strikes.safetensors
    --executor ray --checkpoint-dir s3://bucket/strikes
    """

    scene: SceneArgument
    """Name of a built-in scene, or path of an MJCF file (.xml)."""
    out: OutputPath
    """File to write, ending in .safetensors."""
    samples: Annotated[int, arg(aliases=["-n"])] = 100_000
    """Number of strikes."""
    seed: int = 0
    """The same seed gives the same file, with any number of threads and workers."""
    threads: int = 0
    """Number of threads in this process; 0 uses all cores."""
    engine: Literal["mujoco", "mjx", "auto"] = "mujoco"
    """Simulator: MuJoCo on the CPU, MJX on JAX's device, or (auto) the faster one in a short test
    of both.
    """
    checkpoint_dir: Annotated[str | None, arg(metavar="PLACE")] = None
    """Folder or fsspec URL where finished shards are kept until all are done; by default a folder
    beside the output.
    """
    overwrite: bool = False
    """Replace the file if it exists."""
    pair: OmitArgPrefixes[PairOptions] = PairOptions()
    execution: OmitArgPrefixes[ExecutionOptions] = ExecutionOptions()


def run(options: SampleOptions) -> None:
    """Run `clashsim sample`."""
    from clashsim.data.impact_files import write_impacts
    from clashsim.fit.sample import sample
    from clashsim.fit.shards import clear_shards
    from clashsim.fit.strike_engines import StrikeEngine
    from clashsim.pipeline.arguments import load_scene

    _check(options)
    pair = options.pair
    scene = load_scene(options.scene, struck=pair.struck, striker=pair.striker, ground=pair.ground)
    beside_output = options.out.with_name(options.out.name + ".parts")
    checkpoint_dir = options.checkpoint_dir or beside_output
    engine = _engine(options, scene, checkpoint_dir)
    threads = options.threads if options.execution.executor is None else 1
    with open_executor(options.execution) as executor:
        impacts = sample(
            scene,
            options.samples,
            options.seed,
            engine=StrikeEngine(engine, threads),
            checkpoint_dir=checkpoint_dir,
            executor=executor,
            progress=bar,
        )
    write_impacts(options.out, impacts)
    clear_shards(checkpoint_dir)
    ends = ", ".join(f"{count} {end}" for end, count in impacts.end_counts.items())
    print(f"{len(impacts)} impacts of {options.samples} strikes in {options.out}: {ends}")


def _check(options: SampleOptions) -> None:
    """Refuse options that do not go together, before any work."""
    from clashsim.pipeline.arguments import check_not_negative

    check_not_negative(seed=options.seed, threads=options.threads)
    uses_executor = options.execution.executor is not None
    if options.threads and uses_executor:
        raise ParamError(
            "--threads is for this process; with --executor each worker has one, "
            "and --workers says how many"
        )
    if options.engine != "mujoco" and (options.threads or uses_executor):
        raise ParamError(
            f"--engine {options.engine} runs in this process, on the device and the threads that "
            "JAX takes: leave out --threads and --executor"
        )
    check_output_file(options.out, (".safetensors",), overwrite=options.overwrite)


def _engine(options: SampleOptions, scene: Scene, checkpoint_dir: Path | str) -> str:
    """The engine to sample with; "auto" is decided here, and the reason is printed."""
    from clashsim.fit.sample import fastest_engine
    from clashsim.fit.shards import read_job

    if options.engine != "auto":
        return options.engine
    job = read_job(checkpoint_dir)
    if job is None:
        engine, reason = fastest_engine(scene, options.samples, options.seed)
    else:
        # All shards of a job must come from the same engine.
        engine = str(job.get("by", "mujoco"))
        reason = f"the existing shards were made by {engine}"
    print(reason)
    return engine
