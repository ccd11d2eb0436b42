"""Many simulations in MJX, chunk by chunk in one compiled program.

On request, derivatives of the states are computed by forward-mode differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np

from clashsim.sim.mjx.model import import_mjx, pad_rows

Arrays = dict[str, np.ndarray]
# (fields, state, control) -> state: one step of one simulation.
StepFunction = Callable[[Any, Any, Any], Any]
# (fields, field tangents, state, state tangents, control) -> (state, state tangents): a step with
# the derivatives of the state.
JvpStepFunction = Callable[[Any, Any, Any, Any, Any], Any]
_STATE = ("qpos", "qvel", "act")
# Steps in one compiled call. Controls of any length run in chunks of this length, so that another
# length need not be compiled.
_CHUNK = 32
# Least rows in one compiled call. Rows are padded to this or the next power of two, so that few
# numbers of rows are compiled.
_MIN_ROWS = 8


@dataclass(frozen=True)
class Tangents:
    """Directions in which states are differentiated.

    Attributes:
        count: Number of directions, q.
        fields: Arrays (n, q, ...) by name, change of the model's fields along each direction.
        start: (n, q, s), change of the start along each direction; zero where None.
        control: (n, q, T, nu), change of the controls along each direction; zero where None.
    """

    count: int = 0
    fields: Arrays = field(default_factory=dict)
    start: np.ndarray | None = None
    control: np.ndarray | None = None


def append_directions(tangents: Arrays, count: int) -> Arrays:
    """Tangents (n, q, ...) by name with `count` more directions, in which nothing changes."""
    return {
        name: np.concatenate([values, np.zeros((len(values), count, *values.shape[2:]))], axis=1)
        for name, values in tangents.items()
    }


class ChunkedRollout:
    """Rollouts of one model, compiled once with and once without derivatives."""

    def __init__(
        self,
        model: mujoco.MjModel,
        make_step: Callable[[bool], StepFunction],
        make_jvp_step: Callable[[], JvpStepFunction] | None = None,
    ) -> None:
        """Prepare rollouts; nothing is compiled yet.

        Args:
            model: Defines the size of a state.
            make_step: Makes the step; its argument is whether it will be differentiated.
            make_jvp_step: Makes a step that computes its own derivatives at less cost, but none
                with respect to controls; where None, the step is differentiated by jax.
        """
        self._model = model
        self._make_step = make_step
        self._make_jvp_step = make_jvp_step
        self._compiled: dict[bool, Callable[..., Any]] = {}

    def run(
        self,
        start: np.ndarray,
        control: np.ndarray,
        fields: Arrays,
        *,
        tangents: Tangents = Tangents(),
    ) -> tuple[np.ndarray, np.ndarray]:
        """Simulate n trajectories.

        Args:
            start: (n, s), states.
            control: (n, T, nu), one row per step.
            fields: Arrays (n, ...) by name, fields of the model.
            tangents: Directions in which the states are differentiated.

        Returns:
            States (n, T + 1, s), the start included, and their derivatives (n, T + 1, s, q).
        """
        n, steps, nu = control.shape
        rows = max(_MIN_ROWS, 1 << (n - 1).bit_length())
        control_tangent = tangents.control
        if control_tangent is None:
            control_tangent = np.zeros((n, tangents.count, steps, nu))
        elif self._make_jvp_step is not None:
            raise NotImplementedError("this step has no derivatives with respect to controls")
        filled = (0, -steps % _CHUNK)  # steps that fill up the last chunk
        control = np.pad(control, ((0, 0), filled, (0, 0)))
        control_tangent = np.pad(control_tangent, ((0, 0), (0, 0), filled, (0, 0)))
        nv = self._model.nv
        state = self._split(start) | {"qacc_warmstart": np.zeros((n, nv))}
        start_tangent = tangents.start
        if start_tangent is None:
            start_tangent = np.zeros((n, tangents.count, start.shape[1]))
        state_tangents: Arrays = {}
        if tangents.count:
            state_tangents = self._split(start_tangent)
            state_tangents["qacc_warmstart"] = np.zeros((n, tangents.count, nv))
        fields = pad_rows(fields, rows)
        field_tangents = pad_rows(tangents.fields, rows)
        state = pad_rows(state, rows)
        state_tangents = pad_rows(state_tangents, rows)
        run = self._program(differentiate=tangents.count > 0)
        states = [start[:, None]]
        jacobians = [np.moveaxis(start_tangent, 1, -1)[:, None]]
        for first in range(0, control.shape[1], _CHUNK):
            now = slice(first, first + _CHUNK)
            controls = {"value": control[:, now], "tangent": control_tangent[:, :, now]}
            controls = pad_rows(controls, rows)
            state, state_tangents, chunk_states, derivative = run(
                fields, field_tangents, state, state_tangents, controls
            )
            states.append(np.asarray(chunk_states)[:n])
            jacobians.append(np.moveaxis(np.asarray(derivative)[:n], 2, -1))
        kept = slice(None, steps + 1)
        return np.concatenate(states, axis=1)[:, kept], np.concatenate(jacobians, axis=1)[:, kept]

    def _split(self, states: np.ndarray) -> Arrays:
        """States (..., s) as qpos, qvel and act."""
        nq, nv = self._model.nq, self._model.nv
        parts = np.split(states, [nq, nq + nv], axis=-1)
        return dict(zip(_STATE, parts, strict=True))

    def _program(self, *, differentiate: bool) -> Callable[..., Any]:
        """The compiled chunk, kept for the next call."""
        if differentiate not in self._compiled:
            self._compiled[differentiate] = self._compile(differentiate=differentiate)
        return self._compiled[differentiate]

    def _compile(self, *, differentiate: bool) -> Callable[..., Any]:
        """Compile a chunk of steps for many rows.

        Returns:
            The function (fields, field tangents, state, state tangents, controls) -> (last state,
            its tangents, states after every step, their derivatives), all with a leading axis of
            rows. Controls are their "value" (rows, steps, nu) and "tangent" (rows, q, steps, nu).
        """
        jax, _ = import_mjx()
        jnp = jax.numpy
        step = self._make_step(differentiate)
        jvp_step = None
        if differentiate and self._make_jvp_step is not None:
            jvp_step = self._make_jvp_step()

        def step_with_tangents(
            fields: Any, field_tangents: Any, state: Any, state_tangents: Any, control: Any
        ) -> Any:
            if not differentiate:
                return step(fields, state, control["value"]), state_tangents
            if jvp_step is not None:
                return jvp_step(fields, field_tangents, state, state_tangents, control["value"])

            def along_direction(
                field_tangent: Any, state_tangent: Any, control_tangent: Any
            ) -> Any:
                return jax.jvp(
                    step,
                    (fields, state, control["value"]),
                    (field_tangent, state_tangent, control_tangent),
                )

            return jax.vmap(along_direction, out_axes=(None, 0))(
                field_tangents, state_tangents, control["tangent"]
            )

        def chunk(
            fields: Any, field_tangents: Any, state: Any, state_tangents: Any, controls: Any
        ) -> Any:
            def one_step(carry: Any, control_now: Any) -> Any:
                state, tangents = step_with_tangents(
                    fields, field_tangents, carry[0], carry[1], control_now
                )
                state_row = jnp.concatenate([state[name] for name in _STATE])
                if tangents:
                    derivative = jnp.concatenate([tangents[name] for name in _STATE], axis=1)
                else:
                    derivative = jnp.zeros((0, len(state_row)))
                return (state, tangents), (state_row, derivative)

            # Steps come first where jax scans them: (steps, nu) and (steps, q, nu).
            by_step = {
                "value": controls["value"],
                "tangent": jnp.moveaxis(controls["tangent"], 1, 0),
            }
            (state, state_tangents), (state_rows, derivatives) = jax.lax.scan(
                one_step, (state, state_tangents), by_step
            )
            return state, state_tangents, state_rows, derivatives

        return jax.jit(jax.vmap(chunk))
