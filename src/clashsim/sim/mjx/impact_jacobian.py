"""Impacts in MJX, with exact Jacobians of the outcome in a few parameters.

Differentiation is forward mode, through every step of an impact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from clashsim.core.params import from_unit
from clashsim.core.scene import Scene
from clashsim.sim.mjx.impact_start import impact_start
from clashsim.sim.mjx.model import MjxScene, import_mjx, pad_rows, put_scene
from clashsim.sim.mjx.refusals import (
    UnsupportedByMjx,
    refuse_non_finite_gradients,
    refusing_scene,
)
from clashsim.sim.mjx.step import make_step, strike_contacts
from clashsim.sim.mujoco.impacts import ImpactSimulator

# Impacts in one compiled call. Fewer are padded, because compiling for another number takes longer
# than computing rows that nobody needs.
_ROWS = 48
_MAX_STEPS = 400  # longest impact that compiles and runs in reasonable time
_STEP_MULTIPLE = 16  # programs are compiled for multiples of this number of steps
_ITERATIONS = 8  # of the constraint solver, enough for an impact
_PROBE_IMPACTS = 16  # impacts run in MuJoCo to find how many steps the program needs


class MjxImpactJacobian:
    """Outcomes and Jacobians of one scene's impacts in MJX.

    Attributes:
        scene: The scene.
        free: Indices of the q parameters with respect to which outcomes are differentiated.
    """

    def __init__(self, scene: Scene, free: tuple[int, ...]) -> None:
        self.scene = scene
        self.free = free
        self._compiled: dict[int, Callable[..., Any]] = {}

    @cached_property
    def _mjx_scene(self) -> MjxScene:
        """The scene in MJX, put there on first use."""
        return put_scene(self.scene, iterations=_ITERATIONS)

    @staticmethod
    @lru_cache(maxsize=8)
    def of(scene: Scene, free: tuple[int, ...]) -> MjxImpactJacobian:
        """A cached instance for this scene and these parameters; compiling takes half a minute."""
        return MjxImpactJacobian(scene, free)

    def length(self, striker: ImpactSimulator, before: np.ndarray, theta: np.ndarray) -> int:
        """Number of steps to compile for: those of the longest impact in MuJoCo, and some more.

        Impacts are run in MuJoCo at the corners and the centre of the free parameters' ranges.

        Args:
            striker: Runs impacts in MuJoCo.
            before: (n, d), columns as in `Impacts`.
            theta: (n, p), parameters of the scene.
        """
        params = [self.scene.params[i] for i in self.free]
        centre = [0.0] * len(params)
        corners = np.array([*product((-1.0, 1.0), repeat=len(params)), centre])
        rows = np.arange(min(len(before), _PROBE_IMPACTS))
        thetas = np.tile(theta[rows], (len(corners), 1))
        thetas[:, list(self.free)] = np.repeat(from_unit(params, corners), len(rows), 0)
        outcome = striker(np.tile(before[rows], (len(corners), 1)), thetas)
        longest = int(outcome.steps.max())
        if longest > _MAX_STEPS:
            raise UnsupportedByMjx(
                f"an impact of scene {self.scene.name!r} takes up to {longest} steps, and MJX can "
                f"be differentiated over at most {_MAX_STEPS} in reasonable time"
            )
        multiples = -(-longest // _STEP_MULTIPLE)
        return multiples * _STEP_MULTIPLE + _STEP_MULTIPLE

    def __call__(
        self, before: np.ndarray, theta: np.ndarray, unit: np.ndarray, *, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run n impacts at m points of the free parameters.

        Args:
            before: (n, d), columns as in `Impacts`.
            theta: (n, p), parameters of the scene; the free ones are replaced.
            unit: (m, q), the free parameters on the unit scale.
            steps: Number of steps of every impact, as `length` returns it.

        Returns:
            Twists after the impacts (m, n, k), m/s and rad/s, and their Jacobians (m, n, k, q) with
            respect to the free parameters on the unit scale.
        """
        m, n, q = len(unit), len(before), unit.shape[1]
        count = m * n
        free_params = [self.scene.params[i] for i in self.free]
        thetas = np.tile(theta, (m, 1))
        thetas[:, list(self.free)] = from_unit(free_params, np.repeat(unit, n, 0))
        poser, start = impact_start(self.scene, np.tile(before, (m, 1)), thetas)
        inputs = [
            self._mjx_scene.fields(thetas, count),
            self._mjx_scene.field_tangents(thetas, self.free),
            start,
        ]
        run = self._program(steps)
        outputs = []
        for first in range(0, count, _ROWS):
            rows = slice(first, first + _ROWS)
            padded = [
                pad_rows({name: values[rows] for name, values in arrays.items()}, _ROWS)
                for arrays in inputs
            ]
            outputs.append([np.asarray(values) for values in run(*padded)])
        qvel, qvel_jacobian, qpos = (
            np.concatenate(parts)[:count] for parts in zip(*outputs, strict=True)
        )
        body = self.scene.struck_body
        after = poser.scene_twist(*body.twist(qpos, qvel))
        jacobian = np.stack(
            [poser.scene_twist(*body.twist(qpos, qvel_jacobian[:, :, j])) for j in range(q)], -1
        )
        refuse_non_finite_gradients(self.scene, after, jacobian)
        return after.reshape(m, n, -1), jacobian.reshape(m, n, -1, q)

    def _program(self, steps: int) -> Callable[..., Any]:
        """The compiled program for impacts of this number of steps, kept for the next call."""
        if steps not in self._compiled:
            self._compiled[steps] = self._compile(steps)
        return self._compiled[steps]

    def _compile(self, steps: int) -> Callable[..., Any]:
        """(fields, field tangents, start) -> (qvel, its Jacobian, qpos) at the end of impacts."""
        jax, mjx = import_mjx()
        jnp = jax.numpy
        mjx_scene = self._mjx_scene
        step = make_step(mjx_scene, differentiate=True)
        is_strike = strike_contacts(mjx_scene)
        empty = mjx.make_data(mjx_scene.model)

        def impact(fields: Any, start: Any) -> Any:
            model = mjx_scene.at(fields)

            def one_step(carry: Any, _: None) -> Any:
                data, touched, parted, qvel, qpos = carry
                data = step(model, data)
                touching = ((data._impl.contact.dist < 0) & is_strike(data)).any()
                # Contacts are those of the state before the step. Where the pair has parted in it,
                # qvel and qpos are still of that state, and stay so.
                parted = parted | (touched & ~touching)
                qvel = jnp.where(parted, qvel, data.qvel)
                qpos = jnp.where(parted, qpos, data.qpos)
                return (data, touched | touching, parted, qvel, qpos), None

            first = (empty.replace(**start), False, False, start["qvel"], start["qpos"])
            (*_, qvel, qpos), _ = jax.lax.scan(one_step, first, None, length=steps)
            return qvel, qpos

        def impact_with_jacobian(fields: Any, field_tangents: Any, start: Any) -> Any:
            def along_direction(field_tangent: Any) -> Any:
                (qvel, qpos), (qvel_tangent, _) = jax.jvp(
                    lambda f: impact(f, start), (fields,), (field_tangent,)
                )
                return qvel, qpos, qvel_tangent

            qvel, qpos, tangents = jax.vmap(along_direction, out_axes=(None, None, 0))(
                field_tangents
            )
            return qvel, jnp.moveaxis(tangents, 0, -1), qpos

        return refusing_scene(self.scene, jax.jit(jax.vmap(impact_with_jacobian)))


def cap_residuals(residual: np.ndarray, jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Limit the squared norm of each of n observations' residuals to 1, so that none dominates.

    Args:
        residual: (m, n, k), residuals r.
        jacobian: (m, n, k, q), of the residuals.

    Returns:
        Residuals r / sqrt(1 + |r|^2), of the same shape, with the norm over k, and their Jacobians.
    """
    root = np.sqrt(1 + (residual**2).sum(-1))[..., None]
    value = residual / root
    scaled = jacobian / root[..., None]
    along_residual = np.einsum("mnk,mnkq->mnq", value, scaled)
    return value, scaled - value[..., None] * along_residual[..., None, :]
