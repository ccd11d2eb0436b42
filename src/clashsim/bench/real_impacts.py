"""Few-shot accuracy on real recordings by others (BENCHMARKS.md, real-impacts)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from clashsim.bench import few_shot
from clashsim.bench.few_shot import QUICK_METHODS, measure
from clashsim.bench.few_shot_plot import plot
from clashsim.bench.few_shot_summary import summary
from clashsim.bench.few_shot_task import PUBLISHED
from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row
from clashsim.data import datasets
from clashsim.evaluate.methods import METHODS

__all__ = ["OPTIONS", "plot", "run", "summary"]

OPTIONS = few_shot.OPTIONS | {"root"}
NS = (5, 10, 20, 50, 100, 300)
_QUICK_NS = (10,)


def run(options: BenchOptions, *, ns: Sequence[int] | None = None) -> list[Row]:
    """Measure the few-shot accuracy of all methods on the recordings under `options.root`.

    Args:
        options: What to measure and where; the folder of recordings is needed.
        ns: Numbers of impacts that a method may use.

    Returns:
        Rows as `clashsim.bench.few_shot.measure` gives them.
    """
    # An absolute path, because workers may have another working directory.
    root = datasets.find_data_root(options.recordings()).absolute()
    present = datasets.names(root)
    default = _quick_sets(present) if options.quick else present
    chosen = choose(options.sets or default, present)
    default_methods = QUICK_METHODS if options.quick else (*METHODS, PUBLISHED)
    default_ns = _QUICK_NS if options.quick else NS
    return measure(
        {name: partial(datasets.load, name, root) for name in chosen},
        options,
        methods=options.methods or default_methods,
        ns=ns or default_ns,
        seeds=options.seeds or 5,
    )


def _quick_sets(present: Sequence[str]) -> list[str]:
    """The ellipse and the first set of struck boxes, as far as they are there."""
    boxes = [name for name in present if name.startswith("lasa/")]
    return [name for name in ("mit_ellipse", *boxes[:1]) if name in present]
