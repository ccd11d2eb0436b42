"""Recorded impacts made ready to be simulated in MuJoCo under many parameters at once.

The loss of all identification methods is the mean of r^2 / (1 + r^2) over the impacts, with r the
relative error of the twist after impact: one wild recording can then cost no more than 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.stats import qmc

from clashsim.core.contact_frame import inertia
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.params import Param, from_unit, to_unit
from clashsim.core.scene import Scene
from clashsim.sim.mujoco.impacts import ImpactSimulator

_BATCH = 2048  # simulations in one batch
_LARGEST = 1e3  # relative error beyond which one is as bad as the other
_START_RANGE = 0.8  # of the unit scale


@dataclass(frozen=True)
class IdentificationResult:
    """What an identification found.

    Attributes:
        theta: Parameters (p,) in natural units and `scene.params` order.
        loss: 0 is exact, 1 useless.
        evaluations: Simulated impacts.
        failure: What went wrong, or None.
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
        before: States before impact (N, d), touching.
        after: Recorded twists after impact (N, k).
        theta: Parameters (N, p): nominal, with what was measured per impact written in.
        free: Indices of the q parameters to identify.
        gyration: Radius of gyration of the struck body, m; it weighs angular velocities.
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
        weight = np.r_[np.ones(num_linear), np.full(k // 2, self.gyration)]
        size = np.linalg.norm(self.after * weight, axis=1, keepdims=True)
        return weight / np.maximum(size, 1e-9)

    @property
    def params(self) -> list[Param]:
        """The parameters to identify, (q,)."""
        return [self.scene.params[i] for i in self.free]

    def natural(self, unit: np.ndarray) -> np.ndarray:
        """Theta (p,) for a point (q,) of the unit scale; the mean of what was measured."""
        theta = self.theta.mean(0)
        theta[list(self.free)] = from_unit(self.params, np.clip(unit, -1, 1))
        return theta

    def simulate(self, unit: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Simulate some impacts at many points, in one batch.

        Args:
            unit: Points (m, q) of the unit scale.
            rows: Which impacts (n,).

        Returns:
            Twists after impact (m, n, k); NaN where an impact had no end.
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
        """Twists after impact (N, k) with the identified entries of theta (p,).

        Each impact has its own values of what was measured.
        """
        unit = to_unit(self.params, theta[list(self.free)])
        return self.simulate(unit[None], np.arange(len(self.before)))[0]

    def residual(self, after: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Capped residuals of simulated twists.

        Args:
            after: Simulated twists (m, n, k).
            rows: Which impacts they are of (n,).

        Returns:
            (m, n, k); their squares sum to r^2 / (1 + r^2) in each impact.
        """
        relative = (after - self.after[rows]) * self.scale[rows]
        clipped = np.clip(relative, -_LARGEST, _LARGEST)
        relative = np.where(np.isfinite(relative), clipped, _LARGEST)
        return relative / np.sqrt(1 + (relative**2).sum(-1, keepdims=True))

    def losses(self, unit: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Losses (m,) at points (m, q) on some impacts."""
        return (self.residual(self.simulate(unit, rows), rows) ** 2).sum(-1).mean(-1)

    def with_few_free(self, count: int = 3) -> IdentificationProblem:
        """The problem with at most `count` parameters to identify, those of the strike first.

        The others stay nominal.
        """
        if len(self.free) <= count:
            return self

        def rank(i: int) -> tuple[bool, int]:
            return not self.scene.params[i].target.startswith("pair/strike"), i

        chosen = sorted(self.free, key=rank)[:count]
        return replace(self, free=tuple(sorted(chosen)))

    def starts(self, count: int, seed: int) -> np.ndarray:
        """Starting points (count, q): the nominal one, then evenly over the unit scale."""
        nominal = to_unit(self.params, self.scene.nominal[list(self.free)])
        sampler = qmc.LatinHypercube(len(self.free), rng=np.random.default_rng(seed))
        others = sampler.random(max(1, count - 1)) * (2 * _START_RANGE) - _START_RANGE
        return np.vstack([np.clip(nominal, -_START_RANGE, _START_RANGE), others])[:count]


def identification_problem(
    scene: Scene, impacts: Impacts, *, gyration: float | None = None
) -> IdentificationProblem:
    """Advance impacts to contact and write the measured parameters in.

    Effects that MuJoCo does not have stay at their nominal values.

    Args:
        scene: The scene.
        impacts: The recorded impacts.
        gyration: Radius of gyration of the struck body, m; that of the scene by default.

    Returns:
        The problem.
    """
    contact, before = advance_to_contact(scene, impacts.before)
    if not contact.touching.all():
        row = int(np.argmin(contact.touching))
        raise DataError(
            f"in impact {row} the bodies do not meet along their approach: "
            "check poses, velocities, units and frames"
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
