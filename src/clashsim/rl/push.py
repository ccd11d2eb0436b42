"""Sequential pushing (CLASH, Sec. IV-C): strike a body along a straight corridor to a sub-goal.

This is the task with numpy, for many environments at once; `rl.device_env` is the same task on a
torch device. Both use the formulas of `rl.corridor_formulas`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clashsim.rl.corridor_formulas import (
    LEFT_CORRIDOR_REWARD,
    LOOKAHEAD_TRIES,
    MAX_STRIKES,
    OBSERVATION_SIZE,
    START_SAMPLES,
    StartDistribution,
    StrikeOutcome,
    judge_poses,
    lookahead_value,
    observations,
    start_poses,
    strikes_from_actions,
)
from clashsim.rl.routes import SEGMENT_LENGTH

if TYPE_CHECKING:
    from clashsim.core.protocols import StrikeModel
    from clashsim.core.scene import Scene

__all__ = [
    "LEFT_CORRIDOR_REWARD",
    "MAX_STRIKES",
    "OBSERVATION_SIZE",
    "STATE_ARRAYS",
    "Push",
    "StartDistribution",
    "heading_offset_of",
    "strikes",
]

# Attributes of the task that a checkpoint saves, by their keys in it.
STATE_ARRAYS = {"pose": "pose", "turn": "heading_change", "made": "strikes_made"}


@dataclass
class Push:
    """N environments of the pushing task.

    Attributes:
        model: Predicts where a struck body comes to rest.
        heading_offset: Angle from a body's yaw to its heading (rad).
        starts: Where episodes start.
        pose: Poses (N, 3) of the bodies in the frame of the segment: x, y (m), yaw (rad).
        heading_change: By how much the route turns at the sub-goal, (N,) in rad.
        strikes_made: Strikes of the episode so far, (N,).
    """

    model: StrikeModel
    heading_offset: float
    starts: StartDistribution
    pose: np.ndarray
    heading_change: np.ndarray
    strikes_made: np.ndarray
    observation_size: ClassVar[int] = OBSERVATION_SIZE
    state_arrays: ClassVar[Mapping[str, str]] = STATE_ARRAYS

    @staticmethod
    def of(
        scene: Scene, model: StrikeModel, n: int, starts: StartDistribution = StartDistribution()
    ) -> Push:
        """Return n environments of a scene, whose [strikes] table defines the side to strike.

        Poses are zero until `restart`.
        """
        return Push(
            model=model,
            heading_offset=heading_offset_of(scene),
            starts=starts,
            pose=np.zeros((n, 3)),
            heading_change=np.zeros(n),
            strikes_made=np.zeros(n, int),
        )

    def restart(self, rows: np.ndarray, rng: np.random.Generator) -> None:
        """Start new episodes in some environments, by their indices (m,)."""
        uniform = rng.uniform(size=(START_SAMPLES, len(rows)))
        pose, heading_change = start_poses(uniform, self.starts, self.heading_offset)
        self.pose[rows] = pose
        self.heading_change[rows] = heading_change
        self.strikes_made[rows] = 0

    def observe(self) -> np.ndarray:
        """Return the observations (N, 7) in single precision."""
        return observations(
            self.pose,
            self.heading_offset,
            self.heading_change,
            length=np.full(len(self.pose), SEGMENT_LENGTH),
            strikes_made=self.strikes_made,
        ).astype(np.float32)

    def guide(self, rng: np.random.Generator, *, tries: int = LOOKAHEAD_TRIES) -> np.ndarray:
        """Return the actions (N, d) that look best one strike ahead, among `tries` random ones."""
        n = len(self.pose)
        action = rng.uniform(-1, 1, (n * tries, len(self.model.low)))
        pose = self.model.rest(np.repeat(self.pose, tries, 0), strikes(self.model, action))
        value = lookahead_value(pose, self.heading_offset, np.repeat(self.heading_change, tries))
        best = value.reshape(n, tries).argmax(1)
        return action.reshape(n, tries, -1)[np.arange(n), best]

    def strike(self, action: np.ndarray, rng: np.random.Generator) -> StrikeOutcome:
        """Move all bodies as the model predicts, and return rewards and ends of episodes.

        The last strike allowed is a true end of the episode, without later rewards: otherwise
        never to arrive would have the highest return.

        Args:
            action: Actions (N, d) in [-1, 1].
            rng: Draws the noise.
        """
        noise = None
        if self.starts.noise and self.model.takes_noise:
            noise = self.starts.noise * rng.normal(size=(len(action), 3))
        return self.arrive(self.model.rest(self.pose, strikes(self.model, action), noise))

    def arrive(self, pose: np.ndarray) -> StrikeOutcome:
        """Return the outcome of a strike made elsewhere, which left bodies at poses (N, 3)."""
        self.pose = pose
        self.strikes_made = self.strikes_made + 1
        return judge_poses(
            pose, self.heading_offset, self.heading_change, strikes_made=self.strikes_made
        )


def strikes(model: StrikeModel, action: np.ndarray) -> np.ndarray:
    """Return the strikes (N, d) for actions (N, d): -1 is the lowest strike and 1 the highest."""
    return strikes_from_actions(model.low, model.high, action)


def heading_offset_of(scene: Scene) -> float:
    """Return the angle (rad) from a body's yaw to its heading, the direction in which it moves.

    That is opposite to the middle of the side that may be struck.
    """
    return float(np.mean(scene.strikes.point) + np.pi)
