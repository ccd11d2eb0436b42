"""Recorded impacts as an identification problem, simulated in MuJoCo at many parameters at once.

The loss of all identification methods is the mean of r^2 / (1 + r^2) over the impacts, with r the
relative error of the twist after impact: a bad recording then contributes at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.stats import qmc

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.sim.mujoco.impacts import ImpactSimulator

_BATCH = 2048  # simulations in one batch
_MAX_ERROR = 1e3  # relative errors are clipped here; errors that are not finite get this value
_START_RANGE = 0.8  # starting points lie within this share of the unit scale
_MIN_SIZE = 1e-9  # m/s, of the recorded twist


@dataclass(frozen=True)
class IdentificationResult:
    """The result of an identification.

    Attributes:
        theta: Parameters (p,) in natural units and `scene.params` order.
        loss: Mean loss over the impacts, from 0 (exact) to 1.
        evaluations: Number of simulated impacts.
        failure: Why nothing was identified, or None.
    """

    theta: np.ndarray
    loss: float
    evaluations: int
    failure: str | None = None


@dataclass(frozen=True, eq=False)
class IdentificationProblem:
    """N recorded impacts, and the parameters to identify.

    Attributes:
        scene: The scene.
        before: States before impact (N, d), with the bodies touching.
        after: Recorded twists after impact (N, k), m/s and rad/s.
        theta: Parameters of each impact (N, p), natural units: measured values where there are any,
            else nominal ones.
        free: Indices of the q parameters to identify.
        gyration: Radius of gyration of the struck body, m, by which angular velocities are
            multiplied to compare them with velocities.
        duration: Longest simulated time of an impact, s.
    """

    scene: Scene
    before: np.ndarray
    after: np.ndarray
    theta: np.ndarray
    free: tuple[int, ...]
    gyration: float
    duration: float = 0.25

    @cached_property
    def simulator(self) -> ImpactSimulator:
        """The batch of simulations, built on first use."""
        return ImpactSimulator(self.scene, _BATCH)

    @cached_property
    def scale(self) -> np.ndarray:
        """Factors (N, k) that make an error of the twist relative to the recorded twist."""
        k = self.after.shape[1]
        num_linear = k // 2 + k % 2
        weight = np.r_[np.ones(num_linear), np.full(k // 2, self.gyration)]  # (v, gyration * w)
        size = np.linalg.norm(np.nan_to_num(self.after) * weight, axis=1, keepdims=True)
        return weight / np.maximum(size, _MIN_SIZE)

    @property
    def params(self) -> list[Param]:
        """The parameters to identify, (q,)."""
        return [self.scene.params[i] for i in self.free]

    def natural(self, unit: np.ndarray) -> np.ndarray:
        """Theta (p,), natural units, at a point (q,) of the unit scale.

        Parameters that are not free have their mean over the impacts.
        """
        theta = self.theta.mean(0)
        theta[list(self.free)] = from_unit(self.params, np.clip(unit, -1, 1))
        return theta

    def simulate(self, unit: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Simulate some impacts at many points, in one batch.

        Args:
            unit: Points (m, q) of the unit scale.
            rows: Indices (n,) of the impacts.

        Returns:
            Twists after impact (m, n, k); NaN where the simulated impact did not end.
        """
        m = len(unit)
        n = len(rows)
        theta = np.tile(self.theta[rows], (m, 1))
        theta[:, list(self.free)] = np.repeat(from_unit(self.params, np.clip(unit, -1, 1)), n, 0)
        before = np.tile(self.before[rows], (m, 1))
        outcome = self.simulator(before, theta, duration=self.duration)
        after = np.where(outcome.usable[:, None], outcome.after, np.nan)
        return after.reshape(m, n, -1)

    def predict(self, theta: np.ndarray) -> np.ndarray:
        """Simulate all impacts (N, k) with the free entries of theta (p,), natural units.

        The other parameters are those of each impact.
        """
        unit = to_unit(self.params, theta[list(self.free)])
        return self.simulate(unit[None], np.arange(len(self.before)))[0]

    def miss(self, after: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Errors (m, n, k) of simulated twists, relative to the size of the recorded ones.

        Zero for components that were not measured.

        Args:
            after: Simulated twists (m, n, k).
            rows: Indices (n,) of the impacts that were simulated.
        """
        recorded = self.after[rows]
        return np.where(np.isnan(recorded), 0.0, after - recorded) * self.scale[rows]

    def residual(self, after: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Capped residuals of simulated twists.

        Args:
            after: Simulated twists (m, n, k).
            rows: Indices (n,) of the impacts that were simulated.

        Returns:
            (m, n, k); their squares sum to r^2 / (1 + r^2) in each impact.
        """
        relative = self.miss(after, rows)
        clipped = np.clip(relative, -_MAX_ERROR, _MAX_ERROR)
        relative = np.where(np.isfinite(relative), clipped, _MAX_ERROR)
        return relative / np.sqrt(1 + (relative**2).sum(-1, keepdims=True))

    def losses(self, unit: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Mean losses (m,) at points (m, q) of the unit scale, over the impacts `rows` (n,)."""
        return (self.residual(self.simulate(unit, rows), rows) ** 2).sum(-1).mean(-1)

    def with_few_free(self, count: int = 3) -> IdentificationProblem:
        """The problem with at most `count` free parameters; the others stay nominal.

        Parameters of the striking pair's contact are kept first.
        """
        if len(self.free) <= count:
            return self

        def rank(i: int) -> tuple[bool, int]:
            return not self.scene.params[i].target.startswith("pair/strike"), i

        chosen = sorted(self.free, key=rank)[:count]
        return replace(self, free=tuple(sorted(chosen)))

    def starts(self, count: int, seed: int) -> np.ndarray:
        """Starting points (count, q): the nominal one, then a Latin hypercube on the unit scale."""
        nominal = to_unit(self.params, self.scene.nominal[list(self.free)])
        sampler = qmc.LatinHypercube(len(self.free), rng=np.random.default_rng(seed))
        others = sampler.random(max(1, count - 1)) * (2 * _START_RANGE) - _START_RANGE
        return np.vstack([np.clip(nominal, -_START_RANGE, _START_RANGE), others])[:count]


def identification_problem(
    scene: Scene, impacts: Impacts, *, gyration: float | None = None
) -> IdentificationProblem:
    """Set up the identification: advance the impacts to contact and find the free parameters.

    Parameters that were measured with each impact, and effects that MuJoCo does not simulate, are
    not free.

    Args:
        scene: The scene.
        impacts: The recorded impacts.
        gyration: Radius of gyration of the struck body, m; that of the scene by default.

    Returns:
        The problem.
    """
    contact, before = bring_into_contact(scene, impacts.before)
    if not contact.touching.all():
        row = int(np.argmin(contact.touching))
        raise DataError(
            f"in impact {row} the bodies do not meet: check poses, velocities, units and frames"
        )
    theta = np.tile(scene.nominal, (len(impacts), 1))
    free = []
    for i, (param, slot) in enumerate(zip(scene.params, scene.slots, strict=True)):
        if param.name in impacts.known:
            theta[:, i] = impacts.known[param.name]
        elif slot is not None:
            free.append(i)
    return IdentificationProblem(
        scene=scene,
        before=before,
        after=impacts.after,
        theta=theta,
        free=tuple(free),
        gyration=gyration or inertia(scene, scene.struck_body).gyration,
    )
