"""The simplest law of a point contact: normal restitution, Coulomb friction and tangential
restitution of rigid bodies in the plane.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from clashsim.core.contact_frame import ContactFrame, inertia
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.regression import approach

_LOW, _HIGH = np.array([0.0, 0.0, -1.0]), np.array([1.0, 2.0, 1.0])
_AXES = (np.linspace(0, 1, 21), np.linspace(0, 1.2, 25), np.linspace(-1, 1, 17))


def point_contact_inputs(scene: Scene, frame: ContactFrame, impacts: Impacts) -> np.ndarray:
    """What the law needs of each impact, (N, 5): normal and tangential approach, lever arm along
    tangent and normal in radii of gyration, and the struck body's mass over that of a striker that
    can recoil (0 for walls and servos).
    """
    (b, a), (vn, vt) = frame.arm.T, approach(frame, impacts).T
    struck = inertia(scene, scene.struck_body).mass
    if "arm_mass" in impacts.known:
        recoil = struck / impacts.known["arm_mass"]
    else:
        recoil = np.full(
            len(impacts),
            struck / inertia(scene, scene.striker_body).mass if scene.striker_body.free else 0.0,
        )
    return np.stack([vn, vt, a, b, recoil], 1)


def point_contact(law: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Change of twist (..., N, 3), dimensionless, under laws (..., 1, 3) = (restitution, friction,
    tangential restitution) at `point_contact_inputs` (N, 5).
    """
    e, mu, et = np.moveaxis(law, -1, 0)
    vn, vt, a, b, recoil = x.T
    knn, ktt, knt = (
        1 + a * a + recoil,
        1 + b * b + recoil,
        -a * b,
    )  # velocity of the contact per impulse, on a unit mass of unit gyration
    un, ut = -(1 + e) * vn, -(1 + et) * vt
    det = knn * ktt - knt * knt
    jn, jt = (ktt * un - knt * ut) / det, (knn * ut - knt * un) / det
    side = np.sign(jt)
    slide = un / np.maximum(knn + knt * side * mu, 0.1 * knn)
    slips = np.abs(jt) > mu * jn
    jn, jt = np.where(slips, slide, jn), np.where(slips, side * mu * slide, jt)
    return np.stack([jn, jt, b * jt - a * jn], -1)


def fit_point_contact(x: np.ndarray, change: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The law (3,) that fits changes (N, 3) of given size (N,) best, by grid and simplex search; a
    few impacts that follow no law do not decide.
    """

    def loss(law: np.ndarray) -> np.ndarray:
        miss = np.linalg.norm(point_contact(law[..., None, :], x) - change, axis=-1) / size
        return (miss**2 / (0.1**2 + miss**2)).mean(-1)  # close to what accuracy(0.1) counts

    laws = np.stack([g.ravel() for g in np.meshgrid(*_AXES, indexing="ij")], 1)
    scores = np.concatenate(
        [loss(part) for part in np.array_split(laws, max(1, len(laws) * len(x) // 200_000))]
    )
    best = minimize(
        lambda q: float(loss(np.clip(q, _LOW, _HIGH))),
        laws[scores.argmin()],
        method="Nelder-Mead",
        options={"maxiter": 150},
    ).x
    return np.clip(best, _LOW, _HIGH)
