"""One step of MJX in which neural scalars take part.

All networks read the state at the beginning of the step. Those of parameters change the model; those of forces and accelerations enter before
the constraints are solved, so that contacts still hold; those of states come after everything.
"""

from __future__ import annotations

from typing import Any

from clashsim.core.blueprint import Blueprint, parts
from clashsim.core.errors import ParamError
from clashsim.core.places import Place, Read
from clashsim.core.scene import field_of
from clashsim.sim.mjx_model import MjxScene, engine, leaf
from clashsim.sim.mjx_run import Once
from clashsim.sim.mjx_step import stepper

WEIGHTS = "weights"
_REST = 1e-12  # m^2/s^2 under the root of a speed, which has no slope at rest


def once(held: MjxScene, blueprint: Blueprint, places: tuple[Place, ...], *, differentiate: bool) -> Once:
    """The function (fields, state, control) -> state of one step; `fields` holds the weights beside the fields of the model."""
    jax, mjx = engine()
    from mujoco.mjx._src.smooth import solve_m

    jnp, own = jax.numpy, parts(blueprint)
    empty = mjx.make_data(held.model)
    chosen = {kind: [i for i, p in enumerate(places) if p.kind == kind] for kind in ("parameter", "force", "acceleration", "state")}

    def outputs(model: Any, data: Any, weights: Any) -> list[Any]:
        moving = any(read.kind == "speed" for p in places for read in p.reads)
        seen = mjx.com_vel(model, mjx.com_pos(model, mjx.kinematics(model, data))) if moving else data
        return [scalar.output(weights[part], jnp.stack([_value(jnp, seen, r, held) for r in p.reads]), jnp) for scalar, p, part in zip(blueprint, places, own, strict=True)]

    def between(said: list[Any]) -> Any:
        """Forces act on a joint's passive force (springs, dampers, fluid), accelerations on what all smooth forces give it."""
        def change(model: Any, data: Any) -> Any:
            force, pushed = data.qfrc_smooth, data.qacc_smooth
            for i in chosen["force"]:
                old = data.qfrc_passive[places[i].dof]
                force = force.at[places[i].dof].add(blueprint[i].enter(old, said[i], jnp) - old)
            if chosen["force"]:
                pushed = solve_m(model, data, force)
            for i in chosen["acceleration"]:
                pushed = pushed.at[places[i].dof].set(blueprint[i].enter(pushed[places[i].dof], said[i], jnp))
            return data.replace(qacc_smooth=pushed, qfrc_smooth=mjx.mul_m(model, data, pushed) if chosen["acceleration"] else force)

        return change if chosen["force"] or chosen["acceleration"] else None

    def step_once(fields: Any, state: Any, control: Any) -> Any:
        fields, weights = {name: a for name, a in fields.items() if name != WEIGHTS}, fields[WEIGHTS]
        model, data = held.at(fields), empty.replace(**state, ctrl=control)
        said = outputs(model, data, weights)
        for i in chosen["parameter"]:
            model = _changed(held, model, (blueprint[i], places[i]), said[i])
        data = stepper(held, differentiate=differentiate, between=between(said))(model, data)
        out = {name: getattr(data, name) for name in state}
        for i in chosen["state"]:
            # The velocity after the step (or, replaced, its change in the step), and the place where it leads in that step.
            old, dof = out["qvel"][places[i].dof], places[i].dof
            new = blueprint[i].enter(old, said[i], jnp) + (state["qvel"][dof] if blueprint[i].enters == "replace" else 0)
            out["qvel"] = out["qvel"].at[dof].set(new)
            out["qpos"] = out["qpos"].at[places[i].qpos].add(model.opt.timestep * (new - old))
        return out

    return step_once


def refuse_fixed(held: MjxScene, blueprint: Blueprint, places: tuple[Place, ...]) -> None:
    """Refuse parameters that MJX fixes when it compiles."""
    jax, _ = engine()
    for scalar, p in zip(blueprint, places, strict=True):
        if p.slot is not None and not isinstance(leaf(held.model, p.slot.field), jax.Array):
            raise ParamError(f"MJX fixes {p.slot.field!r} when it compiles, so no neural scalar can act on {scalar.target!r}: act on a force or an acceleration")


def _value(jnp: Any, data: Any, read: Read, held: MjxScene) -> Any:
    if read.kind == "speed":  # of the body's origin: cvel is that of its tree's centre of mass
        turn, move = data.cvel[read.index, :3], data.cvel[read.index, 3:]
        arm = data.xpos[read.index] - data.subtree_com[int(held.plain.body_rootid[read.index])]
        return jnp.sqrt(((move + jnp.cross(turn, arm)) ** 2).sum() + _REST)
    angle = {"qvel": data.qvel, "ctrl": data.ctrl}.get(read.kind, data.qpos)[read.index]
    return {"sin": jnp.sin, "cos": jnp.cos}.get(read.kind, lambda x: x)(angle)


def _changed(held: MjxScene, model: Any, acting: tuple[Any, Place], said: Any) -> Any:
    """The model with one neural scalar's part in its parameter; one that replaces begins at the author's value."""
    scalar, p = acting
    assert p.slot is not None
    array, author = leaf(model, p.slot.field), field_of(held.scene.base, p.slot.field)
    jnp = engine()[0].numpy
    for row in p.slot.rows or (None,):
        for column in p.slot.columns or (None,):
            entry = tuple(i for i in (row, column) if i is not None)
            base = float(author[entry]) if scalar.enters == "replace" else 0.0
            array = array.at[entry].set(base + scalar.enter(array[entry], said, jnp))
    return model.tree_replace({p.slot.field: array})
