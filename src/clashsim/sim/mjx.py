"""Impacts in MJX, with exact slopes of the outcome in a few parameters by forward-mode differentiation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any

import mujoco
import numpy as np

from clashsim.core.contact import Poser
from clashsim.core.errors import MissingExtraError
from clashsim.core.params import from_unit
from clashsim.core.scene import Scene
from clashsim.sim.mujoco import Striker, rest_height

_ROWS = 48  # impacts in one compiled call: fewer are padded, for compiling again costs more than computing
_LONGEST = 400  # steps of an impact that can be compiled and run in reasonable time


class Unsupported(Exception):
    """MJX cannot do this scene; the message says why."""


class MjxImpacts:
    """Outcomes and slopes of one scene's impacts in MJX."""

    def __init__(self, scene: Scene, free: tuple[int, ...]) -> None:
        self.scene, self.free = scene, free
        self._compiled: dict[int, Callable[..., Any]] = {}

    @staticmethod
    @lru_cache(maxsize=8)
    def of(scene: Scene, free: tuple[int, ...]) -> MjxImpacts:
        """The one for this scene; compiling takes half a minute, so it is kept."""
        return MjxImpacts(scene, free)

    def length(self, striker: Striker, before: np.ndarray, theta: np.ndarray) -> int:
        """Steps that the longest impact takes in MuJoCo at the corners and the centre of the parameters' ranges."""
        params = [self.scene.params[i] for i in self.free]
        corners = np.array([*product((-1.0, 1.0), repeat=len(params)), [0.0] * len(params)])
        rows = np.arange(min(len(before), 16))
        repeated = np.tile(theta[rows], (len(corners), 1))
        repeated[:, list(self.free)] = np.repeat(from_unit(params, corners), len(rows), 0)
        longest = int(striker(np.tile(before[rows], (len(corners), 1)), repeated).steps.max())
        if longest > _LONGEST:
            raise Unsupported(f"an impact of scene {self.scene.name!r} takes up to {longest} steps, and MJX is differentiated over {_LONGEST} at most to end in reasonable time")
        return -(-longest // 16) * 16 + 16

    def __call__(self, before: np.ndarray, theta: np.ndarray, unit: np.ndarray, *, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Twists after (m, n, k) and their slopes (m, n, k, q) in the unit scale, at points unit (m, q) for impacts before (n, d), theta (n, p)."""
        m, n = len(unit), len(before)
        run = self._compiled.get(steps) or self._compiled.setdefault(steps, self._compile(steps))
        theta = np.tile(theta, (m, 1))
        points = np.repeat(unit, n, 0)
        full = theta.copy()
        full[:, list(self.free)] = from_unit([self.scene.params[i] for i in self.free], points)
        poser = Poser(self.scene, rest_height(self.scene, full))
        qpos, qvel = np.tile(self.scene.base.qpos0, (m * n, 1)), np.zeros((m * n, self.scene.base.nv))
        poser.write(np.tile(before, (m, 1)), qpos, qvel)
        chunks = [run(*(_padded(a[i : i + _ROWS]) for a in (points, theta, qpos, qvel))) for i in range(0, m * n, _ROWS)]
        velocity, slope, place = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        body, count = self.scene.struck_body, m * n
        after = poser.local(*body.twist(place[:count], velocity[:count]))
        slopes = np.stack([poser.local(*body.twist(place[:count], slope[:count, :, j])) for j in range(unit.shape[1])], -1)
        if not np.isfinite(after).all() or not np.isfinite(slopes).all():
            raise Unsupported(f"MJX gives slopes that are not finite for scene {self.scene.name!r} (its {self._pair()} collision is not differentiable there)")
        return after.reshape(m, n, -1), slopes.reshape(m, n, -1, unit.shape[1])

    def _pair(self) -> str:
        kinds = [mujoco.mjtGeom(int(self.scene.base.geom(g).type[0])).name.removeprefix("mjGEOM_").lower() for g in (self.scene.struck, self.scene.striker)]
        return "-".join(sorted(kinds))

    def _compile(self, steps: int) -> Callable[..., tuple[np.ndarray, ...]]:
        try:
            import jax
            from mujoco import mjx
        except ImportError:
            raise MissingExtraError("mujoco-mjx", "mjx") from None
        jax.config.update("jax_enable_x64", True)
        jnp, scene, free = jax.numpy, self.scene, self.free
        spec = scene.spec.copy()
        for sensor in list(spec.sensors):  # MJX has no contact sensor, and none is needed
            spec.delete(sensor)
        plain = spec.compile()
        plain.opt.iterations, plain.opt.ls_iterations = min(plain.opt.iterations, 8), min(plain.opt.ls_iterations, 12)
        try:
            model = mjx.put_model(plain)
        except NotImplementedError as problem:
            raise Unsupported(f"MJX cannot load scene {scene.name!r}: {' '.join(str(problem).split())}") from None
        pair = mujoco.mj_name2id(plain, mujoco.mjtObj.mjOBJ_PAIR, "strike")
        geoms = {int(plain.pair_geom1[pair]), int(plain.pair_geom2[pair])}
        strike = np.array([set(map(int, g)) == geoms for g in np.asarray(mjx.make_data(model)._impl.contact.geom)])

        def natural(unit: Any, theta: Any) -> Any:
            for j, i in enumerate(free):
                p = scene.params[i]
                low, high = (np.log(p.low), np.log(p.high)) if p.scale == "log" else (p.low, p.high)
                value = low + (unit[j] + 1) / 2 * (high - low)
                theta = theta.at[i].set(jnp.exp(value) if p.scale == "log" else value)
            return theta

        def impact(unit: Any, theta: Any, qpos: Any, qvel: Any) -> Any:
            values = natural(unit, theta)
            fields: dict[str, Any] = {}
            for i, (slot, p) in enumerate(zip(scene.slots, scene.params, strict=True)):
                if slot is not None:
                    array = fields.get(slot.field, getattr(model, slot.field))
                    for row, column in product(slot.rows, slot.columns or (None,)):
                        array = array.at[row if column is None else (row, column)].set(p.sign * values[i])
                    fields[slot.field] = array
            own = model.replace(**fields)
            data = mjx.make_data(own).replace(qpos=qpos, qvel=qvel)

            def step(carry: Any, _: None) -> Any:
                data, touched, parted, velocity, place = carry
                new = mjx.step(own, data)
                near = ((new._impl.contact.dist < 0) & strike).any()
                parted = parted | (touched & ~near)  # the contact describes the state before the step: the one kept last
                return (new, touched | near, parted, jnp.where(parted, velocity, new.qvel), jnp.where(parted, place, new.qpos)), None

            (_, _, _, velocity, place), _ = jax.lax.scan(step, (data, False, False, qvel, qpos), None, length=steps)
            return velocity, place

        def both(unit: Any, theta: Any, qpos: Any, qvel: Any) -> Any:
            def first(u: Any) -> Any:
                velocity, place = impact(u, theta, qpos, qvel)
                return velocity, (velocity, place)

            slope, (velocity, place) = jax.jacfwd(first, has_aux=True)(unit)
            return velocity, slope, place

        compiled = jax.jit(jax.vmap(both))

        def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            try:
                return tuple(np.asarray(x) for x in compiled(*arrays))
            except (NotImplementedError, TypeError) as problem:
                raise Unsupported(f"MJX cannot run scene {scene.name!r}: {' '.join(str(problem).split())[:160]}") from None

        return run


def _padded(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.repeat(array[:1], _ROWS - len(array), 0)])


def descend(evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], starts: np.ndarray, *, steps: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Levenberg-Marquardt from all starts (m, q) at once inside [-1, 1]; returns the best points (m, q) and their losses (m,).

    `evaluate` gives residuals (m, n) and slopes (m, n, q) at points (m, q); the loss is the mean over n of r^2 / (1 + r^2) of 3 or 6
    residuals an impact, already capped by the caller.
    """
    m, q = starts.shape
    kept, moved = starts.copy(), starts.copy()
    best, damping = np.full(m, np.inf), np.full(m, 1e-2)
    hessian, pull = np.zeros((m, q, q)), np.zeros((m, q))
    for _ in range(steps):
        residual, slope = evaluate(moved)
        loss = (residual**2).sum(1)
        better = loss < best
        best, kept[better] = np.where(better, loss, best), moved[better]
        damping = np.clip(np.where(better, damping / 5, damping * 10), 1e-6, 1e3)
        hessian[better], pull[better] = np.einsum("mni,mnj->mij", slope, slope)[better], np.einsum("mni,mn->mi", slope, residual)[better]
        step = np.linalg.solve(hessian + damping[:, None, None] * np.eye(q), pull[..., None])[..., 0]
        moved = np.clip(kept - step, -1, 1)
    return kept, best
