"""CLASH Table II: three shapes (resin on high-friction sand) struck in the virtual laboratory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from clashsim import lab
from clashsim.bench.few_shot import OPTIONS, QUICK_METHODS, measure
from clashsim.bench.few_shot_plot import plot
from clashsim.bench.few_shot_summary import summary
from clashsim.bench.lab_sets import choose, load_lab_set
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row
from clashsim.evaluate.methods import METHODS

__all__ = ["OPTIONS", "plot", "run", "summary"]


def run(options: BenchOptions = BenchOptions(), *, ns: Sequence[int] = (10,)) -> list[Row]:
    """Measure the few-shot accuracy of all methods on the laboratory's shapes.

    Draw `block` is the split of the paper: the first ten strikes to fit, the other hundred to test.

    Args:
        options: What to measure and where; its sets are shapes.
        ns: Numbers of impacts that a method may use.

    Returns:
        Rows as `clashsim.bench.few_shot.measure` gives them.
    """
    present = {}
    for shape in lab.SHAPES:
        name = shape.replace("_", "-")
        present[name] = partial(load_lab_set, name, shape, "resin", "high")
    default = list(present)[:1] if options.quick else list(present)
    chosen = choose(options.sets or default, list(present))
    return measure(
        {name: present[name] for name in chosen},
        options,
        methods=options.methods or (QUICK_METHODS if options.quick else list(METHODS)),
        ns=ns,
        seeds=options.seeds or 3,
    )
