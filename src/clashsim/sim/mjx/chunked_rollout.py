"""Many simulations in MJX, chunk by chunk in one compiled program, with the slopes of their states
where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from clashsim.sim.mjx.model import import_mjx, padded

Arrays = dict[str, np.ndarray]
Once = Callable[[Any, Any, Any], Any]
Push = Callable[[Any, Any, Any, Any, Any], Any]
_STATE = ("qpos", "qvel", "act")
# Steps in one compiled call: control of any length runs in such chunks, so that no length compiles
# again
_CHUNK = 32
# Rows in one compiled call: fewer are padded, more to the next power of two, for the same reason
_LEAST = 8


class Chunks:
    """Rows stepped by `once(differentiate)`, a function (fields, state, control) -> state of one
    row and one step.

    push: (fields, slopes, state, turn, control) -> (state, turn), a cheaper way to the slopes of
    that step where there is one.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        once: Callable[[bool], Once],
        push: Callable[[], Push] | None = None,
    ) -> None:
        self.model, self.once, self.push = model, once, push
        self._compiled: dict[bool, Callable[..., Any]] = {}

    def run(
        self,
        start: np.ndarray,
        control: np.ndarray,
        fields: Arrays,
        *,
        slopes: Arrays | None = None,
        q: int = 0,
        start_jacobian: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """States (n, T + 1, s) and their slopes (n, T + 1, s, q), in directions along which fields
        (n, ...) have slopes (n, q, ...) and the start turned (n, q, s).
        """
        n, steps = control.shape[:2]
        rows, nq, nv = max(_LEAST, 1 << (n - 1).bit_length()), self.model.nq, self.model.nv
        control = np.pad(control, ((0, 0), (0, -steps % _CHUNK), (0, 0)))
        state: Arrays = dict(zip(_STATE, np.split(start, [nq, nq + nv], axis=1), strict=True)) | {
            "qacc_warmstart": np.zeros((n, nv))
        }
        first = np.zeros((n, q, start.shape[1])) if start_jacobian is None else start_jacobian
        begun = dict(zip(_STATE, np.split(first, [nq, nq + nv], axis=2), strict=True)) | {
            "qacc_warmstart": np.zeros((n, q, nv))
        }
        turn = padded(begun if q else {}, rows)
        fields, slopes, state = (
            padded(fields, rows),
            padded(slopes or {}, rows),
            padded(state, rows),
        )
        run = self._compiled.get(q > 0) or self._compiled.setdefault(
            q > 0, self._compile(differentiate=q > 0)
        )
        states, moved = [start[:, None]], [np.moveaxis(first, 1, -1)[:, None]]
        for i in range(0, control.shape[1], _CHUNK):
            state, turn, seen, slope = run(
                fields,
                slopes,
                state,
                turn,
                padded({"ctrl": control[:, i : i + _CHUNK]}, rows)["ctrl"],
            )
            states.append(np.asarray(seen)[:n])
            moved.append(np.moveaxis(np.asarray(slope)[:n], 2, -1))
        return np.concatenate(states, axis=1)[:, : steps + 1], np.concatenate(moved, axis=1)[
            :, : steps + 1
        ]

    def _compile(self, *, differentiate: bool) -> Callable[..., Any]:
        """The chunk (fields, slopes, state, turn, control) -> (state, turn, states, slopes of the
        states); `turn` is the state's slope so far.
        """
        jax, _ = import_mjx()
        jnp, once = jax.numpy, self.once(differentiate)
        push = self.push() if differentiate and self.push is not None else None

        def both(fields: Any, slopes: Any, state: Any, turn: Any, control: Any) -> Any:
            if not differentiate:
                return once(fields, state, control), turn
            if push is not None:
                return push(fields, slopes, state, turn, control)
            return jax.vmap(
                lambda f, s: jax.jvp(lambda a, b: once(a, b, control), (fields, state), (f, s)),
                out_axes=(None, 0),
            )(slopes, turn)

        def chunk(fields: Any, slopes: Any, state: Any, turn: Any, control: Any) -> Any:
            def body(carry: Any, now: Any) -> Any:
                state, turn = both(fields, slopes, carry[0], carry[1], now)
                seen = jnp.concatenate([state[name] for name in _STATE])
                return (state, turn), (
                    seen,
                    jnp.concatenate([turn[name] for name in _STATE], axis=1)
                    if turn
                    else jnp.zeros((0, len(seen))),
                )

            (state, turn), (seen, slope) = jax.lax.scan(body, (state, turn), control)
            return state, turn, seen, slope

        return jax.jit(jax.vmap(chunk))
