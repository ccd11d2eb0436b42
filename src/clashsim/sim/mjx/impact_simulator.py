"""Impacts in MJX as `ImpactSimulator` runs them in MuJoCo, on the device that jax uses.

Many run at once, each from the first touch to the parting of the pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import ParamError
from clashsim.core.scene import STRIKE, Scene
from clashsim.sim.mjx.impact_start import impact_start
from clashsim.sim.mjx.model import import_mjx, pad_rows, precision, put_scene
from clashsim.sim.mjx.refusals import UnsupportedByMjx, refusing_scene
from clashsim.sim.mjx.step import make_step, strike_sensor
from clashsim.sim.mujoco.impacts import (
    MAX_SPEED,
    SETTLED,
    ImpactEnd,
    ImpactOutcome,
    run_in_batches,
    settling_steps,
)

_STATE = ("qpos", "qvel", "act", "qacc_warmstart")  # all that the next step needs
# Most iterations of the constraint solver. In single precision it does not reach its tolerance and
# would take all of them without gain.
_ITERATIONS = 100
_ITERATIONS_SINGLE = 8
_LINE_SEARCH_STEPS = 8  # twists are the same with 6, but not with 4


class MjxImpactSimulator:
    """Runs impacts of one scene in MJX, up to `size` of them in one compiled program.

    The first call compiles the program, which takes 10 to 40 s. Scenes whose collisions differ
    between MJX and MuJoCo are refused.

    Attributes:
        scene: The scene.
        size: Impacts in one call of the program.
        lanes: Impacts that are stepped together.
        single: Whether it computes in single precision.
        mjx_scene: The scene in MJX.
    """

    def __init__(
        self, scene: Scene, size: int = 4096, *, lanes: int = 0, single: bool = False
    ) -> None:
        """Put a scene into MJX.

        Args:
            scene: Whose pair collides.
            size: Impacts in one call of the program.
            lanes: How many impacts are stepped together; 0 takes a part of `size`. A lane whose
                impact has ended takes the next impact, because all lanes step until the last
                impact has ended.
            single: Compute in single precision, which is faster on a GPU.
        """
        if size < 1 or lanes < 0:
            raise ParamError(
                f"impacts at once must be at least 1 and lanes not negative, got {size} and {lanes}"
            )
        _refuse_rk4_and_gap(scene)
        self.scene = scene
        self.size = size
        self.single = single
        self.lanes = min(lanes or _default_lanes(size), size)
        self.mjx_scene = put_scene(
            scene,
            faithful=True,
            single=single,
            iterations=_ITERATIONS_SINGLE if single else _ITERATIONS,
            line_search_steps=_LINE_SEARCH_STEPS,
        )

    @staticmethod
    @lru_cache(maxsize=4)
    def of(scene: Scene, size: int) -> MjxImpactSimulator:
        """A cached instance for this scene and size, because compiling takes long."""
        return MjxImpactSimulator(scene, size)

    @property
    def device(self) -> str:
        """Name of the device on which jax computes."""
        jax, _ = import_mjx()
        return str(jax.devices()[0].device_kind)

    def __call__(
        self, before: np.ndarray, theta: np.ndarray, *, duration: float = 0.25
    ) -> ImpactOutcome:
        """Run impacts of pairs that touch at the start.

        Args:
            before: (N, d), columns as in `Impacts`.
            theta: (p,) or (N, p), parameters of the scene.
            duration: s, after which an impact counts as unfinished.
        """
        theta = np.broadcast_to(theta, (len(before), len(self.scene.params)))
        return run_in_batches(partial(self._run, duration=duration), before, theta, self.size)

    def _run(self, before: np.ndarray, theta: np.ndarray, duration: float) -> ImpactOutcome:
        """Run up to `size` impacts."""
        n = len(before)
        model = self.scene.base
        poser, start = impact_start(self.scene, before, theta)
        start["act"] = np.zeros((n, model.na))
        start["qacc_warmstart"] = np.zeros((n, model.nv))
        max_steps = max(1, round(duration / model.opt.timestep))
        with precision(self.single):
            fields = pad_rows(self.mjx_scene.fields(theta, n), self.size)
            last = self._program(fields, pad_rows(start, self.size), n, max_steps)
            qpos = np.asarray(last["qpos"])[:n].astype(float)
            qvel = np.asarray(last["qvel"])[:n].astype(float)
            end = np.asarray(last["end"])[:n].astype(int)
            steps = np.asarray(last["steps"])[:n].astype(int)
        after = poser.scene_twist(*self.scene.struck_body.twist(qpos, qvel))
        return ImpactOutcome(after, end, steps)

    @cached_property
    def _program(self) -> Callable[..., Any]:
        """(fields, start, n, max_steps) -> last state, end and steps of the first n rows."""
        jax, mjx = import_mjx()
        jnp = jax.numpy
        mjx_scene = self.mjx_scene
        size, lanes = self.size, self.lanes
        needed_quiet_steps = settling_steps(self.scene)
        step = make_step(mjx_scene, differentiate=False)
        sensor = strike_sensor(mjx_scene)
        empty = mjx.make_data(mjx_scene.model)

        def step_lane(fields: Any, state: Any, control: Any) -> Any:
            """The next state of a lane, and what the sensor reports of the state before."""
            data = step(mjx_scene.at(fields), empty.replace(**state, ctrl=control))
            return {name: getattr(data, name) for name in _STATE}, *sensor(data)

        def run_all(fields: Any, start: Any, n: Any, max_steps: Any) -> Any:
            def rows_of(arrays: Any, row: Any) -> Any:
                """The rows (lanes,) of arrays; lanes beyond the last impact get that one's row."""
                return {name: values[jnp.minimum(row, n - 1)] for name, values in arrays.items()}

            def step_lanes(carry: Any) -> Any:
                """One step of all lanes; `row` (lanes,) is the impact that each lane runs."""
                row, state, (touched, approach_speed, quiet_steps, steps), out = carry
                new_state, touching, normal_velocity = jax.vmap(step_lane)(
                    rows_of(fields, row), state, rows_of(start, row)["ctrl"]
                )
                steps = steps + 1
                speed = jnp.abs(normal_velocity)
                approach_speed = jnp.where(touching & ~touched, speed, approach_speed)
                quiet = touching & (speed < SETTLED * approach_speed)
                quiet_steps = jnp.where(quiet, quiet_steps + 1, 0)
                parted = touched & ~touching
                settled = quiet_steps >= needed_quiet_steps
                # A negated <=, so that NaN, for which every comparison is false, is unstable too.
                unstable = ~(jnp.abs(state["qvel"]) <= MAX_SPEED).all(1)
                end = jnp.select(
                    [unstable, parted, settled],
                    [int(ImpactEnd.UNSTABLE), int(ImpactEnd.PARTED), int(ImpactEnd.SETTLED)],
                    int(ImpactEnd.UNFINISHED),
                )
                over = (row < n) & ((end != ImpactEnd.UNFINISHED) | (steps >= max_steps))
                # The sensor describes the state before the step, so the impact ends with that one.
                last = {"qpos": state["qpos"], "qvel": state["qvel"], "end": end, "steps": steps}
                written_row = jnp.where(over, row, size)  # writes to row `size` are dropped
                out = {
                    name: values.at[written_row].set(last[name].astype(values.dtype), mode="drop")
                    for name, values in out.items()
                }
                # Free lanes take the next impacts in order. A lane for which none is left stays at
                # the start of an impact, where it cannot slow down the solver for all lanes.
                row = jnp.where(over, row.max() + jnp.cumsum(over), row)
                fresh = over | (row >= n)
                fresh_state = rows_of(start, row)
                state = {
                    name: jnp.where(fresh[:, None], fresh_state[name], values)
                    for name, values in new_state.items()
                }
                progress = (
                    (touched | touching) & ~fresh,
                    approach_speed,
                    jnp.where(fresh, 0, quiet_steps),
                    jnp.where(fresh, 0, steps),
                )
                return row, state, progress, out

            row = jnp.arange(lanes)
            first_start = rows_of(start, row)
            state = {name: first_start[name] for name in _STATE}
            zero = jnp.zeros(lanes, int)
            progress = (zero > 0, jnp.zeros(lanes), zero, zero)
            out = {
                "qpos": start["qpos"],
                "qvel": start["qvel"],
                "end": jnp.zeros(size, int),
                "steps": jnp.zeros(size, int),
            }
            *_, out = jax.lax.while_loop(
                lambda carry: (carry[0] < n).any(), step_lanes, (row, state, progress, out)
            )
            return out

        return refusing_scene(self.scene, jax.jit(run_all))


def _default_lanes(size: int) -> int:
    """Impacts that are stepped together, for `size` in one call."""
    jax, _ = import_mjx()
    if jax.devices()[0].platform == "cpu":
        return max(16, size // 16)
    return max(4096, size // 4)  # a GPU steps few lanes no faster than some thousands


def _refuse_rk4_and_gap(scene: Scene) -> None:
    """Refuse scenes whose impacts would end differently in MJX and MuJoCo."""
    if int(scene.base.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4):
        raise UnsupportedByMjx(
            "with RK4, MJX keeps no contacts of the state before a step, which show when impacts "
            f"of scene {scene.name!r} end: use Euler or implicitfast, or ImpactSimulator"
        )
    gap_varies = any(slot is not None and slot.field == "pair_gap" for slot in scene.slots)
    bodies = (scene.struck_body, scene.striker_body)
    if len(scene.strike_geoms) > 1 or any(body.mechanism is not None for body in bodies):
        raise UnsupportedByMjx(
            f"scene {scene.name!r} has bodies of several geoms or on a chain of joints, whose "
            "impacts are not simulated in MJX: use ImpactSimulator"
        )
    if scene.base.pair(STRIKE).gap[0] or gap_varies:
        raise UnsupportedByMjx(
            f"the pair {STRIKE!r} of scene {scene.name!r} has a gap, by which MuJoCo sees a "
            "contact that MJX does not: set it to 0, or use ImpactSimulator"
        )
