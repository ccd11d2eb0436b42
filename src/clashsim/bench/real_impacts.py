"""Few-shot accuracy on real recordings by others (BENCHMARKS.md, real-impacts)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from clashsim.bench.few_shot import QUICK, WAYS, measure, plot
from clashsim.bench.rows import Row, Save, discard
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.executor import Executor
from clashsim.core.progress import Progress, quiet
from clashsim.data import datasets

__all__ = ["plot", "run"]

NS = (5, 10, 20, 50, 100, 300)


def run(
    root: Path,
    seeds: int = 5,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    ns: Sequence[int] | None = None,
    resume: Path | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    engine: Executor | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of the bench, on the sets that lie in `root`."""
    root = datasets.find_data_root(root).absolute()  # workers may stand elsewhere
    present = datasets.names(root)
    few = [
        s
        for s in ("mit_ellipse", next((p for p in present if p.startswith("lasa/")), ""))
        if s in present
    ]
    chosen = list(sets or (few if quick else present))
    for name in chosen:
        if name not in present:
            raise DataError(f"the bench has no set {name!r}; {did_you_mean(name, present)}")
    return measure(
        {name: partial(datasets.load, name, root) for name in chosen},
        methods=methods or (QUICK if quick else (*WAYS, "published")),
        ns=ns or ((10,) if quick else NS),
        seeds=seeds,
        quick=quick,
        resume=resume,
        cache=cache,
        workers=workers,
        engine=engine,
        progress=progress,
        save=save,
    )
