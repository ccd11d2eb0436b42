"""Sequential pushing (CLASH, Sec. IV-C): strike a body along a straight corridor to a sub-goal, many copies at once.

All is seen from the segment: it begins at the origin and goes along x. A body's heading is the way it goes when struck in the middle of
the side that may be struck.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clashsim.core.protocols import StrikeModel
from clashsim.core.scene import Scene
from clashsim.rl.routes import LENGTH, NEAR, WIDTH

STRIKES = 5  # T: at most
LEFT = -10.0  # r_0: for leaving the corridor
_AFTER = NEAR  # m before the start and behind the end that still belong to a segment: the last one ended within that
OBSERVED = 7


@dataclass(frozen=True)
class Spread:
    """What a training meets: at the start, places within `near` (m) of the segment's and headings within `heading` (rad) of its; turns (rad)
    of the way that follows, within `turn`; a share `along` of the starts anywhere in the corridor, so that sub-goals are met early in a
    training; and with `noise`, twists off by so many of the model's own standard deviations.
    """

    near: float = 0.035
    heading: float = 0.8
    turn: float = 1.7
    along: float = 0.0
    noise: float = 0.0


@dataclass
class Push:
    """N copies of the task: pose (N, 3) of bodies, turn (N,) of the way at the sub-goal, strikes made (N,)."""

    model: StrikeModel
    ahead: float  # rad, from a body's yaw to its heading
    spread: Spread
    pose: np.ndarray
    turn: np.ndarray
    made: np.ndarray
    observed = OBSERVED
    kept = ("pose", "turn", "made")

    @staticmethod
    def of(scene: Scene, model: StrikeModel, n: int, spread: Spread = Spread()) -> Push:
        """The task of a scene, whose [draw] says which side may be struck."""
        return Push(model, heading_of(scene), spread, np.zeros((n, 3)), np.zeros(n), np.zeros(n, int))

    def restart(self, rows: np.ndarray, rng: np.random.Generator) -> None:
        """Begin anew in some rows (m,)."""
        m, s = len(rows), self.spread
        angle, far = rng.uniform(0, 2 * np.pi, m), s.near * np.sqrt(rng.uniform(size=m))
        heading = rng.uniform(-s.heading, s.heading, m)
        further = rng.uniform(0, LENGTH - NEAR, m) * (rng.uniform(size=m) < s.along)
        self.pose[rows] = np.stack([further + far * np.cos(angle), far * np.sin(angle), heading - self.ahead], 1)
        self.turn[rows], self.made[rows] = rng.uniform(-s.turn, s.turn, m) * (rng.uniform(size=m) > 0.25), 0

    def observe(self) -> np.ndarray:
        """Observations (N, 7)."""
        return observed(self.pose, self.ahead, self.turn, np.full(len(self.pose), LENGTH), self.made)

    def guide(self, rng: np.random.Generator, *, tries: int = 48) -> np.ndarray:
        """Actions (N, d) that a look one strike ahead finds best among `tries` random ones: towards the sub-goal, headed for it, inside the corridor."""
        n = len(self.pose)
        action = rng.uniform(-1, 1, (n * tries, len(self.model.low)))
        pose = self.model.rest(np.repeat(self.pose, tries, 0), strikes(self.model, action))
        gap, there, gone = _placed(pose)
        heading, turn = pose[:, 2] + self.ahead, np.repeat(self.turn, tries)
        towards = np.cos(heading - np.arctan2(-pose[:, 1], LENGTH - pose[:, 0]))
        worth = np.where(there, 2 + np.cos(heading - turn), 0.3 * towards - gap / LENGTH - 2 * np.abs(pose[:, 1]) / WIDTH) - 10.0 * gone
        best = worth.reshape(n, tries).argmax(1)
        return action.reshape(n, tries, -1)[np.arange(n), best]

    def strike(self, action: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Strike by actions (N, d) in [-1, 1]: rewards (N,) of Table V, whether an episode ended (N,), and whether at the sub-goal (N,).

        The last strike allowed ends it as well, for good: if what comes after it counted, never to arrive would pay best.
        """
        noise = self.spread.noise * rng.normal(size=(len(action), 3)) if self.spread.noise and self.model.unsure else None
        return self.arrive(self.model.rest(self.pose, strikes(self.model, action), noise))

    def arrive(self, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `strike` says, for bodies that came to rest at pose (N, 3) wherever they were struck."""
        self.pose, self.made = pose, self.made + 1
        gap, there, gone = _placed(pose)
        return rewards(gap, self.pose[:, 2] + self.ahead - self.turn, self.made, there, gone), there | gone | (self.made >= STRIKES), there


def strikes(model: StrikeModel, action: np.ndarray) -> np.ndarray:
    """Strikes (N, d) by actions (N, d), of which -1 is the least and 1 the greatest."""
    return model.low + (model.high - model.low) * (np.clip(action, -1, 1) + 1) / 2


def _placed(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance (N,) of poses from the sub-goal, whether they are there, and whether they have left the corridor."""
    gap = np.hypot(pose[:, 0] - LENGTH, pose[:, 1])
    there = gap < NEAR
    return gap, there, ~there & ((np.abs(pose[:, 1]) > WIDTH / 2) | (pose[:, 0] < -_AFTER) | (pose[:, 0] > LENGTH + _AFTER))


def heading_of(scene: Scene) -> float:
    """From a body's yaw to the way it goes when struck in the middle of the side that may be struck, rad."""
    return float(np.mean(scene.draw.point) + np.pi)


def observed(pose: np.ndarray, ahead: float, turn: np.ndarray, length: np.ndarray, made: np.ndarray) -> np.ndarray:
    """Observations (N, 7) of poses (N, 3) seen from segments of lengths (N,) at whose end the way turns by turn (N,): the place in it, where
    the sub-goal is from the body, how it is turned against it (cosine and sine), lengths over that of a segment; and the share of the strikes
    allowed that were made (N,), which the paper's observation leaves out although its reward depends on it.
    """
    heading = pose[:, 2] + ahead
    c, s = np.cos(heading), np.sin(heading)
    x, y = length - pose[:, 0], -pose[:, 1]
    off = turn - heading
    # A longer or shorter corridor looks like the end of one of the usual length.
    place = np.stack([pose[:, 0] + LENGTH - length, pose[:, 1]], 1)
    return np.column_stack([place / LENGTH, (c * x + s * y) / LENGTH, (c * y - s * x) / LENGTH, np.cos(off), np.sin(off), made / STRIKES]).astype(np.float32)


def rewards(gap: np.ndarray, off: np.ndarray, made: np.ndarray, there: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """R1 + R2 + R3 + R4 of Table V, (N,): gap (m) to the sub-goal, off (rad) its orientation, strikes made."""
    near = np.exp(-(gap**2))
    return near + there * ((1 + np.cos(off)) / 2 + STRIKES - made) + gone * LEFT
