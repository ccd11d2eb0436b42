"""Slopes of an augmented step at a cost that does not grow with the number of weights.

Weights reach the dynamics only through the few numbers that the networks say. So the dynamics are
differentiated by the state, the parameters and those numbers; the slopes in the weights follow by
the chain rule, in small products of matrices.
"""

from __future__ import annotations

from typing import Any

from clashsim.sim.augmented.step import Step, apart, runge_kutta
from clashsim.sim.mjx.chunked_rollout import Push
from clashsim.sim.mjx.model import import_mjx


def push(step: Step) -> Push:
    """The function (fields, slopes, state, turn, control) -> (state, turn) of one step; turn (Q,
    ...) is the state's slope in Q directions.

    The weights have slopes (Q, w); the fields of the model have slopes (q, ...), for they move
    along the first q directions only.
    """
    jax, _ = import_mjx()
    jnp = jax.numpy
    from jax.flatten_util import ravel_pytree

    def pushed(fields: Any, slopes: Any, state: Any, turn: Any, control: Any) -> Any:
        (fields, weights), (along, moved) = apart(fields), apart(slopes)
        flat, whole = ravel_pytree(state)
        turned = jax.vmap(lambda row: ravel_pytree(row)[0])(turn)
        s, q = len(flat), max((len(a) for a in along.values()), default=0)

        def linear(x: Any, turned: Any) -> tuple[Any, Any]:
            """What a step (or a stage of it) answers at a flat state, and how that turns."""

            def seen(fields: Any, x: Any) -> Any:
                return ravel_pytree(step.reads(fields, whole(x), control))[0]

            def answer(fields: Any, x: Any, said: Any) -> Any:
                return ravel_pytree(step.acts(fields, whole(x), control, said))[0]

            inputs, lists = ravel_pytree(step.reads(fields, whole(x), control))
            say = lambda weights, inputs: step.says(weights, lists(inputs))  # noqa: E731
            said = say(weights, inputs)
            by_weight, by_input = jax.jacrev(say, argnums=(0, 1))(weights, inputs)
            basis = jnp.eye(s)
            read_x = jax.vmap(lambda t: jax.jvp(lambda y: seen(fields, y), (x,), (t,))[1])(basis)
            turn_said = (turned @ read_x) @ by_input.T + moved @ by_weight.T
            m = len(said)
            tangents = {
                name: jnp.concatenate(
                    [jnp.zeros((s, *a.shape[1:])), a, jnp.zeros((m, *a.shape[1:]))]
                )
                for name, a in along.items()
            }
            steps = jnp.concatenate([basis, jnp.zeros((q + m, s))])
            pushes = jnp.concatenate([jnp.zeros((s + q, m)), jnp.eye(m)])
            value, slope = jax.vmap(
                lambda f, t, u: jax.jvp(answer, (fields, x, said), (f, t, u)), out_axes=(None, 0)
            )(tangents, steps, pushes)
            turn = turned @ slope[:s] + turn_said @ slope[s + q :]
            if q:
                turn = turn.at[:q].add(slope[s : s + q])
                read_fields = jax.vmap(lambda f: jax.jvp(lambda g: seen(g, x), (fields,), (f,))[1])(
                    along
                )
                turn = turn.at[:q].add(read_fields @ by_input.T @ slope[s + q :])
            return value, turn

        value, turn = (
            runge_kutta(lambda at: linear(*at), (flat, turned), step.timestep)
            if step.rates
            else linear(flat, turned)
        )
        return whole(value), jax.vmap(whole)(turn)

    return pushed
