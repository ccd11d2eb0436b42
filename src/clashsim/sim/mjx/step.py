"""One step of MJX as MuJoCo takes it, with slopes that hold.

Free bodies are turned with their gyroscopic forces implicit, which MJX leaves out. Slopes of the
solver's answer come from the equation it
solves: the loops of the solver have none where a contact is at rest or apart (a root of zero), and
need not be gone through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from clashsim.core.scene import STRIKE
from clashsim.sim.mjx.model import MjxScene, import_mjx


def stepper(
    held: MjxScene, *, differentiate: bool, between: Callable[[Any, Any], Any] | None = None
) -> Callable[[Any, Any], Any]:
    """The function (model, data) -> data that steps a scene; its values do not depend on
    `differentiate`.

    `between` (model, data) -> data may change the smooth forces before the constraints are solved.

    MuJoCo's `implicitfast` differentiates the bias force of every body that floats alone, (M - dt
    d(-bias)/dv) a = f in its own 6 by 6 block; MJX's does not, and a spinning block is then 1e-4
    off after a step. mjx.implicit solves M a = f, so f is changed to give that a.
    """
    jax, mjx = import_mjx()
    jnp, plain = jax.numpy, held.plain
    dofs = _alone(plain)
    fast = int(plain.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
    forward = forward_of(held, differentiate=differentiate, between=between)

    def turned(model: Any, data: Any) -> Any:
        def bias(spin: Any) -> Any:
            return mjx.rne(
                model, mjx.com_vel(model, data.replace(qvel=data.qvel.at[dofs[:, 3:]].add(spin)))
            ).qfrc_bias

        slope = jnp.zeros((len(dofs), 6, 6)).at[:, :, 3:].set(-jax.jacfwd(bias)(jnp.zeros(3))[dofs])
        mass, smooth = mjx.full_m(model, data), mjx.deriv_smooth_vel(model, data)
        mass = (mass if smooth is None else mass - model.opt.timestep * smooth)[
            dofs[:, :, None], dofs[:, None, :]
        ]
        force = (data.qfrc_smooth + data.qfrc_constraint)[dofs]
        gained = jnp.linalg.solve(mass - model.opt.timestep * slope, force[..., None])
        return data.replace(
            qfrc_constraint=data.qfrc_constraint.at[dofs].add((mass @ gained)[..., 0] - force)
        )

    def step(model: Any, data: Any) -> Any:
        data = forward(model, data)
        return (
            mjx.implicit(model, turned(model, data) if len(dofs) else data)
            if fast
            else mjx.euler(model, data)
        )

    return mjx.step if int(plain.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4) else step


def forward_of(
    held: MjxScene, *, differentiate: bool, between: Callable[[Any, Any], Any] | None = None
) -> Callable[[Any, Any], Any]:
    """The function (model, data) -> data that computes the accelerations of a scene; `between` as
    in `stepper`.
    """
    return (
        _forward(between, differentiate=differentiate)
        if differentiate or between is not None
        else import_mjx()[1].forward
    )


def _forward(
    between: Callable[[Any, Any], Any] | None, *, differentiate: bool
) -> Callable[[Any, Any], Any]:
    """mjx.forward with something in between, and slopes by the implicit function theorem.

    The solver's answer makes its gradient g vanish, so it moves by -H^-1 dg, which is how one more
    step of Newton moves; that step itself is taken off again, for the value is the solver's.
    """
    jax, mjx = import_mjx()
    from mujoco.mjx._src.solver import Context

    still = jax.lax.stop_gradient

    def forward(model: Any, data: Any) -> Any:
        for stage in (mjx.fwd_position, mjx.fwd_velocity, mjx.fwd_actuation, mjx.fwd_acceleration):
            data = stage(model, data)
        if between is not None:
            data = between(model, data)
        if not data._impl.efc_J.size:
            return data.replace(qacc=data.qacc_smooth)
        if not differentiate:
            return mjx.solve(model, data)
        solved = mjx.solve(still(model), still(data))
        newton = Context.create(model, data.replace(qacc=solved.qacc)).Mgrad
        qacc = solved.qacc - (newton - still(newton))
        force = (
            mjx.mul_m(model, data, qacc) - data.qfrc_smooth
        )  # of the constraints: what the smooth forces do not explain
        return data.replace(
            qacc=qacc, qfrc_constraint=solved.qfrc_constraint + (force - still(force))
        )

    return forward


def strike_of(held: MjxScene) -> Callable[[Any], Any]:
    """The function data -> mask (c,) of the contacts that are the strike's; MJX lists those of
    every pair, apart or not.
    """
    plain = held.plain
    pair = mujoco.mj_name2id(plain, mujoco.mjtObj.mjOBJ_PAIR, STRIKE)
    a, b = int(plain.pair_geom1[pair]), int(plain.pair_geom2[pair])

    def strike(data: Any) -> Any:
        first, second = data._impl.contact.geom.T
        return ((first == a) & (second == b)) | ((first == b) & (second == a))

    return strike


def strike_sensor(held: MjxScene) -> Callable[[Any], tuple[Any, Any]]:
    """The function data -> (found, rate) that stands for the scene's sensor of the strike, which
    MJX does not have.

    found: whether MuJoCo would list a contact of a pair without a gap. rate: normal velocity of the
    deepest one, negative while the bodies approach. Of the state of the last `forward`, as with
    MuJoCo's sensors; v(p) = v_c + w x (p - c), with c the mass centre to which MJX refers a
    velocity.
    """
    jnp, plain, strike = import_mjx()[0].numpy, held.plain, strike_of(held)
    pair = mujoco.mj_name2id(plain, mujoco.mjtObj.mjOBJ_PAIR, STRIKE)
    body = plain.geom_bodyid[[int(plain.pair_geom1[pair]), int(plain.pair_geom2[pair])]]
    root = plain.body_rootid[body]

    def sensor(data: Any) -> tuple[Any, Any]:
        contact = data._impl.contact
        distance = jnp.where(strike(data), contact.dist - contact.includemargin, jnp.inf)
        deepest = jnp.argmin(distance)
        swapped = (
            contact.geom[deepest, 0] != plain.pair_geom1[pair]
        )  # the normal points from the first to the second
        arm = contact.pos[deepest] - data.subtree_com[root]
        spin, speed = data.cvel[body, :3], data.cvel[body, 3:]
        velocity = speed + jnp.cross(spin, arm)
        rate = contact.frame[deepest, 0] @ (velocity[1] - velocity[0])
        return distance[deepest] <= 0, jnp.where(swapped, -rate, rate)

    return sensor


def _alone(model: mujoco.MjModel) -> np.ndarray:
    """Degrees of freedom (b, 6) of the free bodies to which nothing is jointed."""
    first = [
        int(model.jnt_dofadr[j])
        for j in range(model.njnt)
        if int(model.jnt_type[j]) == int(mujoco.mjtJoint.mjJNT_FREE)
    ]
    alone = [a for a in first if (model.dof_treeid == model.dof_treeid[a]).sum() == 6]
    return np.array(alone, int).reshape(-1, 1) + np.arange(6)
