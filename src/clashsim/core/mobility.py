"""How the body of a geom moves: fixed, on slides and a hinge, free, or carried by other joints.

Converts poses and twists of bodies to MuJoCo's qpos and qvel, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.errors import SceneError
from clashsim.core.mechanism import Mechanism, joints_to_world

_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
_HINGE = int(mujoco.mjtJoint.mjJNT_HINGE)
_FREE_COORDINATES = 7  # entries of qpos of a free joint: position and quaternion
_FREE_VELOCITIES = 6  # entries of qvel of a free joint
_MAX_COSINE = 1e-6  # between axes that are taken to be at right angles
_MAX_OFFSET = 1e-9  # m, from the body's origin, of a point that is taken to be there


@dataclass(frozen=True, eq=False)
class Mobility:
    """The body that carries a geom, its joints and its reference pose (world axes, metres).

    Attributes:
        body: Index of the body in the model.
        name: Name of the body.
        free: Whether the body has a free joint.
        slides: (s, 3), unit axes of the slide joints, world.
        hinge: (3,), unit axis of the hinge through the body's origin, world; None without a hinge.
        qpos: Indices of the body's coordinates in the model's qpos: seven for a free joint,
            otherwise one per slide, then that of the hinge.
        qvel: Likewise in the model's qvel; six for a free joint.
        position: (3,), m, reference position of the body's origin.
        rotation: (3, 3), reference orientation, body to world axes.
        mechanism: The joints between body and world, where they are not a free joint, or slides and
            a hinge of the body's own at right angles; `slides` is then empty and `hinge` None.
    """

    body: int
    name: str
    free: bool
    slides: np.ndarray
    hinge: np.ndarray | None
    qpos: np.ndarray
    qvel: np.ndarray
    position: np.ndarray
    rotation: np.ndarray
    mechanism: Mechanism | None = None

    @staticmethod
    def of(
        model: mujoco.MjModel,
        geom: str,
        postures: Mapping[str, np.ndarray] | None = None,
        *,
        plane_normal: np.ndarray | None = None,
    ) -> Mobility:
        """Read the mobility of the body that carries a geom.

        Args:
            model: The model.
            geom: Name of the geom.
            postures: (m,), recorded joint coordinates by the name of the joint; they count where
                all joints of a mechanism were recorded.
            plane_normal: (3,), of the plane in which poses are recorded; None for poses in space.

        Returns:
            The mobility.

        Raises:
            SceneError: The body cannot be posed for impacts; the message gives the reason.
        """
        carrier = int(model.geom(geom).bodyid[0])
        if int(model.body_mocapid[int(model.body_rootid[carrier])]) >= 0:
            raise SceneError(
                f"geom {geom!r} is carried by a mocap body, which MuJoCo moves without a velocity: "
                "give it slide joints and velocity servos instead"
            )
        body = int(model.body_weldid[carrier])
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) or f"body {body}"
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        position = data.xpos[body].copy()
        rotation = data.xmat[body].reshape(3, 3).copy()
        joints = _joints_of(model, body)
        if _is_mechanism(model, data, body):
            mechanism = Mechanism(
                model,
                body,
                postures=_postures_of(model, body, postures or {}),
                plane_normal=plane_normal,
            )
            return Mobility._carried(mechanism, name)
        if [int(model.jnt_type[joint]) for joint in joints] == [_FREE]:
            first_qpos = int(model.jnt_qposadr[joints[0]])
            first_qvel = int(model.jnt_dofadr[joints[0]])
            return Mobility(
                body=body,
                name=name,
                free=True,
                slides=np.eye(3),
                hinge=None,
                qpos=np.arange(first_qpos, first_qpos + _FREE_COORDINATES),
                qvel=np.arange(first_qvel, first_qvel + _FREE_VELOCITIES),
                position=position,
                rotation=rotation,
            )
        slides, hinges = _slides_and_hinges(model, joints)
        slide_axes = np.array([data.xaxis[joint] for joint in slides]).reshape(-1, 3)
        hinge_axis = data.xaxis[hinges[0]].copy() if hinges else None
        ordered = [*slides, *hinges]
        return Mobility(
            body=body,
            name=name,
            free=False,
            slides=slide_axes,
            hinge=hinge_axis,
            qpos=np.array([int(model.jnt_qposadr[joint]) for joint in ordered], int),
            qvel=np.array([int(model.jnt_dofadr[joint]) for joint in ordered], int),
            position=position,
            rotation=rotation,
        )

    @staticmethod
    def _carried(mechanism: Mechanism, name: str) -> Mobility:
        """The mobility of a body that a mechanism carries."""
        data = mechanism.at(mechanism.reference)
        return Mobility(
            body=mechanism.body,
            name=name,
            free=False,
            slides=np.zeros((0, 3)),
            hinge=None,
            qpos=mechanism.qpos,
            qvel=mechanism.qvel,
            position=data.xpos[mechanism.body].copy(),
            rotation=data.xmat[mechanism.body].reshape(3, 3).copy(),
            mechanism=mechanism,
        )

    @property
    def fixed(self) -> bool:
        """Whether the body has no joints, so that it is part of the world."""
        return len(self.qvel) == 0

    @property
    def plane(self) -> np.ndarray | None:
        """Rows (e1, e2, n), world axes, of the plane in which the joints leave the body; else None.

        Only where a hinge rotates it; its slides are in the plane then.
        """
        if self.mechanism is not None:
            normal = self.mechanism.normal
            return None if normal is None else plane_basis(normal)
        if self.free or self.hinge is None:
            return None
        if len(self.slides) != 2:
            return plane_basis(self.hinge)
        return np.stack([self.slides[0], np.cross(self.hinge, self.slides[0]), self.hinge])

    @property
    def rotates_on_joints(self) -> bool:
        """Whether a hinge, or an arm, carries the body, so that nothing moves straight on its own.

        Not where slides let it move freely in a plane, or along a line.
        """
        if self.mechanism is not None:
            return not self.mechanism.is_stage
        return self.hinge is not None and len(self.slides) == 0

    @property
    def pivot(self) -> np.ndarray | None:
        """A point (3,) of the one axis on which the body rotates, m, in its frame; else None."""
        if self.mechanism is not None:
            return self.mechanism.pivot
        return np.zeros(3) if self.rotates_on_joints else None

    def free_fall(self, model: mujoco.MjModel, plane: np.ndarray | None) -> np.ndarray:
        """What gravity does to the body between contacts.

        Of a body whose origin is not its mass centre, what its rotation adds is left out.

        Args:
            model: The model.
            plane: Rows (e1, e2, n) of the plane in which bodies are recorded; None in space.

        Returns:
            Acceleration (k,) of its twist, m/s^2, with zeros for the angular entries; zero where
            joints other than slides of its own carry it.
        """
        acceleration = np.zeros(6 if plane is None else 3)
        if self.fixed or self.mechanism is not None:
            return acceleration
        gravity = (1.0 - float(model.body_gravcomp[self.body])) * np.asarray(model.opt.gravity)
        if not self.free:
            gravity = self.slides.T @ (self.slides @ gravity)
        if plane is None:
            acceleration[:3] = gravity
        else:
            acceleration[:2] = plane[:2] @ gravity
        return acceleration

    def coordinates(self, position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """Compute the coordinates that put the body at given poses.

        Args:
            position: (n, 3), m, of the body's origin, world.
            rotation: (n, 3, 3), orientation, body to world axes.

        Returns:
            Entries of qpos, (n, len(self.qpos)).
        """
        if self.mechanism is not None:
            return self.mechanism.coordinates(position, rotation)
        if self.free:
            quaternion = Rotation.from_matrix(rotation).as_quat(scalar_first=True)
            return np.concatenate([position, quaternion], axis=1)
        coordinates = (position - self.position) @ self.slides.T
        if self.hinge is not None:
            from_reference = Rotation.from_matrix(rotation @ self.rotation.T).as_rotvec()
            angle = from_reference @ self.hinge[:, None]
            coordinates = np.concatenate([coordinates, angle], axis=1)
        return coordinates

    def rates(self, linear: np.ndarray, angular: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Compute the joint velocities of given twists of the body's origin.

        Args:
            linear: (n, 3), m/s, world axes.
            angular: (n, 3), rad/s, world axes.
            coordinates: (n, len(self.qpos)), entries of qpos.

        Returns:
            Entries of qvel, (n, len(self.qvel)).
        """
        if self.mechanism is not None:
            return self.mechanism.rates(linear, angular, coordinates)
        if self.free:  # a free joint's angular velocity is in the body's own axes in MuJoCo
            rotation = Rotation.from_quat(coordinates[:, 3:], scalar_first=True)
            return np.concatenate([linear, rotation.apply(angular, inverse=True)], axis=1)
        rates = linear @ self.slides.T
        if self.hinge is not None:
            rates = np.concatenate([rates, angular @ self.hinge[:, None]], axis=1)
        return rates

    def twist(self, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the twist of the body's origin; the inverse of `rates`.

        Args:
            qpos: (n, nq), coordinates of the whole model.
            qvel: (n, nv), velocities of the whole model.

        Returns:
            Linear (m/s) and angular (rad/s) velocity, (n, 3) each, world axes.
        """
        if self.mechanism is not None:
            return self.mechanism.twist(qpos, qvel)
        rates = qvel[:, self.qvel]
        if self.free:
            rotation = Rotation.from_quat(qpos[:, self.qpos[3:]], scalar_first=True)
            return rates[:, :3], rotation.apply(rates[:, 3:])
        linear = rates[:, : len(self.slides)] @ self.slides
        if self.hinge is not None:
            angular = rates[:, -1:] * self.hinge
        else:
            angular = np.zeros((len(rates), 3))
        return linear.reshape(-1, 3), angular


def plane_basis(normal: np.ndarray) -> np.ndarray:
    """Make right-handed axes of a plane.

    Args:
        normal: (3,), unit, world axes.

    Returns:
        Rows (e1, e2, normal), (3, 3), in world axes. The first axis e1 is world x projected into
        the plane, or world z where the normal is nearly along x.
    """
    world_axis = np.array([1.0, 0, 0]) if abs(normal[0]) < 0.9 else np.array([0, 0, 1.0])
    first = world_axis - normal * (world_axis @ normal)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(normal, first), normal])


def looks_same_rotated(
    model: mujoco.MjModel, geom: str, body: Mobility, plane: np.ndarray | None
) -> bool:
    """Whether rotating a geom about its body's origin (in the plane, if any) changes nothing.

    Args:
        model: The model.
        geom: Name of the geom.
        body: How its body moves.
        plane: Rows (e1, e2, n) of the plane in which bodies move; None in space.

    Returns:
        True for a centred ball, and in a plane for a centred upright disc.
    """
    shape = model.geom(geom)
    kind = int(shape.type[0])
    is_on_axis = np.abs(shape.pos[:2]).max() <= _MAX_OFFSET
    if not is_on_axis or int(shape.bodyid[0]) != body.body:
        return False
    if kind == int(mujoco.mjtGeom.mjGEOM_SPHERE):
        return abs(float(shape.pos[2])) < _MAX_OFFSET
    cylindrical = (int(mujoco.mjtGeom.mjGEOM_CYLINDER), int(mujoco.mjtGeom.mjGEOM_CAPSULE))
    if plane is None or kind not in cylindrical:
        return False
    own_axis = np.zeros(3)
    mujoco.mju_rotVecQuat(own_axis, np.array([0.0, 0, 1]), np.asarray(shape.quat, float))
    world_axis = body.rotation @ own_axis
    return abs(float(world_axis @ plane[2])) > 1 - 1e-9


def _joints_of(model: mujoco.MjModel, body: int) -> range:
    """Indices of the joints of a body; the world has none."""
    if body == 0:
        return range(0)
    first = int(model.body_jntadr[body])
    return range(first, first + int(model.body_jntnum[body]))


def _postures_of(
    model: mujoco.MjModel, body: int, recorded: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Recorded coordinates (m, j) of the joints of a body; None unless all were recorded."""
    names = [model.joint(joint).name for joint in joints_to_world(model, body)]
    if not all(name in recorded for name in names):
        return None
    return np.column_stack([recorded[name] for name in names])


def _slides_and_hinges(model: mujoco.MjModel, joints: range) -> tuple[list[int], list[int]]:
    """Split joints into slides and hinges."""
    slides = [joint for joint in joints if int(model.jnt_type[joint]) == _SLIDE]
    hinges = [joint for joint in joints if int(model.jnt_type[joint]) == _HINGE]
    return slides, hinges


def _is_mechanism(model: mujoco.MjModel, data: mujoco.MjData, body: int) -> bool:
    """Whether joints move a body otherwise than a free joint, or slides and a hinge, would.

    Slides must be at right angles, and a hinge at right angles to them through the body's origin.
    """
    if body == 0:
        return False
    if int(model.body_weldid[model.body_parentid[body]]) != 0:
        return True
    joints = _joints_of(model, body)
    if [int(model.jnt_type[joint]) for joint in joints] == [_FREE]:
        return False
    slides, hinges = _slides_and_hinges(model, joints)
    if len(slides) + len(hinges) != len(joints) or len(hinges) > 1:
        return True
    axes = data.xaxis[[*slides, *hinges]]
    if not np.allclose(axes @ axes.T, np.eye(len(joints)), atol=_MAX_COSINE):
        return True
    return bool(hinges) and np.abs(data.xanchor[hinges[0]] - data.xpos[body]).max() > _MAX_OFFSET


def bounding_radius(model: mujoco.MjModel, body: int) -> float:
    """Radius (m) of a sphere about the origin of a body that contains its geoms."""
    radius = 0.0
    for geom in range(model.ngeom):
        if int(model.body_weldid[model.geom_bodyid[geom]]) != body:
            continue
        centre = model.geom_pos[geom]
        radius = max(radius, float(np.linalg.norm(centre) + model.geom_rbound[geom]))
    return radius
