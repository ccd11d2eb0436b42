"""Parameters identified on recorded tosses by the slopes of MJX: Levenberg-Marquardt from several
starts at once, on the frames around the first contact.

A slope through many bounces says little, so a toss counts from its first contact for a short while
only.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from clashsim.core.box import SUBSTEPS
from clashsim.core.params import from_unit, to_unit
from clashsim.fit.toss_cmaes import PRIOR, TossFit, TossRollouts, unit_sd
from clashsim.optim.levenberg_marquardt import levenberg_marquardt
from clashsim.sim.mjx.impact_jacobian import cap_residuals
from clashsim.sim.mjx.simulator import MjxSim

# Widths that a quaternion's difference counts as: it is half an angle, and corners lie about a
# width from the centre
_TURN = 2.0
_STEP = 1e-3  # on the unit scale, of the starts' differences: they are linear in the centre of mass


def identify_tosses_mjx(
    rollouts: TossRollouts, *, seed: int, starts: int = 4, after: int = 16, steps: int = 20
) -> TossFit:
    """Minimise the misfit from the first contact to `after` frames later, with the same pull to
    nominal values as the search by CMA-ES.
    """
    scene, tosses = rollouts.scene, rollouts.tosses
    params, sim, n = scene.params, MjxSim(scene), len(tosses.flights)
    centre, sd = to_unit(params, scene.nominal), np.array([unit_sd(p) for p in params])
    first = np.array([f.frames for f in tosses.flights])
    length = min(int(first.max()) + after + 1, tosses.length)
    frames = np.minimum(first[:, None] + np.arange(after), length - 1)  # (n, after)
    quaternion = np.stack([f.quaternion[k] for f, k in zip(tosses.flights, frames, strict=True)])
    place = tosses.position[np.arange(n)[:, None], frames]
    control = np.zeros((n, (length - 1) * SUBSTEPS, 0))

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m, q = points.shape
        shifted = points[:, None] + _STEP * np.eye(q)
        start = rollouts.starts(from_unit(params, points)).reshape(m * n, -1)
        turned = (
            rollouts.starts(from_unit(params, shifted.reshape(m * q, q)))
            .reshape(m, q, n, -1)
            .swapaxes(1, 2)
            .reshape(m * n, q, -1)
            - start[:, None]
        ) / _STEP
        theta = np.repeat(from_unit(params, points), n, 0)
        states, slope = sim.rollout_with_jacobian(
            start,
            np.tile(control, (m, 1, 1)),
            theta,
            free=range(q),
            finite=False,
            start_jacobian=turned,
        )
        rows, at = np.arange(m * n)[:, None], np.tile(frames, (m, 1)) * SUBSTEPS
        pose, turn = states[rows, at, :7], slope[rows, at, :7]
        side = np.where(
            (pose[..., 3:] * np.tile(quaternion, (m, 1, 1))).sum(-1, keepdims=True) < 0, -1.0, 1.0
        )
        off = np.concatenate(
            [
                (pose[..., :3] - np.tile(place, (m, 1, 1))) / tosses.width,
                _TURN * (pose[..., 3:] - side * np.tile(quaternion, (m, 1, 1))),
            ],
            -1,
        )
        turn = turn * np.array([1 / tosses.width] * 3 + [_TURN] * 4)[:, None]
        # A toss that is off by a quarter of the width on average counts about as one that is lost.
        unit = 4 / np.sqrt(after)
        value, moved = cap_residuals(unit * off.reshape(m, n, -1), unit * turn.reshape(m, n, -1, q))
        prior = np.sqrt(PRIOR)
        value = np.concatenate(
            [value.reshape(m, -1) / np.sqrt(n), prior * (points - centre) / sd], 1
        )
        return value, np.concatenate(
            [moved.reshape(m, -1, q) / np.sqrt(n), np.tile(prior * np.diag(1 / sd), (m, 1, 1))], 1
        )

    spread = (
        qmc.LatinHypercube(len(params), rng=np.random.default_rng(seed)).random(max(1, starts - 1))
        * 2
        - 1
    )
    found = levenberg_marquardt(
        evaluate,
        np.vstack([centre, np.clip(centre + 0.5 * sd * spread, -0.9, 0.9)])[:starts],
        steps=steps,
    )
    best = int(found.loss.argmin())
    return TossFit(
        from_unit(params, found.points[best]),
        float((found.residual[best, : -len(params)] ** 2).sum()),
        starts * n * steps,
    )
