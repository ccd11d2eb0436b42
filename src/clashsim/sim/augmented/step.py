"""One step of MJX with neural scalars.

All networks read the state at the beginning of the step. Networks of parameters change the model.
Networks of forces and accelerations act before the constraints are solved, so that bodies in
contact still do not penetrate. Networks of states change the state at the end of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco

from clashsim.core.augmentation_spec import AugmentationSpec, AugmentingScalar, weight_slices
from clashsim.core.errors import ParamError
from clashsim.core.scene import model_field
from clashsim.sim.augmented.contact_reads import make_contact_stage, read_contact
from clashsim.sim.augmented.masses import change_mass, derive_weights
from clashsim.sim.augmented.targets import CONTACT_READS, ScalarTarget, StateRead
from clashsim.sim.mjx.chunked_rollout import StepFunction
from clashsim.sim.mjx.model import MjxScene, array_of, import_mjx
from clashsim.sim.mjx.step import DataFunction, make_forward, make_step

WEIGHTS = "weights"  # name under which the networks' weights are among the fields of a model
_TINY_SQUARE = 1e-12  # m^2/s^2: under the root of a speed, whose gradient at rest is not finite
LEAST_SPEED = 1e-2  # rad/s or m/s, under the logarithm of a joint's speed
# The classical Runge-Kutta method: weight of each stage, and the fraction of the step after which
# the next stage is evaluated.
_RUNGE_KUTTA = ((1, 0.5), (2, 0.5), (2, 1.0), (1, 0.0))


@dataclass(frozen=True)
class AugmentedStep:
    """A step in parts, so that the dynamics need not be differentiated once for every weight.

    `clashsim.sim.augmented.jacobian` differentiates it part by part.

    Attributes:
        read: (fields, state, control) -> inputs of each of the m networks.
        evaluate: (weights, inputs) -> outputs (m,) of the networks.
        apply: (fields, state, control, outputs) -> the next state or, with RK4, the rates of
            change of the state, which are computed four times in a step.
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

    contact_stage = make_contact_stage(mjx_scene, targets, differentiate=differentiate)

    def indices(kind: str) -> list[int]:
        """The networks that act on targets of a kind."""
        return [i for i, target in enumerate(targets) if target.kind == kind]

    of_parameters = indices("parameter")
    of_masses = indices("mass")
    of_forces = indices("force")
    of_accelerations = indices("acceleration")
    of_states = indices("state")

    def read(fields: Any, state: Any, control: Any) -> list[Any]:
        model = mjx_scene.at(fields)
        data = empty.replace(**state, ctrl=control)
        if contact_stage is not None:
            data = contact_stage(model, data)
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
        """The function that changes the smooth forces, None where no network does.

        Networks of forces change a joint's passive force (springs, dampers, fluid), those of
        accelerations the joint's acceleration by all smooth forces.
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
        """The state after a step, changed by the networks of states.

        A network changes the velocity at the end of the step; in the mode "replace" its output is
        the change of velocity in the step. The position is shifted by timestep times the change.
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
        for i in of_masses:
            body = _mass_body(targets[i])
            mass = augmentation[i].combine(model.body_mass[body], outputs[i], jnp)
            model = change_mass(mjx_scene, model, body, mass)
        if of_masses and empty._impl.efc_J.size:
            model = derive_weights(mjx_scene, model)
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
    """The step (fields, state, control) -> state, where `fields` also holds the weights."""

    def step_state(fields: Any, state: Any, control: Any) -> Any:
        fields, weights = split_weights(fields)

        def advance(state: Any) -> Any:
            return step.advance(weights, fields, state, control=control)

        if step.gives_rates:
            return runge_kutta(advance, state, step.timestep)
        return advance(state)

    return step_state


def make_output_function(step: AugmentedStep, model: mujoco.MjModel) -> Callable[..., Any]:
    """The compiled function (fields, weights, states (n, s), control (n, nu)) -> outputs (n, m)."""
    jax, _ = import_mjx()
    nq, nv = model.nq, model.nv

    def outputs(fields: Any, weights: Any, state: Any, control: Any) -> Any:
        parts = {"qpos": state[:nq], "qvel": state[nq : nq + nv], "act": state[nq + nv :]}
        return step.evaluate(weights, step.read(fields, parts, control))

    return jax.jit(jax.vmap(outputs, (None, None, 0, 0)))


def split_weights(fields: Any) -> tuple[Any, Any]:
    """The fields of the model, and the weights."""
    of_model = {name: values for name, values in fields.items() if name != WEIGHTS}
    return of_model, fields[WEIGHTS]


def runge_kutta(rates: Callable[[Any], Any], state: Any, timestep: float) -> Any:
    """One step of the classical Runge-Kutta method.

    Args:
        rates: From a state to its rates of change, a tree of the same structure.
        state: A tree of arrays.
        timestep: s.

    Returns:
        The state at the end of the step.
    """
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


def _mass_body(target: ScalarTarget) -> int:
    """Index of the body whose mass is changed."""
    assert target.slot is not None
    return target.slot.rows[0]


def _read_value(data: Any, read: StateRead, mjx_scene: MjxScene) -> Any:
    """The value of a quantity of the state."""
    jax, _ = import_mjx()
    jnp = jax.numpy
    if read.kind in CONTACT_READS:
        return read_contact(data, read, mjx_scene)
    if read.kind == "speed":
        # Speed of the body's origin; cvel is a velocity at the centre of mass of the body's tree.
        body = read.index
        root = int(mjx_scene.mujoco_model.body_rootid[body])
        angular = data.cvel[body, :3]
        linear = data.cvel[body, 3:]
        arm = data.xpos[body] - data.subtree_com[root]
        velocity = linear + jnp.cross(angular, arm)
        return jnp.sqrt((velocity**2).sum() + _TINY_SQUARE)
    if read.kind == "qvel":
        return data.qvel[read.index]
    if read.kind == "logspeed":
        return 0.5 * jnp.log(data.qvel[read.index] ** 2 + LEAST_SPEED**2)
    if read.kind == "ctrl":
        return data.ctrl[read.index]
    position = data.qpos[read.index]
    if read.kind == "sin":
        return jnp.sin(position)
    if read.kind == "cos":
        return jnp.cos(position)
    return position


def _change_parameter(
    mjx_scene: MjxScene, model: Any, scalar: AugmentingScalar, *, target: ScalarTarget, output: Any
) -> Any:
    """The model with one parameter changed by a neural scalar.

    A scalar that replaces a parameter is added to the author's value, so that it starts from there.
    """
    assert target.slot is not None
    jax, _ = import_mjx()
    name = target.slot.field
    values = array_of(model, name)
    author = model_field(mjx_scene.scene.base, name)
    for row in target.slot.rows or (None,):
        for column in target.slot.columns or (None,):
            entry = tuple(i for i in (row, column) if i is not None)
            offset = float(author[entry]) if scalar.mode == "replace" else 0.0
            combined = scalar.combine(values[entry], output, jax.numpy)
            values = values.at[entry].set(offset + combined)
    return model.tree_replace({name: values})
