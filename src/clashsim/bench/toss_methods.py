"""Methods that predict tosses of a cube from n recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from clashsim.core.box import SUBSTEPS
from clashsim.core.floor_scenes import (
    box_contact_params,
    box_inertia_params,
    box_scene,
    box_shape_params,
)
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.data.public_sets import cube_tosses
from clashsim.data.segmentation.free_flight import Flight, estimate_gravity
from clashsim.fit.adapt import AdaptationConfig, BoxParameters, adapt, predict_tosses
from clashsim.fit.toss_cmaes import by_name, identify_tosses
from clashsim.fit.toss_rollouts import TossErrors, Tosses, TossRollouts
from clashsim.nets.mesh_graph import GraphNet
from clashsim.nets.network_file import shipped_net

_MAX_FITTED_FRAMES = 100  # of a toss, in identification
_ALL_FRAMES = 10_000  # more than any toss has
_QUICK_FRAMES = 30
_GENERATIONS = 100  # of CMA-ES
_QUICK_GENERATIONS = 3
_AUGMENTED_EPOCHS = 60  # of the network that is trained on the tosses alone
_QUICK_EPOCHS = 2
# MuJoCo's own defaults of sliding friction, time constant (s) and damping ratio.
_DEFAULT_CONTACT = {"friction": 1.0, "time_constant": 0.02, "damping_ratio": 1.0}


class TossResult(NamedTuple):
    """Errors on the tosses to predict, and the values that were used, by name."""

    errors: TossErrors
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
        errors = rollouts.tosses.errors(rollouts.states(theta[None]))
        return TossResult(errors, by_name(scene.params, theta))

    def test_network(self, net: GraphNet, values: BoxParameters) -> TossErrors:
        """Errors of a graph network on the tosses to predict."""
        tosses = _tosses(self.test)
        if not self.quick:
            return tosses.errors(predict_tosses(net, [values], self.test))
        states = predict_tosses(net, [values], self.test, longest=_QUICK_FRAMES)
        # Frames that were not rolled out repeat the last state.
        missing = tosses.length - states.shape[2]
        return tosses.errors(np.pad(states, ((0, 0), (0, 0), (0, missing), (0, 0)), mode="edge"))


Method = Callable[[TossProblem], TossResult]


def _tosses(flights: Sequence[Flight], longest: int = _ALL_FRAMES) -> Tosses:
    return Tosses(tuple(flights), width=2 * cube_tosses.HALF, longest=longest)


def _scene(params: Sequence[Param]) -> Scene:
    """The cube and its floor."""
    return box_scene(cube_tosses.CUBE, params, timestep=1 / cube_tosses.RATE / SUBSTEPS)


def _mujoco_default(problem: TossProblem) -> TossResult:
    """MuJoCo's default contact, and the cube as its authors describe it."""
    params = [param for param in box_contact_params("standard") if param.name in _DEFAULT_CONTACT]
    theta = np.array([_DEFAULT_CONTACT[param.name] for param in params])
    return problem.test_in_mujoco(_scene(params), theta)


def _identified(params: Sequence[Param]) -> Method:
    """MuJoCo with parameters identified by CMA-ES."""

    def method(problem: TossProblem) -> TossResult:
        scene = _scene(params)
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

        scene = _scene(params)
        found = identify_tosses_mjx(
            problem.rollouts(scene, problem.fit),
            seed=problem.seed,
            starts=1 if problem.quick else 2,
            steps=1 if problem.quick else 8,
        )
        return problem.test_in_mujoco(scene, found.theta)

    return method


def _graph(problem: TossProblem) -> TossResult:
    """The shipped network, with the cube and contact that MuJoCo identified on the same tosses.

    The network was trained on simulated data alone (`clashsim.fit.data_scaling`).
    """
    theta = problem.thetas.get("mujoco-shape")
    if not theta:
        theta = METHODS["mujoco-shape"](problem).theta
    values = BoxParameters(theta, cube_tosses.CUBE)
    return TossResult(problem.test_network(shipped_net(), values), theta)


def _graph_augmented(problem: TossProblem) -> TossResult:
    """A network that is trained on nothing but the n tosses.

    Tosses rotated about the vertical would add nothing, because the network is equivariant to such
    rotations.
    """
    torch.manual_seed(problem.seed)
    theta = {"gravity": problem.gravity}
    contact_params = box_contact_params()
    for param in contact_params:
        theta[param.name] = param.nominal
    config = AdaptationConfig(
        epochs=_QUICK_EPOCHS if problem.quick else _AUGMENTED_EPOCHS,
        values=0.0,
        weights=1e-3,
        anchor=0.0,
        horizons=(3, 6, 12),
    )
    untrained = GraphNet(len(contact_params))
    net, values = adapt(untrained, theta, cube_tosses.CUBE, problem.fit, config)
    return TossResult(problem.test_network(net, values), theta)


_CONTACT = box_contact_params()
_INERTIA = box_inertia_params(cube_tosses.CUBE)
_SHAPE = box_shape_params(cube_tosses.CUBE)
METHODS: dict[str, Method] = {
    "mujoco-default": _mujoco_default,
    "mujoco-table-ii": _identified(box_contact_params("standard")),
    "mujoco-contact": _identified(_CONTACT),
    "mujoco-inertia": _identified((*_CONTACT, *_INERTIA)),
    "mujoco-shape": _identified((*_CONTACT, *_INERTIA, *_SHAPE)),
    "mjx-inertia": _identified_by_gradient((*_CONTACT, *_INERTIA)),
    "graph": _graph,
    "graph-augmented": _graph_augmented,
}
