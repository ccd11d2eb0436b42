"""Sequential pushing (CLASH, Sec. IV-C): strike a body along a straight corridor to a sub-goal,
many copies at once.

All is seen from the segment: it begins at the origin and goes along x. A body's heading is the way
it goes when struck in the middle of the side that may be struck.

The formulas take `xp`, the library whose arrays they are given: numpy here, torch on a card
(`rl.card`). They load neither scenes nor MuJoCo, so that they serve where it is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.rl.routes import CORRIDOR_WIDTH, GOAL_RADIUS, SEGMENT_LENGTH

if TYPE_CHECKING:
    from clashsim.core.protocols import StrikeModel
    from clashsim.core.scene import Scene

MAX_STRIKES = 5  # T: at most
LEFT_CORRIDOR_REWARD = -10.0  # r_0: for leaving the corridor
# M before the start and behind the end that still belong to a segment: the last one ended within
# that
_AFTER = GOAL_RADIUS
OBSERVATION_SIZE = 7
DRAWS = 7  # even numbers in [0, 1) that a start is made of
TRIES = 48  # strikes that a look ahead chooses from


@dataclass(frozen=True)
class StartDistribution:
    """What a training meets: at the start, places within `position_radius` (m) of the segment's and headings
    within `heading` (rad) of its; turns (rad) of the way that follows, within `turn`; a share
    `anywhere_share` of the starts anywhere in the corridor, so that sub-goals are met early in a training;
    and with `noise`, twists off by so many of the model's own standard deviations.
    """

    position_radius: float = 0.035
    heading: float = 0.8
    turn: float = 1.7
    anywhere_share: float = 0.0
    noise: float = 0.0


@dataclass
class Push:
    """N copies of the task: pose (N, 3) of bodies, turn (N,) of the way at the sub-goal, strikes
    made (N,).
    """

    model: StrikeModel
    heading_offset: float  # rad, from a body's yaw to its heading
    starts: StartDistribution
    pose: np.ndarray
    turn: np.ndarray
    made: np.ndarray
    observed = OBSERVATION_SIZE
    kept = ("pose", "turn", "made")

    @staticmethod
    def of(
        scene: Scene, model: StrikeModel, n: int, starts: StartDistribution = StartDistribution()
    ) -> Push:
        """The task of a scene, whose [strikes] says which side may be struck."""
        return Push(
            model, heading_offset_of(scene), starts, np.zeros((n, 3)), np.zeros(n), np.zeros(n, int)
        )

    def restart(self, rows: np.ndarray, rng: np.random.Generator) -> None:
        """Begin anew in some rows (m,)."""
        self.pose[rows], self.turn[rows] = starts(
            rng.uniform(size=(DRAWS, len(rows))), self.starts, self.heading_offset
        )
        self.made[rows] = 0

    def observe(self) -> np.ndarray:
        """Observations (N, 7)."""
        return observed(
            self.pose,
            self.heading_offset,
            self.turn,
            np.full(len(self.pose), SEGMENT_LENGTH),
            self.made,
        )

    def guide(self, rng: np.random.Generator, *, tries: int = TRIES) -> np.ndarray:
        """Actions (N, d) that a look one strike ahead finds best among `tries` random ones: towards
        the sub-goal, headed for it, inside the corridor.
        """
        n = len(self.pose)
        action = rng.uniform(-1, 1, (n * tries, len(self.model.low)))
        pose = self.model.rest(np.repeat(self.pose, tries, 0), strikes(self.model, action))
        best = (
            worth(pose, self.heading_offset, np.repeat(self.turn, tries))
            .reshape(n, tries)
            .argmax(1)
        )
        return action.reshape(n, tries, -1)[np.arange(n), best]

    def strike(
        self, action: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Strike by actions (N, d) in [-1, 1]: rewards (N,) of Table V, whether an episode ended
        (N,), and whether at the sub-goal (N,).

        The last strike allowed ends it as well, for good: if what comes after it counted, never to
        arrive would pay best.
        """
        noise = (
            self.starts.noise * rng.normal(size=(len(action), 3))
            if self.starts.noise and self.model.takes_noise
            else None
        )
        return self.arrive(self.model.rest(self.pose, strikes(self.model, action), noise))

    def arrive(self, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `strike` says, for bodies that came to rest at pose (N, 3) wherever they were
        struck.
        """
        self.pose, self.made = pose, self.made + 1
        return judged(pose, self.heading_offset, self.turn, self.made)


def strikes(model: StrikeModel, action: np.ndarray) -> np.ndarray:
    """Strikes (N, d) by actions (N, d), of which -1 is the least and 1 the greatest."""
    return spanned(model.low, model.high, action)


def heading_offset_of(scene: Scene) -> float:
    """From a body's yaw to the way it goes when struck in the middle of the side that may be
    struck, rad.
    """
    return float(np.mean(scene.strikes.point) + np.pi)


def spanned(low: Any, high: Any, action: Any, *, xp: Any = np) -> Any:
    """What actions (N, d) mean, of which -1 is low (d,) and 1 is high (d,)."""
    return low + (high - low) * (xp.clip(action, -1, 1) + 1) / 2


def starts(
    draws: Any, distribution: StartDistribution, ahead: float, *, xp: Any = np
) -> tuple[Any, Any]:
    """Poses (N, 3) to begin with and turns (N,) of the way, from even numbers (7, N) in [0, 1)."""
    s, (angle, far, heading, further, along, turn, straight) = distribution, draws
    angle, far = 2 * np.pi * angle, s.position_radius * xp.sqrt(far)
    further = (SEGMENT_LENGTH - GOAL_RADIUS) * further * (along < s.anywhere_share)
    pose = xp.stack(
        [
            further + far * xp.cos(angle),
            far * xp.sin(angle),
            -s.heading + 2 * s.heading * heading - ahead,
        ],
        1,
    )
    return pose, (-s.turn + 2 * s.turn * turn) * (straight > 0.25)


def worth(pose: Any, ahead: float, turn: Any, *, xp: Any = np) -> Any:
    """How good poses (N, 3) look to one who does not know what follows, (N,): towards the sub-goal,
    headed for it, inside the corridor.
    """
    gap, there, gone = _placed(pose, xp)
    heading = pose[:, 2] + ahead
    towards = xp.cos(heading - xp.arctan2(-pose[:, 1], SEGMENT_LENGTH - pose[:, 0]))
    return (
        xp.where(
            there,
            2 + xp.cos(heading - turn),
            0.3 * towards - gap / SEGMENT_LENGTH - 2 * xp.abs(pose[:, 1]) / CORRIDOR_WIDTH,
        )
        - 10.0 * gone
    )


def judged(pose: Any, ahead: float, turn: Any, made: Any, *, xp: Any = np) -> tuple[Any, Any, Any]:
    """Rewards (N,) of bodies at rest at pose (N, 3) after strikes made (N,), whether an episode
    ended (N,), and whether at the sub-goal (N,).
    """
    gap, there, gone = _placed(pose, xp)
    return (
        rewards(gap, pose[:, 2] + ahead - turn, made, there, gone, xp=xp),
        there | gone | (made >= MAX_STRIKES),
        there,
    )


def _placed(pose: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Distance (N,) of poses from the sub-goal, whether they are there, and whether they have left
    the corridor.
    """
    gap = xp.hypot(pose[:, 0] - SEGMENT_LENGTH, pose[:, 1])
    there = gap < GOAL_RADIUS
    return (
        gap,
        there,
        ~there
        & (
            (xp.abs(pose[:, 1]) > CORRIDOR_WIDTH / 2)
            | (pose[:, 0] < -_AFTER)
            | (pose[:, 0] > SEGMENT_LENGTH + _AFTER)
        ),
    )


def observed(
    pose: np.ndarray, ahead: float, turn: np.ndarray, length: np.ndarray, made: np.ndarray
) -> np.ndarray:
    """Observations (N, 7), as `seen` has them, in single precision."""
    return seen(pose, ahead, turn, length, made).astype(np.float32)


def seen(pose: Any, ahead: float, turn: Any, length: Any, made: Any, *, xp: Any = np) -> Any:
    """Observations (N, 7) of poses (N, 3) seen from segments of lengths (N,) at whose end the way
    turns by turn (N,): the place in it, where the sub-goal is from the body, how it is turned
    against it (cosine and sine), lengths over that of a segment; and the share of the strikes
    allowed that were made (N,), which the paper's observation leaves out although its reward
    depends on it.
    """
    heading = pose[:, 2] + ahead
    c, s = xp.cos(heading), xp.sin(heading)
    x, y = length - pose[:, 0], -pose[:, 1]
    off = turn - heading
    # A longer or shorter corridor looks like the end of one of the usual length.
    place = pose[:, 0] + SEGMENT_LENGTH - length
    return xp.stack(
        [
            place / SEGMENT_LENGTH,
            pose[:, 1] / SEGMENT_LENGTH,
            (c * x + s * y) / SEGMENT_LENGTH,
            (c * y - s * x) / SEGMENT_LENGTH,
            xp.cos(off),
            xp.sin(off),
            made / MAX_STRIKES,
        ],
        1,
    )


def rewards(gap: Any, off: Any, made: Any, there: Any, gone: Any, *, xp: Any = np) -> Any:
    """R1 + R2 + R3 + R4 of Table V, (N,): gap (m) to the sub-goal, off (rad) its orientation,
    strikes made.
    """
    near = xp.exp(-(gap**2))
    return near + there * ((1 + xp.cos(off)) / 2 + MAX_STRIKES - made) + gone * LEFT_CORRIDOR_REWARD
