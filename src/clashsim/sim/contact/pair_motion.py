"""How the bodies of a scene's pair move and resist an impulse, seen from their contact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import mujoco
import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.impacts import MotionBefore
from clashsim.core.mechanism import Mechanism
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene, model_field
from clashsim.sim.contact.bodies import (
    MechanismState,
    RigidProperties,
    mechanism_state,
    motion_basis,
    rigid_properties,
)
from clashsim.sim.contact.problem import PairMotion
from clashsim.sim.mujoco.impacts import balanced_trees, joint_damping

_LEAST_COLUMNS = (
    6  # of the arrays of both bases, so that the solver is compiled once for most pairs
)
_MAX_COLUMNS = 24  # joints of a mechanism at most
_IMPLICIT = (
    int(mujoco.mjtIntegrator.mjINT_IMPLICIT),
    int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST),
)
# Arrays of a model on which the inertia of a mechanism depends, besides the masses of its bodies.
_INERTIAL_FIELDS = ("body_inertia", "body_ipos", "body_iquat", "dof_armature", "dof_damping")
# Arrays of a model that the solver reads, besides those of the scene's parameters.
_FIELDS = (
    "body_mass",
    "body_inertia",
    "body_ipos",
    "geom_size",
    "pair_friction",
    "pair_solref",
    "pair_solimp",
    "opt.gravity",
)

Fields = dict[str, np.ndarray]  # arrays of a model with a leading axis of N impacts, by name


@dataclass(frozen=True, eq=False)
class PosedBody:
    """A body in N impacts, world axes.

    Attributes:
        position: (N, 3), m, of its origin.
        rotation: (N, 3, 3).
        linear: (N, 3), m/s, velocity of its origin.
        angular: (N, 3), rad/s.
    """

    position: np.ndarray
    rotation: np.ndarray
    linear: np.ndarray
    angular: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> PosedBody:
        return PosedBody(
            self.position[rows], self.rotation[rows], self.linear[rows], self.angular[rows]
        )


class MovingPair:
    """The bodies of N impacts of a scene's pair.

    Attributes:
        scene: The scene.
        before: (N, d), columns as in `Impacts`.
    """

    def __init__(self, scene: Scene, before: np.ndarray) -> None:
        self.scene = scene
        self.before = before
        self.poser = PairPoser(scene)
        self._mobilities = (scene.struck_body, scene.striker_body)
        self._mechanisms = tuple(_mechanism_of(scene, body) for body in self._mobilities)

    @cached_property
    def bodies(self) -> tuple[PosedBody, PosedBody]:
        """The struck body and the striker."""
        motion = MotionBefore.of(self.before)
        posed = []
        for mobility, body in zip(self._mobilities, (motion.struck, motion.striker), strict=True):
            position, rotation = self.poser.world_pose(body.pose, mobility, None)
            if mobility.mechanism is not None:
                # The joints may not reach a height or tilt that was not recorded.
                coordinates = mobility.coordinates(position, rotation)
                position, rotation = mobility.mechanism.reached(coordinates)
            posed.append(PosedBody(position, rotation, *self.poser.world_twist(body.twist)))
        return posed[0], posed[1]

    def at_contact(
        self, rows: np.ndarray, fields: Fields, point: np.ndarray, axes: np.ndarray
    ) -> tuple[PairMotion, np.ndarray]:
        """Motion of impacts `rows` (M,) in the axes of their contacts.

        Args:
            rows: (M,), indices of impacts.
            fields: The model's arrays for each of them.
            point: (M, 3), m, where the surfaces touch, world axes.
            axes: (M, 3, 3), rows are the axes of the contacts.

        Returns:
            The motion, with `row` and `shift` to be filled; and the inverse weights (M, 2) of the
            bodies, 1/kg.
        """
        m = len(rows)
        columns = np.array(
            [
                len(body.qvel if mechanism is None else mechanism.tree)
                for body, mechanism in zip(self._mobilities, self._mechanisms, strict=True)
            ]
        )
        width = max(_LEAST_COLUMNS, int(columns.max()))
        motion = PairMotion(
            row=rows,
            origin=np.zeros((m, 2, 3)),
            shift=np.zeros((m, 3)),
            arm=np.zeros((m, 2, 3)),
            basis=np.zeros((m, 2, 6, width)),
            columns=columns,
            rotating=columns.copy(),
            inertia=np.zeros((m, 2, 3, 3)),
            twist=np.zeros((m, 2, 6)),
            acceleration=np.zeros((m, 2, 6)),
            driven=np.zeros(2, int),
            damping=np.zeros((m, 2, width, width)),
            relaxation=np.zeros((m, 2, width, width)),
            drift=np.zeros((m, 2, width)),
        )
        inverse_weight = np.zeros((m, 2))
        to_contact = np.zeros((m, 6, 6))  # from twists in world axes to those of the contact
        to_contact[:, :3, :3] = axes
        to_contact[:, 3:, 3:] = axes
        for b, mobility in enumerate(self._mobilities):
            body = self.bodies[b][rows]
            twist = np.concatenate([body.linear, body.angular], axis=1)
            motion.twist[:, b] = np.einsum("nij,nj->ni", to_contact, twist)
            motion.origin[:, b] = np.einsum("nij,nj->ni", axes, body.position - point)
            if mobility.fixed:
                continue
            if self._mechanisms[b] is not None:
                self._fill_mechanism(motion, b, rows, fields, to_contact)
                inverse_weight[:, b] = _inverse_weight(self.scene, b)
            else:
                inverse_weight[:, b] = self._fill_rigid(motion, b, body, fields, to_contact)
        return motion, inverse_weight

    def _fill_rigid(
        self, motion: PairMotion, b: int, body: PosedBody, fields: Fields, to_contact: np.ndarray
    ) -> np.ndarray:
        """Fill the motion of body b on joints of its own; returns its inverse weights (M,)."""
        scene = self.scene
        mobility = self._mobilities[b]
        axes = to_contact[:, :3, :3]
        count = int(motion.columns[b])
        properties = rigid_properties(scene.base, mobility.body, fields)
        armature = scene.base.dof_armature[mobility.qvel]
        basis = motion_basis(mobility, properties, body.rotation, armature)
        assert basis is not None  # or the body would be taken for a mechanism
        arm = np.einsum("nij,nj->ni", body.rotation, properties.centre)
        motion.arm[:, b] = np.einsum("nij,nj->ni", axes, arm)
        motion.basis[:, b, :, :count] = to_contact @ basis.twists
        if basis.rotates:
            motion.rotating[b] = len(mobility.slides)
        if mobility.free:
            to_body = axes @ body.rotation
            motion.inertia[:, b] = to_body @ properties.inertia @ np.swapaxes(to_body, 1, 2)
        # Velocities of the mass centre, whose outer product is the inverse mass there.
        at_centre = basis.twists[:, :3] + np.cross(
            basis.twists[:, 3:], arm[:, :, None], axisa=1, axisb=1, axisc=1
        )
        weight = properties.mass[:, None] * fields["opt.gravity"]
        drift = np.einsum("njk,nj->nk", at_centre, weight)
        if _is_balanced(scene, mobility):
            drift[:] = 0.0
        fall = np.einsum("nik,nk->ni", basis.twists, drift)
        motion.acceleration[:, b] = np.einsum("nij,nj->ni", to_contact, fall)
        gains = _servo_gains(scene, mobility)
        if gains.any():
            by_twist = np.swapaxes(basis.twists, 1, 2)
            self._fill_drive(motion, b, by_twist @ gains @ basis.twists, drift)
        return (at_centre**2).sum((1, 2)) * _weight_factor(scene, mobility)

    def _fill_mechanism(
        self, motion: PairMotion, b: int, rows: np.ndarray, fields: Fields, to_contact: np.ndarray
    ) -> None:
        """Fill the motion of body b, which a mechanism carries.

        Its configuration hardly changes during an impact, so its inertia is taken to be constant.
        """
        mechanism = self._mechanisms[b]
        assert mechanism is not None
        state = self._mechanism_states[b]
        mass_matrix = state.mass_matrix[rows]
        for body, jacobian in state.mass_jacobians:
            added = fields["body_mass"][:, body] - self.scene.base.body_mass[body]
            by_mass = jacobian[rows]
            mass_matrix = mass_matrix + added[:, None, None] * (
                np.swapaxes(by_mass, 1, 2) @ by_mass
            )
        # Unit-mass velocities u: those of the joints are L^-T u, where the mass matrix is L L^T.
        root = np.linalg.cholesky(mass_matrix)
        to_joints = np.swapaxes(np.linalg.inv(root), 1, 2)
        count = int(motion.columns[b])
        twists = to_contact @ state.jacobian[rows] @ to_joints
        motion.basis[:, b, :, :count] = twists
        if not _is_balanced(self.scene, self._mobilities[b]):
            acceleration = np.einsum("nij,nj->ni", to_contact, state.acceleration[rows])
            motion.acceleration[:, b] = acceleration
        damping_of_joints = _joint_damping(self.scene, self._mobilities[b])[mechanism.tree]
        if damping_of_joints.any():
            from_joints = np.swapaxes(to_joints, 1, 2)
            damping = from_joints @ (damping_of_joints[:, None] * to_joints)
            self._fill_drive(motion, b, damping, np.zeros((len(rows), count)))

    def _fill_drive(
        self, motion: PairMotion, b: int, damping: np.ndarray, drift: np.ndarray
    ) -> None:
        """Fill what servos and dampers do to body b, in its d unit-mass coordinates.

        Args:
            motion: The motion.
            b: The body.
            damping: (M, d, d), 1/s.
            drift: (M, d), accelerations by everything else but contact.
        """
        count = damping.shape[1]
        option = self.scene.base.opt
        motion.driven[b] = 1
        motion.damping[:, b, :count, :count] = damping
        motion.drift[:, b, :count] = drift
        relaxation = np.eye(count)
        if int(option.integrator) in _IMPLICIT:
            relaxation = np.linalg.inv(np.eye(count) + option.timestep * damping)
        motion.relaxation[:, b, :count, :count] = relaxation

    @cached_property
    def _mechanism_states(self) -> dict[int, MechanismState]:
        """Mechanisms in all impacts, by body."""
        model = self.scene.base
        n = len(self.before)
        qpos = np.tile(model.qpos0, (n, 1))
        qvel = np.zeros((n, model.nv))
        self.poser.write(self.before, qpos, qvel)
        bodies_of_mass: set[int] = set()
        for slot in self.scene.slots:
            if slot is not None and slot.field == "body_mass":
                bodies_of_mass.update(slot.rows)
        states = {}
        for b, mechanism in enumerate(self._mechanisms):
            if mechanism is not None:
                of_tree = [body for body in bodies_of_mass if _in_tree(mechanism, body)]
                states[b] = mechanism_state(mechanism, qpos, qvel, of_tree)
        return states


def is_covered(scene: Scene, mobility: Mobility) -> bool:
    """Whether the motion of a body can be described, for any parameters of a scene."""
    if mobility.fixed:
        return True
    if mobility.mechanism is not None:
        varies = _inertia_varies(scene, mobility.mechanism)
        return not varies and len(mobility.mechanism.tree) <= _MAX_COLUMNS
    return _has_basis(scene, mobility)


def _inertia_varies(scene: Scene, mechanism: Mechanism) -> bool:
    """Whether parameters of a scene, besides masses, change the inertia of a mechanism."""
    for slot in scene.slots:
        if slot is None or slot.field not in _INERTIAL_FIELDS:
            continue
        if slot.field.startswith("dof_"):
            if np.isin(slot.rows, mechanism.tree).any():
                return True
        elif any(_in_tree(mechanism, body) for body in slot.rows):
            return True
    return False


def _in_tree(mechanism: Mechanism, body: int) -> bool:
    """Whether joints of a mechanism's tree move a body."""
    model = mechanism.model
    root = int(model.body_rootid[body])
    return root != 0 and root == int(model.body_rootid[mechanism.body])


def _mechanism_of(scene: Scene, mobility: Mobility) -> Mechanism | None:
    """The joints of a body whose motion has no simpler description, as those of an arm."""
    if mobility.fixed:
        return None
    if mobility.mechanism is None and not _has_basis(scene, mobility):
        return Mechanism(scene.base, mobility.body)
    return mobility.mechanism


def _has_basis(scene: Scene, mobility: Mobility) -> bool:
    """Whether `motion_basis` describes a body on joints of its own."""
    one = RigidProperties(np.ones(1), np.zeros((1, 3)), np.eye(3)[None])
    armature = scene.base.dof_armature[mobility.qvel]
    return motion_basis(mobility, one, np.eye(3)[None], armature) is not None


def model_fields(scene: Scene, theta: np.ndarray) -> Fields:
    """Arrays of the model for N impacts, with their parameters (N, p) written into them."""
    names = {*_FIELDS, *(slot.field for slot in scene.slots if slot is not None)}
    fields = {}
    for name in names:
        array = np.asarray(model_field(scene.base, name), float)
        fields[name] = np.repeat(array[None], len(theta), 0)
    scene.write(theta, lambda name: fields[name])
    return fields


@lru_cache(maxsize=64)
def _inverse_weight(scene: Scene, b: int) -> float:
    """MuJoCo's `body_invweight0` of the body that carries the struck (0) or striking (1) geom."""
    geom = (scene.struck, scene.striker)[b]
    return float(scene.base.body_invweight0[scene.base.geom(geom).bodyid[0], 0])


@lru_cache(maxsize=64)
def _weight_factor(scene: Scene, mobility: Mobility) -> float:
    """MuJoCo's `body_invweight0` over the trace of the body's inverse mass.

    MuJoCo takes the mean over the directions in which a body can move, but not for all joints.
    """
    model = scene.base
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    jacobian = np.zeros((3, model.nv))
    mujoco.mj_jacBodyCom(model, data, jacobian, None, mobility.body)
    response = np.zeros((3, model.nv))
    mujoco.mj_solveM(model, data, response, jacobian)
    trace = float((jacobian * response).sum())
    return float(model.body_invweight0[mobility.body, 0]) / trace if trace > 0 else 0.0


@lru_cache(maxsize=64)
def _servo_gains(scene: Scene, mobility: Mobility) -> np.ndarray:
    """Forces and torques (6, 6) of servos per unit of twist of a body, world axes."""
    gains = np.zeros((6, 6))
    directions = np.zeros((6, len(mobility.qvel)))  # twist of a unit velocity of each joint
    directions[:3, : len(mobility.slides)] = mobility.slides.T
    if mobility.hinge is not None:
        directions[3:, len(mobility.slides)] = mobility.hinge
    damping = _joint_damping(scene, mobility)[mobility.qvel]
    if not mobility.free:
        gains = (directions * damping) @ directions.T
    return gains


def _is_balanced(scene: Scene, mobility: Mobility) -> bool:
    """Whether a controller balances all that acts on a body but contact."""
    return any(mobility.qvel[0] in tree for tree in balanced_trees(scene))


@lru_cache(maxsize=64)
def _joint_damping(scene: Scene, mobility: Mobility) -> np.ndarray:
    """Damping (nv,), of the joints that move a body, by themselves and by their servos."""
    return joint_damping(scene.base, mobility)
