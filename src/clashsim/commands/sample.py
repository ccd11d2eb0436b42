"""`clashsim sample`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from clashsim.commands.shared import engine, load_scene, not_negative, refuse_file
from clashsim.core.errors import ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Sample


def run(verb: Sample) -> None:
    """`clashsim sample`."""
    from clashsim.data.impact_files import write_impacts
    from clashsim.fit.sample import fastest_engine, sample
    from clashsim.fit.shards import clear_shards, read_job
    from clashsim.fit.strike_engines import StrikeEngine

    not_negative(seed=verb.seed, threads=verb.threads)
    if verb.threads and verb.where.on is not None:
        raise ParamError(
            "--threads is for this process; with --on each worker has one, and --workers says how many"
        )
    if verb.by != "mujoco" and (verb.threads or verb.where.on is not None):
        raise ParamError(
            f"--by {verb.by} runs in this process, on the device and the threads that jax takes: leave out --threads and --on"
        )
    refuse_file(verb.out, (".safetensors",), overwrite=verb.overwrite)
    scene = load_scene(verb.scene, **asdict(verb.pair))
    parts = verb.parts or verb.out.with_name(verb.out.name + ".parts")
    by = str(verb.by)
    if by == "auto":
        job = read_job(parts)
        by, why = (
            fastest_engine(scene, verb.samples, verb.seed)
            if job is None
            else (
                str(job.get("by", "mujoco")),
                f"the shards that are there were made by {job.get('by', 'mujoco')}",
            )
        )
        print(why)
    with engine(verb.where) as run_on:
        threads = verb.threads if verb.where.on is None else 1
        impacts = sample(
            scene,
            verb.samples,
            verb.seed,
            engine=StrikeEngine(by, threads),
            checkpoint_dir=parts,
            executor=run_on,
            progress=bar,
        )
    write_impacts(verb.out, impacts)
    clear_shards(parts)
    print(
        f"{len(impacts)} impacts of {verb.samples} strikes in {verb.out}: "
        + ", ".join(f"{count} {end}" for end, count in impacts.end_counts.items())
    )
