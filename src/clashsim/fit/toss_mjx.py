"""Identification of parameters on recorded tosses by the gradients of MJX.

Levenberg-Marquardt runs from several starts at once, on the frames just after the first contact.
Later frames are not used, because gradients through many bounces carry little information.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from clashsim.core.box import SUBSTEPS
from clashsim.core.params import from_unit, to_unit
from clashsim.fit.priors import unit_std
from clashsim.fit.toss_cmaes import PRIOR, TossFit
from clashsim.fit.toss_rollouts import TossRollouts
from clashsim.optim.levenberg_marquardt import levenberg_marquardt
from clashsim.sim.mjx.impact_jacobian import cap_residuals
from clashsim.sim.mjx.simulator import MjxSim

# Displacement, in widths, that a unit difference of quaternions corresponds to: the difference is
# half the angle, and corners lie about a width from the centre.
_QUATERNION_WIDTHS = 2.0
# Step on the unit scale of the finite differences of initial states, which are linear in the mass
# centre.
_DIFFERENCE = 1e-3
# Factor of the residuals (in widths): the loss saturates at a mean error of about a quarter width.
_RESIDUAL_SCALE = 4.0
_START_STD = 0.5  # prior standard deviations by which starting points differ from nominal
_START_RANGE = 0.9  # of the unit scale, to which starting points are clipped
_POSE_SIZE = 7  # position and quaternion


def identify_tosses_mjx(
    rollouts: TossRollouts, *, seed: int, starts: int = 4, after: int = 16, steps: int = 20
) -> TossFit:
    """Minimise the misfit just after the first contact.

    The prior about the nominal values has the same weight as in `identify_tosses`.

    Args:
        rollouts: The tosses and their scene.
        seed: Seed of the starts.
        starts: Number of starts.
        after: Number of frames, from the first contact on, that enter the loss.
        steps: Optimisation steps.

    Returns:
        The identified parameters.
    """
    residuals = _ContactResiduals(rollouts, after)
    params = rollouts.scene.params
    sampler = qmc.LatinHypercube(len(params), rng=np.random.default_rng(seed))
    unit_points = sampler.random(max(1, starts - 1)) * 2 - 1
    std = _START_STD * residuals.std * unit_points
    others = np.clip(residuals.centre + std, -_START_RANGE, _START_RANGE)
    begin = np.vstack([residuals.centre, others])[:starts]
    found = levenberg_marquardt(residuals, begin, steps=steps)
    best = int(found.loss.argmin())
    of_tosses = found.residual[best, : -len(params)]  # the last rows are those of the prior
    return TossFit(
        from_unit(params, found.points[best]),
        float((of_tosses**2).sum()),
        starts * len(rollouts.tosses.flights) * steps,
    )


class _ContactResiduals:
    """Residuals and Jacobian of n tosses just after their first contact, and of the prior."""

    def __init__(self, rollouts: TossRollouts, after: int) -> None:
        tosses = rollouts.tosses
        self._rollouts = rollouts
        self._after = after
        self._params = rollouts.scene.params
        self._sim = MjxSim(rollouts.scene)
        self.centre = to_unit(self._params, rollouts.scene.nominal)
        self.std = np.array([unit_std(param) for param in self._params])
        n = len(tosses.flights)
        first = tosses.contact_frames
        length = min(int(first.max()) + after + 1, tosses.length)
        self._frames = np.minimum(first[:, None] + np.arange(after), length - 1)  # (n, after)
        quaternions = []
        for flight, frames in zip(tosses.flights, self._frames, strict=True):
            quaternions.append(flight.quaternion[frames])
        self._quaternion = np.stack(quaternions)  # (n, after, 4)
        self._position = tosses.position[np.arange(n)[:, None], self._frames]  # (n, after, 3)
        self._control = np.zeros((n, (length - 1) * SUBSTEPS, 0))
        widths = [1 / tosses.width] * 3 + [_QUATERNION_WIDTHS] * 4
        self._weight = np.array(widths)  # (7,): factors of a pose's entries

    def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (m, r) and Jacobian (m, r, q) at points (m, q) of the unit scale."""
        m, q = points.shape
        n = len(self._frames)
        pose, pose_jacobian = self._poses(points)
        recorded = np.tile(self._quaternion, (m, 1, 1))
        # A quaternion and its negative are the same rotation.
        agreement = (pose[..., 3:] * recorded).sum(-1, keepdims=True)
        recorded = np.where(agreement < 0, -1.0, 1.0) * recorded
        expected = np.concatenate([np.tile(self._position, (m, 1, 1)), recorded], -1)
        difference = (pose - expected) * self._weight
        jacobian = pose_jacobian * self._weight[:, None]
        unit = _RESIDUAL_SCALE / np.sqrt(self._after)
        residual, residual_jacobian = cap_residuals(
            unit * difference.reshape(m, n, -1), unit * jacobian.reshape(m, n, -1, q)
        )
        root = np.sqrt(n)
        prior = np.sqrt(PRIOR)
        prior_jacobian = np.tile(prior * np.diag(1 / self.std), (m, 1, 1))
        return (
            np.concatenate(
                [residual.reshape(m, -1) / root, prior * (points - self.centre) / self.std], 1
            ),
            np.concatenate([residual_jacobian.reshape(m, -1, q) / root, prior_jacobian], 1),
        )

    def _poses(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Poses (m n, after, 7) at the compared frames, and their Jacobian (m n, after, 7, q)."""
        m, q = points.shape
        n = len(self._frames)
        theta = from_unit(self._params, points)
        start = self._rollouts.starts(theta).reshape(m * n, -1)
        shifted = (points[:, None] + _DIFFERENCE * np.eye(q)).reshape(m * q, q)
        shifted_start = self._rollouts.starts(from_unit(self._params, shifted))
        shifted_start = shifted_start.reshape(m, q, n, -1).swapaxes(1, 2).reshape(m * n, q, -1)
        states, jacobian = self._sim.rollout_with_jacobian(
            start,
            np.tile(self._control, (m, 1, 1)),
            np.repeat(theta, n, 0),
            free=range(q),
            finite=False,
            start_jacobian=(shifted_start - start[:, None]) / _DIFFERENCE,
        )
        rows = np.arange(m * n)[:, None]
        at = np.tile(self._frames, (m, 1)) * SUBSTEPS
        return states[rows, at, :_POSE_SIZE], jacobian[rows, at, :_POSE_SIZE]
