"""Ten advised strikes against ten random ones: accuracy after a calibration with them, on the
laboratory's shapes and on struck boxes.

A seed splits the recorded strikes of a set in two: a pool to choose from, of which a method sees
how strikes meet but not what came of them until it has chosen, and a test. `random` takes the first
ten of the pool, `advised` the ten that are advised before any was made, `advised-5-5` five of
these, a calibration with them, and the five that are advised after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import choose, load_lab_set
from clashsim.bench.resume import keep, kept
from clashsim.bench.rows import Row, Save, discard, optional
from clashsim.core.impacts import Impacts
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.data import datasets
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.metrics import relative_error, summary
from clashsim.fit.advise import advise
from clashsim.fit.base import base_model
from clashsim.fit.calibrate import calibrate
from clashsim.fit.distil import DistilledModel

N = 10
_POOL = 60  # strikes to choose from, in sets that have more than twice as many; else half of them
_TESTED = 400  # at most
Way = Callable[[DistilledModel, Impacts, int], np.ndarray]


def _random(base: DistilledModel, pool: Impacts, seed: int) -> np.ndarray:
    """The pool is in random order already."""
    return np.arange(N)


def _advised(base: DistilledModel, pool: Impacts, seed: int) -> np.ndarray:
    return advise(base, pool, N).rows


def _in_two(base: DistilledModel, pool: Impacts, seed: int) -> np.ndarray:
    first = advise(base, pool, N // 2).rows
    others = np.setdiff1d(np.arange(len(pool)), first)
    model = calibrate(base, pool[first], seed=seed)
    return np.r_[first, others[advise(model, pool[others], N - len(first)).rows]]


WAYS: dict[str, Way] = {"random": _random, "advised": _advised, "advised-5-5": _in_two}


def run(
    root: Path | None = None,
    seeds: int = 10,
    quick: bool = False,
    *,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    resume: Path | None = None,
    cache: Path | None = None,
    progress: Progress = quiet,
    save: Save = discard,
) -> list[Row]:
    """Rows of all methods on every set; sets of struck boxes are those that lie in `root`."""
    present: dict[str, Callable[[], RealDataset]] = {
        s.replace("_", "-"): partial(load_lab_set, s.replace("_", "-"), s, "resin", "high")
        for s in lab.SHAPES
    }
    if root is not None:
        present |= {
            name: partial(datasets.load, name, root)
            for name in datasets.names(datasets.find_data_root(root))
            if name.startswith("lasa/")
        }
    chosen = choose(sets, [*present][:1] if quick and not sets else [*present])
    ways = choose(methods, [*WAYS])
    seeds, done, rows = 1 if quick else seeds, kept(resume), list[Row]()
    with progress("measuring", len(chosen) * len(ways)) as advance:
        for name in chosen:
            with optional(rows, set=name):
                real = present[name]()
                base = base_model(Scene.load(real.scene).with_nominal(real.nominal), cache=cache)
                for method in ways:
                    head = {"set": name, "method": method, "n": N}
                    whole = head | {"seeds": seeds}
                    with optional(rows, **head):
                        row = next((r for r in done if r | whole == r), None)
                        if row is None:
                            way = WAYS[method]
                            errors = [_errors(real, base, way, seed) for seed in range(seeds)]
                            row = head | summary(errors)
                            keep(resume, [row])
                        rows.append(row)
                    save(rows)
                    advance(1)
    return rows


def _errors(real: RealDataset, base: DistilledModel, way: Way, seed: int) -> np.ndarray:
    """Relative errors of the test, after a calibration with ten strikes of the pool."""
    order = np.random.default_rng(seed).permutation(len(real.impacts))
    size = min(_POOL, len(order) // 2)
    pool, test = real.impacts[order[:size]], real.impacts[order[size : size + _TESTED]]
    made = calibrate(base, pool[way(base, pool, seed)], seed=seed)
    return relative_error(made.predict(test), test.after, real.gyration)
