"""Quantities of contacts that networks read: gap, slip speed and normal force of named pairs."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import ParamError
from clashsim.sim.augmented.targets import CONTACT_READS, ScalarTarget, StateRead
from clashsim.sim.mjx.model import MjxScene, import_mjx
from clashsim.sim.mjx.step import DataFunction, make_forward

_TINY_SQUARE = 1e-12  # m^2/s^2: under the root of a speed, whose gradient at rest is not finite


def make_contact_stage(
    mjx_scene: MjxScene, targets: tuple[ScalarTarget, ...], *, differentiate: bool
) -> DataFunction | None:
    """The function (model, data) -> data that computes what contact reads need; None if nothing.

    Forces are those that MuJoCo finds in this state without any network.

    Args:
        mjx_scene: The scene in MJX.
        targets: Targets and reads of all networks.
        differentiate: Whether the step will be differentiated.
    """
    reads = _contact_reads(targets)
    if not reads:
        return None
    _, mjx = import_mjx()
    if any(read.kind == "normal_force" for read in reads):
        return _with_forces(make_forward(mjx_scene, differentiate=differentiate))

    def collide(model: Any, data: Any) -> Any:
        data = mjx.com_pos(model, mjx.kinematics(model, data))
        return mjx.collision(model, mjx.com_vel(model, data))

    return collide


def _with_forces(forward: DataFunction) -> DataFunction:
    """A forward pass whose constraint forces have gradients."""
    from mujoco.mjx._src.solver import Context

    def stage(model: Any, data: Any) -> Any:
        data = forward(model, data)
        # The forces follow from the accelerations, whose gradients are exact.
        force = Context.create(model, data).efc_force
        return data.tree_replace({"_impl.efc_force": force})

    return stage


def _contact_reads(targets: tuple[ScalarTarget, ...]) -> list[StateRead]:
    """The quantities of contacts among those that networks read."""
    return [read for target in targets for read in target.reads if read.kind in CONTACT_READS]


def refuse_unlisted_contacts(mjx_scene: MjxScene, targets: tuple[ScalarTarget, ...]) -> None:
    """Refuse to read contacts that MJX does not compute.

    Args:
        mjx_scene: The scene in MJX.
        targets: Targets and reads of all networks.
    """
    reads = _contact_reads(targets)
    if not reads:
        return
    _, mjx = import_mjx()
    model = mjx_scene.mujoco_model
    listed = np.zeros((0, 2), int)
    if not model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_CONTACT):
        data = mjx.make_data(mjx_scene.model)
        listed = np.asarray(
            mjx.collision(mjx_scene.model, mjx.kinematics(mjx_scene.model, data))._impl.contact.geom
        ).reshape(-1, 2)
    found = {frozenset(row) for row in listed.tolist()}
    for read in reads:
        if not any(frozenset(pair) in found for pair in read.geoms):
            names = " and ".join(repr(model.geom(geom).name) for geom in read.geoms[0])
            raise ParamError(
                f"a neural scalar cannot read {read.kind!r} of the contact of {names}: MJX "
                "computes no such contact in this scene (contacts are disabled, or the pair is "
                "excluded)"
            )


def read_contact(data: Any, read: StateRead, mjx_scene: MjxScene) -> Any:
    """The value of a contact's quantity.

    Args:
        data: Data after the stage of `make_contact_stage`.
        read: What is read.
        mjx_scene: The scene in MJX.
    """
    jax, _ = import_mjx()
    jnp = jax.numpy
    contact = data._impl.contact
    listed = contact.geom
    is_own = jnp.zeros(len(listed), bool)
    for first, second in read.geoms:
        is_own |= (listed == jnp.array([first, second])).all(1)
        is_own |= (listed == jnp.array([second, first])).all(1)
    if read.kind == "normal_force":
        return (_normal_forces(mjx_scene, data) * is_own).sum()
    gap = jnp.where(is_own, contact.dist, jnp.inf)
    deepest = jnp.argmin(gap)
    if read.kind == "gap":
        return contact.dist[deepest]
    # cvel is a velocity at the centre of mass c of a body's tree: at a point p, v_c + w x (p - c).
    model = mjx_scene.mujoco_model
    body = jnp.array(model.geom_bodyid)[listed[deepest]]
    root = jnp.array(model.body_rootid)[body]
    arm = contact.pos[deepest] - data.subtree_com[root]
    velocity = data.cvel[body, 3:] + jnp.cross(data.cvel[body, :3], arm)
    relative = velocity[1] - velocity[0]
    tangents = contact.frame[deepest].reshape(3, 3)[1:]
    return jnp.sqrt(((tangents @ relative) ** 2).sum() + _TINY_SQUARE)


def _normal_forces(mjx_scene: MjxScene, data: Any) -> Any:
    """Normal forces (c,), N, of all contacts that MJX lists."""
    jax, _ = import_mjx()
    jnp = jax.numpy
    from mujoco.mjx._src.support import contact_force_dim

    contact = data._impl.contact
    forces = jnp.zeros(len(contact.dist))
    for dim in sorted(set(np.asarray(contact.dim).tolist())):
        force, rows = contact_force_dim(mjx_scene.model, data, dim)
        forces = forces.at[rows].set(force[:, 0])
    return forces
