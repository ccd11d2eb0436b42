"""The laboratory's physics: one strike, from the tip's approach until the block rests.

Time steps are finer while tip and block may touch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clashsim.lab.arm import CommandedPath
from clashsim.lab.plant import Plant, PlantState
from clashsim.lab.settings import Setting
from clashsim.lab.strike import TIP_RADIUS, block_outline

COARSE_STEP = 1e-3  # s, of the slide
FINE_STEP = 5e-5  # s, of the strike
# The block rests when it is slower than both for so long.
REST_SPEED = 2e-3  # m/s
REST_ANGULAR_VELOCITY = 2e-2  # rad/s
REST_TIME = 0.04  # s
MAX_DURATION = 2.5  # s
_FALLEN_HEIGHT = -0.005  # m: lower than this, the block has fallen off the table
_QUIET_MARGIN = 0.02  # s before braking until which nothing can touch
_MISSED_MARGIN = 0.1  # s after braking at which a strike has missed


@dataclass(frozen=True, eq=False)
class TrueMotion:
    """What truly happened in a strike.

    Attributes:
        t: (M,), s.
        block: (M, 7), pose x y z qw qx qy qz of the block, world.
        striker: (M, 7), pose of the striker.
        rates: (M, 2), the block's speed (m/s) and its angular velocity about z (rad/s).
    """

    t: np.ndarray
    block: np.ndarray
    striker: np.ndarray
    rates: np.ndarray


class Rig:
    """Block, tip and table of one setting in Drake, at a coarse and at a fine time step.

    The same input gives the same bits.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.shape = block_outline(setting.shape)
        self.coarse = Plant(setting, self.shape, COARSE_STEP)
        self.fine = Plant(setting, self.shape, FINE_STEP)

    def run(self, pose: np.ndarray, path: CommandedPath) -> TrueMotion:
        """Strike a resting block until it rests again.

        Args:
            pose: (3,), x, y (m) and yaw (rad) of the block.
            path: The path of the tip.

        Returns:
            The motion, in steps of `COARSE_STEP`.
        """
        for plant in (self.coarse, self.fine):
            plant.command(path)
        states = self._approach(pose, path)
        rest_time = 0.0
        has_touched = False
        steps_done = len(states) - 1
        while steps_done * COARSE_STEP < MAX_DURATION:
            gap = self._gap(states[-1])
            has_touched = has_touched or gap < 0
            state = self._step(states[-1], gap=gap, time=steps_done * COARSE_STEP)
            states.append(state)
            steps_done += 1
            if _is_slow(state):
                rest_time += COARSE_STEP
            else:
                rest_time = 0.0
            last_moment = path.times[2] if has_touched else path.times[1] + _MISSED_MARGIN
            strike_is_over = steps_done * COARSE_STEP > last_moment
            if rest_time > REST_TIME and strike_is_over:
                break
            if PlantState(state).block_position[2] < _FALLEN_HEIGHT:
                break
        return _recorded(np.array(states))

    def _approach(self, pose: np.ndarray, path: CommandedPath) -> list[np.ndarray]:
        """States until shortly before the touch: the tip keeps its speed and the block rests."""
        start = self.coarse.start(pose, path)
        steps = round((path.times[1] - _QUIET_MARGIN) / COARSE_STEP)
        states = []
        for i in range(steps + 1):
            state = start.copy()
            PlantState(state).tip_position[:] += i * COARSE_STEP * path.velocities[0]
            states.append(state)
        return states

    def _gap(self, state: np.ndarray) -> float:
        """Distance (m) between block and tip."""
        view = PlantState(state)
        return self.shape.gap(planar_pose(view.block_coordinates), view.tip_position)

    def _step(self, state: np.ndarray, *, gap: float, time: float) -> np.ndarray:
        """The state one coarse step on, in fine steps where tip and block may touch within it."""
        tip_speed = np.linalg.norm(PlantState(state).tip_velocity)
        may_touch = gap < 1.2 * COARSE_STEP * tip_speed
        if may_touch:
            return self.fine.advance(state, time, round(COARSE_STEP / FINE_STEP))
        return self.coarse.advance(state, time, 1)


def planar_pose(coordinates: np.ndarray) -> np.ndarray:
    """Convert Drake's coordinates of a floating body to a pose in the plane.

    Args:
        coordinates: (7,), qw qx qy qz x y z.

    Returns:
        x, y (m), yaw (rad), (3,).
    """
    w, x, y, z = coordinates[:4]
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.array([coordinates[4], coordinates[5], yaw])


@lru_cache(maxsize=2)
def rig_of(setting: Setting) -> Rig:
    """Build the rig of a setting, once per process: it takes about a second and some 200 MB."""
    return Rig(setting)


def _is_slow(state: np.ndarray) -> bool:
    """Whether the block moves as slowly as at rest."""
    view = PlantState(state)
    speed = np.linalg.norm(view.block_velocity)
    angular_velocity = np.linalg.norm(view.block_angular_velocity)
    return bool(speed < REST_SPEED and angular_velocity < REST_ANGULAR_VELOCITY)


def _recorded(states: np.ndarray) -> TrueMotion:
    """The motion of states (M, 17) that are `COARSE_STEP` apart."""
    view = PlantState(states)
    block = np.column_stack([view.block_position, view.block_quaternion])
    striker = np.tile([0.0, 0, TIP_RADIUS, 1, 0, 0, 0], (len(states), 1))
    striker[:, :2] = view.tip_position
    speed = np.linalg.norm(view.block_velocity, axis=1)
    rates = np.column_stack([speed, view.block_angular_velocity[:, 2]])
    return TrueMotion(np.arange(len(states)) * COARSE_STEP, block, striker, rates)
