"""MJX with neural scalars: networks take part in parameters, forces, accelerations and states, and slopes go through all of it."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from clashsim.core.blueprint import NeuralScalar, initial_weights
from clashsim.core.errors import ParamError
from clashsim.core.places import place
from clashsim.core.scene import Scene
from clashsim.sim.augmented_step import WEIGHTS, once, refuse_fixed
from clashsim.sim.mjx_model import check_finite, put
from clashsim.sim.mjx_run import Chunks
from clashsim.sim.mujoco_sim import check


class AugmentedSim:
    """A scene at theta (author's values where None) in MJX, augmented by a blueprint with weights (w,), untrained where None.

    With an empty blueprint it is `MjxSim` to the bit. `timestep` (s) replaces the author's.
    """

    def __init__(self, scene: Scene, blueprint: Sequence[NeuralScalar] = (), *, theta: np.ndarray | None = None, weights: np.ndarray | None = None,
                 timestep: float | None = None) -> None:
        self.scene, self.blueprint, self.theta = scene, tuple(blueprint), theta
        places = tuple(place(scene.base, scalar) for scalar in self.blueprint)
        self.held = put(scene, timestep=timestep, faithful=True)
        self.model = self.held.plain
        if self.blueprint and int(self.model.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4):
            raise ParamError(f"neural scalars need the integrator Euler or implicitfast, and scene {scene.name!r} has RK4")
        refuse_fixed(self.held, self.blueprint, places)
        self.weights = self._checked(initial_weights(self.blueprint) if weights is None else weights)
        self._chunks = Chunks(self.model, lambda differentiate: once(self.held, self.blueprint, places, differentiate=differentiate))

    def rollout(self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None, weights: np.ndarray | None = None) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu); theta (p,) or (N, p), weights (w,) or (N, w)."""
        check(self.model, start, control)
        fields = self.held.fields(self.theta if theta is None else theta, len(start))
        return self._chunks.run(start, control, fields | {WEIGHTS: self._rows(weights, len(start))})[0]

    def slopes(self, start: np.ndarray, control: np.ndarray, theta: np.ndarray | None = None, *, free: Sequence[int] = (),
               weights: np.ndarray | None = None, finite: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """The same states, and their slopes (N, T + 1, s, q + w) in the unit-scaled parameters with indices `free` (q,), then in the weights.

        theta: (p,) or (N, p); that of the simulator where None, else the nominal one. The start does not move.
        finite: refuse slopes that are not; a search that takes such points back can do without.
        """
        check(self.model, start, control)
        n, q, w = len(start), len(free), len(self.weights)
        at = theta if theta is not None else self.theta if self.theta is not None else self.scene.nominal
        at = np.broadcast_to(at, (n, len(self.scene.params)))
        fields = self.held.fields(at, n) | {WEIGHTS: self._rows(weights, n)}
        # Fields do not move with weights, nor weights with parameters.
        moved = {name: np.concatenate([a, np.zeros((n, w, *a.shape[2:]))], axis=1) for name, a in self.held.slopes(at, tuple(free)).items()}
        moved[WEIGHTS] = np.tile(np.eye(q + w, w, -q), (n, 1, 1))
        states, slopes = self._chunks.run(start, control, fields, slopes=moved, q=q + w)
        if finite:
            check_finite(self.scene, slopes)
        return states, slopes

    def trained(self, weights: np.ndarray, theta: np.ndarray | None = None) -> AugmentedSim:
        """The same simulator with these weights and parameters; nothing compiles again."""
        other = object.__new__(AugmentedSim)
        other.__dict__ = self.__dict__ | {"weights": self._checked(weights), "theta": self.theta if theta is None else theta}
        return other

    def _checked(self, weights: np.ndarray) -> np.ndarray:
        count = sum(scalar.count for scalar in self.blueprint)
        if np.shape(weights) != (count,) or not np.isfinite(weights).all():
            raise ParamError(f"the blueprint has {count} weights and needs as many finite numbers, got an array of shape {np.shape(weights)}")
        return np.asarray(weights, float)

    def _rows(self, weights: np.ndarray | None, n: int) -> np.ndarray:
        return np.array(np.broadcast_to(self.weights if weights is None else weights, (n, len(self.weights))))
