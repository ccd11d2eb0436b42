"""MJX with neural scalars: networks that change parameters, forces, accelerations and states.

Gradients flow through the dynamics and the networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mujoco
import numpy as np

from clashsim.core.augmentation_spec import AugmentingScalar, initial_weights
from clashsim.core.errors import ParamError
from clashsim.core.scene_model import SceneModel
from clashsim.sim.augmented.contact_reads import refuse_unlisted_contacts
from clashsim.sim.augmented.jacobian import make_jvp_step
from clashsim.sim.augmented.step import (
    WEIGHTS,
    AugmentedStep,
    make_augmented_step,
    make_output_function,
    make_step_function,
    refuse_fixed_parameters,
)
from clashsim.sim.augmented.targets import ScalarTarget, find_target
from clashsim.sim.inputs import check_rollout, check_theta, check_vector, nothing_to_step
from clashsim.sim.mjx.chunked_rollout import ChunkedRollout, Tangents, append_directions
from clashsim.sim.mjx.model import put_scene
from clashsim.sim.mjx.refusals import refuse_non_finite_gradients
from clashsim.sim.mjx.simulator import theta_or_default


@dataclass(frozen=True)
class JacobianBlocks:
    """Quantities, beside the parameters, with respect to which states are differentiated.

    Attributes:
        weights: Whether the weights of the networks are among them.
        start: Whether the entries of the start are among them.
    """

    weights: bool = True
    start: bool = False


class AugmentedSim:
    """A scene in MJX, with neural scalars.

    Without neural scalars it gives the states of `MjxSim`, up to rounding.

    Attributes:
        scene: The scene.
        augmentation: The neural scalars.
        theta: (p,), parameters of the scene, or None for the author's values.
        weights: (w,), of all networks.
        mjx_scene: The scene in MJX.
        model: The MuJoCo model that was put into MJX.
    """

    def __init__(
        self,
        scene: SceneModel,
        augmentation: Sequence[AugmentingScalar] = (),
        *,
        theta: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        timestep: float | None = None,
    ) -> None:
        """Put a scene into MJX.

        Args:
            scene: The scene to simulate.
            augmentation: The neural scalars.
            theta: (p,), parameters of the scene; the author's values where None.
            weights: (w,), of all networks; untrained where None.
            timestep: s, replaces the author's.
        """
        self.scene = scene
        self.augmentation = tuple(augmentation)
        self.theta = check_theta(scene.params, theta)
        targets = tuple(find_target(scene.base, scalar) for scalar in self.augmentation)
        self.mjx_scene = put_scene(scene, timestep=timestep, faithful=True)
        self.model = self.mjx_scene.mujoco_model
        self._refuse_rk4(targets)
        refuse_fixed_parameters(self.mjx_scene, self.augmentation, targets)
        refuse_unlisted_contacts(self.mjx_scene, targets)
        if weights is None:
            weights = initial_weights(self.augmentation)
        self.weights = self._checked_weights(weights)

        def step(differentiate: bool) -> AugmentedStep:
            return make_augmented_step(
                self.mjx_scene, self.augmentation, targets, differentiate=differentiate
            )

        self._step = step
        self._rollouts = ChunkedRollout(
            self.model,
            lambda differentiate: make_step_function(step(differentiate)),
            (lambda: make_jvp_step(step(True))) if self.augmentation else None,
        )

    def rollout(
        self,
        start: np.ndarray,
        control: np.ndarray,
        *,
        theta: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """Simulate N trajectories.

        Args:
            start: (N, s), states: qpos, qvel and act.
            control: (N, T, nu), one row per step.
            theta: (p,) or (N, p), replaces that of the simulator.
            weights: (w,) or (N, w), replace those of the simulator.

        Returns:
            States (N, T + 1, s), the start included.
        """
        start, control = check_rollout(self.model, start, control)
        n = len(start)
        theta = check_theta(self.scene.params, theta, n)
        if weights is not None:
            names = [f"weight {i}" for i in range(len(self.weights))]
            weights = check_vector("weights", weights, n, names)
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        fields = self.mjx_scene.fields(self.theta if theta is None else theta, n)
        fields[WEIGHTS] = self._weight_rows(weights, n)
        states, _ = self._rollouts.run(start, control, fields)
        return states

    def rollout_with_jacobian(
        self,
        start: np.ndarray,
        control: np.ndarray,
        theta: np.ndarray | None = None,
        *,
        free: Sequence[int] = (),
        weights: np.ndarray | None = None,
        finite: bool = True,
        blocks: JacobianBlocks = JacobianBlocks(),
    ) -> tuple[np.ndarray, np.ndarray]:
        """Simulate N trajectories and differentiate their states.

        Args:
            start: (N, s), states: qpos, qvel and act.
            control: (N, T, nu), one row per step.
            theta: (p,) or (N, p); that of the simulator where None, else the nominal values.
            free: (q,), indices of the parameters with respect to which states are differentiated.
            weights: (w,) or (N, w), replace those of the simulator.
            finite: Refuse starts and Jacobians that are not finite. An optimiser that rejects such
                points itself can set it to False.
            blocks: Whether states are also differentiated with respect to weights and start.

        Returns:
            States (N, T + 1, s), and their Jacobians (N, T + 1, s, q + ...): along the last axis
            come the q parameters on their unit scales, the w weights and the s entries of the
            start, the latter two as `blocks` selects.
        """
        start, control = check_rollout(self.model, start, control, finite=finite)
        n = len(start)
        num_params = len(free)
        num_weights = len(self.weights) if blocks.weights else 0
        num_start = start.shape[1] if blocks.start else 0
        count = num_params + num_weights + num_start
        if n == 0:
            states = np.zeros((0, control.shape[1] + 1, start.shape[1]))
            return states, np.zeros((*states.shape, count))
        at = theta_or_default(self.scene, theta, self.theta, n=n)
        fields = self.mjx_scene.fields(at, n)
        fields[WEIGHTS] = self._weight_rows(weights, n)
        field_tangents = self.mjx_scene.field_tangents(at, tuple(free))
        if not self.augmentation:
            # The plain step needs field tangents along all directions: zero along the start's.
            field_tangents = append_directions(field_tangents, num_start)
        # Directions come as parameters, weights, start: identities begin below those before them.
        weight_tangent = np.zeros((count, len(self.weights)))
        if blocks.weights:
            weight_tangent = np.eye(count, len(self.weights), -num_params)
        field_tangents[WEIGHTS] = np.tile(weight_tangent, (n, 1, 1))
        start_tangent = None
        if blocks.start:
            identity = np.eye(count, num_start, -num_params - num_weights)
            start_tangent = np.tile(identity, (n, 1, 1))
        states, jacobian = self._rollouts.run(
            start, control, fields, tangents=Tangents(count, field_tangents, start_tangent)
        )
        if finite:
            refuse_non_finite_gradients(self.scene, jacobian)
        return states, jacobian

    def network_outputs(self, states: np.ndarray, control: np.ndarray | None = None) -> np.ndarray:
        """Evaluate all networks in given states.

        Args:
            states: (n, s).
            control: (n, nu); zero where None.

        Returns:
            Outputs (n, m) of the m networks, in the order of the augmentation spec.
        """
        n = len(states)
        if control is None:
            control = np.zeros((n, self.model.nu))
        states, controls = check_rollout(self.model, states, control[:, None])
        theta = self.theta if self.theta is not None else self.scene.nominal
        fields = {name: values[0] for name, values in self.mjx_scene.fields(theta, 1).items()}
        outputs = self._output_program(fields, self.weights, states, controls[:, 0])
        return np.asarray(outputs).reshape(n, len(self.augmentation))

    def with_weights(self, weights: np.ndarray, theta: np.ndarray | None = None) -> AugmentedSim:
        """The same simulator with these weights and parameters, sharing its compiled programs.

        Args:
            weights: (w,), of all networks.
            theta: (p,), parameters of the scene; those of this simulator where None.
        """
        other = object.__new__(AugmentedSim)
        other.__dict__ = self.__dict__ | {
            "weights": self._checked_weights(weights),
            "theta": self.theta if theta is None else theta,
        }
        return other

    @cached_property
    def _output_program(self) -> Callable[..., Any]:
        """The compiled function (fields, weights, states, control) -> outputs of all networks."""
        return make_output_function(self._step(False), self.model)

    def _refuse_rk4(self, targets: tuple[ScalarTarget, ...]) -> None:
        """Refuse scenes that cannot be integrated by RK4 with neural scalars."""
        if int(self.model.opt.integrator) != int(mujoco.mjtIntegrator.mjINT_RK4):
            return
        has_quaternions = self.model.nq != self.model.nv
        changes_state = any(target.kind == "state" for target in targets)
        if self.augmentation and (has_quaternions or self.model.na or changes_state):
            raise ParamError(
                f"with the integrator RK4, as in scene {self.scene.name!r}, neural scalars need "
                "hinges and slides alone, no activations and no 'state/JOINT': use Euler or "
                "implicitfast"
            )

    def _checked_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights (w,) as floats, after refusing another shape and what is not finite."""
        count = sum(scalar.count for scalar in self.augmentation)
        if np.shape(weights) != (count,) or not np.isfinite(weights).all():
            raise ParamError(
                f"the augmentation has {count} weights and needs as many finite numbers, got an "
                f"array of shape {np.shape(weights)}"
            )
        return np.asarray(weights, float)

    def _weight_rows(self, weights: np.ndarray | None, n: int) -> np.ndarray:
        """Weights (n, w) as given, else those of the simulator."""
        rows = self.weights if weights is None else weights
        return np.array(np.broadcast_to(rows, (n, len(self.weights))))
