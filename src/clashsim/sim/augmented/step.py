"""One step of MJX in which neural scalars take part.

All networks read the state at the beginning of the step. Those of parameters change the model.
Those of forces and accelerations enter before the constraints are solved, so that contacts still
hold. Those of states come after everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco

from clashsim.core.augmentation_spec import AugmentationSpec, NeuralScalar, weight_slices
from clashsim.core.errors import ParamError
from clashsim.core.scene import model_field
from clashsim.sim.augmented.targets import ScalarTarget, StateRead
from clashsim.sim.mjx.chunked_rollout import StepFunction
from clashsim.sim.mjx.model import MjxScene, array_of, import_mjx
from clashsim.sim.mjx.step import DataFunction, make_forward, make_step

WEIGHTS = "weights"  # among the fields of a model
_SPEED_AT_REST = 1e-12  # m^2/s^2 under the root of a speed, which has no gradient at rest
# The classical Runge-Kutta method: weight of each stage, and how far the next one looks ahead.
_RUNGE_KUTTA = ((1, 0.5), (2, 0.5), (2, 1.0), (1, 0.0))


@dataclass(frozen=True)
class AugmentedStep:
    """A step in parts, so that gradients need not go through the dynamics once for every weight.

    `clashsim.sim.augmented.jacobian` makes use of that.

    Attributes:
        read: (fields, state, control) -> what each network reads.
        evaluate: (weights, what is read) -> outputs (m,) of the networks.
        apply: (fields, state, control, outputs) -> the next state or, with RK4, the rates of
            change of a state, which are asked for four times in a step.
        gives_rates: Whether `apply` gives rates of change.
        timestep: Duration of a step, s.
    """

    read: Callable[..., Any]
    evaluate: Callable[..., Any]
    apply: Callable[..., Any]
    gives_rates: bool
    timestep: float

    def advance(self, weights: Any, fields: Any, state: Any, *, control: Any) -> Any:
        """The next state, or the rates of change of this one."""
        outputs = self.evaluate(weights, self.read(fields, state, control))
        return self.apply(fields, state, control, outputs)


def make_augmented_step(
    mjx_scene: MjxScene,
    augmentation: AugmentationSpec,
    targets: tuple[ScalarTarget, ...],
    *,
    differentiate: bool,
) -> AugmentedStep:
    """The step of a scene with its networks; its `fields` are without the weights.

    Args:
        mjx_scene: The scene in MJX.
        augmentation: The neural scalars.
        targets: Where each of them acts.
        differentiate: Whether the step will be differentiated.
    """
    jax, mjx = import_mjx()
    jnp = jax.numpy
    slices = weight_slices(augmentation)
    empty = mjx.make_data(mjx_scene.model)
    integrator = int(mjx_scene.mujoco_model.opt.integrator)
    gives_rates = bool(augmentation) and integrator == int(mujoco.mjtIntegrator.mjINT_RK4)
    reads_speed = any(read.kind == "speed" for target in targets for read in target.reads)

    def indices(kind: str) -> list[int]:
        """The networks that act on targets of a kind."""
        return [i for i, target in enumerate(targets) if target.kind == kind]

    of_parameters = indices("parameter")
    of_forces = indices("force")
    of_accelerations = indices("acceleration")
    of_states = indices("state")

    def read(fields: Any, state: Any, control: Any) -> list[Any]:
        model = mjx_scene.at(fields)
        data = empty.replace(**state, ctrl=control)
        if reads_speed:
            data = mjx.com_vel(model, mjx.com_pos(model, mjx.kinematics(model, data)))
        values = []
        for target in targets:
            values.append(jnp.stack([_read_value(data, one, mjx_scene) for one in target.reads]))
        return values

    def evaluate(weights: Any, values: list[Any]) -> Any:
        outputs = [
            scalar.output(weights[own], inputs, jnp)
            for scalar, own, inputs in zip(augmentation, slices, values, strict=True)
        ]
        return jnp.stack(outputs) if outputs else jnp.zeros(0)

    def change_forces(outputs: Any) -> DataFunction | None:
        """What changes the smooth forces, None where no network does.

        A force acts beside a joint's passive force (springs, dampers, fluid), an acceleration on
        what all smooth forces give the joint.
        """
        if not of_forces and not of_accelerations:
            return None
        from mujoco.mjx._src.smooth import solve_m

        def change(model: Any, data: Any) -> Any:
            force = data.qfrc_smooth
            acceleration = data.qacc_smooth
            for i in of_forces:
                dof = targets[i].dof
                passive = data.qfrc_passive[dof]
                added = augmentation[i].combine(passive, outputs[i], jnp) - passive
                force = force.at[dof].add(added)
            if of_forces:
                acceleration = solve_m(model, data, force)
            for i in of_accelerations:
                dof = targets[i].dof
                combined = augmentation[i].combine(acceleration[dof], outputs[i], jnp)
                acceleration = acceleration.at[dof].set(combined)
            if of_accelerations:
                force = mjx.mul_m(model, data, acceleration)
            return data.replace(qacc_smooth=acceleration, qfrc_smooth=force)

        return change

    def change_state(old: Any, new: Any, outputs: Any, *, timestep: Any) -> Any:
        """The state after a step as the networks of states change it.

        They act on the velocity after the step (or, if they replace, on its change in the step),
        and the position is where that leads in the step.
        """
        for i in of_states:
            dof = targets[i].dof
            velocity = new["qvel"][dof]
            changed = augmentation[i].combine(velocity, outputs[i], jnp)
            if augmentation[i].mode == "replace":
                changed = changed + old["qvel"][dof]
            shift = timestep * (changed - velocity)
            new["qvel"] = new["qvel"].at[dof].set(changed)
            new["qpos"] = new["qpos"].at[targets[i].qpos].add(shift)
        return new

    def apply(fields: Any, state: Any, control: Any, outputs: Any) -> Any:
        model = mjx_scene.at(fields)
        data = empty.replace(**state, ctrl=control)
        for i in of_parameters:
            model = _change_parameter(
                mjx_scene, model, augmentation[i], target=targets[i], output=outputs[i]
            )
        forces = change_forces(outputs)
        if gives_rates:
            forward = make_forward(mjx_scene, differentiate=differentiate, change_forces=forces)
            data = forward(model, data)
            return {
                "qpos": data.qvel,
                "qvel": data.qacc,
                "act": 0 * state["act"],
                "qacc_warmstart": 0 * state["qacc_warmstart"],
            }
        step = make_step(mjx_scene, differentiate=differentiate, change_forces=forces)
        data = step(model, data)
        new = {name: getattr(data, name) for name in state}
        return change_state(state, new, outputs, timestep=model.opt.timestep)

    timestep = float(mjx_scene.mujoco_model.opt.timestep)
    return AugmentedStep(read, evaluate, apply, gives_rates, timestep)


def make_step_function(step: AugmentedStep) -> StepFunction:
    """(fields, state, control) -> state; `fields` holds the weights beside those of the model."""

    def step_state(fields: Any, state: Any, control: Any) -> Any:
        fields, weights = split_weights(fields)

        def advance(state: Any) -> Any:
            return step.advance(weights, fields, state, control=control)

        if step.gives_rates:
            return runge_kutta(advance, state, step.timestep)
        return advance(state)

    return step_state


def split_weights(fields: Any) -> tuple[Any, Any]:
    """The fields of the model, and the weights."""
    of_model = {name: values for name, values in fields.items() if name != WEIGHTS}
    return of_model, fields[WEIGHTS]


def runge_kutta(rates: Callable[[Any], Any], state: Any, timestep: float) -> Any:
    """One step of the classical method on any tree of arrays."""
    jax, _ = import_mjx()
    total = state
    stage_state = state
    for weight, ahead in _RUNGE_KUTTA:
        rate = rates(stage_state)
        total = jax.tree.map(lambda a, b, weight=weight: a + timestep / 6 * weight * b, total, rate)
        stage_state = jax.tree.map(lambda a, b, ahead=ahead: a + timestep * ahead * b, state, rate)
    return total


def refuse_fixed_parameters(
    mjx_scene: MjxScene, augmentation: AugmentationSpec, targets: tuple[ScalarTarget, ...]
) -> None:
    """Refuse neural scalars that act on parameters which MJX fixes when it compiles."""
    jax, _ = import_mjx()
    for scalar, target in zip(augmentation, targets, strict=True):
        if target.slot is None:
            continue
        if not isinstance(array_of(mjx_scene.model, target.slot.field), jax.Array):
            raise ParamError(
                f"MJX fixes {target.slot.field!r} when it compiles, so no neural scalar can act on "
                f"{scalar.target!r}: act on a force or an acceleration"
            )


def _read_value(data: Any, read: StateRead, mjx_scene: MjxScene) -> Any:
    """The value of a quantity of the state."""
    jax, _ = import_mjx()
    jnp = jax.numpy
    if read.kind == "speed":
        # Of the body's origin; cvel is that of the centre of mass of its tree.
        body = read.index
        root = int(mjx_scene.mujoco_model.body_rootid[body])
        angular = data.cvel[body, :3]
        linear = data.cvel[body, 3:]
        arm = data.xpos[body] - data.subtree_com[root]
        velocity = linear + jnp.cross(angular, arm)
        return jnp.sqrt((velocity**2).sum() + _SPEED_AT_REST)
    if read.kind == "qvel":
        return data.qvel[read.index]
    if read.kind == "ctrl":
        return data.ctrl[read.index]
    position = data.qpos[read.index]
    if read.kind == "sin":
        return jnp.sin(position)
    if read.kind == "cos":
        return jnp.cos(position)
    return position


def _change_parameter(
    mjx_scene: MjxScene, model: Any, scalar: NeuralScalar, *, target: ScalarTarget, output: Any
) -> Any:
    """The model with one neural scalar's part in its parameter.

    A scalar that replaces a parameter begins at the author's value.
    """
    assert target.slot is not None
    jax, _ = import_mjx()
    name = target.slot.field
    values = array_of(model, name)
    author = model_field(mjx_scene.scene.base, name)
    for row in target.slot.rows or (None,):
        for column in target.slot.columns or (None,):
            entry = tuple(i for i in (row, column) if i is not None)
            base = float(author[entry]) if scalar.mode == "replace" else 0.0
            combined = scalar.combine(values[entry], output, jax.numpy)
            values = values.at[entry].set(base + combined)
    return model.tree_replace({name: values})
