"""Masses of bodies that change within a simulation, with what MuJoCo derives from them.

MuJoCo computes the derived constants once, in mj_setConst. Here they are computed in each step, for
the mass of that step.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from clashsim.sim.mjx.model import MjxScene, import_mjx

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_TINY = 1e-15  # mjMINVAL


def change_mass(mjx_scene: MjxScene, model: Any, body: int, mass: Any) -> Any:
    """The model with another mass of a body.

    Args:
        mjx_scene: The scene in MJX.
        model: The MJX model.
        body: Index of the body.
        mass: kg.

    Returns:
        The model, whose masses of subtrees are changed as well; `derive_weights` has to follow.
    """
    parents = mjx_scene.mujoco_model.body_parentid
    ancestors = [body]
    while ancestors[-1] != 0:
        ancestors.append(int(parents[ancestors[-1]]))
    added = mass - model.body_mass[body]
    subtree = model.body_subtreemass.at[np.array(ancestors)].add(added)
    return model.tree_replace(
        {"body_mass": model.body_mass.at[body].set(mass), "body_subtreemass": subtree}
    )


def derive_weights(mjx_scene: MjxScene, model: Any) -> Any:
    """The model with its inverse weights for its masses, on which constraints' softness depends.

    They are means of the diagonal of J M^-1 J^T in the reference configuration.

    Args:
        mjx_scene: The scene in MJX.
        model: The MJX model, whose masses have changed.
    """
    jax, mjx = import_mjx()
    jnp = jax.numpy
    from mujoco.mjx._src.support import jac

    mujoco_model = mjx_scene.mujoco_model
    data = mjx.make_data(mjx_scene.model).replace(qpos=model.qpos0)
    data = mjx.crb(model, mjx.com_pos(model, mjx.kinematics(model, data)))
    inverse = jnp.linalg.inv(mjx.full_m(model, data))
    bodies = np.flatnonzero(mujoco_model.body_weldid != 0)

    def weights(body: Any) -> Any:
        """Inverse weights (2,) of translation and rotation at a body's centre of mass."""
        translation, rotation = jac(model, data, data.xipos[body], body)  # (nv, 3) each
        of_translation = jnp.einsum("ic,ij,jc->", translation, inverse, translation) / 3
        of_rotation = jnp.einsum("ic,ij,jc->", rotation, inverse, rotation) / 3
        return jnp.stack([of_translation, of_rotation])

    of_bodies = jax.vmap(weights)(jnp.asarray(bodies))
    before = model.body_invweight0[bodies]
    # MuJoCo has its own rule for what cannot move or cannot rotate; that stays as it is.
    moves = of_bodies > _TINY
    body_weights = model.body_invweight0.at[bodies].set(jnp.where(moves, of_bodies, before))
    diagonal = jnp.diag(inverse)
    for joint in range(mujoco_model.njnt):
        if int(mujoco_model.jnt_type[joint]) in _SCALAR:
            continue
        first = int(mujoco_model.jnt_dofadr[joint])
        is_free = int(mujoco_model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_FREE)
        for begin in (first, first + 3) if is_free else (first,):
            of_three = slice(begin, begin + 3)
            diagonal = diagonal.at[of_three].set(diagonal[of_three].mean())
    return model.tree_replace({"body_invweight0": body_weights, "dof_invweight0": diagonal})
