"""Derivatives of an augmented step at a cost that does not grow with the number of weights.

Weights change the dynamics only through the few outputs of the networks. So the dynamics are
differentiated with respect to the state, the parameters and those outputs; the derivatives with
respect to the weights follow by the chain rule, as products of small matrices.
"""

from __future__ import annotations

from typing import Any

from clashsim.sim.augmented.step import AugmentedStep, runge_kutta, split_weights
from clashsim.sim.mjx.chunked_rollout import JvpStepFunction
from clashsim.sim.mjx.model import import_mjx


def make_jvp_step(step: AugmentedStep) -> JvpStepFunction:
    """The step with the derivatives of its state along Q directions.

    State tangents are (Q, ...) and weight tangents (Q, w). Tangents of the model's fields are
    (q, ...), because the fields change along the first q directions only. Names like
    `output_by_input` stand for the derivative of the first with respect to the second.
    """
    jax, _ = import_mjx()
    jnp = jax.numpy
    from jax.flatten_util import ravel_pytree

    def flat(tree: Any) -> Any:
        return ravel_pytree(tree)[0]

    def jvp_step(
        fields: Any, field_tangents: Any, state: Any, state_tangents: Any, control: Any
    ) -> Any:
        fields, weights = split_weights(fields)
        field_tangents, weight_tangents = split_weights(field_tangents)
        flat_state, as_state = ravel_pytree(state)
        flat_tangents = jax.vmap(flat)(state_tangents)
        size = len(flat_state)
        num_fields = max((len(values) for values in field_tangents.values()), default=0)

        def read(fields: Any, x: Any) -> Any:
            """Inputs of all networks at a flat state, as one flat array."""
            return flat(step.read(fields, as_state(x), control))

        def apply(fields: Any, x: Any, outputs: Any) -> Any:
            """The next flat state, or the rates of change of this one, with these outputs."""
            return flat(step.apply(fields, as_state(x), control, outputs))

        def advance(x: Any, tangents: Any) -> tuple[Any, Any]:
            """The next flat state (s,), or its rates of change, and its derivatives (Q, s).

            The rates are those of one stage of a Runge-Kutta step.
            """
            inputs, as_inputs = ravel_pytree(step.read(fields, as_state(x), control))

            def evaluate(weights: Any, inputs: Any) -> Any:
                return step.evaluate(weights, as_inputs(inputs))

            outputs = evaluate(weights, inputs)
            output_by_weight, output_by_input = jax.jacrev(evaluate, argnums=(0, 1))(
                weights, inputs
            )
            identity = jnp.eye(size)
            input_by_state = jax.vmap(lambda t: jax.jvp(lambda y: read(fields, y), (x,), (t,))[1])(
                identity
            )
            output_tangents = (
                tangents @ input_by_state
            ) @ output_by_input.T + weight_tangents @ output_by_weight.T

            # The dynamics are differentiated along size + num_fields + m directions, in this order:
            # each entry of the state, each direction of the fields, each output.
            m = len(outputs)
            basis_fields = {}
            for name, values in field_tangents.items():
                along_state = jnp.zeros((size, *values.shape[1:]))
                along_outputs = jnp.zeros((m, *values.shape[1:]))
                basis_fields[name] = jnp.concatenate([along_state, values, along_outputs])
            basis_state = jnp.concatenate([identity, jnp.zeros((num_fields + m, size))])
            basis_outputs = jnp.concatenate([jnp.zeros((size + num_fields, m)), jnp.eye(m)])
            value, derivative = jax.vmap(
                lambda f, t, u: jax.jvp(apply, (fields, x, outputs), (f, t, u)),
                out_axes=(None, 0),
            )(basis_fields, basis_state, basis_outputs)
            by_state = derivative[:size]
            by_field = derivative[size : size + num_fields]
            by_output = derivative[size + num_fields :]

            new_tangents = tangents @ by_state + output_tangents @ by_output
            if num_fields:
                new_tangents = new_tangents.at[:num_fields].add(by_field)
                input_by_field = jax.vmap(
                    lambda f: jax.jvp(lambda g: read(g, x), (fields,), (f,))[1]
                )(field_tangents)
                through_networks = input_by_field @ output_by_input.T @ by_output
                new_tangents = new_tangents.at[:num_fields].add(through_networks)
            return value, new_tangents

        if step.gives_rates:
            value, tangents = runge_kutta(
                lambda stage: advance(*stage), (flat_state, flat_tangents), step.timestep
            )
        else:
            value, tangents = advance(flat_state, flat_tangents)
        return as_state(value), jax.vmap(as_state)(tangents)

    return jvp_step
