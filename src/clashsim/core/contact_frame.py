"""Impacts in the contact frame: dimensionless features in, dimensionless change of twist out.

Rigid impacts look alike when seen from the contact point and divided by the approach speed, so a
model in these terms needs far fewer samples than one in world coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.angles import rotate_planar, rotate_quarter_turn
from clashsim.core.contact_geometry import Contact, advance_to_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore, MovingBody
from clashsim.core.mobility import Mobility
from clashsim.core.scene import Scene

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


@dataclass(frozen=True)
class Inertia:
    """Inertia of a rigid body.

    Attributes:
        mass: kg; infinite for a fixed body.
        centre: m, mass centre in the body's frame.
        gyration: m, radius of gyration about the plane's normal, or the mean one in space.
    """

    mass: float
    centre: tuple[float, float, float]
    gyration: float


def inertia(scene: Scene, body: Mobility, model: mujoco.MjModel | None = None) -> Inertia:
    """Compute the inertia of all that is welded to a body.

    Args:
        scene: The scene, whose plane decides about which axis the radius of gyration is.
        body: The body.
        model: The model to read; by default the scene at the author's parameters.

    Returns:
        Its inertia, with an infinite mass for a fixed body.
    """
    model = model or scene.base
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    parts = [b for b in range(1, model.nbody) if int(model.body_weldid[b]) == body.body]
    mass = sum(float(model.body_mass[b]) for b in parts)
    if body.fixed or mass <= 0:
        return Inertia(np.inf, (0.0, 0.0, 0.0), 1.0)
    centre = sum(model.body_mass[b] * data.xipos[b] for b in parts) / mass
    tensor = np.zeros((3, 3))
    for b in parts:
        axes = data.ximat[b].reshape(3, 3)
        offset = data.xipos[b] - centre
        parallel_axis = offset @ offset * np.eye(3) - np.outer(offset, offset)
        own = axes @ np.diag(model.body_inertia[b]) @ axes.T
        tensor += own + model.body_mass[b] * parallel_axis
    if scene.plane is not None:
        about_axis = scene.plane[2] @ tensor @ scene.plane[2]
    else:
        about_axis = np.trace(tensor) / 3
    local = body.rotation.T @ (centre - body.position)
    gyration = float(np.sqrt(about_axis / mass))
    return Inertia(mass, (float(local[0]), float(local[1]), float(local[2])), gyration)


@dataclass(frozen=True, eq=False)
class ContactFrame:
    """N impacts seen from their contacts.

    Attributes:
        features: (N, f), columns as `names`: where the contact lies on each body (in its own axes,
            over the struck body's radius of gyration), the normal in each body's axes, twists along
            (normal, tangent) over the approach speed, and the logarithm of that speed.
        axes: (N, k, k); maps a world twist (v, w) of the struck body's origin to that of its mass
            centre, (v, gyration * w), along the contact's axes.
        twist_before: (N, k), m/s, the struck body's twist before contact, mapped by `axes`.
        speed: (N,), m/s, approach speed at the contact.
        contact: The contacts.
        names: `PLANAR_FEATURES` or `SPATIAL_FEATURES`.
        arm: (N, 2 or 3), contact point from the struck body's mass centre along the contact's axes,
            over the radius of gyration.
        tangential_offset: (N, 1 or 3), m, where along the striker's surface the origin of the
            struck body lies.
        relative_orientation: (N, 2 or 4), orientation of the struck body relative to the striker,
            as cosines and sines.
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

    def encode(self, after: np.ndarray) -> np.ndarray:
        """Express twists after impact (N, k) as dimensionless changes of twist (N, k)."""
        return (_apply(self.axes, after) - self.twist_before) / self.speed[:, None]

    def decode(self, change: np.ndarray) -> np.ndarray:
        """Invert `encode`; `change` may have leading axes (..., N, k)."""
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
        )


def contact_frame(scene: Scene, impacts: Impacts, *, strict: bool = True) -> ContactFrame:
    """See impacts from their contacts.

    Args:
        scene: The scene of the pair.
        impacts: Planar or spatial, as the scene is.
        strict: Whether to refuse impacts whose bodies never meet along their approach.

    Returns:
        The impacts in their contact frames.

    Raises:
        DataError: The impacts do not fit the scene.
    """
    if impacts.planar != (scene.plane is not None):
        kind_of_impacts = "planar" if impacts.planar else "spatial"
        kind_of_scene = "spatial" if impacts.planar else "planar"
        raise DataError(
            f"the impacts are {kind_of_impacts} but scene {scene.name!r} is {kind_of_scene}"
        )
    contact, moved = advance_to_contact(scene, impacts.before)
    if strict and not contact.touching.all():
        rows = np.flatnonzero(~contact.touching)
        listed = ", ".join(map(str, rows[:8])) + (" and more" if len(rows) > 8 else "")
        raise DataError(
            f"in impacts {listed} the bodies do not meet along their approach: "
            "check poses, velocities, units and frames"
        )
    return frame_at_contact(scene, moved, contact)


def frame_at_contact(scene: Scene, before: np.ndarray, contact: Contact) -> ContactFrame:
    """See impacts of bodies that touch already from contacts that are known.

    Args:
        scene: The scene of the pair.
        before: (N, d), as in `Impacts`, of touching bodies.
        contact: Their contacts.

    Returns:
        The impacts in their contact frames.
    """
    motion = MotionBefore.of(before)
    if scene.plane is not None:
        return _planar_frame(scene, motion, contact)
    return _spatial_frame(scene, motion, contact)


def _planar_frame(scene: Scene, motion: MotionBefore, contact: Contact) -> ContactFrame:
    """See planar impacts from their contacts."""
    struck = motion.struck
    striker = motion.striker
    normal = contact.normal
    tangent = rotate_quarter_turn(normal)
    contact_axes = np.stack([normal, tangent], 1)  # (N, 2, 2), world to contact
    own = inertia(scene, scene.struck_body)
    gyration = own.gyration

    # A ball has no orientation of its own, and what was recorded of it must not matter.
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
    to_centre = _origin_to_mass_centre(scene, own, struck.yaw)
    # Velocity of the mass centre for an angular velocity of 1 rad/s.
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
    offset = ((struck.position - striker.position) * tangent).sum(1, keepdims=True)
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
        tangential_offset=offset,
        relative_orientation=np.column_stack([np.cos(relative_yaw), np.sin(relative_yaw)]),
    )


def _on_planar_body(
    contact: Contact,
    body: MovingBody,
    world_to_body: np.ndarray,
    *,
    mobility: Mobility,
    gyration: float,
) -> list[np.ndarray]:
    """Contact point (over the gyration) and normal in a body's axes (N, 2, 2), (N, 2) each."""
    point = _apply(world_to_body, contact.point - body.position) / gyration
    if mobility.fixed:
        point = np.zeros_like(point)  # a fixed floor or wall looks the same all along
    return [point, _apply(world_to_body, contact.normal)]


def _world_to_body(yaw: np.ndarray) -> np.ndarray:
    """Rotations (N, 2, 2) from world axes to those of bodies at given yaw (N,)."""
    cosine = np.cos(yaw)
    sine = np.sin(yaw)
    x_axis = np.stack([cosine, sine], 1)
    y_axis = np.stack([-sine, cosine], 1)
    return np.stack([x_axis, y_axis], 1)


def _origin_to_mass_centre(scene: Scene, own: Inertia, yaw: np.ndarray) -> np.ndarray:
    """In-plane vector (N, 2), m, from the struck body's origin to its mass centre at given yaw."""
    assert scene.plane is not None
    at_zero_yaw = scene.plane[:2] @ (scene.struck_body.rotation @ np.array(own.centre))
    return rotate_planar(at_zero_yaw, yaw)


def _spatial_frame(scene: Scene, motion: MotionBefore, contact: Contact) -> ContactFrame:
    """See impacts in space from their contacts."""
    struck = motion.struck
    striker = motion.striker
    normal = contact.normal
    relative = struck.velocity_at(contact.point) - striker.velocity_at(contact.point)
    speed = np.maximum(np.linalg.norm(relative, axis=1), _MIN_SPEED)
    tangent = _sliding_direction(relative, normal, speed)
    contact_axes = np.stack([normal, tangent, np.cross(normal, tangent)], 1)  # world to contact
    struck_rotation = _rotation(struck)  # body to world
    # A ball has no orientation of its own, and what was recorded of it must not matter.
    striker_rotation = (
        np.swapaxes(contact_axes, 1, 2) if scene.striker_is_round else _rotation(striker)
    )
    world_to_struck = np.swapaxes(struck_rotation, 1, 2)
    world_to_striker = np.swapaxes(striker_rotation, 1, 2)

    own = inertia(scene, scene.struck_body)
    to_centre = np.einsum("nij,j->ni", struck_rotation, np.array(own.centre))
    centre_velocity = struck.velocity + np.cross(struck.angular_velocity, to_centre)
    surface_features = []
    for body, world_to_body, mobility in (
        (struck, world_to_struck, scene.struck_body),
        (striker, world_to_striker, scene.striker_body),
    ):
        point = _apply(world_to_body, contact.point - body.position) / own.gyration
        if mobility.fixed:
            point = np.zeros_like(point)  # a fixed floor or wall looks the same all along
        surface_features += [point, _apply(world_to_body, normal), _apply(world_to_body, tangent)]
    twist_before = np.column_stack(
        [
            _apply(contact_axes, centre_velocity),
            own.gyration * _apply(contact_axes, struck.angular_velocity),
        ]
    )
    striker_twist = np.column_stack(
        [
            _apply(contact_axes, striker.velocity),
            own.gyration * _apply(contact_axes, striker.angular_velocity),
        ]
    )
    twist_features = np.column_stack([twist_before, striker_twist]) / speed[:, None]

    axes = np.zeros((len(normal), 6, 6))
    axes[:, :3, :3] = contact_axes
    # Rows e_i x centre, because the centre moves by v + sum_i w_i (e_i x centre).
    centre_rates = np.cross(np.eye(3)[None], to_centre[:, None])
    axes[:, :3, 3:] = np.einsum("nij,nkj->nik", contact_axes, centre_rates)
    axes[:, 3:, 3:] = own.gyration * contact_axes

    arm = contact.point - struck.position - to_centre
    gap = struck.position - striker.position
    along_surface = gap - (gap * normal).sum(1, keepdims=True) * normal
    struck_in_striker = np.einsum("nij,njk->nik", world_to_striker, struck_rotation)
    return ContactFrame(
        features=np.column_stack([*surface_features, twist_features, np.log(speed)]),
        axes=axes,
        twist_before=twist_before,
        speed=speed,
        contact=contact,
        names=SPATIAL_FEATURES,
        arm=_apply(contact_axes, arm) / own.gyration,
        tangential_offset=_apply(world_to_striker, along_surface),
        # Four entries of the rotation matrix determine it up to the sign of the others.
        relative_orientation=struck_in_striker.reshape(-1, 9)[:, [0, 1, 3, 4]],
    )


def _sliding_direction(relative: np.ndarray, normal: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Unit tangents (N, 3) along the sliding part of velocities (N, 3); any if none slides."""
    sliding = relative - (relative * normal).sum(1, keepdims=True) * normal
    other_axis = np.where(np.abs(normal[:, :1]) < 0.7, [[1.0, 0, 0]], [[0, 1.0, 0]])
    slides = np.linalg.norm(sliding, axis=1, keepdims=True) > 1e-9 * speed[:, None]
    direction = np.where(slides, sliding, np.cross(normal, other_axis))
    return direction / np.linalg.norm(direction, axis=1, keepdims=True)


def _rotation(body: MovingBody) -> np.ndarray:
    """Orientations (N, 3, 3) of bodies in space, body to world axes."""
    return Rotation.from_quat(body.quaternion, scalar_first=True).as_matrix()


def _apply(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Multiply matrices (N, i, j) with vectors (N, j)."""
    return np.einsum("nij,nj->ni", matrices, vectors)
