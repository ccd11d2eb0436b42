"""MJX as a simulator: many simulations in one compiled call, with Jacobians of their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.scene_model import SceneModel
from clashsim.sim.inputs import check_rollout, check_theta, nothing_to_step
from clashsim.sim.mjx.chunked_rollout import (
    ChunkedRollout,
    StepFunction,
    Tangents,
    append_directions,
)
from clashsim.sim.mjx.model import import_mjx, put_scene
from clashsim.sim.mjx.refusals import refuse_non_finite_gradients
from clashsim.sim.mjx.step import make_step


class MjxSim:
    """A scene in MJX, in double precision.

    The first call of `rollout` takes 10 to 30 seconds to compile, and so does the first one of
    `rollout_with_jacobian`. Scenes whose collisions differ between MJX and MuJoCo are refused.

    Attributes:
        scene: The scene.
        theta: (p,), parameters of the scene, or None for the author's values.
        mjx_scene: The scene in MJX.
        model: The MuJoCo model that was put into MJX.
    """

    def __init__(
        self, scene: SceneModel, theta: np.ndarray | None = None, *, timestep: float | None = None
    ) -> None:
        """Put a scene into MJX.

        Args:
            scene: The scene to simulate.
            theta: (p,), parameters of the scene; the author's values where None.
            timestep: s, replaces the author's.
        """
        self.scene = scene
        self.theta = check_theta(scene.params, theta)
        self.mjx_scene = put_scene(scene, timestep=timestep, faithful=True)
        self.model = self.mjx_scene.mujoco_model
        self._rollouts = ChunkedRollout(self.model, self._make_step)

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """Simulate N trajectories.

        Args:
            start: (N, s), states: qpos, qvel and act.
            control: (N, T, nu), one row per step.
            theta: (p,) or (N, p), replaces that of the simulator.

        Returns:
            States (N, T + 1, s), the start included.
        """
        start, control = check_rollout(self.model, start, control)
        theta = check_theta(self.scene.params, theta, len(start))
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        fields = self.mjx_scene.fields(self.theta if theta is None else theta, len(start))
        states, _ = self._rollouts.run(start, control, fields)
        return states

    def rollout_with_jacobian(
        self,
        start: np.ndarray,
        control: np.ndarray,
        theta: np.ndarray | None = None,
        *,
        free: Sequence[int] = (),
        finite: bool = True,
        start_jacobian: np.ndarray | None = None,
        control_jacobian: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Simulate N trajectories and differentiate their states with respect to q variables.

        The first variables are parameters of the scene. Start and control may depend on these and
        on further variables, for example on the velocity of a strike or the knots of a control. The
        identity as `control_jacobian` differentiates with respect to every control. Time and memory
        grow with q.

        Args:
            start: (N, s), states: qpos, qvel and act.
            control: (N, T, nu), one row per step.
            theta: (p,) or (N, p); that of the simulator where None, else the nominal values.
            free: Indices of the parameters.
            finite: Refuse starts and Jacobians that are not finite. An optimiser that rejects such
                points itself can set it to False.
            start_jacobian: (N, q, s), derivatives of the start with respect to the variables; zero
                where None.
            control_jacobian: (N, q, T, nu), derivatives of the controls with respect to the
                variables; zero where None.

        Returns:
            States (N, T + 1, s), and their Jacobians (N, T + 1, s, q); parameters are on their unit
            scales.
        """
        start, control = check_rollout(self.model, start, control, finite=finite)
        n = len(start)
        moved = {"start_jacobian": start_jacobian, "control_jacobian": control_jacobian}
        count = _check_directions(moved, (start, control), num_params=len(free))
        if n == 0:
            states = np.zeros((0, control.shape[1] + 1, start.shape[1]))
            return states, np.zeros((*states.shape, count))
        at = theta_or_default(self.scene, theta, self.theta, n=n)
        field_tangents = self.mjx_scene.field_tangents(at, tuple(free))
        tangents = Tangents(
            count,
            append_directions(field_tangents, count - len(free)),
            start_jacobian,
            control_jacobian,
        )
        states, jacobian = self._rollouts.run(
            start, control, self.mjx_scene.fields(at, n), tangents=tangents
        )
        if finite:
            refuse_non_finite_gradients(self.scene, jacobian)
        return states, jacobian

    def _make_step(self, differentiate: bool) -> StepFunction:
        """The step of the scene, not compiled yet."""
        _, mjx = import_mjx()
        mjx_scene = self.mjx_scene
        step = make_step(mjx_scene, differentiate=differentiate)
        empty = mjx.make_data(mjx_scene.model)

        def step_state(fields: Any, state: Any, control: Any) -> Any:
            """One step; returns only the fields of data that the next step needs."""
            data = step(mjx_scene.at(fields), empty.replace(**state, ctrl=control))
            return {name: getattr(data, name) for name in state}

        return step_state


def _check_directions(
    moved: Mapping[str, np.ndarray | None], values: Sequence[np.ndarray], *, num_params: int
) -> int:
    """Check derivatives of start and control with respect to q variables.

    Args:
        moved: Derivatives (N, q, ...) by the name of the argument, or None.
        values: Start (N, ...) and control (N, ...), in the order of `moved`.
        num_params: Number of parameters among the variables, of which there are no more where all
            derivatives are None.

    Returns:
        The number of variables, q.
    """
    given = {name: np.shape(jacobian) for name, jacobian in moved.items() if jacobian is not None}
    counts = [shape[1] for shape in given.values() if len(shape) > 1]
    count = max([num_params, *counts])
    for name, value in zip(moved, values, strict=True):
        expected = (len(value), count, *value.shape[1:])
        if name in given and given[name] != expected:
            raise DataError(
                f"{name} needs shape {expected} for {count} variables, {num_params} of which are "
                f"parameters, got {given[name]}"
            )
    return count


def theta_or_default(
    scene: SceneModel, theta: np.ndarray | None, own_theta: np.ndarray | None, *, n: int
) -> np.ndarray:
    """Theta (n, p) as given, else that of the simulator, else the scene's nominal values."""
    if theta is None:
        theta = scene.nominal if own_theta is None else own_theta
    return np.broadcast_to(theta, (n, len(scene.params)))
