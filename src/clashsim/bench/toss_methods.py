"""Methods that predict tosses of a cube from n recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clashsim.bench.toss_brax import PIPELINES, BraxRollouts
from clashsim.core.box import SUBSTEPS, Box
from clashsim.core.floor_scenes import (
    box_contact_params,
    box_inertia_params,
    box_scene,
    box_shape_params,
)
from clashsim.core.params import Param
from clashsim.core.scene import STRIKE, Scene
from clashsim.data.public_sets import cube_tosses
from clashsim.data.segmentation.free_flight import Flight, estimate_gravity
from clashsim.fit.toss_cmaes import by_name, identify_tosses
from clashsim.fit.toss_rollouts import Penetration, TossErrors, Tosses, TossRollouts
from clashsim.sim.graph.scene_bodies import scene_simulator

_MAX_FITTED_FRAMES = 100  # of a toss, in identification
_ALL_FRAMES = 10_000  # more than any toss has
_QUICK_FRAMES = 30
_GENERATIONS = 100  # of CMA-ES
_QUICK_GENERATIONS = 3
_GRAPH_BATCH = 128  # largest number of tosses that the graph network simulates at once
_GRAVITY = 9.81  # m/s^2
# MuJoCo's own defaults of sliding friction, time constant (s) and damping ratio.
_DEFAULT_CONTACT = {"friction": 1.0, "time_constant": 0.02, "damping_ratio": 1.0}


class TossResult(NamedTuple):
    """How a method predicts the tosses, and the values that it used, by name."""

    errors: TossErrors
    penetration: Penetration
    theta: dict[str, float]


@dataclass(frozen=True, eq=False)
class TossProblem:
    """One repetition: tosses to use and tosses to predict.

    Attributes:
        fit: Tosses that may be used.
        test: Tosses to predict.
        seed: Seed of the repetition.
        quick: Whether to stop early.
        thetas: Parameters by name that each method has found, by method; later methods may use
            them.
    """

    fit: tuple[Flight, ...]
    test: tuple[Flight, ...]
    seed: int
    quick: bool
    thetas: dict[str, dict[str, float]]

    @cached_property
    def gravity(self) -> float:
        """Gravity in the flights that may be used, m/s^2 in recorded metres."""
        return estimate_gravity(self.fit)

    def rollouts(
        self, scene: Scene, flights: Sequence[Flight], longest: int = _ALL_FRAMES
    ) -> TossRollouts:
        """Tosses to roll out in MuJoCo, `longest` frames at most."""
        return TossRollouts(scene, _tosses(flights, longest), gravity=self.gravity)

    def test_in_mujoco(self, scene: Scene, theta: np.ndarray) -> TossResult:
        """Errors of MuJoCo at theta (p,) on the tosses to predict."""
        rollouts = self.rollouts(scene, self.test)
        return _compare(rollouts, theta, rollouts.states(theta[None]))

    def test_in_graph(self, scene: Scene, theta: np.ndarray) -> TossResult:
        """Errors of the shipped graph network at theta (p,) on the tosses to predict."""
        rollouts = self.rollouts(scene, self.test)
        longest = _QUICK_FRAMES if self.quick else _ALL_FRAMES
        return _compare(rollouts, theta, _graph_states(rollouts, theta, longest))


Method = Callable[[TossProblem], TossResult]


def _tosses(flights: Sequence[Flight], longest: int = _ALL_FRAMES) -> Tosses:
    return Tosses(tuple(flights), width=2 * cube_tosses.HALF, longest=longest)


def _compare(rollouts: TossRollouts, theta: np.ndarray, states: np.ndarray) -> TossResult:
    """Compare states (1, n, T, 13), simulated with theta (p,), with the recorded tosses."""
    of_scene = theta[len(theta) - len(rollouts.scene.params) :]  # others come first
    model = rollouts.scene.model(of_scene)
    half = np.array(model.geom(cube_tosses.BODY).size)
    rounding = float(model.pair(STRIKE).margin[0])
    penetration = rollouts.tosses.penetration(states, half, rounding)
    errors = rollouts.tosses.errors(states)
    return TossResult(errors, penetration, by_name(rollouts.params, theta))


def _graph_states(rollouts: TossRollouts, theta: np.ndarray, longest: int) -> np.ndarray:
    """States (1, n, T, 13) by the shipped network.

    Tosses of similar length form a batch. A toss keeps its last state after its own end, and after
    `longest` frames.
    """
    scene = rollouts.scene
    model = scene.model(theta)
    simulator = scene_simulator(model, nearest_contact=True)
    starts = rollouts.starts(theta[None])[0]
    lengths = np.array([len(flight.position) for flight in rollouts.tosses.flights])
    lengths = np.minimum(lengths, longest)
    states = np.zeros((len(starts), rollouts.tosses.length, starts.shape[1]))
    num_batches = -(-len(starts) // _GRAPH_BATCH)  # rounded up
    for batch in np.array_split(np.argsort(lengths), num_batches):
        frames = int(lengths[batch].max())
        simulated = simulator.rollout(starts[batch], np.zeros((len(batch), frames - 1, 0)))
        states[batch, :frames] = simulated
        states[batch, frames:] = simulated[:, -1:]
    return states[None]


def make_scene(params: Sequence[Param], *, scale: float = 1.0) -> Scene:
    """The cube and its floor, with all lengths and gravity multiplied by `scale`."""
    cube = _scaled(cube_tosses.CUBE, scale)
    timestep = 1 / cube_tosses.RATE / SUBSTEPS
    return box_scene(cube, params, timestep=timestep, gravity=scale * _GRAVITY)


def _scaled(box: Box, scale: float) -> Box:
    """A centred box with its lengths multiplied by `scale`; its mass stays."""
    x, y, z = box.half
    inertia_x, inertia_y, inertia_z = box.inertia
    area = scale**2
    return Box(
        (scale * x, scale * y, scale * z),
        box.mass,
        (area * inertia_x, area * inertia_y, area * inertia_z),
    )


def _mujoco_default(problem: TossProblem) -> TossResult:
    """MuJoCo's default contact, and the cube as its authors describe it."""
    params = [param for param in box_contact_params("standard") if param.name in _DEFAULT_CONTACT]
    theta = np.array([_DEFAULT_CONTACT[param.name] for param in params])
    return problem.test_in_mujoco(make_scene(params), theta)


def _identified(params: Sequence[Param], *, scale: float = 1.0) -> Method:
    """MuJoCo with parameters identified by CMA-ES.

    Args:
        params: The parameters.
        scale: Factor of the scene's lengths and gravity.
    """

    def method(problem: TossProblem) -> TossResult:
        scene = make_scene(params, scale=scale)
        frames = _QUICK_FRAMES if problem.quick else _MAX_FITTED_FRAMES
        generations = _QUICK_GENERATIONS if problem.quick else _GENERATIONS
        rollouts = problem.rollouts(scene, problem.fit, frames)
        found = identify_tosses(rollouts, seed=problem.seed, generations=generations)
        return problem.test_in_mujoco(scene, found.theta)

    return method


def _identified_by_gradient(params: Sequence[Param]) -> Method:
    """MuJoCo with parameters identified by gradients of MJX, whose states agree with MuJoCo's."""

    def method(problem: TossProblem) -> TossResult:
        from clashsim.fit.toss_mjx import identify_tosses_mjx

        scene = make_scene(params)
        found = identify_tosses_mjx(
            problem.rollouts(scene, problem.fit),
            seed=problem.seed,
            starts=1 if problem.quick else 2,
            steps=1 if problem.quick else 8,
        )
        return problem.test_in_mujoco(scene, found.theta)

    return method


def _in_brax(pipeline: str) -> Method:
    """A pipeline of Brax with contact, mass centre and inertia identified by CMA-ES."""

    def method(problem: TossProblem) -> TossResult:
        scene = make_scene(box_inertia_params(cube_tosses.CUBE))

        def rollouts(flights: Sequence[Flight], longest: int) -> BraxRollouts:
            tosses = _tosses(flights, longest)
            return BraxRollouts(scene, tosses, gravity=problem.gravity, pipeline=pipeline)

        frames = _QUICK_FRAMES if problem.quick else _MAX_FITTED_FRAMES
        generations = _QUICK_GENERATIONS if problem.quick else _GENERATIONS
        fitted = rollouts(problem.fit, frames)
        theta = identify_tosses(fitted, seed=problem.seed, generations=generations).theta
        tested = rollouts(problem.test, _ALL_FRAMES)
        return _compare(tested, theta, tested.states(theta[None]))

    return method


def _graph(problem: TossProblem) -> TossResult:
    """The shipped network, with the cube and contact that MuJoCo identified on the same tosses.

    The network was trained on simulated data alone (`clashsim.fit.data_scaling`).
    """
    found = problem.thetas.get("mujoco-shape")
    if not found:
        found = METHODS["mujoco-shape"](problem).theta
    scene = make_scene(ALL)
    theta = np.array([found[param.name] for param in scene.params])
    return problem.test_in_graph(scene, theta)


_CONTACT = box_contact_params()
_INERTIA = (*_CONTACT, *box_inertia_params(cube_tosses.CUBE))
ALL = (*_INERTIA, *box_shape_params(cube_tosses.CUBE))
_SCALE = cube_tosses.RECORDED_LENGTH
_SCALED_INERTIA = (*_CONTACT, *box_inertia_params(_scaled(cube_tosses.CUBE, _SCALE)))
METHODS: dict[str, Method] = {
    "mujoco-default": _mujoco_default,
    "mujoco-table-ii": _identified(box_contact_params("standard")),
    "mujoco-contact": _identified(_CONTACT),
    "mujoco-inertia": _identified(_INERTIA),
    "mujoco-scale": _identified(_SCALED_INERTIA, scale=_SCALE),
    "mujoco-shape": _identified(ALL),
    "mjx-inertia": _identified_by_gradient(_INERTIA),
    **{f"brax-{pipeline}": _in_brax(pipeline) for pipeline in PIPELINES},
    "graph": _graph,
}
