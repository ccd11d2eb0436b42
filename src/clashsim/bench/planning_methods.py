"""Strike models to plan in, each made from the same ten recorded strikes of a shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.bench.recorded_slides import SlideSet
from clashsim.bench.slide_problem import MujocoFriction, RestPoseProblem
from clashsim.bench.strike_models import states_before
from clashsim.core.impacts import Impacts
from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import GROUND, Scene
from clashsim.core.strike_geometry import move_pair_to, strike_ranges
from clashsim.evaluate import methods
from clashsim.evaluate.few_shot_problem import FewShotProblem
from clashsim.fit.calibrate import calibrate
from clashsim.fit.identify import identify_rows
from clashsim.fit.solved_model import SolvedModel
from clashsim.nets.spline_table import SplineTable
from clashsim.nets.strike_table import StrikeTable
from clashsim.plan.planner import PlannerConfig
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.hybrid.strike_table import strike_grid, strike_table
from clashsim.sim.mujoco.simulator import MujocoSim
from clashsim.sim.stepped_strikes import SteppedStrikes
from clashsim.slides.identify import SlideFit, delay, fit_slides, rest_std

NUM_FITTED = 10  # recorded strikes that methods may use
_SECONDS_TO_REST = 0.8  # after which every block lies still in MuJoCo
# Columns of `Impacts.before` in a plane.
_STRUCK_POSE = slice(0, 3)
_STRIKER_POSE = slice(6, 9)
_NUM_COLUMNS = 12
_TORSIONAL = 2  # entry of a pair's friction in MuJoCo


@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """Recorded strikes of one shape, and what several methods compute from them, once.

    Attributes:
        setting: Shape, material and surface in the laboratory.
        data: All recorded strikes; methods may use `fitted` only.
        cache: Folder of base models that were distilled before.
    """

    setting: lab.Setting
    data: SlideSet
    cache: Path | None = None

    @cached_property
    def fitted(self) -> SlideSet:
        """The strikes that methods may use."""
        return self.data.subset(np.arange(NUM_FITTED))

    @property
    def scene(self) -> Scene:
        """The scene of the shape."""
        return self.data.scene

    @cached_property
    def slide(self) -> SlideFit:
        """clashsim's slide model, with its delay and the scatter of poses at rest."""
        data = self.fitted
        fit = fit_slides(data.slides, data.support_patch, twists=data.twist)
        strikes = (data.impacts.pose, data.impacts.after, data.rest)
        delayed = fit.model.delayed(delay(fit.model, *strikes))
        return replace(fit, model=delayed.with_rest_std(rest_std(delayed, *strikes)))

    @cached_property
    def friction(self) -> MujocoFriction:
        """Friction of the ground, identified in MuJoCo on the slides."""
        return RestPoseProblem(self.fitted).identify_torsional(np.arange(NUM_FITTED))

    @cached_property
    def strike_table(self) -> StrikeTable:
        """The strike table of clashsim's calibration and slide model."""
        calibration = calibrate(SolvedModel(self.scene), self.fitted.impacts)
        return strike_table(HybridSim(self.scene, calibration, slide_model=self.slide.model))

    def targets(self, n: int, seed: int) -> np.ndarray:
        """Draw poses at rest (n, 3) of strikes that no method uses, relative to the pose struck."""
        unused = np.arange(NUM_FITTED, len(self.data))
        rows = np.random.default_rng(seed).choice(unused, n, replace=False)
        # `move_pair_to` moves a second pose along with the first: here the pose at rest, in the
        # columns of the striker's pose.
        pair = np.zeros((n, _NUM_COLUMNS))
        pair[:, _STRUCK_POSE] = self.data.impacts.pose[rows]
        pair[:, _STRIKER_POSE] = self.data.rest[rows]
        origin = np.zeros(3)
        return move_pair_to(pair, origin)[:, _STRIKER_POSE]


# (problem, seed) -> the model to plan in
Method = Callable[[PlanningProblem, int], StrikeModel]


class TabulatedCollision:
    """A `StrikeModel` as in the paper's hybrid simulator: learned collision, slide by MuJoCo.

    The twists that the collision model predicts are kept in a table over all strikes.
    """

    takes_noise = False

    def __init__(self, problem: PlanningProblem, predict: Callable[[Impacts], np.ndarray]) -> None:
        """Tabulate a collision model.

        Args:
            problem: Gives the scene, the slides in MuJoCo and their friction.
            predict: The collision model: from N impacts to twists after impact, (N, 3).
        """
        self.problem = problem
        ranges = strike_ranges(problem.scene)
        self.names = tuple(ranges)
        self.low, self.high = np.array(list(ranges.values())).T
        grids, strikes = strike_grid(self.names, self.low, self.high)
        origin = np.zeros(3)
        before = states_before(problem.scene, self.names, strikes, origin)
        unknown_after = np.zeros((len(before), 3))
        after = predict(Impacts(True, before, unknown_after))
        after_over_speed = after / self._speed(strikes)
        shape = [len(grid) for grid in grids]
        self._table = SplineTable(
            self.low.tolist(), self.high.tolist(), after_over_speed.reshape(*shape, 3)
        )

    def _speed(self, strikes: np.ndarray) -> np.ndarray:
        """Speeds (N, 1) of strikes (N, d), m/s."""
        return strikes[:, self.names.index("speed"), None]

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Poses at rest (N, 3) of bodies struck at pose (N, 3) by strikes (N, d)."""
        in_body = self._table.read(strike) * self._speed(strike)
        cos = np.cos(pose[:, 2])
        sin = np.sin(pose[:, 2])
        velocity_x = cos * in_body[:, 0] - sin * in_body[:, 1]
        velocity_y = sin * in_body[:, 0] + cos * in_body[:, 1]
        twist = np.stack([velocity_x, velocity_y, in_body[:, 2]], 1)
        friction = self.problem.friction
        return self.problem.fitted.slider.rest(
            pose + self.problem.slide.model.delay * twist,
            twist,
            np.array([friction.sliding, friction.torsional]),
            longest=_SECONDS_TO_REST,
        )


def _mujoco(search: str) -> Method:
    """MuJoCo identified by a search on the strikes, the ground's friction from the slides."""

    def make_model(problem: PlanningProblem, seed: int) -> StrikeModel:
        return _identified_mujoco(problem, search, seed)

    return make_model


def _identified_mujoco(problem: PlanningProblem, search: str, seed: int) -> StrikeModel:
    scene = problem.scene
    few_shot = FewShotProblem(
        scene,
        problem.fitted.impacts,
        problem.fitted.support_patch.gyration,
        tabulate_grid=False,
    )
    rows = np.arange(NUM_FITTED)
    theta = identify_rows(few_shot.identification_problem, rows, search, seed=seed).theta
    for i, param in enumerate(scene.params):
        if param.target == f"pair/{GROUND}/friction[0:2]":
            theta[i] = problem.friction.sliding
    simulator = MujocoSim(scene, theta)
    simulator.model.pair(GROUND).friction[_TORSIONAL] = problem.friction.torsional
    return SteppedStrikes(simulator, scene, theta, seconds=_SECONDS_TO_REST)


def _hybrid(baseline: str) -> Method:
    """The collision of a baseline, by its name, with slides stepped by MuJoCo."""

    def make_model(problem: PlanningProblem, seed: int) -> StrikeModel:
        fitted = problem.fitted.impacts

        def predict(wanted: Impacts) -> np.ndarray:
            # A baseline fits some rows of a data set and predicts all rows. So the data set is the
            # fitted impacts followed by those to predict, whose outcomes are not used.
            both = Impacts(
                True,
                np.vstack([fitted.before, wanted.before]),
                np.vstack([fitted.after, wanted.after]),
            )
            gyration = problem.fitted.support_patch.gyration
            few_shot = FewShotProblem(problem.scene, both, gyration, cache=problem.cache)
            fitted_rows = np.arange(NUM_FITTED)
            return methods.predicted_twists(baseline, few_shot, fitted_rows, seed)[NUM_FITTED:]

        return TabulatedCollision(problem, predict)

    return make_model


def _clashsim(problem: PlanningProblem, seed: int) -> StrikeModel:
    """clashsim's calibration and slide model as a strike table."""
    return problem.strike_table


METHODS: dict[str, Method] = {
    "mujoco-grid": _mujoco("grid"),
    "mujoco-cmaes": _mujoco("cmaes"),
    "hybrid-scratch": _hybrid("scratch"),
    "hybrid-paper": _hybrid("clash-paper"),
    "clashsim": _clashsim,
    "clashsim-expected": _clashsim,
    "clashsim-mean": _clashsim,
}
# How methods plan where they do not plan by default: for the expected outcome alone, and for the
# mean cost over samples of the stated standard deviations.
PLANNERS: dict[str, PlannerConfig] = {
    "clashsim-expected": PlannerConfig(choice_samples=0),
    "clashsim-mean": PlannerConfig(noise_samples=32),
}
