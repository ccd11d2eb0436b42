"""One step of MJX as MuJoCo takes it, with gradients that hold in contact.

MJX leaves out the implicit gyroscopic forces of free bodies; they are added here. Gradients of the
constraint solver's solution come from the equation that it solves. The solver's own loops are not
differentiated: where a contact is at rest or apart, they take a root of zero, whose gradient is not
finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from clashsim.core.scene import STRIKE
from clashsim.sim.mjx.model import MjxScene, import_mjx

# (model, data) -> data.
DataFunction = Callable[[Any, Any], Any]


def make_step(
    mjx_scene: MjxScene, *, differentiate: bool, change_forces: DataFunction | None = None
) -> DataFunction:
    """The function (model, data) -> data that steps a scene.

    For every free body to which nothing is jointed, MuJoCo's `implicitfast` includes the derivative
    of the bias force and solves (M - dt d(-bias)/dv) a = f for the acceleration a, in the body's
    own 6 by 6 block. MJX's does not, and a spinning block is 1e-4 off after a step. As mjx.implicit
    solves M a = f, the force f is changed here to M a with MuJoCo's a.

    Args:
        mjx_scene: The scene in MJX.
        differentiate: Whether the step will be differentiated; its values do not depend on it.
        change_forces: May change the smooth forces before the constraints are solved.
    """
    jax, mjx = import_mjx()
    jnp = jax.numpy
    mujoco_model = mjx_scene.mujoco_model
    integrator = int(mujoco_model.opt.integrator)
    if integrator == int(mujoco.mjtIntegrator.mjINT_RK4):
        return mjx.step
    implicit = integrator == int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
    dofs = _lone_free_bodies(mujoco_model)  # (b, 6)
    forward = make_forward(mjx_scene, differentiate=differentiate, change_forces=change_forces)

    def add_gyroscopic_forces(model: Any, data: Any) -> Any:
        """The data with the forces changed so that mjx.implicit gives MuJoCo's accelerations."""

        def bias_force(angular_velocity: Any) -> Any:
            """Bias force with an angular velocity added to that of each free body."""
            qvel = data.qvel.at[dofs[:, 3:]].add(angular_velocity)
            return mjx.rne(model, mjx.com_vel(model, data.replace(qvel=qvel))).qfrc_bias

        by_angular_velocity = -jax.jacfwd(bias_force)(jnp.zeros(3))[dofs]
        force_by_velocity = jnp.zeros((len(dofs), 6, 6)).at[:, :, 3:].set(by_angular_velocity)
        mass = mjx.full_m(model, data)
        smooth = mjx.deriv_smooth_vel(model, data)
        if smooth is not None:
            mass = mass - model.opt.timestep * smooth
        mass = mass[dofs[:, :, None], dofs[:, None, :]]
        force = (data.qfrc_smooth + data.qfrc_constraint)[dofs]
        implicit_mass = mass - model.opt.timestep * force_by_velocity
        acceleration = jnp.linalg.solve(implicit_mass, force[..., None])
        added = (mass @ acceleration)[..., 0] - force
        return data.replace(qfrc_constraint=data.qfrc_constraint.at[dofs].add(added))

    def step(model: Any, data: Any) -> Any:
        data = forward(model, data)
        if not implicit:
            return mjx.euler(model, data)
        if len(dofs):
            data = add_gyroscopic_forces(model, data)
        return mjx.implicit(model, data)

    return step


def make_forward(
    mjx_scene: MjxScene, *, differentiate: bool, change_forces: DataFunction | None = None
) -> DataFunction:
    """The function (model, data) -> data that computes accelerations; arguments as `make_step`."""
    if differentiate or change_forces is not None:
        return _differentiable_forward(change_forces, differentiate=differentiate)
    _, mjx = import_mjx()
    return mjx.forward


def _differentiable_forward(
    change_forces: DataFunction | None, *, differentiate: bool
) -> DataFunction:
    """mjx.forward with changed forces, and gradients by the implicit function theorem.

    At the solver's solution the gradient g of its cost, with the Hessian H, is zero. So the
    solution changes by -H^-1 dg, as one more step of Newton's method would. Here that step is added
    with its derivative but without its value, so that the value stays the solver's.
    """
    jax, mjx = import_mjx()
    from mujoco.mjx._src.solver import Context

    constant = jax.lax.stop_gradient

    def forward(model: Any, data: Any) -> Any:
        for stage in (mjx.fwd_position, mjx.fwd_velocity, mjx.fwd_actuation, mjx.fwd_acceleration):
            data = stage(model, data)
        if change_forces is not None:
            data = change_forces(model, data)
        if not data._impl.efc_J.size:
            return data.replace(qacc=data.qacc_smooth)
        if not differentiate:
            return mjx.solve(model, data)
        solved = mjx.solve(constant(model), constant(data))
        newton_step = Context.create(model, data.replace(qacc=solved.qacc)).Mgrad
        qacc = solved.qacc - (newton_step - constant(newton_step))
        # The force of the constraints is what the smooth forces do not explain.
        force = mjx.mul_m(model, data, qacc) - data.qfrc_smooth
        return data.replace(
            qacc=qacc, qfrc_constraint=solved.qfrc_constraint + (force - constant(force))
        )

    return forward


def strike_contacts(mjx_scene: MjxScene) -> Callable[[Any], Any]:
    """The function data -> mask (c,) of those contacts that are between striker and struck geom.

    MJX lists the contacts of every pair of geoms, whether they touch or not.
    """
    a, b = _strike_geoms(mjx_scene)

    def mask(data: Any) -> Any:
        first, second = data._impl.contact.geom.T
        return ((first == a) & (second == b)) | ((first == b) & (second == a))

    return mask


def strike_sensor(mjx_scene: MjxScene) -> Callable[[Any], tuple[Any, Any]]:
    """The function data -> (touching, normal velocity) in place of the scene's strike sensor.

    MJX does not have that sensor. `touching` is whether MuJoCo would list a contact of a pair
    without a gap. The normal velocity (m/s) is that of the deepest contact, negative while the
    bodies approach. Both describe the state of the last `forward`, as MuJoCo's sensors do: after a
    step, the state before it. MJX gives velocities at the centre of mass c of a body's kinematic
    tree; at a point p the velocity is v_c + w x (p - c).
    """
    jax, _ = import_mjx()
    jnp = jax.numpy
    mujoco_model = mjx_scene.mujoco_model
    is_strike = strike_contacts(mjx_scene)
    first_geom, second_geom = _strike_geoms(mjx_scene)
    body = mujoco_model.geom_bodyid[[first_geom, second_geom]]  # (2,)
    root = mujoco_model.body_rootid[body]

    def sensor(data: Any) -> tuple[Any, Any]:
        contact = data._impl.contact
        distance = jnp.where(is_strike(data), contact.dist - contact.includemargin, jnp.inf)
        deepest = jnp.argmin(distance)
        # The normal points from the first to the second geom of the contact.
        swapped = contact.geom[deepest, 0] != first_geom
        arm = contact.pos[deepest] - data.subtree_com[root]
        angular = data.cvel[body, :3]
        linear = data.cvel[body, 3:]
        velocity = linear + jnp.cross(angular, arm)
        normal_velocity = contact.frame[deepest, 0] @ (velocity[1] - velocity[0])
        return distance[deepest] <= 0, jnp.where(swapped, -normal_velocity, normal_velocity)

    return sensor


def _strike_geoms(mjx_scene: MjxScene) -> tuple[int, int]:
    """The two geoms of the scene's strike."""
    model = mjx_scene.mujoco_model
    pair = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_PAIR, STRIKE)
    return int(model.pair_geom1[pair]), int(model.pair_geom2[pair])


def _lone_free_bodies(model: mujoco.MjModel) -> np.ndarray:
    """Degrees of freedom (b, 6) of the free bodies to which nothing is jointed."""
    first_dofs = []
    for joint in range(model.njnt):
        dof = int(model.jnt_dofadr[joint])
        is_free = int(model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_FREE)
        if is_free and (model.dof_treeid == model.dof_treeid[dof]).sum() == 6:
            first_dofs.append(dof)
    return np.array(first_dofs, int).reshape(-1, 1) + np.arange(6)
