"""`clashsim record`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clashsim.commands.shared import needs_drake, not_negative
from clashsim.core.errors import DataError, ParamError
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.cli import Record


def run(verb: Record) -> None:
    """`clashsim record`."""
    from clashsim import lab

    not_negative(seed=verb.seed)
    if verb.strikes < 1:
        raise ParamError(f"--strikes must be at least 1, got {verb.strikes}")
    if verb.out.exists() and not verb.out.is_dir():
        raise DataError(f"{str(verb.out)!r} already exists and is not a folder")
    names = [setting.name for setting in lab.settings(verb.shape)]
    needs_drake()  # asked here, before workers are started that would each fail
    kept = {name for name in names if (verb.out / f"{name}.npz").is_file()}
    paths = lab.record_all(verb.out, n=verb.strikes, seed=verb.seed, shape=verb.shape, progress=bar)
    print(
        f"{len(paths) - len(kept)} settings of {verb.strikes} strikes recorded in {verb.out}"
        + (
            f"; {len(kept)} were there already and are kept as they are, whatever their strikes and seed"
            if kept
            else ""
        )
    )
    print(f"next: clashsim inspect {paths[0]} --scene {lab.settings(verb.shape)[0].shape}")
