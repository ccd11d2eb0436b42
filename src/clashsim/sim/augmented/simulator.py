"""MJX with neural scalars: networks take part in parameters, forces, accelerations and states, and
slopes go through all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from clashsim.core.augmentation_spec import NeuralScalar, initial_weights
from clashsim.core.errors import ParamError
from clashsim.core.scene import Scene
from clashsim.sim.augmented.jacobian import push
from clashsim.sim.augmented.step import WEIGHTS, Step, once, refuse_fixed, step_of
from clashsim.sim.augmented.targets import place
from clashsim.sim.inputs import check_rollout, check_theta, check_vector, nothing_to_step
from clashsim.sim.mjx.chunked_rollout import Chunks
from clashsim.sim.mjx.model import check_finite, put


class AugmentedSim:
    """A scene at theta (author's values where None) in MJX, augmented by a blueprint with weights
    (w,), untrained where None.

    With an empty blueprint it is `MjxSim`, up to rounding. `timestep` (s) replaces the author's.
    """

    def __init__(
        self,
        scene: Scene,
        augmentation: Sequence[NeuralScalar] = (),
        *,
        theta: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        timestep: float | None = None,
    ) -> None:
        self.scene, self.augmentation = scene, tuple(augmentation)
        self.theta = check_theta(scene.params, theta)
        places = tuple(place(scene.base, scalar) for scalar in self.augmentation)
        self.held = put(scene, timestep=timestep, faithful=True)
        self.model = self.held.plain
        stages = int(self.model.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4)
        if (
            self.augmentation
            and stages
            and (
                self.model.nq != self.model.nv
                or self.model.na
                or any(p.kind == "state" for p in places)
            )
        ):
            raise ParamError(
                f"with the integrator RK4, as in scene {scene.name!r}, neural scalars need hinges and slides alone, no activations and no 'state/JOINT': "
                "use Euler or implicitfast"
            )
        refuse_fixed(self.held, self.augmentation, places)
        self.weights = self._checked(
            initial_weights(self.augmentation) if weights is None else weights
        )

        def step(differentiate: bool) -> Step:
            return step_of(self.held, self.augmentation, places, differentiate=differentiate)

        self._chunks = Chunks(
            self.model,
            lambda differentiate: once(step(differentiate)),
            (lambda: push(step(True))) if self.augmentation else None,
        )

    def rollout(
        self,
        start: np.ndarray,
        control: np.ndarray,
        *,
        theta: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu);
        theta (p,) or (N, p), weights (w,) or (N, w).
        """
        start, control = check_rollout(self.model, start, control)
        theta = check_theta(self.scene.params, theta, len(start))
        if weights is not None:
            names = [f"weight {i}" for i in range(len(self.weights))]
            weights = check_vector("weights", weights, len(start), names)
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        fields = self.held.fields(self.theta if theta is None else theta, len(start))
        return self._chunks.run(
            start, control, fields | {WEIGHTS: self._rows(weights, len(start))}
        )[0]

    def rollout_with_jacobian(
        self,
        start: np.ndarray,
        control: np.ndarray,
        theta: np.ndarray | None = None,
        *,
        free: Sequence[int] = (),
        weights: np.ndarray | None = None,
        finite: bool = True,
        starts: bool = False,
        train: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same states, and their slopes (N, T + 1, s, q + w) in the unit-scaled parameters with
        indices `free` (q,), then in the weights.

        theta: (p,) or (N, p); that of the simulator where None, else the nominal one. starts: the
        slopes in the entries (s,) of the start follow, else it does not move.
        train: False leaves out those in the weights.
        finite: refuse slopes that are not; a search that takes such points back can do without.
        """
        start, control = check_rollout(self.model, start, control, finite=finite)
        n, q, s = len(start), len(free), start.shape[1] if starts else 0
        w = len(self.weights) if train else 0
        if n == 0:
            states = np.zeros((0, control.shape[1] + 1, start.shape[1]))
            return states, np.zeros((*states.shape, q + w + s))
        at = (
            theta
            if theta is not None
            else self.theta
            if self.theta is not None
            else self.scene.nominal
        )
        at = np.broadcast_to(at, (n, len(self.scene.params)))
        fields, moved = (
            self.held.fields(at, n) | {WEIGHTS: self._rows(weights, n)},
            self.held.rollout_with_jacobian(at, tuple(free)),
        )
        if not self.augmentation:  # all directions are pushed alike
            moved = {
                name: np.concatenate([a, np.zeros((n, s, *a.shape[2:]))], axis=1)
                for name, a in moved.items()
            }
        moved[WEIGHTS] = np.tile(
            np.eye(q + w + s, len(self.weights), -q)
            if train
            else np.zeros((q + s, len(self.weights))),
            (n, 1, 1),
        )
        turned = np.tile(np.eye(q + w + s, s, -q - w), (n, 1, 1)) if starts else None
        states, slopes = self._chunks.run(
            start, control, fields, slopes=moved, q=q + w + s, start_jacobian=turned
        )
        if finite:
            check_finite(self.scene, slopes)
        return states, slopes

    def with_weights(self, weights: np.ndarray, theta: np.ndarray | None = None) -> AugmentedSim:
        """The same simulator with these weights and parameters; nothing compiles again."""
        other = object.__new__(AugmentedSim)
        other.__dict__ = self.__dict__ | {
            "weights": self._checked(weights),
            "theta": self.theta if theta is None else theta,
        }
        return other

    def _checked(self, weights: np.ndarray) -> np.ndarray:
        count = sum(scalar.count for scalar in self.augmentation)
        if np.shape(weights) != (count,) or not np.isfinite(weights).all():
            raise ParamError(
                f"the blueprint has {count} weights and needs as many finite numbers, got an array of shape {np.shape(weights)}"
            )
        return np.asarray(weights, float)

    def _rows(self, weights: np.ndarray | None, n: int) -> np.ndarray:
        return np.array(
            np.broadcast_to(self.weights if weights is None else weights, (n, len(self.weights)))
        )
