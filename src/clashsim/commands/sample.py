"""`clashsim sample`."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

from clashsim.commands.shared import load_scene, not_negative
from clashsim.core.errors import DataError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Sample


def run(verb: Sample) -> None:
    """`clashsim sample`."""
    from clashsim.data.impact_files import write_impacts
    from clashsim.fit.sample import sample

    not_negative(seed=verb.seed, threads=verb.threads)
    if verb.out.suffix != ".safetensors":
        raise DataError(f"the output {str(verb.out)!r} must end in .safetensors")
    if verb.out.exists() and not verb.overwrite:
        raise DataError(f"{str(verb.out)!r} already exists; choose another output, or replace it with --overwrite")
    scene = load_scene(verb.scene, **asdict(verb.pair))
    parts = verb.out.with_name(verb.out.name + ".parts")
    impacts = sample(scene, verb.n, verb.seed, parts=parts, threads=verb.threads, progress=bar)
    write_impacts(verb.out, impacts)
    shutil.rmtree(parts)
    print(f"{len(impacts)} impacts of {verb.n} strikes in {verb.out}: " + ", ".join(f"{count} {end}" for end, count in impacts.ends.items()))
