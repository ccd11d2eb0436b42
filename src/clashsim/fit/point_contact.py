"""A simple law of point contact between rigid bodies in the plane.

It has three constants: normal restitution, Coulomb friction and tangential restitution.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from clashsim.core.contact_frame import ContactFrame, inertia
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.fit.regression import approach

# Bounds and grid of (normal restitution, friction coefficient, tangential restitution).
_LOW = np.array([0.0, 0.0, -1.0])
_HIGH = np.array([1.0, 2.0, 1.0])
_AXES = (np.linspace(0, 1, 21), np.linspace(0, 1.2, 25), np.linspace(-1, 1, 17))
_BATCH = 200_000  # laws times impacts that are evaluated at once
# Relative error at which an impact's loss is half its limit: the loss is then close to
# 1 - accuracy(0.1).
_CAP = 0.1
_MIN_SLIP_SHARE = (
    0.1  # of k_nn, below which friction may not reduce the slipping contact's mobility
)


def point_contact_inputs(scene: Scene, frame: ContactFrame, impacts: Impacts) -> np.ndarray:
    """Inputs of the law for each impact.

    Args:
        scene: The scene.
        frame: The impacts in their contact frames.
        impacts: N impacts.

    Returns:
        (N, 5): normal and tangential approach velocity over the approach speed, lever arm along
        tangent and normal in radii of gyration, and the struck body's mass over that of a striker
        that can recoil (0 for walls and servos).
    """
    along_normal, along_tangent = frame.arm.T
    normal, tangential = approach(frame, impacts).T
    struck_mass = inertia(scene, scene.struck_body).mass
    if "arm_mass" in impacts.known:
        recoil = struck_mass / impacts.known["arm_mass"]
    elif scene.striker_body.free:
        recoil = np.full(len(impacts), struck_mass / inertia(scene, scene.striker_body).mass)
    else:
        recoil = np.zeros(len(impacts))
    return np.stack([normal, tangential, along_tangent, along_normal, recoil], 1)


def point_contact(law: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Change of twist under a law.

    Args:
        law: (..., 1, 3): restitution, friction, tangential restitution.
        x: `point_contact_inputs` (N, 5).

    Returns:
        Change of twist over the approach speed in the contact's axes (..., N, 3): normal,
        tangential, gyration * w.
    """
    restitution, friction, tangential_restitution = np.moveaxis(law, -1, 0)
    normal, tangential, arm_t, arm_n, recoil = x.T
    # Change of the contact's relative velocity per impulse, for a body of unit mass and gyration.
    k_nn = 1 + arm_t * arm_t + recoil
    k_tt = 1 + arm_n * arm_n + recoil
    k_nt = -arm_t * arm_n
    # Changes of velocity that both restitutions ask for, and their impulses if the contact sticks.
    wanted_normal = -(1 + restitution) * normal
    wanted_tangential = -(1 + tangential_restitution) * tangential
    determinant = k_nn * k_tt - k_nt * k_nt
    impulse_n = (k_tt * wanted_normal - k_nt * wanted_tangential) / determinant
    impulse_t = (k_nn * wanted_tangential - k_nt * wanted_normal) / determinant
    # Where the tangential impulse exceeds the friction limit, the contact slips.
    side = np.sign(impulse_t)
    slipping_n = wanted_normal / np.maximum(k_nn + k_nt * side * friction, _MIN_SLIP_SHARE * k_nn)
    slips = np.abs(impulse_t) > friction * impulse_n
    impulse_t = np.where(slips, side * friction * slipping_n, impulse_t)
    impulse_n = np.where(slips, slipping_n, impulse_n)
    return np.stack([impulse_n, impulse_t, arm_n * impulse_t - arm_t * impulse_n], -1)


def fit_point_contact(x: np.ndarray, change: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Find the law that fits best, by grid search and then simplex search.

    The loss of an impact is limited, so that a few impacts that follow no law hardly matter.

    Args:
        x: `point_contact_inputs` (N, 5).
        change: Observed changes of twist over the approach speed (N, 3).
        size: Sizes of the outcomes over the approach speed (N,).

    Returns:
        Restitution, friction, tangential restitution (3,).
    """

    def loss(law: np.ndarray) -> np.ndarray:
        predicted = point_contact(law[..., None, :], x)
        error = np.linalg.norm(predicted - change, axis=-1) / size
        return (error**2 / (_CAP**2 + error**2)).mean(-1)

    laws = np.stack([axis.ravel() for axis in np.meshgrid(*_AXES, indexing="ij")], 1)
    batches = np.array_split(laws, max(1, len(laws) * len(x) // _BATCH))
    scores = np.concatenate([loss(batch) for batch in batches])
    best = minimize(
        lambda law: float(loss(np.clip(law, _LOW, _HIGH))),
        laws[scores.argmin()],
        method="Nelder-Mead",
        options={"maxiter": 150},
    ).x
    return np.clip(best, _LOW, _HIGH)
