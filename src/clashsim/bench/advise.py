"""Ten advised strikes against ten random ones: accuracy after a calibration with them.

A seed splits the recorded strikes of a data set into a pool to choose from and a test set. A method
sees the states before impact of the whole pool, but outcomes only of the strikes that it has
chosen:

    random       the first ten of the pool, which is in random order
    advised      ten strikes, all advised before any outcome is known
    advised-5-5  five advised strikes, a calibration with them, then five that this calibration
                 advises
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import choose, load_lab_set
from clashsim.bench.options import BenchOptions
from clashsim.bench.resume import append_rows, read_rows
from clashsim.bench.rows import Row, find_row, optional
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data import datasets
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.metrics import accuracy_summary, relative_error
from clashsim.fit.advise import advise
from clashsim.fit.base import BaseModel
from clashsim.fit.calibrate import calibrate
from clashsim.fit.solved_model import SolvedModel

OPTIONS = frozenset({"root", "seeds", "sets", "methods", "resume"})
NUM_STRIKES = 10
_POOL_SIZE = 60  # strikes to choose from; half of the data set if that is less
_MAX_TESTED = 400  # strikes
# (base model, pool, seed) -> rows of the pool that are chosen
Choice = Callable[[BaseModel, Impacts, int], np.ndarray]


def _random(base: BaseModel, pool: Impacts, seed: int) -> np.ndarray:
    """The first strikes: the pool is in random order."""
    return np.arange(NUM_STRIKES)


def _advised(base: BaseModel, pool: Impacts, seed: int) -> np.ndarray:
    """All strikes advised at once."""
    return advise(base, pool, NUM_STRIKES).rows


def _advised_twice(base: BaseModel, pool: Impacts, seed: int) -> np.ndarray:
    """Half of the strikes advised at once, the others after a calibration with the first half."""
    first = advise(base, pool, NUM_STRIKES // 2).rows
    others = np.setdiff1d(np.arange(len(pool)), first)
    calibration = calibrate(base, pool[first])
    second = advise(calibration, pool[others], NUM_STRIKES - len(first)).rows
    return np.r_[first, others[second]]


METHODS: dict[str, Choice] = {
    "random": _random,
    "advised": _advised,
    "advised-5-5": _advised_twice,
}


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure all ways of choosing strikes on the laboratory's shapes and on struck boxes.

    Args:
        options: What to measure; struck boxes are those recordings that lie in `options.root`.

    Returns:
        One row per data set and method, with accuracies over seeds.
    """
    present = _data_sets(options)
    default = list(present)[:1] if options.quick else list(present)
    chosen = choose(options.sets or default, list(present))
    methods = choose(options.methods, list(METHODS), what="method")
    seeds = options.repetitions(10)
    done = read_rows(options.resume)
    rows: list[Row] = []
    with options.progress("measuring", len(chosen) * len(methods)) as advance:
        for name in chosen:
            with optional(rows, set=name):
                real = present[name]()
                scene = Scene.load(real.scene).with_nominal(real.nominal)
                base = SolvedModel(scene)
                for method in methods:
                    head = {"set": name, "method": method, "n": NUM_STRIKES}
                    with optional(rows, **head):
                        row = find_row(done, head | {"seeds": seeds})
                        if row is None:
                            choice = METHODS[method]
                            errors = [_errors(real, base, choice, seed) for seed in range(seeds)]
                            row = head | accuracy_summary(errors)
                            append_rows(options.resume, [row])
                        rows.append(row)
                    options.save(rows)
                    advance(1)
    return rows


def _data_sets(options: BenchOptions) -> dict[str, Callable[[], RealDataset]]:
    """Functions that load a data set, by its name."""
    present: dict[str, Callable[[], RealDataset]] = {}
    for shape in lab.SHAPES:
        name = shape.replace("_", "-")
        present[name] = partial(load_lab_set, name, shape, "resin", "high")
    if options.root is not None:
        for name in datasets.names(datasets.find_data_root(options.root)):
            if name.startswith("lasa/"):
                present[name] = partial(datasets.load, name, options.root)
    return present


def _errors(real: RealDataset, base: BaseModel, choice: Choice, seed: int) -> np.ndarray:
    """Relative errors (N,) on the test, after a calibration with the chosen strikes."""
    order = np.random.default_rng(seed).permutation(len(real.impacts))
    size = min(_POOL_SIZE, len(order) // 2)
    pool = real.impacts[order[:size]]
    test = real.impacts[order[size : size + _MAX_TESTED]]
    calibration = calibrate(base, pool[choice(base, pool, seed)])
    return relative_error(calibration.predict(test), test.after, real.gyration)
