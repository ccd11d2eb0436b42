"""Effects of real impacts that MuJoCo's contact does not have, added to simulated outcomes.

Effects are parameters of a scene with targets "effect/NAME":

- tangential_stiffness: ratio of the contact's tangential to its normal stiffness. A finite ratio
  stores energy in sideways deformation and gives it back (tangential restitution, after Maw, Barber
  and Fawcett 1976 and Stronge 2000); MuJoCo's friction only dissipates. The simulated outcome keeps
  MuJoCo's restitution and point of action, but gets the impulse of a contact with this stiffness.
- delay (s): time between the parting and the moment at which twists were measured.
- x, y (m) and yaw (rad): pose of the recorded frame of the struck body in the body frame of the
  scene; not zero where motion-capture markers are slightly misplaced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.angles import rotate_planar, rotate_quarter_turn
from clashsim.core.contact_frame import ContactFrame, contact_frame, inertia
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.scene_model import DELAY

_STEPS = 80  # of the integration over one contact
_DURATION_MARGIN = 1.1  # factor on the duration of a contact over which it is integrated
_MIN_TIMED_RESTITUTION = 0.2  # bounds the time that is integrated for slow unloading
_SWITCH_VELOCITY = 0.03  # of the closing speed: width of the smooth switch to unloading
_MAX_EXPONENT = 50  # keeps exp finite
# Ratios of tangential to normal stiffness between which a contact becomes rigid.
_RIGID_RANGE = (15.0, 60.0)
RIGID_STIFFNESS = _RIGID_RANGE[1]  # from this ratio on a tangential spring has no effect
TANGENTIAL_SPRING = "effect/tangential_stiffness"
_MAX_ARM = 3.0  # radii of gyration, largest effective distance of an impulse from the mass centre
_RESTITUTION_RANGE = (0.05, 1.0)
# Smallest values, so that nothing is divided by zero.
_MIN_CLOSING_SPEED = 1e-9
_MIN_IMPULSE = 1e-6
_MIN_NORMAL_VELOCITY = 1e-6


def with_effects(
    scene: Scene,
    before: np.ndarray,
    after: np.ndarray,
    theta: np.ndarray,
    *,
    usable: np.ndarray,
    frame: ContactFrame | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Add the scene's effects to simulated impacts; those of scenes in space stay unchanged.

    Args:
        scene: The scene, with parameters whose targets are "effect/NAME".
        before: (N, 12), as in `Impacts`.
        after: (N, 3), simulated twists of the struck body after impact.
        theta: (N, p), parameters of the impacts.
        usable: (N,), whether the simulation of an impact ended properly; others keep their twist.
        frame: The impacts in their contact frames, if already computed.

    Returns:
        `before` (N, 12) and `after` (N, 3) as they would be recorded with the effects.
    """
    values = _effects(scene, theta)
    if not values or scene.plane is None:
        return before, after
    after = after.copy()
    if "effect/tangential_stiffness" in values:
        rows = np.flatnonzero(usable)
        impacts = Impacts(True, before[rows], after[rows])
        after[rows] = _with_tangential_spring(
            scene,
            impacts,
            contact_frame(scene, impacts) if frame is None else frame[rows],
            friction=_friction(scene, theta)[rows],
            stiffness_ratio=values["effect/tangential_stiffness"][rows],
            mass_ratio=_mass_ratio(scene, theta)[rows],
        )
    return as_recorded(scene, before, after, theta)


def as_recorded(
    scene: Scene, before: np.ndarray, after: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The motion of the struck body's recorded frame, where that of the body itself is given.

    Args:
        scene: The scene.
        before: (N, d), as in `Impacts`.
        after: (N, k), twists of the struck body after impact.
        theta: (N, p), parameters of the impacts.

    Returns:
        `before` and `after` of the recorded frame; the same where the scene has no offset of it.
    """
    values = _effects(scene, theta)
    if not values or scene.plane is None:
        return before, after
    before = before.copy()
    after = after.copy()
    zero = np.zeros(len(before))
    position = np.stack([values.get("effect/x", zero), values.get("effect/y", zero)], 1)
    _move_recorded_frame(before, after, position=position, yaw=values.get("effect/yaw", zero))
    return before, after


def measurement_delay(scene: Scene, theta: np.ndarray) -> np.ndarray:
    """Times (N,), s, from the parting to the measurement of twists, for parameters (N, p)."""
    return _effects(scene, theta).get(DELAY, np.zeros(len(theta)))


def _effects(scene: Scene, theta: np.ndarray) -> dict[str, np.ndarray]:
    """Values (N,) of the effects of a scene in theta (N, p), by target."""
    return {
        param.target: theta[:, i]
        for i, param in enumerate(scene.params)
        if param.target.startswith("effect/")
    }


@dataclass(frozen=True, eq=False)
class PointContact:
    """N bodies of unit mass and unit radius of gyration that touch a striker at a point.

    All attributes have shape (N,). Lengths are in radii of gyration; velocities may have any unit,
    and impulses per mass then have the same.

    Attributes:
        normal_velocity: Velocity of the body's contact point relative to the striker, along the
            normal; negative while the bodies approach.
        tangential_velocity: That velocity along the tangent.
        normal_arm: Vector from the mass centre to the contact point, along the normal.
        tangential_arm: That vector along the tangent.
        restitution: Energetic coefficient of restitution, 0 to 1.
        friction: Coulomb's coefficient.
        stiffness_ratio: Tangential over normal stiffness.
        mass_ratio: The body's mass over the striker's.
    """

    normal_velocity: np.ndarray
    tangential_velocity: np.ndarray
    normal_arm: np.ndarray
    tangential_arm: np.ndarray
    restitution: np.ndarray
    friction: np.ndarray
    stiffness_ratio: np.ndarray
    mass_ratio: np.ndarray

    @property
    def inverse_normal_inertia(self) -> np.ndarray:
        """Inverse effective inertia along the normal, (N,)."""
        return 1 + self.mass_ratio + self.tangential_arm * self.tangential_arm

    @property
    def inverse_tangential_inertia(self) -> np.ndarray:
        """Inverse effective inertia along the tangent, (N,)."""
        return 1 + self.mass_ratio + self.normal_arm * self.normal_arm

    @property
    def inverse_coupling(self) -> np.ndarray:
        """Decrease of the velocity along one axis per unit of impulse along the other, (N,)."""
        return self.tangential_arm * self.normal_arm


def point_contact_impulse(contact: PointContact) -> np.ndarray:
    """Integrate a point contact with a normal and a tangential spring until the bodies separate.

    While unloading, the force of the normal spring is restitution^2 times that of loading
    (energetic restitution). Coulomb friction limits the force of the tangential spring. Time is
    scaled so that loading takes about pi / 2 and unloading pi / 2 / restitution.

    Args:
        contact: N contacts.

    Returns:
        Impulses on the body along (normal, tangent), (N, 2).
    """
    closing_speed = np.maximum(-contact.normal_velocity, _MIN_CLOSING_SPEED)
    start_normal = contact.normal_velocity / closing_speed
    start_tangential = contact.tangential_velocity / closing_speed
    inverse_normal = contact.inverse_normal_inertia
    inverse_tangential = contact.inverse_tangential_inertia
    coupling = contact.inverse_coupling
    stiffness = 1 / inverse_normal
    tangential_stiffness = contact.stiffness_ratio * stiffness
    kept_energy = contact.restitution**2
    timed_restitution = np.maximum(contact.restitution, _MIN_TIMED_RESTITUTION)
    duration = np.pi / 2 * (1 + 1 / timed_restitution) * _DURATION_MARGIN
    time_step = duration / _STEPS

    depth = np.zeros_like(start_normal)
    stretch = np.zeros_like(start_normal)
    normal_impulse = np.zeros_like(start_normal)
    tangential_impulse = np.zeros_like(start_normal)
    for _ in range(_STEPS):
        normal_velocity = (
            start_normal + inverse_normal * normal_impulse - coupling * tangential_impulse
        )
        tangential_velocity = (
            start_tangential + inverse_tangential * tangential_impulse - coupling * normal_impulse
        )
        depth = depth - normal_velocity * time_step
        # A smooth step from 1 while loading to 0 while unloading.
        exponent = np.clip(normal_velocity / _SWITCH_VELOCITY, -_MAX_EXPONENT, _MAX_EXPONENT)
        loading = 1 / (1 + np.exp(exponent))
        force_factor = kept_energy + (1 - kept_energy) * loading
        normal_force = np.maximum(depth, 0) * stiffness * force_factor
        sticking_limit = contact.friction * normal_force / tangential_stiffness
        stretch = np.clip(
            stretch + tangential_velocity * time_step, -sticking_limit, sticking_limit
        )
        tangential_force = -tangential_stiffness * stretch
        normal_impulse = normal_impulse + normal_force * time_step
        tangential_impulse = tangential_impulse + tangential_force * time_step
    return np.stack([normal_impulse, tangential_impulse], 1) * closing_speed[:, None]


def _with_tangential_spring(
    scene: Scene,
    impacts: Impacts,
    frame: ContactFrame,
    *,
    friction: np.ndarray,
    stiffness_ratio: np.ndarray,
    mass_ratio: np.ndarray,
) -> np.ndarray:
    """Twists after (N, 3) of point contacts with a tangential spring.

    Restitution and the point at which the impulse acts are those of the simulated impacts.
    """
    # (N, 3), over mass and approach speed: impulses along normal and tangent, angular impulse.
    change = frame.encode(impacts.after)
    normal_impulse = np.maximum(change[:, 0], _MIN_IMPULSE)
    tangential_impulse = change[:, 1]
    normal_arm = frame.arm[:, 0]
    # Effective point of action of the impulse: where a face touches, it may be anywhere on it.
    tangential_arm = np.clip(
        (normal_arm * tangential_impulse - change[:, 2]) / normal_impulse, -_MAX_ARM, _MAX_ARM
    )
    normal = frame.contact.normal
    tangent = rotate_quarter_turn(normal)
    striker_velocity = impacts.motion.striker.velocity
    striker_normal = (striker_velocity * normal).sum(1) / frame.speed
    striker_tangential = (striker_velocity * tangent).sum(1) / frame.speed
    start_normal, start_tangential, start_angular = (frame.twist_before / frame.speed[:, None]).T
    normal_velocity = start_normal - tangential_arm * start_angular - striker_normal
    tangential_velocity = start_tangential + normal_arm * start_angular - striker_tangential
    parting_velocity = (  # along the normal, after the simulated impulse
        normal_velocity
        + (1 + mass_ratio + tangential_arm * tangential_arm) * normal_impulse
        - tangential_arm * normal_arm * tangential_impulse
    )
    restitution = np.clip(
        -parting_velocity / np.minimum(normal_velocity, -_MIN_NORMAL_VELOCITY), *_RESTITUTION_RANGE
    )
    contact = PointContact(
        normal_velocity=normal_velocity,
        tangential_velocity=tangential_velocity,
        normal_arm=normal_arm,
        tangential_arm=tangential_arm,
        restitution=restitution,
        friction=friction,
        stiffness_ratio=stiffness_ratio,
        mass_ratio=mass_ratio,
    )
    impulse = point_contact_impulse(contact)
    angular = normal_arm * impulse[:, 1] - tangential_arm * impulse[:, 0]
    # A contact that is nearly rigid is left as it was simulated: also where several points touch,
    # which a point contact does not describe.
    low, high = np.log(_RIGID_RANGE)
    share = np.clip((high - np.log(stiffness_ratio)) / (high - low), 0.0, 1.0)[:, None]
    return frame.decode((1 - share) * change + share * np.column_stack([impulse, angular]))


def _friction(scene: Scene, theta: np.ndarray) -> np.ndarray:
    """Friction (N,) of the pair: from theta (N, p) if it is a parameter, else the author's."""
    for i, param in enumerate(scene.params):
        if param.target == "pair/strike/friction[0:2]":
            return theta[:, i]
    return np.full(len(theta), float(scene.base.pair("strike").friction[0]))


def _mass_ratio(scene: Scene, theta: np.ndarray) -> np.ndarray:
    """Struck mass over striker mass (N,); zero for a striker that is fixed or servo-driven."""
    striker = scene.striker_body
    if striker.fixed or scene.base.nu:
        return np.zeros(len(theta))
    struck_mass = inertia(scene, scene.struck_body).mass
    for i, param in enumerate(scene.params):
        if param.target == f"body/{striker.name}/mass":
            return struck_mass / theta[:, i]
    return np.full(len(theta), struck_mass / inertia(scene, striker).mass)


def offset_params(scene: Scene) -> list[int]:
    """Indices of the parameters that offset the recorded frame of the struck body."""
    targets = ("effect/x", "effect/y", "effect/yaw")
    return [i for i, param in enumerate(scene.params) if param.target in targets]


def without_frame_offset(scene: Scene, before: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The body's own motion where that of its offset recorded frame is given.

    Args:
        scene: The scene, planar.
        before: (N, 12), as recorded.
        theta: (N, p), parameters.

    Returns:
        (N, 12), a copy.
    """
    values = {param.target: theta[:, i] for i, param in enumerate(scene.params)}
    zero = np.zeros(len(before))
    position = np.stack([values.get("effect/x", zero), values.get("effect/y", zero)], 1)
    before = before.copy()
    struck = MotionBefore.of(before).struck
    struck.yaw[:] -= values.get("effect/yaw", zero)
    arm = rotate_planar(position, struck.yaw)
    struck.position[:] -= arm
    struck.velocity[:] -= struck.angular_velocity[:, None] * rotate_quarter_turn(arm)
    return before


def _move_recorded_frame(
    before: np.ndarray, after: np.ndarray, *, position: np.ndarray, yaw: np.ndarray
) -> None:
    """Replace, in place, the struck body's motion by that of its recorded frame.

    The recorded frame has position (N, 2), m, and yaw (N,), rad, in the body's frame.
    """
    struck = MotionBefore.of(before).struck
    arm = rotate_planar(position, struck.yaw)
    # Velocity of the recorded frame's origin at an angular velocity of 1 rad/s.
    rate = rotate_quarter_turn(arm)
    struck.position[:] += arm
    struck.yaw[:] += yaw
    struck.velocity[:] += struck.angular_velocity[:, None] * rate
    after[:, :2] += after[:, 2:3] * rate
