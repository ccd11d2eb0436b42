"""The laboratory's physics: simulates one strike, from the tip's approach until the block rests.

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

COARSE_STEP = 1e-3  # s, time step while tip and block are apart
FINE_STEP = 5e-5  # s, time step while tip and block may touch
# The block is at rest when it has been slower than both limits for `REST_TIME`.
REST_SPEED = 2e-3  # m/s
REST_ANGULAR_VELOCITY = 2e-2  # rad/s
REST_TIME = 0.04  # s
MAX_DURATION = 2.5  # s, of a strike
_FALLEN_HEIGHT = -0.005  # m: lower than this, the block has fallen off the table
_QUIET_MARGIN = 0.02  # s; until this long before braking, the tip cannot have reached the block
_MISSED_MARGIN = 0.1  # s; this long after braking began, a tip without contact has missed
_GAP_MARGIN = 1.2  # factor on the way of the tip in a coarse step, within which it may touch


@dataclass(frozen=True, eq=False)
class TrueMotion:
    """The true motion in a strike, without errors of measurement.

    Attributes:
        t: (M,), s, times.
        block: (M, 7), pose x y z qw qx qy qz of the block, world.
        striker: (M, 7), pose x y z qw qx qy qz of the striker, world.
        rates: (M, 2), the block's speed (m/s) and its angular velocity about z (rad/s).
    """

    t: np.ndarray
    block: np.ndarray
    striker: np.ndarray
    rates: np.ndarray


class Rig:
    """Block, tip and table of one setting in Drake, at a coarse and at a fine time step.

    The same input gives exactly the same motion.
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
            path: The commanded path of the tip.

        Returns:
            The motion, in steps of `COARSE_STEP`.
        """
        for plant in (self.coarse, self.fine):
            plant.command(path)
        braking = path.times[1]
        retreating = path.times[2]
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
            strike_end = retreating if has_touched else braking + _MISSED_MARGIN
            strike_is_over = steps_done * COARSE_STEP > strike_end
            if rest_time > REST_TIME and strike_is_over:
                break
            if PlantState(state).block_position[2] < _FALLEN_HEIGHT:
                break
        return _motion_of(np.array(states))

    def _approach(self, pose: np.ndarray, path: CommandedPath) -> list[np.ndarray]:
        """States until shortly before contact: the tip keeps its speed and the block rests."""
        start = self.coarse.start(pose, path)
        braking = path.times[1]
        steps = round((braking - _QUIET_MARGIN) / COARSE_STEP)
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
        """The state one coarse step later; uses fine steps if tip and block may touch meanwhile."""
        tip_speed = np.linalg.norm(PlantState(state).tip_velocity)
        may_touch = gap < _GAP_MARGIN * COARSE_STEP * tip_speed
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
    """Build the rig of a setting once per process, since it takes about 1 s and 200 MB."""
    return Rig(setting)


def _is_slow(state: np.ndarray) -> bool:
    """Whether the block is slower than the limits below which it is taken to rest."""
    view = PlantState(state)
    speed = np.linalg.norm(view.block_velocity)
    angular_velocity = np.linalg.norm(view.block_angular_velocity)
    return bool(speed < REST_SPEED and angular_velocity < REST_ANGULAR_VELOCITY)


def _motion_of(states: np.ndarray) -> TrueMotion:
    """The motion of states (M, 17) at times `COARSE_STEP` apart."""
    view = PlantState(states)
    block = np.column_stack([view.block_position, view.block_quaternion])
    upright_on_table = [0.0, 0, TIP_RADIUS, 1, 0, 0, 0]  # x y z qw qx qy qz; x and y follow
    striker = np.tile(upright_on_table, (len(states), 1))
    striker[:, :2] = view.tip_position
    speed = np.linalg.norm(view.block_velocity, axis=1)
    rates = np.column_stack([speed, view.block_angular_velocity[:, 2]])
    times = np.arange(len(states)) * COARSE_STEP
    return TrueMotion(times, block, striker, rates)
