"""Effects of real impacts that MuJoCo's contact does not have, added to simulated outcomes as
further parameters.

- tangential_stiffness: ratio of the contact's tangential to its normal stiffness. A finite one
  stores energy sideways and gives it back
  (tangential restitution, after Maw, Barber and Fawcett 1976 and Stronge 2000); MuJoCo's friction
  only dissipates. The simulated outcome keeps MuJoCo's restitution and point of action, and gets
  the impulse of such a contact.
- x, y (m) and yaw (rad): the recorded frame of the struck body against the one its scene has, as
  when markers sit a little off.
"""

from __future__ import annotations

import numpy as np

from clashsim.core.contact_frame import contact_frame, inertia
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene

_STEPS = 80


def with_effects(
    scene: Scene, before: np.ndarray, after: np.ndarray, theta: np.ndarray, *, usable: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Simulated impacts (before, after) as they would be with the scene's effect parameters; planar
    scenes only.
    """
    column = {
        p.target: theta[:, i] for i, p in enumerate(scene.params) if p.target.startswith("effect/")
    }
    if not column or scene.plane is None:
        return before, after
    before, after = before.copy(), after.copy()
    if "effect/tangential_stiffness" in column:
        friction = _column(scene, theta, "pair/strike/friction[0:2]")
        rows = np.flatnonzero(usable)
        after[rows] = _tangential(
            scene,
            before[rows],
            after[rows],
            friction[rows],
            column["effect/tangential_stiffness"][rows],
            _lightness(scene, theta)[rows],
        )
    zero = np.zeros(len(before))
    return _recorded(
        before,
        after,
        column.get("effect/x", zero),
        column.get("effect/y", zero),
        column.get("effect/yaw", zero),
    )


def _column(scene: Scene, theta: np.ndarray, target: str) -> np.ndarray:
    for i, p in enumerate(scene.params):
        if p.target == target:
            return theta[:, i]
    return np.full(len(theta), float(scene.base.pair("strike").friction[0]))


def _tangential(
    scene: Scene,
    before: np.ndarray,
    after: np.ndarray,
    friction: np.ndarray,
    ratio: np.ndarray,
    light: np.ndarray,
) -> np.ndarray:
    """The outcome of a point contact that is springy sideways, with MuJoCo's restitution and point
    of action.
    """
    frame = contact_frame(scene, Impacts(True, before, after))
    change = frame.encode(after)
    jn, jt = np.maximum(change[:, 0], 1e-6), change[:, 1]
    b = frame.arm[:, 0]
    a = np.clip(
        (b * jt - change[:, 2]) / jn, -3, 3
    )  # where the impulse acted in effect: a face may carry it anywhere along itself
    n = frame.contact.normal
    t = np.stack([-n[:, 1], n[:, 0]], 1)
    striker = (
        np.stack([(before[:, 9:11] * n).sum(1), (before[:, 9:11] * t).sum(1)], 1)
        / frame.speed[:, None]
    )
    start = frame.twist_before / frame.speed[:, None]
    vn = start[:, 0] - a * start[:, 2] - striker[:, 0]
    vt = start[:, 1] + b * start[:, 2] - striker[:, 1]
    parting = vn + (1 + light + a * a) * jn - a * b * jt
    bounce = np.clip(-parting / np.minimum(vn, -1e-6), 0.05, 1.0)
    jn, jt = point_impact(vn, vt, a, b, bounce, friction, ratio, light).T
    return frame.decode(np.stack([jn, jt, b * jt - a * jn], 1))


def _lightness(scene: Scene, theta: np.ndarray) -> np.ndarray:
    """Struck mass over striker mass (N,); zero for a striker that is fixed or driven at a given
    velocity.
    """
    body = scene.striker_body
    if body.fixed or scene.base.nu:
        return np.zeros(len(theta))
    struck, own = inertia(scene, scene.struck_body).mass, inertia(scene, body).mass
    for i, p in enumerate(scene.params):
        if p.target == f"body/{body.name}/mass":
            return struck / theta[:, i]
    return np.full(len(theta), struck / own)


def point_impact(
    vn: np.ndarray,
    vt: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    bounce: np.ndarray,
    friction: np.ndarray,
    ratio: np.ndarray,
    light: np.ndarray,
) -> np.ndarray:
    """Impulse (N, 2) along (normal, tangent) on a unit mass of unit gyration, contact at (b, a)
    from its centre along (normal, tangent).

    Normal spring whose unloading force is bounce^2 of the loading one (energetic restitution),
    tangential spring of `ratio` times its stiffness, held by Coulomb friction. `light` is the unit
    mass over the striker's. Time is scaled so that every contact takes about pi.
    """
    closing = np.maximum(-vn, 1e-9)
    vn, vt = vn / closing, vt / closing
    stiffness = 1 / (1 + light + a * a)
    step = np.pi / 2 * (1 + 1 / np.maximum(bounce, 0.2)) * 1.1 / _STEPS
    depth, stretch = np.zeros_like(vn), np.zeros_like(vn)
    jn, jt = np.zeros_like(vn), np.zeros_like(vn)
    for _ in range(_STEPS):
        un = vn + (1 + light + a * a) * jn - a * b * jt
        ut = vt + (1 + light + b * b) * jt - a * b * jn
        depth = depth - un * step
        fade = bounce**2 + (1 - bounce**2) / (1 + np.exp(np.clip(un / 0.03, -50, 50)))
        force = np.maximum(depth, 0) * stiffness * fade
        limit = friction * force / (ratio * stiffness)
        stretch = np.clip(stretch + ut * step, -limit, limit)
        side = -ratio * stiffness * stretch
        jn, jt = jn + force * step, jt + side * step
    return np.stack([jn, jt], 1) * closing[:, None]


def _recorded(
    before: np.ndarray, after: np.ndarray, x: np.ndarray, y: np.ndarray, yaw: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What a frame fixed to the struck body at (x, y, yaw) from its own records of the same motion."""
    c, s = np.cos(before[:, 2]), np.sin(before[:, 2])
    arm = np.stack([c * x - s * y, s * x + c * y], 1)
    before[:, :2] += arm
    before[:, 2] += yaw
    side = np.stack([-arm[:, 1], arm[:, 0]], 1)
    before[:, 3:5] += before[:, 5:6] * side
    after[:, :2] += after[:, 2:3] * side
    return before, after
