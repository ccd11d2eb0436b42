"""From strikes to poses at rest by stepping any simulator.

This is slower than a strike table, and the reference that strike tables are compared with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import DataError
from clashsim.core.impacts import MotionBefore
from clashsim.core.protocols import Simulator
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, move_pair_to, strike_ranges
from clashsim.sim.hybrid.simulator import HybridSim
from clashsim.sim.mujoco.impacts import rest_height

_RUN_UP = 0.01  # m that the striker moves before it hits
_FOLLOW_THROUGH = 0.02  # s from the hit until the striker may draw back
_CONTROL_PERIOD = 0.01  # s: the striker draws back at the next multiple of this


class SteppedStrikes:
    """A `StrikeModel` that steps a simulator until everything lies still.

    The striker of the scene is driven by two velocity servos, one for each axis of the plane.

    Attributes:
        names: Of the d numbers that describe a strike.
        low: (d,), least values of a strike.
        high: (d,), greatest values of a strike.
        dt: s, timestep of the simulator.
        takes_noise: False, because a simulator knows no standard deviation.
    """

    takes_noise = False

    def __init__(
        self, simulator: Simulator, scene: Scene, theta: np.ndarray, *, seconds: float = 1.0
    ) -> None:
        """Prepare to step.

        Args:
            simulator: Of the scene.
            scene: Defines which strikes can be chosen.
            theta: (p,), of the simulator; ground parameters set how deep bodies sink in at rest.
            seconds: Simulated time, after which every body should have come to rest.
        """
        model: Any = getattr(simulator, "model", None)
        if model.nu != 2 or not scene.struck_body.free:
            raise DataError(
                "strikes can be stepped where two servos, one for each axis, drive the striker "
                f"into a free body; scene {scene.name!r} has {model.nu} actuators"
            )
        self.simulator = simulator
        self.scene = scene
        self.theta = theta
        self.seconds = seconds
        self.dt = float(model.opt.timestep)
        ranges = strike_ranges(scene)
        self.names = tuple(ranges)
        self.low, self.high = np.array(list(ranges.values())).T

    def rest(
        self, pose: np.ndarray, strike: np.ndarray, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute poses at rest.

        Args:
            pose: (N, 3), of the bodies when they are struck: x, y (m) and yaw (rad).
            strike: (N, d), by `names`.
            noise: Has no effect.

        Returns:
            Poses at rest (N, 3).
        """
        if not isinstance(self.simulator, HybridSim):
            return planar_pose(self.scene, self.path(pose, strike)[:, -1])
        start, velocity = self.starts(pose, strike)
        hit_time, _ = self.hit_and_retreat(velocity)
        settled = self.simulator.settle(start, control=self.control(velocity), earliest=hit_time)
        return planar_pose(self.scene, settled.states)

    @property
    def steps(self) -> int:
        """Steps so far, of simulators that count them."""
        return int(getattr(self.simulator, "steps", 0))

    def path(self, pose: np.ndarray, strike: np.ndarray) -> np.ndarray:
        """States (N, T + 1, s) from the striker's run-up on; arguments as for `starts`."""
        start, velocity = self.starts(pose, strike)
        return self.simulator.rollout(start, self.control(velocity))

    def starts(self, pose: np.ndarray, strike: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """States before the strikers' run-up.

        Args:
            pose: (N, 3), of the bodies: x, y (m) and yaw (rad).
            strike: (N, d), by `names`.

        Returns:
            States (N, s), and velocities (N, 2), m/s, of the strikers in the plane.
        """
        n = len(strike)
        model = self.scene.base
        by_name = dict(zip(self.names, strike.T, strict=True))
        touching, _ = before_from_strikes(self.scene, by_name)
        before = move_pair_to(touching, pose)
        striker = MotionBefore.of(before).striker
        velocity = striker.velocity.copy()
        speed = np.linalg.norm(velocity, axis=1, keepdims=True)
        striker.position[:] -= _RUN_UP * velocity / speed
        qpos = np.tile(model.qpos0, (n, 1))
        qvel = np.zeros((n, model.nv))
        height = rest_height(self.scene, np.tile(self.theta, (n, 1)))
        PairPoser(self.scene, height).write(before, qpos, qvel)
        activation = np.zeros((n, model.na))
        return np.concatenate([qpos, qvel, activation], axis=1), velocity

    def control(self, velocity: np.ndarray) -> np.ndarray:
        """Controls of strikers that draw back once they have hit.

        Args:
            velocity: (N, 2), m/s, of the strikers before they draw back.

        Returns:
            Controls (N, T, 2), m/s.
        """
        time = (np.arange(round(self.seconds / self.dt)) + 0.5) * self.dt  # middles of the steps
        _, retreat_time = self.hit_and_retreat(velocity)
        forward = (time[None] < retreat_time[:, None])[..., None]
        return np.where(forward, velocity[:, None], -velocity[:, None])

    def hit_and_retreat(self, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Times (N,), s, at which strikers of velocities (N, 2), m/s, hit and then draw back."""
        hit_time = _RUN_UP / np.linalg.norm(velocity, axis=1)
        retreat_time = np.ceil((hit_time + _FOLLOW_THROUGH) / _CONTROL_PERIOD) * _CONTROL_PERIOD
        return hit_time, retreat_time


def planar_pose(scene: Scene, state: np.ndarray) -> np.ndarray:
    """Poses (..., 3) of the struck free body in states (..., s): x, y (m) and yaw (rad)."""
    qpos = state[..., scene.struck_body.qpos]
    w, x, y, z = (qpos[..., i] for i in range(3, 7))
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2))
    return np.concatenate([qpos[..., :2], yaw[..., None]], -1)
