"""Impacts in MJX, with exact slopes of the outcome in a few parameters by forward-mode
differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.params import from_unit
from clashsim.core.scene import Scene
from clashsim.sim.mjx.model import MjxScene, UnsupportedByMjx, check_finite, import_mjx, padded, put
from clashsim.sim.mjx.step import stepper, strike_of
from clashsim.sim.mujoco.impacts import ImpactSimulator, rest_height, velocity_servos

# Impacts in one compiled call: fewer are padded, for compiling again costs more than computing
_ROWS = 48
_LONGEST = 400  # steps of an impact that can be compiled and run in reasonable time


class MjxImpactJacobian:
    """Outcomes and slopes of one scene's impacts in MJX."""

    def __init__(self, scene: Scene, free: tuple[int, ...]) -> None:
        self.scene, self.free = scene, free
        self._compiled: dict[int, Callable[..., Any]] = {}

    @cached_property
    def _held(self) -> MjxScene:
        """The scene in MJX, put there on first use; an impact needs no more iterations of the
        solver than these.
        """
        return put(self.scene, iterations=8)

    @staticmethod
    @lru_cache(maxsize=8)
    def of(scene: Scene, free: tuple[int, ...]) -> MjxImpactJacobian:
        """The one for this scene; compiling takes half a minute, so it is kept."""
        return MjxImpactJacobian(scene, free)

    def length(self, striker: ImpactSimulator, before: np.ndarray, theta: np.ndarray) -> int:
        """Steps that the longest impact takes in MuJoCo at the corners and the centre of the
        parameters' ranges.
        """
        params = [self.scene.params[i] for i in self.free]
        corners = np.array([*product((-1.0, 1.0), repeat=len(params)), [0.0] * len(params)])
        rows = np.arange(min(len(before), 16))
        repeated = np.tile(theta[rows], (len(corners), 1))
        repeated[:, list(self.free)] = np.repeat(from_unit(params, corners), len(rows), 0)
        longest = int(striker(np.tile(before[rows], (len(corners), 1)), repeated).steps.max())
        if longest > _LONGEST:
            raise UnsupportedByMjx(
                f"an impact of scene {self.scene.name!r} takes up to {longest} steps, and MJX is differentiated over {_LONGEST} at most to end in reasonable time"
            )
        return -(-longest // 16) * 16 + 16

    def __call__(
        self, before: np.ndarray, theta: np.ndarray, unit: np.ndarray, *, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Twists after (m, n, k) and their slopes (m, n, k, q) in the unit scale, at points unit
        (m, q) for impacts before (n, d), theta (n, p).
        """
        m, n = len(unit), len(before)
        run = self._compiled.get(steps) or self._compiled.setdefault(steps, self._compile(steps))
        full = np.tile(theta, (m, 1))
        full[:, list(self.free)] = from_unit(
            [self.scene.params[i] for i in self.free], np.repeat(unit, n, 0)
        )
        poser, start = begun(self.scene, np.tile(before, (m, 1)), full)
        starts = [
            self._held.fields(full, m * n),
            self._held.rollout_with_jacobian(full, self.free),
            start,
        ]
        chunks = [
            run(*(padded({k: a[i : i + _ROWS] for k, a in part.items()}, _ROWS) for part in starts))
            for i in range(0, m * n, _ROWS)
        ]
        velocity, slope, place = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        body, count = self.scene.struck_body, m * n
        after = poser.scene_twist(*body.twist(place[:count], velocity[:count]))
        slopes = np.stack(
            [
                poser.scene_twist(*body.twist(place[:count], slope[:count, :, j]))
                for j in range(unit.shape[1])
            ],
            -1,
        )
        check_finite(self.scene, after, slopes)
        return after.reshape(m, n, -1), slopes.reshape(m, n, -1, unit.shape[1])

    def _compile(self, steps: int) -> Callable[..., tuple[np.ndarray, ...]]:
        jax, mjx = import_mjx()
        jnp, held, step = jax.numpy, self._held, stepper(self._held, differentiate=True)
        empty, strike = mjx.make_data(held.model), strike_of(held)

        def impact(fields: Any, start: Any) -> Any:
            own = held.at(fields)

            def once(carry: Any, _: None) -> Any:
                data, touched, parted, velocity, place = carry
                new = step(own, data)
                near = ((new._impl.contact.dist < 0) & strike(new)).any()
                parted = parted | (
                    touched & ~near
                )  # the contact describes the state before the step: the one kept last
                return (
                    new,
                    touched | near,
                    parted,
                    jnp.where(parted, velocity, new.qvel),
                    jnp.where(parted, place, new.qpos),
                ), None

            (_, _, _, velocity, place), _ = jax.lax.scan(
                once,
                (empty.replace(**start), False, False, start["qvel"], start["qpos"]),
                None,
                length=steps,
            )
            return velocity, place

        def both(fields: Any, slopes: Any, start: Any) -> Any:
            def push(slope: Any) -> Any:
                (velocity, place), (turn, _) = jax.jvp(
                    lambda f: impact(f, start), (fields,), (slope,)
                )
                return velocity, place, turn

            velocity, place, turn = jax.vmap(push, out_axes=(None, None, 0))(slopes)
            return velocity, jnp.moveaxis(turn, 0, -1), place

        compiled = jax.jit(jax.vmap(both))

        def run(*arrays: Any) -> tuple[np.ndarray, ...]:
            try:
                return tuple(np.asarray(x) for x in compiled(*arrays))
            except (NotImplementedError, TypeError) as problem:
                raise UnsupportedByMjx(
                    f"MJX cannot run scene {self.scene.name!r}: {' '.join(str(problem).split())[:160]}"
                ) from None

        return run


def begun(
    scene: Scene, before: np.ndarray, theta: np.ndarray
) -> tuple[PairPoser, dict[str, np.ndarray]]:
    """What writes the poses of impacts before (n, d) at theta (n, p), and their qpos, qvel and ctrl
    (n, ...) in MuJoCo.
    """
    poser = PairPoser(scene, rest_height(scene, theta))
    n, base = len(before), scene.base
    qpos, qvel, control = (
        np.tile(base.qpos0, (n, 1)),
        np.zeros((n, base.nv)),
        np.zeros((n, base.nu)),
    )
    poser.write(before, qpos, qvel)
    for actuator, dof in velocity_servos(scene):
        control[:, actuator] = qvel[:, dof]
    return poser, {"qpos": qpos, "qvel": qvel, "ctrl": control}


def cap_residuals(off: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residuals (m, n, k) made r / sqrt(1 + |r|^2) over k, and their slopes (m, n, k, q) with them:
    no one of n can then cost more than 1.
    """
    root = np.sqrt(1 + (off**2).sum(-1))[..., None]
    value, slope = off / root, slope / root[..., None]
    return value, slope - value[..., None] * np.einsum("mnk,mnkq->mnq", value, slope)[..., None, :]
