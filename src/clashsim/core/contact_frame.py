"""Impacts in the contact frame: dimensionless features in, dimensionless change of twist out.

Rigid impacts look alike in the axes of the contact (normal, tangent) and divided by the approach
speed, so a model of these quantities needs far fewer samples than one in world coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.angles import rotate_planar, rotate_quarter_turn
from clashsim.core.contact_geometry import Contact, bring_into_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore, MovingBody
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene

# Columns of `ContactFrame.features`, for the struck body and the striker: contact point (x, y, z),
# contact normal (nx, ...) and tangent (tx, ...) in the body's axes; linear (v) and angular (w)
# velocity along the contact's normal (n), tangent (t) and binormal (b).
PLANAR_FEATURES = (
    "struck_x",
    "struck_y",
    "struck_nx",
    "struck_ny",
    "striker_x",
    "striker_y",
    "striker_nx",
    "striker_ny",
    "struck_vn",
    "struck_vt",
    "struck_w",
    "striker_vn",
    "striker_vt",
    "striker_w",
    "log_speed",
)
SPATIAL_FEATURES = (
    *(f"struck_{c}" for c in ("x", "y", "z", "nx", "ny", "nz", "tx", "ty", "tz")),
    *(f"striker_{c}" for c in ("x", "y", "z", "nx", "ny", "nz", "tx", "ty", "tz")),
    *(f"struck_{c}" for c in ("vn", "vt", "vb", "wn", "wt", "wb")),
    *(f"striker_{c}" for c in ("vn", "vt", "vb", "wn", "wt", "wb")),
    "log_speed",
)
_MIN_SPEED = 1e-6  # m/s, so that nothing is divided by zero
_MIN_SLIDING_SHARE = 1e-9  # of the speed; a slower sliding velocity has no usable direction
_MAX_LISTED_ROWS = 8  # rows that an error message names one by one
# What is supported instead where impacts and scene do not fit each other.
_NEEDS_PLANE = (
    "give the struck body two slides and a hinge, or a free joint and a ground (--ground), "
    "or record in space (x, y, z, qw, qx, qy, qz, ..., vz_after, ...)"
)
_NEEDS_SPACE = (
    "give the struck body a free joint, or use scene.recorded_in_space(), or record in the plane "
    "(x, y, yaw, vx, vy, w, vx_after, vy_after, w_after)"
)


@dataclass(frozen=True)
class Inertia:
    """Inertia of a rigid body.

    Attributes:
        mass: kg; infinite for a fixed body.
        centre: m, mass centre in the body's frame.
        gyration: m, radius of gyration about the plane's normal; in space, that of the mean of the
            three principal moments of inertia.
        tensor: (3, 3), kg m^2, inertia about the mass centre in the body's axes.
    """

    mass: float
    centre: tuple[float, float, float]
    gyration: float
    tensor: np.ndarray = field(default_factory=lambda: np.diag([np.inf] * 3), compare=False)


@lru_cache(maxsize=64)
def inertia(scene: Scene, body: Mobility, model: mujoco.MjModel | None = None) -> Inertia:
    """Compute the inertia of a body together with all bodies welded to it.

    Args:
        scene: The scene; the radius of gyration is about the normal of its plane, if it has one.
        body: The body.
        model: The model to read; by default the scene at the author's parameters.

    Returns:
        The inertia; a fixed body has infinite mass and, as a placeholder, a gyration of 1 m.
    """
    model = model or scene.base
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    parts = [b for b in range(1, model.nbody) if int(model.body_weldid[b]) == body.body]
    mass = sum(float(model.body_mass[b]) for b in parts)
    if body.fixed or mass <= 0:
        return Inertia(mass=np.inf, centre=(0.0, 0.0, 0.0), gyration=1.0)
    centre = sum(model.body_mass[b] * data.xipos[b] for b in parts) / mass
    tensor = np.zeros((3, 3))
    for b in parts:
        axes = data.ximat[b].reshape(3, 3)
        offset = data.xipos[b] - centre
        parallel_axis = offset @ offset * np.eye(3) - np.outer(offset, offset)
        about_own_centre = axes @ np.diag(model.body_inertia[b]) @ axes.T
        tensor += about_own_centre + model.body_mass[b] * parallel_axis
    if scene.plane is not None:
        moment = scene.plane[2] @ tensor @ scene.plane[2]
    else:
        moment = np.trace(tensor) / 3
    in_body = body.rotation.T @ (centre - body.position)
    gyration = float(np.sqrt(moment / mass))
    return Inertia(
        mass,
        (float(in_body[0]), float(in_body[1]), float(in_body[2])),
        gyration,
        tensor=body.rotation.T @ tensor @ body.rotation,
    )


@dataclass(frozen=True, eq=False)
class ContactFrame:
    """N impacts in the axes of their contacts; twists have k numbers, 3 in a plane and 6 in space.

    Attributes:
        features: (N, f), columns as `names`: where the contact lies on each body (in the body's
            axes, divided by the struck body's radius of gyration), the normal in each body's axes,
            twists along (normal, tangent) divided by the approach speed, and the logarithm of that
            speed.
        axes: (N, k, k), matrices that map a world twist (v, w) of the struck body's origin to the
            twist (v, gyration * w), m/s, of its mass centre along the contact's axes.
        twist_before: (N, k), m/s, the struck body's twist before contact, mapped by `axes`.
        speed: (N,), m/s, approach speed at the contact.
        contact: The contacts.
        names: `PLANAR_FEATURES` or `SPATIAL_FEATURES`.
        arm: (N, 2 or 3), vector from the struck body's mass centre to the contact point, along the
            contact's axes, divided by the radius of gyration.
        tangential_offset: (N, 1 or 3), m, position of the struck body's origin relative to the
            striker's, without its part along the normal; in space in the striker's axes.
        relative_orientation: Orientation of the struck body relative to the striker: (N, 2), cosine
            and sine of the yaw, in a plane; (N, 4) entries of the rotation matrix in space.
        before: (N, d), motion of the touching bodies, as in `Impacts`.
    """

    features: np.ndarray
    axes: np.ndarray
    twist_before: np.ndarray
    speed: np.ndarray
    contact: Contact
    names: tuple[str, ...]
    arm: np.ndarray
    tangential_offset: np.ndarray
    relative_orientation: np.ndarray
    before: np.ndarray

    def encode(self, after: np.ndarray) -> np.ndarray:
        """Express world twists after impact (N, k) as dimensionless changes of twist (N, k)."""
        return (_apply(self.axes, after) - self.twist_before) / self.speed[:, None]

    def decode(self, change: np.ndarray) -> np.ndarray:
        """Compute world twists after impact (..., N, k) from dimensionless changes (..., N, k)."""
        twist_after = change * self.speed[:, None] + self.twist_before
        return np.einsum("nij,...nj->...ni", np.linalg.inv(self.axes), twist_after)

    def __getitem__(self, rows: np.ndarray) -> ContactFrame:
        return ContactFrame(
            features=self.features[rows],
            axes=self.axes[rows],
            twist_before=self.twist_before[rows],
            speed=self.speed[rows],
            contact=self.contact[rows],
            names=self.names,
            arm=self.arm[rows],
            tangential_offset=self.tangential_offset[rows],
            relative_orientation=self.relative_orientation[rows],
            before=self.before[rows],
        )


def contact_frame(scene: Scene, impacts: Impacts, *, strict: bool = True) -> ContactFrame:
    """Bring the bodies of impacts into contact and express the impacts in their contacts' axes.

    Args:
        scene: The scene of the pair.
        impacts: Planar or spatial, as the scene is.
        strict: Whether to refuse impacts whose bodies do not meet.

    Returns:
        The impacts in their contact frames.

    Raises:
        DataError: The impacts do not fit the scene.
    """
    if impacts.planar != (scene.plane is not None):
        kind_of_impacts = "planar" if impacts.planar else "spatial"
        kind_of_scene = "spatial" if impacts.planar else "planar"
        needed = _NEEDS_PLANE if impacts.planar else _NEEDS_SPACE
        raise DataError(
            f"the impacts are {kind_of_impacts} but scene {scene.name!r} is {kind_of_scene}: "
            f"{needed}"
        )
    contact, moved = bring_into_contact(scene, impacts.before)
    if strict and not contact.touching.all():
        rows = np.flatnonzero(~contact.touching)
        listed = ", ".join(map(str, rows[:_MAX_LISTED_ROWS]))
        if len(rows) > _MAX_LISTED_ROWS:
            listed += " and more"
        raise DataError(
            f"in impacts {listed} the bodies do not meet: check poses, velocities, units and frames"
        )
    return frame_at_contact(scene, moved, contact)


def frame_at_contact(scene: Scene, before: np.ndarray, contact: Contact) -> ContactFrame:
    """Express impacts of bodies that already touch in the axes of known contacts.

    Args:
        scene: The scene of the pair.
        before: (N, d), as in `Impacts`, of touching bodies.
        contact: Their contacts.

    Returns:
        The impacts in their contact frames.
    """
    if scene.plane is not None:
        return _planar_frame(scene, before, contact)
    return _spatial_frame(scene, before, contact)


def _planar_frame(scene: Scene, before: np.ndarray, contact: Contact) -> ContactFrame:
    """Express planar impacts in their contacts' axes."""
    motion = MotionBefore.of(before)
    struck = motion.struck
    striker = motion.striker
    normal = contact.normal
    tangent = rotate_quarter_turn(normal)
    contact_axes = np.stack([normal, tangent], 1)  # (N, 2, 2), world to contact
    struck_inertia = inertia(scene, scene.struck_body)
    gyration = struck_inertia.gyration

    # A round striker looks the same in any orientation, so the recorded one must have no effect.
    striker_axes = contact_axes if scene.striker_is_round else _world_to_body(striker.yaw)
    surface_features = [
        *_on_planar_body(
            contact,
            struck,
            _world_to_body(struck.yaw),
            mobility=scene.struck_body,
            gyration=gyration,
        ),
        *_on_planar_body(
            contact, striker, striker_axes, mobility=scene.striker_body, gyration=gyration
        ),
    ]

    relative = struck.velocity_at(contact.point) - striker.velocity_at(contact.point)
    speed = np.maximum(np.linalg.norm(relative, axis=1), _MIN_SPEED)
    to_centre = _origin_to_mass_centre(scene, struck_inertia, struck.yaw)
    # Velocity (N, 2) of the mass centre relative to the origin, for an angular velocity of 1 rad/s.
    centre_rate = rotate_quarter_turn(to_centre)
    centre_velocity = struck.velocity + struck.angular_velocity[:, None] * centre_rate
    twist_before = np.column_stack(
        [_apply(contact_axes, centre_velocity), gyration * struck.angular_velocity]
    )
    striker_twist = np.column_stack(
        [_apply(contact_axes, striker.velocity), gyration * striker.angular_velocity]
    )
    twist_features = np.column_stack([twist_before, striker_twist]) / speed[:, None]

    axes = np.zeros((len(normal), 3, 3))
    axes[:, :2, :2] = contact_axes
    axes[:, :2, 2] = _apply(contact_axes, centre_rate)
    axes[:, 2, 2] = gyration

    arm = contact.point - struck.position - to_centre
    tangential_offset = ((struck.position - striker.position) * tangent).sum(1, keepdims=True)
    if scene.striker_is_round:
        relative_yaw = struck.yaw - np.arctan2(normal[:, 1], normal[:, 0])
    else:
        relative_yaw = struck.yaw - striker.yaw
    return ContactFrame(
        features=np.column_stack([*surface_features, twist_features, np.log(speed)]),
        axes=axes,
        twist_before=twist_before,
        speed=speed,
        contact=contact,
        names=PLANAR_FEATURES,
        arm=_apply(contact_axes, arm) / gyration,
        tangential_offset=tangential_offset,
        relative_orientation=np.column_stack([np.cos(relative_yaw), np.sin(relative_yaw)]),
        before=before,
    )


def _on_planar_body(
    contact: Contact,
    body: MovingBody,
    world_to_body: np.ndarray,
    *,
    mobility: Mobility,
    gyration: float,
) -> list[np.ndarray]:
    """Contact point, divided by the gyration, and normal, (N, 2) each, in a body's axes."""
    point = _apply(world_to_body, contact.point - body.position) / gyration
    if mobility.fixed:
        point = np.zeros_like(point)  # a fixed floor or wall looks the same at every point
    return [point, _apply(world_to_body, contact.normal)]


def _world_to_body(yaw: np.ndarray) -> np.ndarray:
    """Rotations (N, 2, 2) from world axes to those of bodies at given yaw (N,)."""
    cosine = np.cos(yaw)
    sine = np.sin(yaw)
    x_axis = np.stack([cosine, sine], 1)
    y_axis = np.stack([-sine, cosine], 1)
    return np.stack([x_axis, y_axis], 1)


def _origin_to_mass_centre(scene: Scene, struck_inertia: Inertia, yaw: np.ndarray) -> np.ndarray:
    """In-plane vector (N, 2), m, from the struck body's origin to its mass centre at given yaw."""
    assert scene.plane is not None
    at_zero_yaw = scene.plane[:2] @ (scene.struck_body.rotation @ np.array(struck_inertia.centre))
    return rotate_planar(at_zero_yaw, yaw)


def _spatial_frame(scene: Scene, before: np.ndarray, contact: Contact) -> ContactFrame:
    """Express impacts in space in their contacts' axes."""
    motion = MotionBefore.of(before)
    struck = motion.struck
    striker = motion.striker
    normal = contact.normal
    relative = struck.velocity_at(contact.point) - striker.velocity_at(contact.point)
    speed = np.maximum(np.linalg.norm(relative, axis=1), _MIN_SPEED)
    tangent = _sliding_direction(relative, normal, speed)
    contact_axes = np.stack([normal, tangent, np.cross(normal, tangent)], 1)  # world to contact
    struck_rotation = _rotation(struck)  # body to world
    # A round striker looks the same in any orientation, so the recorded one must have no effect.
    striker_rotation = (
        np.swapaxes(contact_axes, 1, 2) if scene.striker_is_round else _rotation(striker)
    )
    world_to_struck = np.swapaxes(struck_rotation, 1, 2)
    world_to_striker = np.swapaxes(striker_rotation, 1, 2)

    struck_inertia = inertia(scene, scene.struck_body)
    to_centre = np.einsum("nij,j->ni", struck_rotation, np.array(struck_inertia.centre))
    centre_velocity = struck.velocity + np.cross(struck.angular_velocity, to_centre)
    surface_features = []
    for body, world_to_body, mobility in (
        (struck, world_to_struck, scene.struck_body),
        (striker, world_to_striker, scene.striker_body),
    ):
        point = _apply(world_to_body, contact.point - body.position) / struck_inertia.gyration
        if mobility.fixed:
            point = np.zeros_like(point)  # a fixed floor or wall looks the same at every point
        surface_features += [point, _apply(world_to_body, normal), _apply(world_to_body, tangent)]
    twist_before = np.column_stack(
        [
            _apply(contact_axes, centre_velocity),
            struck_inertia.gyration * _apply(contact_axes, struck.angular_velocity),
        ]
    )
    striker_twist = np.column_stack(
        [
            _apply(contact_axes, striker.velocity),
            struck_inertia.gyration * _apply(contact_axes, striker.angular_velocity),
        ]
    )
    twist_features = np.column_stack([twist_before, striker_twist]) / speed[:, None]

    axes = np.zeros((len(normal), 6, 6))
    axes[:, :3, :3] = contact_axes
    # (N, 3, 3): row i is the velocity of the mass centre relative to the origin, for an angular
    # velocity of 1 rad/s about world axis i.
    centre_rates = np.cross(np.eye(3)[None], to_centre[:, None])
    axes[:, :3, 3:] = np.einsum("nij,nkj->nik", contact_axes, centre_rates)
    axes[:, 3:, 3:] = struck_inertia.gyration * contact_axes

    arm = contact.point - struck.position - to_centre
    from_striker = struck.position - striker.position
    along_surface = from_striker - (from_striker * normal).sum(1, keepdims=True) * normal
    struck_in_striker = np.einsum("nij,njk->nik", world_to_striker, struck_rotation)
    return ContactFrame(
        features=np.column_stack([*surface_features, twist_features, np.log(speed)]),
        axes=axes,
        twist_before=twist_before,
        speed=speed,
        contact=contact,
        names=SPATIAL_FEATURES,
        arm=_apply(contact_axes, arm) / struck_inertia.gyration,
        tangential_offset=_apply(world_to_striker, along_surface),
        # The upper left 2 x 2 entries; they determine the rotation up to the sign of the others.
        relative_orientation=struck_in_striker.reshape(-1, 9)[:, [0, 1, 3, 4]],
        before=before,
    )


def _sliding_direction(relative: np.ndarray, normal: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Unit tangents (N, 3) along the sliding part of relative velocities (N, 3).

    Where nothing slides, some direction at right angles to the normal.
    """
    sliding = relative - (relative * normal).sum(1, keepdims=True) * normal
    # World x, or y where the normal is nearly along x.
    not_normal = np.where(np.abs(normal[:, :1]) < 0.7, [[1.0, 0, 0]], [[0, 1.0, 0]])
    is_sliding = (
        np.linalg.norm(sliding, axis=1, keepdims=True) > _MIN_SLIDING_SHARE * speed[:, None]
    )
    direction = np.where(is_sliding, sliding, np.cross(normal, not_normal))
    return direction / np.linalg.norm(direction, axis=1, keepdims=True)


def _rotation(body: MovingBody) -> np.ndarray:
    """Orientations (N, 3, 3) of bodies in space, body to world axes."""
    return Rotation.from_quat(body.quaternion, scalar_first=True).as_matrix()


def _apply(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Multiply matrices (N, i, j) with vectors (N, j)."""
    return np.einsum("nij,nj->ni", matrices, vectors)
