"""How far recorded impacts are from mechanics: what no impulse at the contact explains.

Of an impact, the contact parameters decide how large the impulse is and where it points. Whatever
they are, the struck body's change of twist follows from one impulse at the contact point, which
pushes, lies in a cone of friction, and neither lets the bodies pass through each other nor gives
energy back that was not there.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.angles import rotate_quarter_turn
from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import PairPoser, bring_into_contact, closing_speed
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene

_MAX_FRICTION = 2.0  # more than any material's
_RESTITUTION = (-0.1, 1.2)  # 0 to 1, and a margin for what was measured
_NUM_IN_PLANE = 33  # directions of the impulse that are tried in a plane
_RADII = (
    0.0,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.4,
    0.5,
    0.6,
    0.8,
    1.0,
    1.5,
    2.0,
)  # ratios of friction tried in space
_NUM_ANGLES = 32  # directions tried in space for each of them
_SMALLEST = 1e-12  # m/s, so that nothing is divided by zero


@dataclass(frozen=True, eq=False)
class Misfit:
    """How N impacts contradict mechanics.

    Attributes:
        share: (N,), of each change of twist that no impulse at the contact explains: 0 where one
            explains it, 1 where none explains anything of it or where the bodies do not meet.
        moved: (N,), m, how far the bodies had to be moved to touch; infinite where they do not.
    """

    share: np.ndarray
    moved: np.ndarray

    @staticmethod
    def impossible(n: int) -> Misfit:
        """That of n impacts that cannot have happened."""
        return Misfit(np.ones(n), np.full(n, np.inf))


def measure_misfit(scene: Scene, impacts: Impacts) -> Misfit:
    """Measure how much of each change of twist no impulse at the contact explains.

    Args:
        scene: Scene of the collision.
        impacts: N impacts, planar or spatial as the scene is; outcomes may hold NaN.

    Returns:
        The misfit.

    Raises:
        DataError: The joints cannot bring a body to its recorded pose.
    """
    contact, moved = bring_into_contact(scene, impacts.before)
    closing = closing_speed(moved, contact)
    meets = contact.touching & (closing > 0)
    found = Misfit.impossible(len(impacts))
    rows = np.flatnonzero(meets)
    if len(rows) == 0:
        return found
    normal = contact.normal[rows]
    response, mobility = _responses(scene, moved[rows], contact.point[rows])
    direction = _directions(normal)  # (R, J, d), along the normal at length one
    change = impacts.after[rows] - MotionBefore.of(impacts.before[rows]).struck.twist
    weights = _weights(scene, change.shape[1])
    known = np.isfinite(change)
    change = np.where(known, change, 0.0) * weights
    per_impulse = np.einsum("rkd,rjd->rjk", response, direction) * (weights * known)[:, None]
    arm = contact.point[rows] - MotionBefore.of(moved[rows]).struck.position
    own_mobility = _velocity_at(arm, response)
    least, most = _impulse_range(closing[rows], normal, direction, own_mobility, mobility)
    squared = np.maximum((per_impulse**2).sum(2), _SMALLEST**2)
    impulse = np.clip(np.einsum("rk,rjk->rj", change, per_impulse) / squared, least, most)
    residual = np.linalg.norm(change[:, None] - impulse[..., None] * per_impulse, axis=2)
    size = np.maximum(np.linalg.norm(change, axis=1), _SMALLEST)
    found.share[rows] = np.minimum(residual.min(1) / size, 1.0)
    found.moved[rows] = np.abs(contact.shift[rows])
    return found


def _weights(scene: Scene, k: int) -> np.ndarray:
    """Factors (k,) that turn a twist (v, w) into (v, gyration * w), m/s."""
    linear = 2 if k == 3 else 3
    gyration = inertia(scene, scene.struck_body).gyration
    return np.concatenate([np.ones(linear), np.full(k - linear, gyration)])


def _responses(
    scene: Scene, before: np.ndarray, point: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What an impulse of 1 N s at the contact does.

    Args:
        scene: Scene of the collision.
        before: (R, d) motion of touching bodies, as in `Impacts`.
        point: (R, 2 or 3) contact points, in the axes of the positions.

    Returns:
        Change of the struck body's twist, (R, k, 2 or 3), and change of the relative velocity of
        both bodies at the contact, (R, 2 or 3, 2 or 3), for an impulse along each axis.
    """
    model = scene.probe  # has no collision detection
    poser = PairPoser(scene)
    plane = scene.plane
    axes = np.eye(3) if plane is None else plane[:2]
    struck = scene.struck_body
    striker = scene.striker_body
    qpos = np.tile(model.qpos0, (len(before), 1))
    poser.write(before, qpos)
    data = mujoco.MjData(model)
    changes = []
    mobilities = []
    for row in range(len(before)):
        data.qpos[:] = qpos[row]
        mujoco.mj_fwdPosition(model, data)
        height = np.zeros(3) if plane is None else (data.xpos[struck.body] @ plane[2]) * plane[2]
        at = point[row] @ axes + height
        of_struck = _jacobian(model, data, at, struck.body)
        relative = of_struck[:3] - _jacobian(model, data, at, striker.body)[:3]
        of_origin = _jacobian(model, data, data.xpos[struck.body], struck.body)
        rates = np.zeros((len(axes), model.nv))  # qvel after an impulse along each axis
        mujoco.mj_solveM(model, data, rates, axes @ relative)
        twist = poser.scene_twist(rates @ of_origin[:3].T, rates @ of_origin[3:].T)
        changes.append(twist.T)
        mobilities.append(axes @ relative @ rates.T)
    return np.array(changes), np.array(mobilities)


def _jacobian(
    model: mujoco.MjModel, data: mujoco.MjData, point: np.ndarray, body: int
) -> np.ndarray:
    """(6, nv), velocity of a point (3,) of a body and the body's angular velocity, world axes."""
    jacobian = np.zeros((6, model.nv))
    mujoco.mj_jac(model, data, jacobian[:3], jacobian[3:], np.asarray(point, float), body)
    return jacobian


def _velocity_at(arm: np.ndarray, twist: np.ndarray) -> np.ndarray:
    """Velocities (R, d, d) at arms (R, d) of twists (R, k, d), one for each axis of an impulse."""
    d = arm.shape[1]
    linear = twist[:, :d]
    if d == 2:
        return linear + rotate_quarter_turn(arm)[:, :, None] * twist[:, 2:3]
    angular = np.swapaxes(twist[:, 3:], 1, 2)
    return linear + np.swapaxes(np.cross(angular, arm[:, None]), 1, 2)


def _directions(normal: np.ndarray) -> np.ndarray:
    """Impulses (R, J, d) within a cone of friction about normals (R, d), of length 1 along them."""
    if normal.shape[1] == 2:
        ratio = np.linspace(-_MAX_FRICTION, _MAX_FRICTION, _NUM_IN_PLANE)
        return normal[:, None] + ratio[:, None] * rotate_quarter_turn(normal)[:, None]
    not_normal = np.where(np.abs(normal[:, :1]) < 0.7, [[1.0, 0, 0]], [[0, 1.0, 0]])
    first = np.cross(normal, not_normal)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normal, first)
    angle = np.linspace(0, 2 * np.pi, _NUM_ANGLES, endpoint=False)
    radius = np.array(_RADII)[:, None]
    along_first = (radius * np.cos(angle)).reshape(-1, 1)
    along_second = (radius * np.sin(angle)).reshape(-1, 1)
    return normal[:, None] + along_first * first[:, None] + along_second * second[:, None]


def _impulse_range(
    closing: np.ndarray,
    normal: np.ndarray,
    direction: np.ndarray,
    own_mobility: np.ndarray,
    mobility: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest impulse (R, J) that stop bodies without throwing them back too fast.

    How far the striker yields is not known: what drives it may hold it. So the smallest impulse is
    that on a striker that is held by nothing, the largest that on one that nothing moves.

    Args:
        closing: (R,), m/s, at which the surfaces close in.
        normal: (R, d), out of the striker.
        direction: (R, J, d), of the impulse.
        own_mobility: (R, d, d), velocity of the struck body at the contact for 1 N s.
        mobility: (R, d, d), likewise of the struck body relative to the striker.
    """
    per_both = np.einsum("rd,rde,rje->rj", normal, mobility, direction)
    per_struck = np.einsum("rd,rde,rje->rj", normal, own_mobility, direction)
    stopped, thrown = 1 + _RESTITUTION[0], 1 + _RESTITUTION[1]
    least = stopped * closing[:, None] / np.maximum(per_both, _SMALLEST)
    most = thrown * closing[:, None] / np.maximum(per_struck, _SMALLEST)
    least = np.where(per_both > 0, least, 0.0)
    return least, np.maximum(most, least)
