"""Throws planned in a calibrated run and in MuJoCo, and executed in MuJoCo with hidden parameters.

A body of `bench.user_scenes` is recorded in 12 impacts. Each method plans throws to the same places
with the same search; the throws are executed in the scene with its hidden parameters, exactly as
planned and with the errors of release that the search was told. Methods:

    clashsim             the hybrid simulator of the run that `clashsim calibrate` makes
    mujoco-identified    MuJoCo with friction, stiffness and damping identified on the same impacts
    mujoco-default       MuJoCo with the author's values
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import mujoco
import numpy as np

from clashsim.bench.lab_sets import choose
from clashsim.bench.options import BenchOptions
from clashsim.bench.rows import Row, optional
from clashsim.bench.scenes import calibrated_runs, recorded_impacts
from clashsim.bench.user_scenes import UserScene, hidden_model, user_scenes
from clashsim.core.contact_frame import contact_frame
from clashsim.core.impacts import Impacts
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene
from clashsim.fit.calibrated_run import CalibratedRun
from clashsim.fit.gradient import identify_by_gradient
from clashsim.fit.solved_model import SolvedModel
from clashsim.pipeline.launch_planning import (
    HybridRests,
    LaunchLimits,
    quick_hybrid,
    throw_of,
)
from clashsim.plan.rest_planner import RestPlan, RestPlannerConfig, RestSimulator, plan_rest
from clashsim.plan.rest_target import RestTarget
from clashsim.sim.hybrid.contact_probe import ContactProbe
from clashsim.sim.hybrid.settling import RestDetector
from clashsim.sim.hybrid.simulation_rows import BatchSim

OPTIONS = frozenset({"seeds", "sets", "methods"})
METHODS = ("clashsim", "mujoco-identified", "mujoco-default")
_SETS = ("box tossed on a floor",)
_NUM_FITTED = 12
_RELEASE = (0.0, 0.0, 0.15)  # m
_DISTANCES = (0.2, 0.5)  # m, of targets
_ROLLOUTS = 600  # of the search for a throw
_REPEATS = 16  # executions of each throw with errors of release
_LONGEST = 4.0  # s
_CONTACT = ("friction", "stiffness", "damping")
_HIDDEN_SEED = 100  # added to the seeds, so that the materials are others than those of `scenes`


class MujocoRests:
    """MuJoCo without a learned model, as the planner takes it.

    Args:
        model: The model.
        body: The body that should come to lie.
    """

    def __init__(self, model: mujoco.MjModel, body: Mobility) -> None:
        self.model = model
        self.body = body
        self._batches: dict[int, BatchSim] = {}

    def rests(self, start: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return poses (N, 7) of the body at the end, and whether it lay still, (N,)."""
        del noise  # MuJoCo states no uncertainty
        n = len(start)
        if n not in self._batches:
            self._batches = {n: BatchSim(self.model, ContactProbe(self.model, n))}
        sims = self._batches[n]
        sims.begin(start)
        sims.timestep[:] = self.model.opt.timestep
        detector = RestDetector(self.model, self.body, sims)
        active = np.arange(n)
        for _ in range(round(_LONGEST / self.model.opt.timestep)):
            sims.advance(active)
            active = active[~detector(active)]
            if len(active) == 0:
                break
        return sims.qpos[:, self.body.qpos].copy(), detector.at_rest


def run(options: BenchOptions = BenchOptions(), *, targets: int = 4) -> list[Row]:
    """Plan throws and execute them.

    Args:
        options: Its sets are names of tossed bodies; its seeds are hidden materials.
        targets: Number of targets per material.

    Returns:
        Rows of set, method, n, materials and throws; distance_m, the mean distance at rest from the
        target of throws executed exactly, with distance_median; the same with
        errors of release (erring_); within, the share of the latter within the tolerance, and
        stated, the probability that the plans state for it.
    """
    names = [scene.name for scene in user_scenes() if scene.striker is None and not scene.planar]
    wanted = choose(options.sets or _SETS, names, what="set")
    methods = choose(options.methods or METHODS, METHODS, what="method")
    seeds = options.repetitions(3)
    config = RestPlannerConfig().with_rollouts(_ROLLOUTS)
    if options.quick:
        targets = 1
        config = replace(config, scattered=32, rounds=1, finalists=2, judged=24)
    rows: list[Row] = []
    with options.progress("throws", len(wanted) * seeds * len(methods)) as advance:
        for scene in (scene for scene in user_scenes() if scene.name in wanted):
            figures: dict[str, list[Row]] = {method: [] for method in methods}
            for seed in range(seeds):
                with optional(rows, set=scene.name, method=", ".join(methods)):
                    problem = _Problem(scene, seed)
                    for method in methods:
                        simulators = problem.simulators(method)
                        for target in problem.targets(targets):
                            figures[method].append(problem.measure(simulators, target, config))
                        advance(1)
                        options.save(rows + _summaries(scene, figures, seed + 1))
            rows += _summaries(scene, figures, seeds)
    options.save(rows)
    return rows


class _Problem:
    """One scene with one hidden material, and a recording of impacts in it."""

    def __init__(self, user_scene: UserScene, seed: int) -> None:
        self.seed = seed
        rng = np.random.default_rng(_HIDDEN_SEED + seed)
        hidden = hidden_model(user_scene, rng)
        self.impacts: Impacts = recorded_impacts(user_scene, hidden, _NUM_FITTED, rng)
        with TemporaryDirectory() as folder:
            runs, _, _ = calibrated_runs([user_scene], [self.impacts], Path(folder), seed)
        self.run: CalibratedRun = runs[0]
        self.scene = self.run.scene
        self.truth = MujocoRests(hidden, self.scene.struck_body)

    def targets(self, count: int) -> list[RestTarget]:
        """Places around the point of release."""
        rng = np.random.default_rng(self.seed)
        found = []
        for _ in range(count):
            distance = rng.uniform(*_DISTANCES)
            bearing = rng.uniform(-np.pi, np.pi)
            found.append(RestTarget((distance * np.cos(bearing), distance * np.sin(bearing))))
        return found

    def simulators(self, method: str) -> tuple[RestSimulator, RestSimulator]:
        """Simulators of the search and of the final choice."""
        if method == "clashsim":
            quick, full = quick_hybrid(self.run)
            return HybridRests(quick), HybridRests(full)
        scene = self.scene
        model = scene.base
        if method == "mujoco-identified":
            contact = tuple(param for param in scene.params if param.name in _CONTACT)
            plain = Scene(
                scene.xml,
                scene.struck,
                scene.striker,
                scene.ground,
                contact,
                assets=scene.assets,
                name=scene.name,
            )
            solved = SolvedModel(plain)
            frame = contact_frame(plain, self.impacts, strict=False)
            usable = self.impacts[np.flatnonzero(frame.contact.touching)]
            theta = identify_by_gradient(solved, usable).theta
            model = plain.model(theta)
        simulator = MujocoRests(model, scene.struck_body)
        return simulator, simulator

    def measure(
        self,
        simulators: tuple[RestSimulator, RestSimulator],
        target: RestTarget,
        config: RestPlannerConfig,
    ) -> Row:
        """Plan one throw, and execute it."""
        search, judge = simulators
        throw = throw_of(self.scene, target, LaunchLimits(release=_RELEASE))
        plan = plan_rest(throw, target, search, judge=judge, config=config)
        exact, erring = self._execute(plan, throw.scene.base.nq, config)
        return {
            "exact": float(target.errors(exact)[0][0]),
            "erring": target.errors(erring)[0].tolist(),
            "stated": plan.probability,
            "tolerance": target.tolerance[0],
        }

    def _execute(
        self, plan: RestPlan, nq: int, config: RestPlannerConfig
    ) -> tuple[np.ndarray, np.ndarray]:
        """Poses at rest of the exact throw (1, 7), and of throws with errors (N, 7)."""
        rng = np.random.default_rng(self.seed)
        states = np.tile(plan.state, (1 + _REPEATS, 1))
        columns = nq + self.scene.struck_body.qvel
        std = np.repeat(config.launch_std, 3)
        states[1:, columns] += std * rng.normal(size=(_REPEATS, 6))
        poses, _ = self.truth.rests(states, np.zeros((len(states), 1, 6)))
        return poses[:1], poses[1:]


def _summaries(scene: UserScene, figures: dict[str, list[Row]], seeds: int) -> list[Row]:
    """A row per method, from all of its throws so far."""
    rows = []
    for method, throws in figures.items():
        if throws:
            head: Row = {"set": scene.name, "method": method, "n": _NUM_FITTED}
            rows.append(head | {"materials": seeds} | _summary(throws))
    return rows


def _summary(throws: Sequence[Row]) -> Row:
    """Figures over all throws of a method."""
    exact = np.array([throw["exact"] for throw in throws])
    erring = np.array([throw["erring"] for throw in throws])
    tolerance = np.array([throw["tolerance"] for throw in throws])
    row: Row = {"throws": len(throws)}
    for prefix, distance in (("", exact), ("erring_", erring.ravel())):
        row[f"{prefix}distance_m"] = float(distance.mean())
        row[f"{prefix}distance_median"] = float(np.median(distance))
    row["within"] = float((erring <= tolerance[:, None]).mean())
    row["stated"] = float(np.mean([throw["stated"] for throw in throws]))
    return row
