"""One step of MJX in which neural scalars take part.

All networks read the state at the beginning of the step. Those of parameters change the model;
those of forces and accelerations enter before the constraints are solved, so that contacts still
hold; those of states come after everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco

from clashsim.core.augmentation_spec import AugmentationSpec, weight_slices
from clashsim.core.errors import ParamError
from clashsim.core.scene import model_field
from clashsim.sim.augmented.targets import Place, Read
from clashsim.sim.mjx.chunked_rollout import Once
from clashsim.sim.mjx.model import MjxScene, import_mjx, leaf
from clashsim.sim.mjx.step import forward_of, stepper

WEIGHTS = "weights"
_REST = 1e-12  # m^2/s^2 under the root of a speed, which has no slope at rest


@dataclass(frozen=True)
class Step:
    """A step in two parts, so that slopes need not go through the dynamics once for every weight
    (`clashsim.sim.augmented.jacobian`).

    reads (fields, state, control) -> what each network reads; says (weights, reads) -> outputs
    (m,); acts (fields, state, control, outputs) -> the next state or, with RK4, the rates of a
    state, which are asked for four times in a step.
    """

    reads: Callable[..., Any]
    says: Callable[..., Any]
    acts: Callable[..., Any]
    rates: bool
    timestep: float


def step_of(
    held: MjxScene,
    augmentation: AugmentationSpec,
    places: tuple[Place, ...],
    *,
    differentiate: bool,
) -> Step:
    """The step of a scene with its networks; `fields` are those of the model, without the weights."""
    jax, mjx = import_mjx()
    from mujoco.mjx._src.smooth import solve_m

    jnp, own = jax.numpy, weight_slices(augmentation)
    empty = mjx.make_data(held.model)
    chosen = {
        kind: [i for i, p in enumerate(places) if p.kind == kind]
        for kind in ("parameter", "force", "acceleration", "state")
    }
    rates = bool(augmentation) and int(held.plain.opt.integrator) == int(
        mujoco.mjtIntegrator.mjINT_RK4
    )

    def reads(fields: Any, state: Any, control: Any) -> list[Any]:
        model, data = held.at(fields), empty.replace(**state, ctrl=control)
        moving = any(read.kind == "speed" for p in places for read in p.reads)
        seen = (
            mjx.com_vel(model, mjx.com_pos(model, mjx.kinematics(model, data))) if moving else data
        )
        return [jnp.stack([_value(jnp, seen, r, held) for r in p.reads]) for p in places]

    def says(weights: Any, seen: list[Any]) -> Any:
        said = [
            scalar.output(weights[part], values, jnp)
            for scalar, part, values in zip(augmentation, own, seen, strict=True)
        ]
        return jnp.stack(said) if said else jnp.zeros(0)

    def between(said: Any) -> Any:
        """Forces act on a joint's passive force (springs, dampers, fluid), accelerations on what
        all smooth forces give it.
        """

        def change(model: Any, data: Any) -> Any:
            force, pushed = data.qfrc_smooth, data.qacc_smooth
            for i in chosen["force"]:
                old = data.qfrc_passive[places[i].dof]
                force = force.at[places[i].dof].add(
                    augmentation[i].combine(old, said[i], jnp) - old
                )
            if chosen["force"]:
                pushed = solve_m(model, data, force)
            for i in chosen["acceleration"]:
                pushed = pushed.at[places[i].dof].set(
                    augmentation[i].combine(pushed[places[i].dof], said[i], jnp)
                )
            return data.replace(
                qacc_smooth=pushed,
                qfrc_smooth=mjx.mul_m(model, data, pushed) if chosen["acceleration"] else force,
            )

        return change if chosen["force"] or chosen["acceleration"] else None

    def acts(fields: Any, state: Any, control: Any, said: Any) -> Any:
        model, data = held.at(fields), empty.replace(**state, ctrl=control)
        for i in chosen["parameter"]:
            model = _changed(held, model, (augmentation[i], places[i]), said[i])
        if rates:
            data = forward_of(held, differentiate=differentiate, between=between(said))(model, data)
            return {
                "qpos": data.qvel,
                "qvel": data.qacc,
                "act": 0 * state["act"],
                "qacc_warmstart": 0 * state["qacc_warmstart"],
            }
        data = stepper(held, differentiate=differentiate, between=between(said))(model, data)
        out = {name: getattr(data, name) for name in state}
        for i in chosen["state"]:
            # The velocity after the step (or, replaced, its change in the step), and the place
            # where it leads in that step.
            old, dof = out["qvel"][places[i].dof], places[i].dof
            new = augmentation[i].combine(old, said[i], jnp) + (
                state["qvel"][dof] if augmentation[i].mode == "replace" else 0
            )
            out["qvel"] = out["qvel"].at[dof].set(new)
            out["qpos"] = out["qpos"].at[places[i].qpos].add(model.opt.timestep * (new - old))
        return out

    return Step(reads, says, acts, rates, float(held.plain.opt.timestep))


def once(step: Step) -> Once:
    """The function (fields, state, control) -> state of one step; `fields` holds the weights beside
    the fields of the model.
    """

    def step_once(fields: Any, state: Any, control: Any) -> Any:
        fields, weights = apart(fields)

        def acts(state: Any) -> Any:
            return step.acts(
                fields, state, control, step.says(weights, step.reads(fields, state, control))
            )

        return runge_kutta(acts, state, step.timestep) if step.rates else acts(state)

    return step_once


def apart(fields: Any) -> tuple[Any, Any]:
    """The fields of the model, and the weights."""
    return {name: a for name, a in fields.items() if name != WEIGHTS}, fields[WEIGHTS]


def runge_kutta(rates: Callable[[Any], Any], state: Any, timestep: float) -> Any:
    """One step of the classical method on any tree of arrays."""
    jax, _ = import_mjx()
    total, at = state, state
    for share, reach in ((1, 0.5), (2, 0.5), (2, 1.0), (1, 0.0)):
        answer = rates(at)
        total = jax.tree.map(lambda a, b, share=share: a + timestep / 6 * share * b, total, answer)
        at = jax.tree.map(lambda a, b, reach=reach: a + timestep * reach * b, state, answer)
    return total


def refuse_fixed(held: MjxScene, augmentation: AugmentationSpec, places: tuple[Place, ...]) -> None:
    """Refuse parameters that MJX fixes when it compiles."""
    jax, _ = import_mjx()
    for scalar, p in zip(augmentation, places, strict=True):
        if p.slot is not None and not isinstance(leaf(held.model, p.slot.field), jax.Array):
            raise ParamError(
                f"MJX fixes {p.slot.field!r} when it compiles, so no neural scalar can act on {scalar.target!r}: act on a force or an acceleration"
            )


def _value(jnp: Any, data: Any, read: Read, held: MjxScene) -> Any:
    if read.kind == "speed":  # of the body's origin: cvel is that of its tree's centre of mass
        turn, move = data.cvel[read.index, :3], data.cvel[read.index, 3:]
        arm = data.xpos[read.index] - data.subtree_com[int(held.plain.body_rootid[read.index])]
        return jnp.sqrt(((move + jnp.cross(turn, arm)) ** 2).sum() + _REST)
    angle = {"qvel": data.qvel, "ctrl": data.ctrl}.get(read.kind, data.qpos)[read.index]
    return {"sin": jnp.sin, "cos": jnp.cos}.get(read.kind, lambda x: x)(angle)


def _changed(held: MjxScene, model: Any, acting: tuple[Any, Place], said: Any) -> Any:
    """The model with one neural scalar's part in its parameter; one that replaces begins at the
    author's value.
    """
    scalar, p = acting
    assert p.slot is not None
    array, author = leaf(model, p.slot.field), model_field(held.scene.base, p.slot.field)
    jnp = import_mjx()[0].numpy
    for row in p.slot.rows or (None,):
        for column in p.slot.columns or (None,):
            entry = tuple(i for i in (row, column) if i is not None)
            base = float(author[entry]) if scalar.mode == "replace" else 0.0
            array = array.at[entry].set(base + scalar.combine(array[entry], said, jnp))
    return model.tree_replace({p.slot.field: array})
