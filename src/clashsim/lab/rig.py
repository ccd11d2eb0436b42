"""The laboratory's physics: one strike from the tip's approach to the block's rest, with finer
steps while the two may touch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clashsim.lab import arm
from clashsim.lab.plant import Plant
from clashsim.lab.settings import Setting
from clashsim.lab.strike import TIP_RADIUS, block_outline

COARSE, FINE = 1e-3, 5e-5  # s, steps of the slide and of the strike
REST_SPEED, REST_SPIN, REST_TIME = (
    2e-3,
    2e-2,
    0.04,
)  # m/s, rad/s, s: the block rests when slower than this for so long
LIMIT = 2.5  # s


@dataclass(frozen=True, eq=False)
class Motion:
    """What truly happened: t (M,) s, poses of the block and of the striker (M, 7), and the block's
    speed and spin (M, 2).
    """

    t: np.ndarray
    block: np.ndarray
    striker: np.ndarray
    rates: np.ndarray


class Engine:
    """The bench of one setting in Drake, at a coarse and a fine step; the same input gives the same
    bits.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, self.shape = setting, block_outline(setting.shape)
        self.coarse, self.fine = (
            Plant(setting, self.shape, COARSE),
            Plant(setting, self.shape, FINE),
        )

    def run(self, pose: np.ndarray, path: arm.Path) -> Motion:
        """Strike a resting block at pose (x, y, yaw) with the tip on its path, until the block
        rests again.
        """
        for plant in (self.coarse, self.fine):
            plant.command(path)
        state = self.coarse.start(pose, path)
        quiet = round(
            (path.times[1] - 0.02) / COARSE
        )  # the tip keeps its speed and the block rests until shortly before the touch
        states = [
            state + np.pad(i * COARSE * path.velocities[0], (0, 15)) for i in range(quiet + 1)
        ]
        state, still, touched, now = states[-1], 0.0, False, quiet
        while now * COARSE < LIMIT:
            place, tip = planar(state[2:9]), state[:2]
            gap = self.shape.gap(place, tip)
            closing = np.linalg.norm(state[9:11])
            near = gap < 1.2 * COARSE * closing
            touched = touched or gap < 0
            state = (self.fine if near else self.coarse).advance(
                state, now * COARSE, 1 if not near else round(COARSE / FINE)
            )
            now += 1
            states.append(state)
            still = (
                still + COARSE
                if np.linalg.norm(state[14:]) < REST_SPEED
                and np.linalg.norm(state[11:14]) < REST_SPIN
                else 0.0
            )
            done = now * COARSE > (path.times[2] if touched else path.times[1] + 0.1)
            if (still > REST_TIME and done) or state[
                8
            ] < -0.005:  # at rest, or fallen off the table
                break
        whole = np.array(states)
        striker = np.tile([0.0, 0, TIP_RADIUS, 1, 0, 0, 0], (len(whole), 1))
        striker[:, :2] = whole[:, :2]
        rates = np.column_stack([np.linalg.norm(whole[:, 14:], axis=1), whole[:, 13]])
        return Motion(
            np.arange(len(whole)) * COARSE, whole[:, [6, 7, 8, 2, 3, 4, 5]], striker, rates
        )


def planar(q: np.ndarray) -> np.ndarray:
    """x, y, yaw (3,) of Drake's coordinates of a floating body (qw qx qy qz x y z)."""
    w, x, y, z = q[:4]
    return np.array([q[4], q[5], np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))])


@lru_cache(maxsize=2)
def engine(setting: Setting) -> Engine:
    """The bench of a setting, built once per process: a second or so, and some 200 MB."""
    return Engine(setting)
