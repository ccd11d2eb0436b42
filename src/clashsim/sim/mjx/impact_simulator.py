"""Impacts in MJX as `ImpactSimulator` runs them in MuJoCo: many at once, each from the first touch to the
parting of the pair, on the device that jax has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import ParamError
from clashsim.core.scene import STRIKE, Scene
from clashsim.sim.mjx.impact_jacobian import begun
from clashsim.sim.mjx.model import UnsupportedByMjx, import_mjx, padded, precision, put
from clashsim.sim.mjx.step import stepper, strike_sensor
from clashsim.sim.mujoco.impacts import SETTLED, ImpactEnd, ImpactOutcome, patience

_STATE = ("qpos", "qvel", "act", "qacc_warmstart")  # all that the next step needs


class MjxImpactSimulator:
    """Runs impacts of one scene, up to `size` of them in one call of one compiled program; the
    first call compiles it, which takes 10 to 40 s.

    lanes: how many are stepped together, a part of `size` by default. All lanes step until the last
    has ended, so one whose impact has ended takes the
    next impact. single: numbers of 32 bits, which cards are quicker with. Scenes that MJX would
    collide otherwise than MuJoCo are refused.
    """

    def __init__(
        self, scene: Scene, size: int = 4096, *, lanes: int = 0, single: bool = False
    ) -> None:
        if size < 1 or lanes < 0:
            raise ParamError(
                f"impacts at once must be at least 1 and lanes not negative, got {size} and {lanes}"
            )
        if int(scene.base.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4):
            raise UnsupportedByMjx(
                f"MJX keeps no contact of the state before a step of RK4, by which impacts of scene {scene.name!r} would end: "
                "use Euler or implicitfast, or Striker"
            )
        if scene.base.pair(STRIKE).gap[0] or any(
            slot is not None and slot.field == "pair_gap" for slot in scene.slots
        ):
            raise UnsupportedByMjx(
                f"the pair {STRIKE!r} of scene {scene.name!r} has a gap, by which MuJoCo sees a contact that MJX does not: set it to 0, or use Striker"
            )
        self.scene, self.size, self.single = scene, size, single
        quick = (
            import_mjx()[0].devices()[0].platform != "cpu"
        )  # a card steps few lanes no quicker than some thousands
        self.lanes = min(lanes or (max(4096, size // 4) if quick else max(16, size // 16)), size)
        # Numbers of 32 bits do not come to the solver's tolerance, and would go through all
        # iterations for nothing. With 6 searches twists are the same, with 4 not.
        self.held = put(
            scene, faithful=True, single=single, iterations=8 if single else 100, searches=8
        )

    @staticmethod
    @lru_cache(maxsize=4)
    def of(scene: Scene, size: int) -> MjxImpactSimulator:
        """The one for this scene and size; compiling takes long, so it is kept."""
        return MjxImpactSimulator(scene, size)

    @property
    def device(self) -> str:
        """Where jax computes."""
        return str(import_mjx()[0].devices()[0].device_kind)

    def __call__(
        self, before: np.ndarray, theta: np.ndarray, *, duration: float = 0.25
    ) -> ImpactOutcome:
        """Outcomes of impacts that start touching: before (N, d), theta (p,) or (N, p)."""
        n = len(before)
        theta = np.broadcast_to(theta, (n, len(self.scene.params)))
        parts = [
            self._run(before[i : i + self.size], theta[i : i + self.size], duration)
            for i in range(0, n, self.size)
        ]
        return ImpactOutcome(
            *(np.concatenate([getattr(p, f) for p in parts]) for f in ("after", "end", "steps"))
        )

    def _run(self, before: np.ndarray, theta: np.ndarray, duration: float) -> ImpactOutcome:
        n, base = len(before), self.scene.base
        poser, start = begun(self.scene, before, theta)
        start |= {"act": np.zeros((n, base.na)), "qacc_warmstart": np.zeros((n, base.nv))}
        limit = max(1, round(duration / base.opt.timestep))
        with precision(self.single):
            seen = self._program(
                padded(self.held.fields(theta, n), self.size), padded(start, self.size), n, limit
            )
            qpos, qvel, end, steps = (
                np.asarray(seen[name])[:n] for name in ("qpos", "qvel", "end", "steps")
            )
        after = poser.scene_twist(
            *self.scene.struck_body.twist(qpos.astype(float), qvel.astype(float))
        )
        return ImpactOutcome(after, end.astype(int), steps.astype(int))

    @cached_property
    def _program(self) -> Callable[..., Any]:
        """(fields, start, n, limit) -> last state, end and steps of each of the first n rows."""
        jax, mjx = import_mjx()
        jnp, held, size, hold = jax.numpy, self.held, self.size, patience(self.scene)
        step, sensor, empty = (
            stepper(held, differentiate=False),
            strike_sensor(held),
            mjx.make_data(held.model),
        )

        def once(fields: Any, state: Any, control: Any) -> Any:
            data = step(held.at(fields), empty.replace(**state, ctrl=control))
            return {name: getattr(data, name) for name in _STATE}, *sensor(data)

        def strike(fields: Any, start: Any, n: Any, limit: Any) -> Any:
            def taken(arrays: Any, row: Any) -> Any:
                return {name: a[jnp.minimum(row, n - 1)] for name, a in arrays.items()}

            def body(carry: Any) -> Any:
                row, state, (touched, speed, quiet, steps), out = carry
                new, found, rate = jax.vmap(once)(
                    taken(fields, row), state, taken(start, row)["ctrl"]
                )
                steps, rate = steps + 1, jnp.abs(rate)
                speed = jnp.where(found & ~touched, rate, speed)
                quiet = jnp.where(found & (rate < SETTLED * speed), quiet + 1, 0)
                parted, settled = touched & ~found, quiet >= hold
                broken = ~(jnp.abs(state["qvel"]) <= 1e6).all(
                    1
                )  # what is not a number is not smaller, either
                end = jnp.select(
                    [broken, parted, settled],
                    [int(ImpactEnd.UNSTABLE), int(ImpactEnd.PARTED), int(ImpactEnd.SETTLED)],
                    int(ImpactEnd.UNFINISHED),
                )
                over = (row < n) & ((end != ImpactEnd.UNFINISHED) | (steps >= limit))
                # What the sensor told is of the state before the step, so that is the last one.
                told = {"qpos": state["qpos"], "qvel": state["qvel"], "end": end, "steps": steps}
                out = {
                    name: a.at[jnp.where(over, row, size)].set(
                        told[name].astype(a.dtype), mode="drop"
                    )
                    for name, a in out.items()
                }
                # Lanes take the rows that are left in order; one without any is held at a start, so
                # that it cannot slow down the solver for all.
                row = jnp.where(over, row.max() + jnp.cumsum(over), row)
                fresh = over | (row >= n)
                state = {
                    name: jnp.where(fresh[:, None], taken(start, row)[name], a)
                    for name, a in new.items()
                }
                marks = (
                    (touched | found) & ~fresh,
                    speed,
                    jnp.where(fresh, 0, quiet),
                    jnp.where(fresh, 0, steps),
                )
                return row, state, marks, out

            row = jnp.arange(self.lanes)
            still = jnp.zeros(self.lanes, int)
            out = {
                "qpos": start["qpos"],
                "qvel": start["qvel"],
                "end": jnp.zeros(size, int),
                "steps": jnp.zeros(size, int),
            }
            first = {name: taken(start, row)[name] for name in _STATE}
            return jax.lax.while_loop(
                lambda carry: (carry[0] < n).any(),
                body,
                (row, first, (still > 0, jnp.zeros(self.lanes), still, still), out),
            )[3]

        compiled = jax.jit(strike)

        def run(*arrays: Any) -> Any:
            try:
                return compiled(*arrays)
            except (NotImplementedError, TypeError) as problem:
                raise UnsupportedByMjx(
                    f"MJX cannot run scene {self.scene.name!r}: {' '.join(str(problem).split())[:160]}"
                ) from None

        return run
