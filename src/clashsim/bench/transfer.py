"""Transfer: calibrated on object A with ten strikes, tested on object B of the same material.

Methods:

    mujoco-carried       MuJoCo with the parameters identified on A
    mujoco-identified    MuJoCo identified on B's own strikes
    clashsim             calibrated on B's own strikes
    clashsim-transfer    calibrated on B's own strikes, with A's posterior as prior
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.bench.lab_sets import load_lab_set
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data import datasets
from clashsim.data.datasets import RealDataset
from clashsim.evaluate.metrics import accuracy_summary, relative_error
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.gradient import identify_by_gradient
from clashsim.fit.solved_model import SolvedModel
from clashsim.fit.transfer import with_prior_from

OPTIONS = frozenset({"root", "seeds", "methods"})
METHODS = ("mujoco-carried", "mujoco-identified", "clashsim", "clashsim-transfer")
_NUM_FITTED = 10  # strikes on A
_NUM_OWN = (0, 3, 10)  # strikes on B
_MAX_TESTED = 200
_REAL_PAIRS = (
    ("lasa/D1", "lasa/D2"),
    ("lasa/D2", "lasa/D1"),
    ("lasa/D1", "lasa/D1-Inertia"),
)

Load = Callable[[], RealDataset]


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Measure transfer between the laboratory's shapes, and between real sets if they are there.

    Args:
        options: Methods, number of repetitions, and what to do with the rows.

    Returns:
        Rows of from, to, method, n, seeds, accuracy_0.1, accuracy_0.2 and median.
    """
    seeds = options.repetitions(3)
    rows: list[Row] = []
    pairs = list(_pairs(options.root))
    for from_name, load_from, to_name, load_to in pairs[:1] if options.quick else pairs:
        head = {"from": from_name, "to": to_name}
        with optional(rows, **head):
            source, target = load_from(), load_to()
            for method in options.methods or METHODS:
                for n in _NUM_OWN:
                    errors = []
                    for seed in range(seeds):
                        error = _error(method, source, target, n, seed)
                        if error is not None:
                            errors.append(error)
                    if errors:
                        row = head | {"method": method, "n": n}
                        rows.append(row | accuracy_summary(errors))
                        options.save(rows)
    return rows


def _pairs(root: Path | None) -> Iterator[tuple[str, Load, str, Load]]:
    """Names and loaders of object A and object B."""
    shapes = {shape: partial(load_lab_set, shape, shape, "resin", "high") for shape in lab.SHAPES}
    for first, second in permutations(shapes, 2):
        yield first, shapes[first], second, shapes[second]
    if root is None:
        return
    present = datasets.names(root)
    for first, second in _REAL_PAIRS:
        if first in present and second in present:
            load = datasets.load
            yield first, partial(load, first, root), second, partial(load, second, root)


def _scene(dataset: RealDataset) -> Scene:
    return Scene.load(dataset.scene).with_nominal(dataset.nominal)


def _split(impacts: Impacts, n: int, seed: int) -> tuple[Impacts, Impacts]:
    """n impacts to fit, and others to test, the same for every n."""
    order = np.random.default_rng(seed).permutation(len(impacts))
    test = order[max(_NUM_OWN) :][:_MAX_TESTED]
    return impacts[np.sort(order[:n])], impacts[np.sort(test)]


def _error(
    method: str, source: RealDataset, target: RealDataset, n: int, seed: int
) -> np.ndarray | None:
    """Relative errors on B; None where a method cannot do with n strikes."""
    own, test = _split(target.impacts, n, seed)
    scene = _scene(target)
    if method == "mujoco-carried":
        if n > 0:
            return None
        predicted = _carried(source, scene, test, seed)
    elif method == "mujoco-identified":
        if n == 0:
            return None
        model = SolvedModel(scene)
        found = identify_by_gradient(model, own).theta
        predicted = model.predict(test, _with_known(scene, found, test))
    elif method == "clashsim":
        if n == 0:
            return None
        predicted = calibrate(SolvedModel(scene), own).predict(test)
    else:
        scene = with_prior_from(scene, _calibrated(source, seed))
        model = SolvedModel(scene)
        if n == 0:
            predicted = model.predict(test, _with_known(scene, scene.nominal, test))
        else:
            predicted = calibrate(model, own).predict(test)
    return relative_error(predicted, test.after, target.gyration)


def _calibrated(source: RealDataset, seed: int) -> Calibration:
    """A calibration on A."""
    fitted, _ = _split(source.impacts, _NUM_FITTED, seed)
    return calibrate(SolvedModel(_scene(source)), fitted)


def _carried(source: RealDataset, scene: Scene, test: Impacts, seed: int) -> np.ndarray:
    """Outcomes on B with MuJoCo's parameters as identified on A, by name."""
    fitted, _ = _split(source.impacts, _NUM_FITTED, seed)
    source_scene = _scene(source)
    found = identify_by_gradient(SolvedModel(source_scene), fitted).theta
    values = dict(zip((param.name for param in source_scene.params), found, strict=True))
    theta = []
    for param in scene.params:
        theta.append(np.clip(values.get(param.name, param.nominal), param.low, param.high))
    return SolvedModel(scene).predict(test, _with_known(scene, np.array(theta), test))


def _with_known(scene: Scene, theta: np.ndarray, impacts: Impacts) -> np.ndarray:
    """Theta (N, p) of N impacts: theta (p,), with the parameters that were measured."""
    rows = np.tile(theta, (len(impacts), 1))
    for i, param in enumerate(scene.params):
        if param.name in impacts.known:
            rows[:, i] = impacts.known[param.name]
    return rows
