"""`clashsim record`: record strikes in the virtual laboratory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from clashsim.commands.option_types import OutputPath
from clashsim.core.errors import DataError
from clashsim.core.progress import bar


@dataclass(frozen=True)
class RecordOptions:
    """Record strikes in the virtual laboratory, a stand-in for reality.

    Each shape is recorded in three materials on high- and low-friction sand. Needs clashsim[lab].

    Example: clashsim record -o recordings --shape semi_cylinder --strikes 12

    Existing files are kept, so interrupted work continues. The recordings included in clashsim were
    made with the defaults: --strikes 110 --seed 2025, all shapes.
    """

    out: OutputPath
    """Folder to write to: one .npz file per setting (shape, material, sand)."""
    shape: Annotated[str | None, arg(metavar="SHAPE")] = None
    """Only this shape: semi_cylinder, square or triangle."""
    strikes: int = 110
    """Number of strikes per setting; each takes one or two seconds."""
    seed: int = 2025
    """Seed of the strikes and of actuation, placement and camera noise."""


def run(options: RecordOptions) -> None:
    """Run `clashsim record`."""
    from clashsim import lab
    from clashsim.pipeline.arguments import check_at_least, check_not_negative, require_drake

    check_not_negative(seed=options.seed)
    check_at_least(1, strikes=options.strikes)
    out = options.out
    if out.exists() and not out.is_dir():
        raise DataError(f"{str(out)!r} already exists and is not a folder")
    settings = lab.settings(options.shape)
    require_drake()  # checked here, before workers are started that would each fail
    existing = [setting for setting in settings if (out / f"{setting.name}.npz").is_file()]
    paths = lab.record_all(
        out, n=options.strikes, seed=options.seed, shape=options.shape, progress=bar
    )
    num_recorded = len(paths) - len(existing)
    report = f"{num_recorded} settings of {options.strikes} strikes recorded in {out}"
    if existing:
        report += (
            f"; {len(existing)} were there already and are kept as they are, "
            "whatever their strikes and seed"
        )
    print(report)
    print(f"next: clashsim inspect {paths[0]} --scene {settings[0].shape}")
