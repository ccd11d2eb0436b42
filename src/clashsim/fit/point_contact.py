"""A simple law of point contact between rigid bodies, in a plane or in space.

It has three constants: normal restitution, Coulomb friction and tangential restitution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from clashsim.core.contact_frame import ContactFrame, inertia
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.fit.leave_group_out import consecutive_groups
from clashsim.fit.regression import approach

# Bounds and grid of (normal restitution, friction coefficient, tangential restitution).
_LOW = np.array([0.0, 0.0, -1.0])
_HIGH = np.array([1.0, 2.0, 1.0])
_AXES = (np.linspace(0, 1, 21), np.linspace(0, 1.2, 25), np.linspace(-1, 1, 17))
_BATCH = 200_000  # laws times impacts that are evaluated at once
# Relative error at which an impact's loss is half its limit: the loss is then close to
# 1 - accuracy(0.1).
_CAP = 0.1
# Share of the normal mobility below which friction may not reduce that of a slipping contact.
_MIN_SLIP_SHARE = 0.1
_MIN_IMPULSE = 1e-12  # so that nothing is divided by zero


@dataclass(frozen=True, eq=False)
class PointContactInputs:
    """What the law needs to know of N impacts: d axes of the contact, 2 in a plane and 3 in space.

    Attributes:
        approach: (N, d), velocity of the struck body's contact point relative to the striker, over
            the approach speed, along the contact's axes, normal first.
        mobility: (N, d, d), change of that velocity per impulse over the struck body's mass.
        turning: (N, 1 or 3, d), change of gyration * angular velocity per the same impulse.
    """

    approach: np.ndarray
    mobility: np.ndarray
    turning: np.ndarray

    def __len__(self) -> int:
        return len(self.approach)

    def __getitem__(self, rows: np.ndarray) -> PointContactInputs:
        return PointContactInputs(self.approach[rows], self.mobility[rows], self.turning[rows])


def point_contact_inputs(scene: Scene, frame: ContactFrame, impacts: Impacts) -> PointContactInputs:
    """Inputs of the law for each impact.

    Args:
        scene: The scene.
        frame: The impacts in their contact frames.
        impacts: N impacts.
    """
    struck_mass = inertia(scene, scene.struck_body).mass
    if "arm_mass" in impacts.known:
        recoil = struck_mass / impacts.known["arm_mass"]
    elif scene.striker_body.free:
        recoil = np.full(len(impacts), struck_mass / inertia(scene, scene.striker_body).mass)
    else:
        recoil = np.zeros(len(impacts))  # walls and servos
    if impacts.planar:
        along_normal, along_tangent = frame.arm.T
        arm_cross = np.stack([-along_tangent, along_normal], 1)[:, None]  # (N, 1, 2)
        velocity = approach(frame, impacts)
        turning = arm_cross
    else:
        arm_cross = _cross_matrices(frame.arm)
        velocity = _spatial_approach(frame)
        turning = _inverse_inertia(scene, frame) @ arm_cross
    # The contact point moves with the mass centre, and turns about it.
    from_turning = np.swapaxes(arm_cross, 1, 2) @ turning
    from_moving = (1 + recoil)[:, None, None] * np.eye(velocity.shape[1])
    return PointContactInputs(velocity, from_moving + from_turning, turning)


def _cross_matrices(vectors: np.ndarray) -> np.ndarray:
    """Matrices (N, 3, 3) that multiply like the cross product with vectors (N, 3)."""
    return np.cross(vectors[:, None, :], np.eye(3)[None]).swapaxes(1, 2)


def _spatial_approach(frame: ContactFrame) -> np.ndarray:
    """Velocity (N, 3) of the struck contact point relative to the striker, over the speed."""
    motion = MotionBefore.of(frame.before)
    point = frame.contact.point
    relative = motion.struck.velocity_at(point) - motion.striker.velocity_at(point)
    axes = frame.axes[:, :3, :3]  # world to contact
    return np.einsum("nij,nj->ni", axes, relative) / frame.speed[:, None]


def _inverse_inertia(scene: Scene, frame: ContactFrame) -> np.ndarray:
    """Inverse inertia (N, 3, 3) along the contact's axes; 1 for a sphere of the same gyration."""
    struck = inertia(scene, scene.struck_body)
    quaternion = MotionBefore.of(frame.before).struck.quaternion
    rotation = Rotation.from_quat(quaternion, scalar_first=True).as_matrix()
    to_contact = frame.axes[:, :3, :3] @ rotation
    inverse = struck.mass * struck.gyration**2 * np.linalg.inv(np.array(struck.tensor))
    return to_contact @ inverse @ np.swapaxes(to_contact, 1, 2)


def point_contact(law: np.ndarray, x: PointContactInputs) -> np.ndarray:
    """Change of twist under a law.

    Args:
        law: (..., 1, 3): restitution, friction, tangential restitution.
        x: Inputs of N impacts.

    Returns:
        Change of twist over the approach speed in the contact's axes (..., N, 3 or 6): along
        normal and tangents, then gyration * angular velocity.
    """
    restitution, friction, tangential_restitution = np.moveaxis(law, -1, 0)
    # Changes of velocity that both restitutions ask for, and their impulses if the contact sticks.
    wanted_normal = -(1 + restitution) * x.approach[:, 0]
    wanted_tangents = -(1 + tangential_restitution)[..., None] * x.approach[:, 1:]
    wanted = np.concatenate([wanted_normal[..., None], wanted_tangents], -1)
    impulse = np.einsum("nij,...nj->...ni", np.linalg.inv(x.mobility), wanted)
    # Where the tangential impulse exceeds the friction limit, the contact slips.
    size = np.linalg.norm(impulse[..., 1:], axis=-1)
    direction = impulse[..., 1:] / np.maximum(size, _MIN_IMPULSE)[..., None]
    normal_mobility = x.mobility[:, 0, 0]
    from_friction = np.einsum("nj,...nj->...n", x.mobility[:, 0, 1:], direction)
    slipping_mobility = np.maximum(
        normal_mobility + friction * from_friction, _MIN_SLIP_SHARE * normal_mobility
    )
    slipping_normal = wanted_normal / slipping_mobility
    slipping_tangents = (friction * slipping_normal)[..., None] * direction
    slipping = np.concatenate([slipping_normal[..., None], slipping_tangents], -1)
    slips = size > friction * impulse[..., 0]
    impulse = np.where(slips[..., None], slipping, impulse)
    angular = np.einsum("nij,...nj->...ni", x.turning, impulse)
    return np.concatenate([impulse, angular], -1)


@dataclass(frozen=True, eq=False)
class PointContactFit:
    """A law fitted to N impacts.

    Attributes:
        law: Restitution, friction, tangential restitution (3,).
        left_out_error: Errors (N, k) of predicting each impact by the law of the other groups
            (`consecutive_groups`), over the sizes of the outcomes: what was observed minus what
            was predicted.
    """

    law: np.ndarray
    left_out_error: np.ndarray


def fit_point_contact(
    x: PointContactInputs, change: np.ndarray, size: np.ndarray
) -> PointContactFit:
    """Find the law that fits best, by grid search and then simplex search.

    The loss of an impact is limited, so that a few impacts that follow no law hardly matter. Laws
    of all groups but one are those of the grid.

    Args:
        x: Inputs of N impacts.
        change: Observed changes of twist over the approach speed (N, 3 or 6).
        size: Sizes of the outcomes over the approach speed (N,).
    """

    def losses(law: np.ndarray) -> np.ndarray:
        """Loss (..., N) of each impact."""
        predicted = point_contact(law[..., None, :], x)
        error = np.linalg.norm(predicted - change, axis=-1) / size
        return error**2 / (_CAP**2 + error**2)

    laws = np.stack([axis.ravel() for axis in np.meshgrid(*_AXES, indexing="ij")], 1)
    batches = np.array_split(laws, max(1, len(laws) * len(x) // _BATCH))
    of_laws = np.concatenate([losses(batch) for batch in batches])
    total = of_laws.sum(1)
    best = minimize(
        lambda law: float(losses(np.clip(law, _LOW, _HIGH)).mean()),
        laws[total.argmin()],
        method="Nelder-Mead",
        options={"maxiter": 150},
    ).x
    predicted = np.empty_like(change)
    for group in consecutive_groups(len(x)):
        of_others = laws[(total - of_laws[:, group].sum(1)).argmin()]
        predicted[group] = point_contact(of_others[None], x[group])
    left_out_error = (change - predicted) / size[:, None]
    return PointContactFit(np.clip(best, _LOW, _HIGH), left_out_error)
