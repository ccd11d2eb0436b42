"""CLASH Fig. 4: the semi-cylinder in three materials on two kinds of sand, struck in the
laboratory, a stand-in for reality.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from clashsim import lab
from clashsim.bench.few_shot import QUICK, WAYS, measure, plot
from clashsim.bench.lab_sets import choose, load_lab_set
from clashsim.bench.rows import Row, Save, discard
from clashsim.core.executor import Executor
from clashsim.core.progress import Progress, quiet

__all__ = ["plot", "run"]


def run(
    seeds: int = 3,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    ns: Sequence[int] = (10,),
    resume: Path | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    engine: Executor | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of the bench; draw `block` is the paper's split, the first ten strikes to fit and the
    other hundred to test.
    """
    settings = [(material, surface) for material in lab.MATERIALS for surface in lab.SURFACES]
    present = {
        f"{m}/{s}": partial(load_lab_set, f"{m}/{s}", "semi_cylinder", m, s) for m, s in settings
    }
    chosen = choose(sets, [*present][:1] if quick and not sets else [*present])
    return measure(
        {name: present[name] for name in chosen},
        methods=methods or (QUICK if quick else [*WAYS]),
        ns=ns,
        seeds=seeds,
        quick=quick,
        resume=resume,
        cache=cache,
        workers=workers,
        engine=engine,
        progress=progress,
        save=save,
    )
