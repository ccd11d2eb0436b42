"""Bring a body to a pose by a few strikes: a task for bodies that may be struck from all sides.

Poses are in the frame of the target: the goal is the origin with yaw 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.protocols import StrikeModel
from clashsim.rl.corridor_formulas import StrikeOutcome
from clashsim.rl.push import strikes

MAX_STRIKES = 5
GOAL_RADIUS = 0.02  # m within which a pose counts as reached
GOAL_ANGLE = 0.25  # rad within which a pose counts as reached
_LOST_DISTANCE = 0.3  # m from the target beyond which a body is lost
_LOST_REWARD = -5.0
_LENGTH_SCALE = 0.1  # m: unit of the distances in observations and costs
_ANGLE_WEIGHT = 0.5  # an angle of 1 rad costs this many times a distance of `_LENGTH_SCALE`
_MIN_AREA_SHARE = 0.1  # of the disc of starts, around its centre, that is left out
_LOOKAHEAD_TRIES = 48  # random strikes that a lookahead chooses from
# Attributes of the task that a checkpoint saves, by their keys in it.
_STATE_ARRAYS = {"pose": "pose", "made": "strikes_made"}


@dataclass
class ToPose:
    """N environments of the task.

    Attributes:
        model: Predicts where a struck body comes to rest.
        pose: Poses (N, 3) of the bodies in the frame of the target: x, y (m), yaw (rad).
        strikes_made: Strikes of the episode so far, (N,).
        max_distance: Episodes start within this distance of the target (m).
        max_angle: Episodes start within this angle of the target (rad).
        noise: Twists after a collision vary by this many of the model's own standard deviations.
    """

    model: StrikeModel
    pose: np.ndarray
    strikes_made: np.ndarray
    max_distance: float = 0.12
    max_angle: float = 0.8
    noise: float = 0.0
    observation_size: ClassVar[int] = 5
    state_arrays: ClassVar[Mapping[str, str]] = _STATE_ARRAYS

    @staticmethod
    def of(model: StrikeModel, n: int, *, noise: float = 0.0) -> ToPose:
        """Return n environments, in which struck bodies move as a model predicts.

        Poses are zero until `restart`.
        """
        return ToPose(model, pose=np.zeros((n, 3)), strikes_made=np.zeros(n, int), noise=noise)

    def restart(self, rows: np.ndarray, rng: np.random.Generator) -> None:
        """Start new episodes in some environments, by their indices (m,)."""
        m = len(rows)
        direction = rng.uniform(0, 2 * np.pi, m)
        distance = self.max_distance * np.sqrt(rng.uniform(_MIN_AREA_SHARE, 1.0, m))
        yaw = rng.uniform(-self.max_angle, self.max_angle, m)
        self.pose[rows] = np.stack(
            [distance * np.cos(direction), distance * np.sin(direction), yaw], 1
        )
        self.strikes_made[rows] = 0

    def observe(self) -> np.ndarray:
        """Return the observations (N, 5) in single precision.

        They are the position of the target in the frame of the body (2) in units of
        `_LENGTH_SCALE`, cosine and sine of the body's yaw, and the strikes made as a share of those
        allowed.
        """
        x, y, yaw = self.pose.T
        cos, sin = np.cos(yaw), np.sin(yaw)
        return np.stack(
            [
                -(cos * x + sin * y) / _LENGTH_SCALE,
                (sin * x - cos * y) / _LENGTH_SCALE,
                cos,
                sin,
                self.strikes_made / MAX_STRIKES,
            ],
            1,
        ).astype(np.float32)

    def guide(self, rng: np.random.Generator, *, tries: int = _LOOKAHEAD_TRIES) -> np.ndarray:
        """Return the actions (N, d) that end nearest to the target among `tries` random ones."""
        n = len(self.pose)
        action = rng.uniform(-1, 1, (n * tries, len(self.model.low)))
        pose = self.model.rest(np.repeat(self.pose, tries, 0), strikes(self.model, action))
        cost, _, _ = _judge(pose)
        best = cost.reshape(n, tries).argmin(1)
        return action.reshape(n, tries, -1)[np.arange(n), best]

    def strike(self, action: np.ndarray, rng: np.random.Generator) -> StrikeOutcome:
        """Move all bodies as the model predicts, and return rewards and ends of episodes.

        Args:
            action: Actions (N, d) in [-1, 1].
            rng: Draws the noise.
        """
        noise = None
        if self.noise and self.model.takes_noise:
            noise = self.noise * rng.normal(size=(len(action), 3))
        return self.arrive(self.model.rest(self.pose, strikes(self.model, action), noise))

    def arrive(self, pose: np.ndarray) -> StrikeOutcome:
        """Return the outcome of a strike made elsewhere, which left bodies at poses (N, 3).

        The reward is the decrease of the cost, and at the target 1 plus the strikes left.
        """
        cost_before, _, _ = _judge(self.pose)
        cost_after, reached, lost = _judge(pose)
        self.pose = pose
        self.strikes_made = self.strikes_made + 1
        target_reward = 1.0 + MAX_STRIKES - self.strikes_made
        reward = cost_before - cost_after + reached * target_reward + lost * _LOST_REWARD
        ended = reached | lost | (self.strikes_made >= MAX_STRIKES)
        return StrikeOutcome(reward, ended, reached)


def _judge(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cost (N,) of poses, whether they reach the target, and whether bodies are lost."""
    distance = np.hypot(pose[:, 0], pose[:, 1])
    angle = np.abs(wrap_angle(pose[:, 2]))
    cost = distance / _LENGTH_SCALE + _ANGLE_WEIGHT * angle
    reached = (distance < GOAL_RADIUS) & (angle < GOAL_ANGLE)
    return cost, reached, distance > _LOST_DISTANCE
