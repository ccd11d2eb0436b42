"""Bring a body to a pose by a few strikes: a second task, for bodies that may be struck from all
sides.

All is seen from the target: it is the origin, and a body is at its goal where it lies near it and
turned as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.protocols import StrikeModel
from clashsim.rl.push import strikes

MAX_STRIKES = 5
GOAL_RADIUS, TURN = 0.02, 0.25  # m and rad within which a pose counts as reached
_FAR = 0.3  # m from the target beyond which a body is lost
_LOST = -5.0
_LENGTH = 0.1  # m, over which distances are told to a policy


@dataclass
class ToPose:
    """N copies of the task: pose (N, 3) of bodies seen from their targets, strikes made (N,); they
    begin within `away` (m) and `turned` (rad) of them.

    noise: standard deviations of the model's own by which outcomes scatter.
    """

    model: StrikeModel
    pose: np.ndarray
    made: np.ndarray
    away: float = 0.12
    turned: float = 0.8
    noise: float = 0.0
    observed = 5
    kept = ("pose", "made")

    @staticmethod
    def of(model: StrikeModel, n: int, *, noise: float = 0.0) -> ToPose:
        """The task, struck as a model says."""
        return ToPose(model, np.zeros((n, 3)), np.zeros(n, int), noise=noise)

    def restart(self, rows: np.ndarray, rng: np.random.Generator) -> None:
        """Begin anew in some rows (m,)."""
        m = len(rows)
        angle, far = rng.uniform(0, 2 * np.pi, m), self.away * np.sqrt(rng.uniform(0.1, 1.0, m))
        self.pose[rows] = np.stack(
            [far * np.cos(angle), far * np.sin(angle), rng.uniform(-self.turned, self.turned, m)], 1
        )
        self.made[rows] = 0

    def observe(self) -> np.ndarray:
        """Observations (N, 5): where the target is from the body, how it is turned against it
        (cosine and sine), and the share of strikes made.
        """
        x, y, turn = self.pose.T
        c, s = np.cos(turn), np.sin(turn)
        return np.stack(
            [-(c * x + s * y) / _LENGTH, (s * x - c * y) / _LENGTH, c, s, self.made / MAX_STRIKES],
            1,
        ).astype(np.float32)

    def guide(self, rng: np.random.Generator, *, tries: int = 48) -> np.ndarray:
        """Actions (N, d) that end nearest to the target among `tries` random ones."""
        n = len(self.pose)
        action = rng.uniform(-1, 1, (n * tries, len(self.model.low)))
        cost, _, _ = _off(
            self.model.rest(np.repeat(self.pose, tries, 0), strikes(self.model, action))
        )
        best = cost.reshape(n, tries).argmin(1)
        return action.reshape(n, tries, -1)[np.arange(n), best]

    def strike(
        self, action: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Strike by actions (N, d): rewards (N,), whether an episode ended (N,), and whether at the
        target (N,).
        """
        noise = (
            self.noise * rng.normal(size=(len(action), 3))
            if self.noise and self.model.takes_noise
            else None
        )
        return self.arrive(self.model.rest(self.pose, strikes(self.model, action), noise))

    def arrive(self, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `strike` says, for bodies that came to rest at pose (N, 3): what a strike brought
        nearer, and what it saved.
        """
        was, _, _ = _off(self.pose)
        now, there, lost = _off(pose)
        self.pose, self.made = pose, self.made + 1
        return (
            was - now + there * (1.0 + MAX_STRIKES - self.made) + lost * _LOST,
            there | lost | (self.made >= MAX_STRIKES),
            there,
        )


def _off(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How far off (N,) poses are, in the order of one; whether they are at the target, and whether
    lost.
    """
    far, turn = np.hypot(pose[:, 0], pose[:, 1]), np.abs(wrap_angle(pose[:, 2]))
    return far / _LENGTH + 0.5 * turn, (far < GOAL_RADIUS) & (turn < TURN), far > _FAR
