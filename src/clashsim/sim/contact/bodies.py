"""How bodies resist an impulse: mass, inertia and the motion that their joints allow."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.mechanism import Mechanism
from clashsim.core.mobility import Mobility


@dataclass(frozen=True, eq=False)
class RigidProperties:
    """What is welded together to one body, for N sets of parameters, in the body's own frame.

    Attributes:
        mass: (N,) kg.
        centre: (N, 3) mass centre, m.
        inertia: (N, 3, 3) about the mass centre, kg m^2.
    """

    mass: np.ndarray
    centre: np.ndarray
    inertia: np.ndarray


def rigid_properties(
    model: mujoco.MjModel, body: int, fields: Mapping[str, np.ndarray]
) -> RigidProperties:
    """Sum up the bodies that are welded to `body`.

    Args:
        model: The scene's model.
        body: A body with joints of its own.
        fields: `body_mass` (N, B), `body_inertia` and `body_ipos` (N, B, 3) of all bodies.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    root_rotation = data.xmat[body].reshape(3, 3)
    welded = [b for b in range(1, model.nbody) if int(model.body_weldid[b]) == body]
    masses, centres, inertias = [], [], []
    for b in welded:
        rotation = root_rotation.T @ data.xmat[b].reshape(3, 3)
        offset = root_rotation.T @ (data.xpos[b] - data.xpos[body])
        principal = (
            rotation @ Rotation.from_quat(model.body_iquat[b], scalar_first=True).as_matrix()
        )
        masses.append(fields["body_mass"][:, b])
        centres.append(offset + fields["body_ipos"][:, b] @ rotation.T)
        inertias.append(
            np.einsum("ij,nj,kj->nik", principal, fields["body_inertia"][:, b], principal)
        )
    mass = np.sum(masses, 0)
    centre = np.einsum("bn,bni->ni", masses, centres) / mass[:, None]
    total = np.zeros((len(mass), 3, 3))
    for part_mass, part_centre, part_inertia in zip(masses, centres, inertias, strict=True):
        arm = part_centre - centre
        squared = np.einsum("ni,ni->n", arm, arm)
        steiner = squared[:, None, None] * np.eye(3) - np.einsum("ni,nj->nij", arm, arm)
        total += part_inertia + part_mass[:, None, None] * steiner
    return RigidProperties(mass, centre, total)


@dataclass(frozen=True, eq=False)
class MotionBasis:
    """Unit-mass coordinates of a body for N sets of parameters, world axes.

    Attributes:
        twists: (N, 6, d), twists of the body's origin, whose outer product is the inverse inertia
            there. Where `rotates`, the first columns are translations and the others rotations.
        rotates: Whether the columns rotate with the body; otherwise they do not change.
    """

    twists: np.ndarray
    rotates: bool


def motion_basis(
    mobility: Mobility, properties: RigidProperties, rotation: np.ndarray, armature: np.ndarray
) -> MotionBasis | None:
    """Find unit-mass coordinates of a body.

    Args:
        mobility: The joints of the body.
        properties: Its mass and inertia.
        rotation: (N, 3, 3), its orientation, world axes.
        armature: (d,), inertia that motors add to each of its degrees of freedom.

    Returns:
        The coordinates; None where they change with the pose in another way than by rotation.
    """
    arm = np.einsum("nij,nj->ni", rotation, properties.centre)
    inertia = np.einsum("nij,njk,nlk->nil", rotation, properties.inertia, rotation, optimize=True)
    inverse_root_mass = 1 / np.sqrt(properties.mass)
    num_slides = len(mobility.slides)
    if mobility.free:
        if armature.any():
            return None
        factor = np.linalg.cholesky(inertia)
        axes = np.linalg.inv(factor)  # rows are angular velocities
        return _rotating_basis(inverse_root_mass, mobility.slides, axes, arm)
    if mobility.hinge is None:
        twists = np.zeros((len(rotation), 6, num_slides))
        mass = properties.mass[:, None] + armature
        twists[:, :3] = mobility.slides.T / np.sqrt(mass)[:, None, :]
        return MotionBasis(twists, rotates=False)
    moment = np.einsum("i,nij,j->n", mobility.hinge, inertia, mobility.hinge) + armature[-1]
    if num_slides == 0:
        across = arm - (arm @ mobility.hinge)[:, None] * mobility.hinge
        moment = moment + properties.mass * (across**2).sum(1)
        twists = np.zeros((len(rotation), 6, 1))
        twists[:, 3:, 0] = mobility.hinge / np.sqrt(moment)[:, None]
        return MotionBasis(twists, rotates=False)
    if num_slides == 1 or armature[:-1].any():
        return None
    axes = (mobility.hinge / np.sqrt(moment)[:, None])[:, None]
    return _rotating_basis(inverse_root_mass, mobility.slides, axes, arm)


def _rotating_basis(
    inverse_root_mass: np.ndarray, slides: np.ndarray, axes: np.ndarray, arm: np.ndarray
) -> MotionBasis:
    """Coordinates of a body that translates and rotates freely, in space or in a plane.

    Args:
        inverse_root_mass: (N,).
        slides: (s, 3), directions in which it translates.
        axes: (N, r, 3), angular velocities of unit energy about its mass centre.
        arm: (N, 3), m, from its origin to its mass centre.
    """
    num_slides = len(slides)
    twists = np.zeros((len(arm), 6, num_slides + axes.shape[1]))
    twists[:, :3, :num_slides] = slides.T * inverse_root_mass[:, None, None]
    twists[:, 3:, num_slides:] = np.swapaxes(axes, 1, 2)
    # The mass centre stays where it is, so the origin moves.
    twists[:, :3, num_slides:] = np.swapaxes(-np.cross(axes, arm[:, None]), 1, 2)
    return MotionBasis(twists, rotates=True)


@dataclass(frozen=True, eq=False)
class MechanismState:
    """A body at the end of a mechanism in N impacts, whose tree of joints has k velocities.

    Attributes:
        mass_matrix: (N, k, k).
        jacobian: (N, 6, k), twist of the body's origin, world axes.
        mass_jacobians: For each body whose mass is a parameter its index, and (N, 3, k), velocity
            of its mass centre.
        acceleration: (N, 6), of the body's origin without contact and actuators.
    """

    mass_matrix: np.ndarray
    jacobian: np.ndarray
    mass_jacobians: list[tuple[int, np.ndarray]]
    acceleration: np.ndarray


def mechanism_state(
    mechanism: Mechanism, qpos: np.ndarray, qvel: np.ndarray, bodies_of_mass: Sequence[int]
) -> MechanismState:
    """Compute how a mechanism resists an impulse.

    Args:
        mechanism: The mechanism.
        qpos: (N, nq), of the whole model.
        qvel: (N, nv), of the whole model.
        bodies_of_mass: Indices of bodies whose mass is a parameter.
    """
    model = _without_constraints(mechanism.model)
    tree = mechanism.tree
    n, k = len(qpos), len(tree)
    mass_matrix = np.empty((n, k, k))
    jacobian = np.empty((n, 6, k))
    mass_jacobians = [(body, np.empty((n, 3, k))) for body in bodies_of_mass]
    acceleration = np.zeros((n, 6))
    data = mujoco.MjData(model)
    whole = np.zeros((model.nv, model.nv))
    for row in range(n):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = qpos[row]
        data.qvel[:] = qvel[row]
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, data, whole)
        mass_matrix[row] = whole[np.ix_(tree, tree)]
        of_body = mechanism.jacobian(data)
        jacobian[row] = of_body[:, tree]
        for body, of_mass in mass_jacobians:
            of_centre = np.zeros((3, model.nv))
            mujoco.mj_jacBodyCom(model, data, of_centre, None, body)
            of_mass[row] = of_centre[:, tree]
        changing = np.zeros((6, model.nv))
        point = data.xpos[mechanism.body]
        mujoco.mj_jacDot(model, data, changing[:3], changing[3:], point, mechanism.body)
        acceleration[row] = of_body @ data.qacc_smooth + changing @ data.qvel
    return MechanismState(mass_matrix, jacobian, mass_jacobians, acceleration)


def _without_constraints(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of a model in which nothing collides and no joint has limits."""
    loose = copy.copy(model)
    loose.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    loose.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    return loose
