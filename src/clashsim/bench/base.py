"""The base model before any real data: its accuracy against MuJoCo over the whole random range.

Sets are the shipped scenes and pairs of other shapes and mechanisms. Methods:

    clashsim       contact problems solved directly, MuJoCo for what features do not describe
    network        a network distilled from the pair's own strikes (scenes with a shipped one)
    clash-paper    the same with the training of the CLASH paper (the same scenes)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.bench.options import BenchOptions
from clashsim.bench.pair_scenes import pair_scenes
from clashsim.bench.rows import Row, optional
from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.effects import with_effects
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.evaluate.metrics import ALPHAS, accuracy, relative_error
from clashsim.fit.base import BaseModel, distilled_model, scenes_with_network, shipped_base
from clashsim.fit.distil import PAPER
from clashsim.fit.sample import sample
from clashsim.fit.solved_model import SolvedModel
from clashsim.sim.contact.pair_solver import PairSolver
from clashsim.sim.mujoco.impacts import simulate_impacts

OPTIONS: frozenset[str] = frozenset({"sets", "methods"})
_TEST_SEED = 1_000_003  # of the impacts to test on; training uses small seeds
_NUM_TESTED = 2000
_NUM_DISTILLED = 100_000
_QUICK_TESTED = 200
_QUICK_SETS = ("puck", "box-3 on floor", "ball on box")
_STABLE_START = 1e-3  # relative change of the start
_STABLE_OUTCOME = 0.1  # relative change of the outcome below which an impact is stable
_MODELS = "CLASHSIM_MODELS"  # variable that names a folder of MJCF models with meshes


def _network(scene: Scene, options: BenchOptions) -> BaseModel | None:
    del options
    return shipped_base(scene)


def _paper(scene: Scene, options: BenchOptions) -> BaseModel | None:
    if scene.name not in scenes_with_network() or options.quick:
        return None
    return distilled_model(
        scene, config=PAPER, n=_NUM_DISTILLED, cache=options.cache, progress=options.progress
    )


# From a scene to a base model; None where the method has none for it.
METHODS: Mapping[str, Callable[[Scene, BenchOptions], BaseModel | None]] = {
    "clashsim": lambda scene, options: SolvedModel(scene),
    "network": _network,
    "clash-paper": _paper,
}


def run(options: BenchOptions = BenchOptions()) -> list[Row]:
    """Test base models.

    Args:
        options: Sets and methods to measure, and what to do with the rows.

    Returns:
        Rows of set, method, n, accuracy_0.1, accuracy_0.2 and median; ceiling, the share of impacts
        whose outcome in MuJoCo changes by less than 10 % if the start changes by 0.1 %; direct, the
        share that is solved directly; and impacts_per_s.
    """
    rows: list[Row] = []
    for name, scene in _sets(options):
        test = sample(scene, _QUICK_TESTED if options.quick else _NUM_TESTED, _TEST_SEED)
        ceiling = _ceiling(scene, test)
        for method in options.methods or METHODS:
            head: Row = {"set": name, "method": method, "n": len(test)}
            with optional(rows, **head):
                model = METHODS[method](scene, options)
                if model is not None:
                    rows.append(head | _measure(model, test) | {"ceiling": ceiling})
            options.save(rows)
    return rows


def _sets(options: BenchOptions) -> Iterator[tuple[str, Scene]]:
    """Scenes to measure, by name."""
    folder = os.environ.get(_MODELS)
    wanted = options.sets or (_QUICK_SETS if options.quick else None)
    for name in shipped_scenes():
        if wanted is None or name in wanted:
            yield name, Scene.load(name)
    for name, scene in pair_scenes(None if folder is None else Path(folder)):
        if wanted is None or name in wanted:
            yield name, scene


def _measure(model: BaseModel, test: Impacts) -> Row:
    """Accuracy and rate of a base model on simulated impacts."""
    assert test.theta is not None
    scene = model.scene
    gyration = inertia(scene, scene.struck_body).gyration
    frame = contact_frame(scene, test)
    model.members(frame, test.theta)  # the first call compiles
    start = time.perf_counter()
    changes = model.members(frame, test.theta).mean(0)
    seconds = time.perf_counter() - start
    error = relative_error(frame.decode(changes), test.after, gyration)
    row: Row = {f"accuracy_{alpha}": accuracy(error, alpha) for alpha in ALPHAS}
    row["median"] = float(np.median(error))
    row["impacts_per_s"] = len(test) / seconds
    if isinstance(model, SolvedModel):
        row["direct"] = float(PairSolver(scene, frame.before).covered.mean())
    return row


def _ceiling(scene: Scene, test: Impacts) -> float:
    """Share of impacts whose outcome in MuJoCo hardly changes with the start."""
    assert test.theta is not None
    rng = np.random.default_rng(0)
    frame = contact_frame(scene, test)
    gyration = inertia(scene, scene.struck_body).gyration
    outcomes = []
    for before in (frame.before, _moved(frame.before, rng)):
        contact, touching = advance_to_contact(scene, before)
        outcome = simulate_impacts(scene, touching, test.theta)
        usable = outcome.usable & contact.touching
        _, after = with_effects(scene, touching, outcome.after, test.theta, usable=usable)
        outcomes.append((after, usable))
    (after, usable), (after_moved, usable_moved) = outcomes
    both = usable & usable_moved
    change = relative_error(after_moved[both], after[both], gyration)
    return float((change < _STABLE_OUTCOME).mean())


def _moved(before: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Starts (N, d) with orientations and velocities that differ by 0.1 %."""
    before = before.copy()
    struck = MotionBefore.of(before).struck
    n = len(before)
    if before.shape[1] == 12:
        struck.yaw[:] += _STABLE_START * rng.choice([-1.0, 1.0], n)
    else:
        rotation = Rotation.from_rotvec(_STABLE_START * rng.normal(size=(n, 3)))
        rotated = rotation * Rotation.from_quat(struck.quaternion, scalar_first=True)
        struck.quaternion[:] = rotated.as_quat(scalar_first=True)
    for body in (struck, MotionBefore.of(before).striker):
        body.twist[:] *= 1 + _STABLE_START * rng.normal(size=(n, 1))
    return before
