"""MJX behind the seam of a simulator: many simulations in one compiled call, and slopes of the states in a few parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clashsim.core.scene import Scene
from clashsim.sim.mjx_model import check_finite, engine, padded, put
from clashsim.sim.mjx_step import stepper
from clashsim.sim.mujoco_sim import check

Arrays = dict[str, np.ndarray]
_STATE = ("qpos", "qvel", "act")
_CHUNK = 32  # steps in one compiled call: control of any length runs in such chunks, so that no length compiles again
_LEAST = 8  # rows in one compiled call: fewer are padded, more to the next power of two, for the same reason


class MjxSim:
    """A scene at theta (author's values where None) in MJX, in double precision; `timestep` (s) replaces the author's.

    The first call takes 10 to 30 seconds to compile, the first one of `slopes` as long again. Scenes that MJX would collide otherwise than MuJoCo are refused.
    """

    def __init__(self, scene: Scene, theta: np.ndarray | None = None, *, timestep: float | None = None) -> None:
        self.scene, self.theta = scene, theta
        self.held = put(scene, timestep=timestep, faithful=True)
        self.model = self.held.plain
        self._compiled: dict[bool, Callable[..., Any]] = {}

    def rollout(self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu); theta (p,) or (N, p)."""
        check(self.model, start, control)
        return self._run(start, control, self.held.fields(self.theta if theta is None else theta, len(start)), {}, 0)[0]

    def slopes(self, start: np.ndarray, control: np.ndarray, theta: np.ndarray | None = None, *, free: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The same states, and their slopes (N, T + 1, s, q) in the unit-scaled parameters with indices `free` (q,).

        theta: (p,) or (N, p); that of the simulator where None, else the nominal one. The start does not move with the parameters.
        """
        check(self.model, start, control)
        n = len(start)
        at = theta if theta is not None else self.theta if self.theta is not None else self.scene.nominal
        at = np.broadcast_to(at, (n, len(self.scene.params)))
        states, moved = self._run(start, control, self.held.fields(at, n), self.held.slopes(at, tuple(free)), len(free))
        check_finite(self.scene, moved)
        return states, moved

    def _run(self, start: np.ndarray, control: np.ndarray, fields: Arrays, slopes: Arrays, q: int) -> tuple[np.ndarray, np.ndarray]:
        """States and their slopes in q parameters, chunk by chunk."""
        n, steps = control.shape[:2]
        rows, nq, nv = max(_LEAST, 1 << (n - 1).bit_length()), self.model.nq, self.model.nv
        control = np.pad(control, ((0, 0), (0, -steps % _CHUNK), (0, 0)))
        state: Arrays = dict(zip(_STATE, np.split(start, [nq, nq + nv], axis=1), strict=True)) | {"qacc_warmstart": np.zeros((n, nv))}
        turn = padded({name: np.zeros((n, q, a.shape[1])) for name, a in state.items() if q}, rows)
        fields, slopes, state = padded(fields, rows), padded(slopes, rows), padded(state, rows)
        run = self._compiled.get(q > 0) or self._compiled.setdefault(q > 0, self._compile(differentiate=q > 0))
        states, moved = [start[:, None]], [np.zeros((n, 1, start.shape[1], q))]
        for i in range(0, control.shape[1], _CHUNK):
            state, turn, seen, slope = run(fields, slopes, state, turn, padded({"ctrl": control[:, i : i + _CHUNK]}, rows)["ctrl"])
            states.append(np.asarray(seen)[:n])
            moved.append(np.moveaxis(np.asarray(slope)[:n], 2, -1))
        return np.concatenate(states, axis=1)[:, : steps + 1], np.concatenate(moved, axis=1)[:, : steps + 1]

    def _compile(self, *, differentiate: bool) -> Callable[..., Any]:
        """The chunk (fields, slopes, state, turn, control) -> (state, turn, states, slopes of the states); `turn` is the state's slope so far."""
        jax, mjx = engine()
        jnp, held, step = jax.numpy, self.held, stepper(self.held, differentiate=differentiate)
        empty = mjx.make_data(held.model)

        def once(fields: Any, state: Any, control: Any) -> Any:
            """One step; only what the next one needs is carried, so that little has to be copied and differentiated."""
            data = step(held.at(fields), empty.replace(**state, ctrl=control))
            return {name: getattr(data, name) for name in state}

        def both(fields: Any, slopes: Any, state: Any, turn: Any, control: Any) -> Any:
            if not differentiate:
                return once(fields, state, control), turn
            return jax.vmap(lambda f, s: jax.jvp(lambda a, b: once(a, b, control), (fields, state), (f, s)), out_axes=(None, 0))(slopes, turn)

        def chunk(fields: Any, slopes: Any, state: Any, turn: Any, control: Any) -> Any:
            def body(carry: Any, now: Any) -> Any:
                state, turn = both(fields, slopes, carry[0], carry[1], now)
                seen = jnp.concatenate([state[name] for name in _STATE])
                return (state, turn), (seen, jnp.concatenate([turn[name] for name in _STATE], axis=1) if turn else jnp.zeros((0, len(seen))))

            (state, turn), (seen, slope) = jax.lax.scan(body, (state, turn), control)
            return state, turn, seen, slope

        return jax.jit(jax.vmap(chunk))
