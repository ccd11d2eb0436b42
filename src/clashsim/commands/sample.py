"""`clashsim sample`."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

from clashsim.commands.shared import load_scene, not_negative, refuse_file
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Sample


def run(verb: Sample) -> None:
    """`clashsim sample`."""
    from clashsim.data.impact_files import write_impacts
    from clashsim.fit.sample import sample

    not_negative(seed=verb.seed, threads=verb.threads)
    refuse_file(verb.out, (".safetensors",), overwrite=verb.overwrite)
    scene = load_scene(verb.scene, **asdict(verb.pair))
    parts = verb.out.with_name(verb.out.name + ".parts")
    impacts = sample(scene, verb.samples, verb.seed, parts=parts, threads=verb.threads, progress=bar)
    write_impacts(verb.out, impacts)
    shutil.rmtree(parts)
    print(f"{len(impacts)} impacts of {verb.samples} strikes in {verb.out}: " + ", ".join(f"{count} {end}" for end, count in impacts.ends.items()))
